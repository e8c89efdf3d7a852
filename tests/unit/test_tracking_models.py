"""The final model of a run as MLflow keeps it: loaded back, it answers as the export does."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import mlflow
import pytest
import torch
import transformers
from fabricated_runs import write, write_journal, write_run
from mlflow import MlflowClient
from mlflow.entities import LoggedModel

from bertline.console import BertlineError
from bertline.tracking.models import log_model
from bertline.tracking.store import track

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "river", "is", "long"]


def write_export(folder: Path) -> None:
    """A very small BERT with random weights, as transformers writes it."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), **shape)
    transformers.BertForPreTraining(config).save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(fresh_database, "mlflow.db")
    record = write_run(tmp_path, tasks=("squad_v1",), seeds=1)
    write_export(tmp_path / "results/phases/phase2/huggingface")
    return record


def uri() -> str:
    return f"sqlite:///{Path('mlflow.db').absolute()}"


def test_the_logged_model_answers_as_the_export_and_stands_there_once(record: Path) -> None:
    track([record], uri())
    first = log_model(record, uri=uri(), register="river-bert")
    assert log_model(record, uri=uri(), register="river-bert") == first
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline").experiment_id
    (model,) = client.search_logged_models([experiment])
    assert first == f'mlflow.transformers.load_model("models:/{model.model_id}")   river-bert version 1'
    assert {metric.key: metric.value for metric in model.metrics}["squad_v1/f1"] == pytest.approx(78.7)
    (output,) = client.get_run(model.source_run_id).outputs.model_outputs
    assert output.model_id == model.model_id
    (version,) = client.search_model_versions("name = 'river-bert'")
    assert version.tags["squad_v1/f1"] == "78.7000"

    text = "a river is [MASK]"
    expected = transformers.pipeline("fill-mask", model="results/phases/phase2/huggingface")(text)
    assert mlflow.transformers.load_model("models:/river-bert/1")(text) == expected


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_the_network_of_the_logged_model_gives_the_export_s_logits_for_any_length(
    record: Path, architecture: str
) -> None:
    export = Path("results/phases/phase2/huggingface")
    if architecture == "modern":
        shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        ids = {f"{name}_token_id": number for number, name in enumerate(("pad", "bos", "eos", "sep"))}
        config = transformers.ModernBertConfig(vocab_size=len(WORDS), cls_token_id=2, **shape, **ids)
        transformers.ModernBertForMaskedLM(config).save_pretrained(export)
    track([record], uri())
    log_model(record, uri=uri(), register="river-bert")
    loaded = mlflow.pytorch.load_model("models:/river-bert/1")
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    texts = ["a river is long " * 20, "a river", "long"]
    inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=architecture == "bert")
    network = transformers.AutoModelForMaskedLM.from_pretrained(export).eval()
    with torch.inference_mode():
        expected = network(**inputs).logits
        given = [inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in inputs]
        torch.testing.assert_close(loaded(*given), expected)


def test_a_model_whose_logging_was_cut_off_is_logged_again(record: Path) -> None:
    track([record], uri())
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline").experiment_id
    (run,) = client.search_runs([experiment], "tags.`bertline.stage` = 'run'")
    cut_off = client.create_logged_model(
        experiment, name="demo", source_run_id=run.info.run_id, tags={"bertline.fingerprint": "phase2"}
    )
    log_model(record, uri=uri())
    (model,) = client.search_logged_models([experiment])
    assert model.model_id != cut_off.model_id
    assert model.status == "READY"


def checkpoints_on_disk(*steps: int) -> list[Path]:
    folders = [Path(f"results/phases/phase1/checkpoints/step-{step:08d}").absolute() for step in steps]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def logged_checkpoints(client: MlflowClient) -> dict[str, LoggedModel]:
    """Return the logged checkpoints by path, best first."""
    experiment = client.get_experiment_by_name("bertline").experiment_id
    order = [{"field_name": "metrics.held_out/mlm_loss", "ascending": True}]
    found = client.search_logged_models([experiment], order_by=order)
    return {model.params["path"]: model for model in found if model.model_type == "checkpoint"}


def test_checkpoints_are_ranked_by_the_loss_at_their_step_without_an_upload(record: Path) -> None:
    paths = [str(path) for path in checkpoints_on_disk(50, 100, 200)]
    client = MlflowClient(uri())
    sent = track([record], uri())["sent"]
    models = logged_checkpoints(client)
    assert list(models) == [paths[2], paths[1], paths[0]]  # without a held-out loss at its step, last
    run = client.get_run(models[paths[1]].source_run_id)
    values = {metric.key: metric for metric in models[paths[1]].metrics}
    assert run.info.run_name == "phase1"
    assert values["held_out/mlm_loss"].value == pytest.approx(2.3 + 6 * math.exp(-100 / 150))
    assert {(metric.step, metric.dataset_name) for metric in values.values()} == {(100, "sample")}
    assert (models[paths[1]].name, models[paths[1]].params["step"]) == ("phase1-step-100", "100")
    assert not list(Path("mlartifacts").glob("models/**/*"))
    assert len(client.get_metric_history(run.info.run_id, "train/mlm_loss")) == 20
    ids = [model.model_id for model in models.values()]
    assert track([record], uri())["sent"] == 0 < sent
    assert [model.model_id for model in logged_checkpoints(client).values()] == ids


def test_a_checkpoint_that_is_deleted_leaves_the_table_and_those_of_other_machines_and_runs_stay(record: Path) -> None:
    first, second = checkpoints_on_disk(100, 200)
    track([record], uri())
    client = MlflowClient(uri())
    mine = logged_checkpoints(client)[str(first)]
    theirs = client.create_logged_model(
        mine.experiment_id,
        source_run_id=mine.source_run_id,
        params={"path": "/elsewhere"},
        tags=mine.tags | {"bertline.path": "/elsewhere", "bertline.host": "elsewhere"},
        model_type="checkpoint",
    )
    client.finalize_logged_model(theirs.model_id, "READY")
    other = client.create_logged_model(mine.experiment_id, params={"path": "/x"}, model_type="checkpoint")
    first.rmdir()
    track([record], uri())
    assert logged_checkpoints(client).keys() == {str(second), "/elsewhere", "/x"}
    assert client.get_logged_model(other.model_id).status == "PENDING"
    second.rmdir()
    track([record], uri())
    assert logged_checkpoints(client).keys() == {"/elsewhere", "/x"}


def test_checkpoints_follow_a_phase_that_is_sent_anew_and_one_that_was_cut_off_is_replaced(record: Path) -> None:
    (path,) = checkpoints_on_disk(200)
    track([record], uri())
    client = MlflowClient(uri())
    before = logged_checkpoints(client)[str(path)]
    client.delete_run(before.source_run_id)
    client.create_logged_model(before.experiment_id, params=before.params, tags=before.tags, model_type="checkpoint")
    # A loss that is no number is no rank: MLflow would store 0.
    journal = Path("results/phases/phase1/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[-1]["metrics"]["held_out/mlm_loss"] = float("nan")
    write_journal(journal, lines)
    track([record], uri())
    experiment = before.experiment_id
    (after,) = client.search_logged_models([experiment], f"tags.`bertline.path` = '{path}'")
    assert client.get_run(after.source_run_id).info.lifecycle_stage == "active"
    assert after.status == "READY"
    assert "held_out/mlm_loss" not in {metric.key for metric in after.metrics}


def test_a_run_that_was_not_tracked_or_exported_is_one_line(record: Path) -> None:
    with pytest.raises(BertlineError, match=r"^MLflow does not have the run demo; run `make track` first$"):
        log_model(record, uri=uri())
    content = json.loads(record.read_text())
    write(record, content | {"phases": content["phases"][:1]})
    with pytest.raises(
        BertlineError, match=r"^\S*phase1/huggingface does not exist; ask snakemake for `pretrain` first$"
    ):
        log_model(record, uri=uri())
