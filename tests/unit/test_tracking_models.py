"""The final model of a run as MLflow keeps it: loaded back, it answers as the export does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlflow
import pytest
import torch
import transformers
from fabricated_runs import write, write_run
from mlflow import MlflowClient

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


def test_a_run_that_was_not_tracked_or_exported_is_one_line(record: Path) -> None:
    with pytest.raises(BertlineError, match=r"^MLflow does not have the run demo; run `make track` first$"):
        log_model(record, uri=uri())
    content = json.loads(record.read_text())
    write(record, content | {"phases": content["phases"][:1]})
    with pytest.raises(
        BertlineError, match=r"^\S*phase1/huggingface does not exist; ask snakemake for `pretrain` first$"
    ):
        log_model(record, uri=uri())
