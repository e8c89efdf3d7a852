"""The models of a run as MLflow keeps them: loaded back, they answer as their folders do; checkpoints are ranked."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from mlflow import MlflowClient
from mlflow.entities import LoggedModel
from mlflow.exceptions import MlflowException
from roberta_folder import write_roberta
from synthetic_runs import write, write_journal, write_run

from bertline.console import BertlineError
from bertline.finetuning.prediction import load_finetuned
from bertline.finetuning.prediction_files import predictions
from bertline.tracking import flavors
from bertline.tracking.flavors import save_model
from bertline.tracking.models import log_model
from bertline.tracking.publishing import SENT_TAG
from bertline.tracking.store import track

Json = dict[str, Any]
SCRIPT = Path(__file__).parents[2] / "workflow" / "scripts" / "log_model.py"
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
    write(record, json.loads(record.read_text()) | {"kept": {}})
    return record


def uri() -> str:
    return f"sqlite:///{Path('mlflow.db').absolute()}"


def test_the_logged_model_answers_as_the_export_and_is_there_once(record: Path) -> None:
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


def another_record(record: Path, fingerprint: str, **changes: Any) -> Path:
    path = record.with_name(f"record-{fingerprint}.json")
    write(path, json.loads(record.read_text()) | {"fingerprint": fingerprint} | changes)
    return path


def test_with_other_tasks_the_model_and_its_version_stay_and_get_the_new_scores(record: Path) -> None:
    track([record], uri())
    first = log_model(record, uri=uri(), register="river-bert")
    write_run(Path.cwd(), tasks=("squad_v1", "cola"), seeds=1)
    changed = another_record(record, "f" * 16, kept={})
    track([changed], uri())
    for _ in range(2):
        assert log_model(changed, uri=uri(), register="river-bert") == first
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline").experiment_id
    (model,) = client.search_logged_models([experiment])
    assert client.get_run(model.source_run_id).info.run_name == "phase2"
    roots = client.search_runs([experiment], "tags.`bertline.stage` = 'run'")
    assert len(roots) == 2
    for root in roots:
        assert [output.model_id for output in root.outputs.model_outputs] == [model.model_id]
        of_run = [metric.key for metric in model.metrics if metric.run_id == root.info.run_id]
        assert sorted(of_run) == sorted(key for key in root.data.metrics if not key.startswith("by_"))
    (version,) = client.search_model_versions("name = 'river-bert'")
    assert {"squad_v1/f1", "glue/cola/matthews"} < version.tags.keys()


def test_the_model_of_a_run_whose_tasks_are_not_finished_is_logged_without_their_scores(record: Path) -> None:
    (scores,) = Path("results/finetunings").glob("*squad_v1*pretrained*/metrics.json")
    scores.unlink()
    track([record], uri())
    log_model(record, uri=uri())
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline").experiment_id
    (model,) = client.search_logged_models([experiment])
    assert {metric.key for metric in model.metrics} == {"phase1/held_out_mlm_loss", "phase2/held_out_mlm_loss"}


def test_in_another_experiment_the_model_is_logged_again_and_its_version_stays_while_it_can_be_loaded(
    record: Path,
) -> None:
    track([record], uri())
    log_model(record, uri=uri(), register="river-bert")
    moved = another_record(record, "f" * 16, experiment="other")
    track([moved], uri())
    client = MlflowClient(uri())
    assert log_model(moved, uri=uri(), register="river-bert").endswith("river-bert version 1")
    (version,) = client.search_model_versions("name = 'river-bert'")
    (model,) = client.search_logged_models([client.get_experiment_by_name("other").experiment_id])
    assert model.model_id != version.tags["bertline.model_id"]
    client.delete_logged_model(version.tags["bertline.model_id"])
    for _ in range(2):
        assert log_model(moved, uri=uri(), register="river-bert").endswith("river-bert version 2")


def test_a_model_whose_files_were_deleted_is_logged_and_registered_again(record: Path) -> None:
    track([record], uri())
    log_model(record, uri=uri(), register="river-bert")
    shutil.rmtree("mlartifacts/models")
    for _ in range(2):
        load = log_model(record, uri=uri(), register="river-bert")
        assert load.endswith("river-bert version 2")
    assert "a river" in mlflow.transformers.load_model("models:/river-bert/2")("a river is [MASK]")[0]["sequence"]
    moved = another_record(record, "f" * 16, experiment="other")
    track([moved], uri())
    shutil.rmtree("mlartifacts/models")
    assert log_model(moved, uri=uri(), register="river-bert").endswith("river-bert version 3")


def test_the_same_weights_of_other_results_get_a_version_of_their_own(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, theirs = uri(), tmp_path / "theirs"
    shutil.copytree("results", theirs / "results")
    for folder, number in ((tmp_path, 1), (theirs, 2)):
        monkeypatch.chdir(folder)
        track([record], store)
        for _ in range(2):
            assert log_model(record, uri=store, register="river-bert").endswith(f"river-bert version {number}")


def test_a_phase_trained_again_gives_a_new_model_and_version(record: Path) -> None:
    track([record], uri())
    log_model(record, uri=uri(), register="river-bert")
    phase = Path("results/phases/phase2")
    shutil.rmtree(phase / "huggingface")
    write_export(phase / "huggingface")
    lines = [json.loads(line) for line in (phase / "metrics.jsonl").read_text().splitlines()]
    write_journal(phase / "metrics.jsonl", [line | {"timestamp": line["timestamp"] + 1} for line in lines])
    track([record], uri())
    assert log_model(record, uri=uri(), register="river-bert").endswith("river-bert version 2")


def test_a_checkpoint_of_the_last_phase_is_not_its_final_model(record: Path) -> None:
    Path("results/phases/phase2/checkpoints/step-00000100").mkdir(parents=True)
    track([record], uri())
    log_model(record, uri=uri())
    client = MlflowClient(uri())
    models = client.search_logged_models([client.get_experiment_by_name("bertline").experiment_id])
    assert sorted(model.name for model in models) == ["demo", "phase2-step-100"]


def test_a_model_of_another_origin_is_neither_taken_nor_removed(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, client, theirs = uri(), MlflowClient(uri()), tmp_path / "theirs"
    shutil.copytree("results", theirs / "results")
    track([record], store)
    experiment = client.get_experiment_by_name("bertline").experiment_id
    (run,) = client.search_runs([experiment], "tags.`bertline.stage` = 'phase2'")
    tags = {"bertline.fingerprint": "phase2"}
    unfinished = client.create_logged_model(experiment, name="ours", source_run_id=run.info.run_id, tags=tags)
    monkeypatch.chdir(theirs)
    track([record], store)
    for _ in range(2):
        log_model(record, uri=store)
    models = {model.name: model for model in client.search_logged_models([experiment])}
    assert models.keys() == {"ours", "demo"}
    assert (models["ours"].model_id, models["ours"].status) == (unfinished.model_id, "PENDING")
    monkeypatch.chdir(tmp_path)
    log_model(record, uri=store)
    logged = client.search_logged_models([experiment])
    assert [(model.name, model.status) for model in logged] == [("demo", "READY")] * 2
    assert len({model.source_run_id for model in logged}) == 2


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
    (run,) = client.search_runs([experiment], "tags.`bertline.stage` = 'phase2'")
    cut_off = client.create_logged_model(
        experiment, name="demo", source_run_id=run.info.run_id, tags={"bertline.fingerprint": "phase2"}
    )
    log_model(record, uri=uri())
    (model,) = client.search_logged_models([experiment])
    assert model.model_id != cut_off.model_id
    assert model.status == "READY"


def test_an_artifact_store_that_refuses_a_model_is_one_line_and_leaves_no_part_of_it(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track([record], uri())

    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused by ftp://user:secret@127.0.0.1:1/mlflow")

    monkeypatch.setattr(MlflowClient, "log_model_artifacts", refuse)
    with pytest.raises(BertlineError, match=r"^MLflow's artifact store did not take the model demo [^\n]*$") as caught:
        log_model(record, uri=uri())
    assert "secret" not in str(caught.value)
    client = MlflowClient(uri())
    assert not list(client.search_logged_models([client.get_experiment_by_name("bertline").experiment_id]))


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
    Path(f"{paths[0]}.bak").mkdir()  # a user's copy
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


def test_during_a_training_checkpoints_appear_once_their_points_are_durable(record: Path) -> None:
    first, second = checkpoints_on_disk(100, 200)
    folder = first.parents[1]
    (folder / "metrics.jsonl").rename(folder / "checkpoints/journal.jsonl")
    for step, expected in ((100, {str(first)}), (200, {str(first), str(second)})):
        write(folder / "checkpoints/durable.json", {"step": step})
        track([record], uri())
        assert logged_checkpoints(MlflowClient(uri())).keys() == expected


def test_a_checkpoint_that_is_deleted_leaves_the_table_and_those_of_other_machines_and_runs_stay(record: Path) -> None:
    first, second = checkpoints_on_disk(100, 200)
    track([record], uri())
    client = MlflowClient(uri())
    mine = logged_checkpoints(client)[str(first)]

    def log(path: str, run: str | None, tags: dict[str, str]) -> str:
        options = {"params": {"path": path}, "tags": tags, "model_type": "checkpoint"}
        return client.create_logged_model(mine.experiment_id, source_run_id=run, **options).model_id

    elsewhere = {"bertline.path": "/elsewhere", "bertline.host": "elsewhere"}
    client.finalize_logged_model(log("/complete", mine.source_run_id, mine.tags | elsewhere), "READY")
    log("/incomplete", mine.source_run_id, mine.tags | elsewhere)
    tags = {"bertline.fingerprint": mine.tags["bertline.fingerprint"]}
    client.finalize_logged_model(log("/without-a-path", mine.source_run_id, tags), "READY")
    log("/of-another-phase", None, mine.tags | {"bertline.fingerprint": "another"})
    others = {"/complete", "/incomplete", "/without-a-path", "/of-another-phase"}
    first.rmdir()
    track([record], uri())
    assert logged_checkpoints(client).keys() == {str(second), *others}
    second.rmdir()
    track([record], uri())
    assert logged_checkpoints(client).keys() == others


def test_an_entry_of_a_checkpoint_in_a_folder_that_may_not_be_entered_stays(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = checkpoints_on_disk(100)
    track([record], uri())
    client = MlflowClient(uri())
    mine = logged_checkpoints(client)[str(path)]
    private = "/home/private/step-00000100"
    tags = mine.tags | {"bertline.path": private}
    options = {"params": {"path": private}, "tags": tags, "model_type": "checkpoint"}
    model = client.create_logged_model(mine.experiment_id, source_run_id=mine.source_run_id, **options)
    client.finalize_logged_model(model.model_id, "READY")
    stat = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path) == private:
            raise PermissionError(13, "Permission denied", private)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    (second,) = checkpoints_on_disk(200)
    track([record], uri())
    assert logged_checkpoints(client).keys() == {str(path), str(second), private}


def test_checkpoints_follow_a_phase_that_is_sent_anew_and_one_whose_logging_was_cut_off_is_replaced(
    record: Path,
) -> None:
    (path,) = checkpoints_on_disk(200)
    track([record], uri())
    client = MlflowClient(uri())
    before = logged_checkpoints(client)[str(path)]
    client.delete_run(before.source_run_id)
    # A loss that is not a number gives no rank: MLflow would store 0.
    journal = Path("results/phases/phase1/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[-1]["metrics"]["held_out/mlm_loss"] = float("nan")
    write_journal(journal, lines)
    track([record], uri())
    experiment = before.experiment_id
    (after,) = client.search_logged_models([experiment], f"tags.`bertline.path` = '{path}'")
    assert client.get_run(after.source_run_id).info.lifecycle_stage == "active"
    assert "held_out/mlm_loss" not in {metric.key for metric in after.metrics}

    client.delete_logged_model(after.model_id)
    client.create_logged_model(experiment, source_run_id=after.source_run_id, tags=after.tags)
    client.delete_tag(after.source_run_id, SENT_TAG)  # as it is written last
    track([record], uri())
    (again,) = client.search_logged_models([experiment], f"tags.`bertline.path` = '{path}'")
    assert again.status == "READY"


def test_a_run_that_was_not_tracked_or_a_model_that_does_not_exist_is_one_line(record: Path) -> None:
    with pytest.raises(
        BertlineError, match=r"^MLflow does not have the run of the model demo; run `make track` first$"
    ):
        log_model(record, uri=uri())
    track([record], uri())
    content = json.loads(record.read_text())
    for part, folder, target in (
        ({"phases": content["phases"][:1]}, "phase1/huggingface", "pretrain"),
        ({"phases": [], "kept": {"squad_v1": "kept-squad_v1"}}, "kept-squad_v1/model", "finetune"),
    ):
        write(record, content | part)
        track([record], uri())
        message = rf"^\S*{folder} does not exist; ask snakemake for `{target}` first$"
        with pytest.raises(BertlineError, match=message):
            log_model(record, uri=uri())


def track_with_a_kept_model(record: Path) -> None:
    write_finetuned(
        Path("results/finetunings/squad_v1-pretrained-0.0005-1/huggingface"), transformers.BertForQuestionAnswering
    )
    Path("results/kept/kept-squad_v1/model").symlink_to("../../finetunings/squad_v1-pretrained-0.0005-1/huggingface")
    write(record, json.loads(record.read_text()) | {"kept": {"squad_v1": "kept-squad_v1"}})
    track([record], uri())


DAMAGES = {
    "config.json": ("", "[]", "{}", '{"architectures": ["BertForPreTraining"], "hidden_size": "wide"}'),
    "model.safetensors": ("", "not weights at all"),
}


@pytest.mark.parametrize(("file", "content"), [(file, content) for file in DAMAGES for content in DAMAGES[file]])
def test_a_damaged_model_is_one_line_that_names_it_and_the_others_are_logged(
    record: Path, file: str, content: str
) -> None:
    track_with_a_kept_model(record)
    (Path("results/phases/phase2/huggingface") / file).write_text(content)
    with pytest.raises(BertlineError, match=r"^\S*phase2/huggingface cannot be [^\n]*; [^\n]*`pretrain`[^\n]*$"):
        log_model(record, uri=uri(), output=Path("logged.json"))
    client = MlflowClient(uri())
    (model,) = client.search_logged_models([client.get_experiment_by_name("bertline").experiment_id])
    assert (model.name, model.status) == ("demo-squad_v1", "READY")
    assert not Path("logged.json").exists()


def test_a_registered_name_of_somebody_else_is_one_line_and_the_other_models_are_registered(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track_with_a_kept_model(record)
    create = MlflowClient.create_model_version

    def refuse(client: MlflowClient, name: str, *arguments: Any, **options: Any) -> Any:
        if name == "river":
            raise MlflowException("API request to endpoint /api failed with error code 403 != 200. Response body: ''")
        return create(client, name, *arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_model_version", refuse)
    with pytest.raises(
        BertlineError, match=r"^[^\n]*registered model river \(you may not edit it\); give another name [^\n]*$"
    ):
        log_model(record, uri=uri(), register="river")
    versions = MlflowClient(uri()).search_model_versions("")
    assert [version.name for version in versions] == ["river-squad_v1"]


def test_a_name_that_a_colleague_registers_at_the_same_moment_gets_a_version(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track([record], uri())
    search = MlflowClient.search_registered_models

    def search_before_the_colleague(client: MlflowClient, *arguments: Any, **options: Any) -> Any:
        found = search(client, *arguments, **options)
        client.create_registered_model("river")
        return found

    monkeypatch.setattr(MlflowClient, "search_registered_models", search_before_the_colleague)
    assert log_model(record, uri=uri(), register="river").endswith("river version 1")


# Ends the script while it writes a model to the folder of temporary files.
END = """
import os, runpy, sys
from bertline.tracking import models

script, number, *sys.argv[1:] = sys.argv[1:]

def save(folder, saved):
    saved.mkdir()
    os.kill(os.getpid(), int(number))

models.save_model = save
runpy.run_path(script, run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_temporary_files(record: Path, tmp_path: Path, number: signal.Signals) -> None:
    track([record], uri())
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", END, str(SCRIPT), str(int(number)), str(record), "--uri", uri()]
    ended = subprocess.run(command, env=os.environ | {"TMPDIR": str(temporary)}, check=False, capture_output=True)
    assert ended.returncode == 128 + number, ended.stderr
    assert b"Traceback" not in ended.stderr
    assert not list(temporary.iterdir())


@dataclass(frozen=True)
class Kept:
    """The folder of a run with kept models whose models are logged and registered, and what `log_model` returned."""

    folder: Path
    record: Path
    loads: list[str]
    output: dict[str, Any]

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(f"sqlite:///{self.folder}/mlflow.db")

    def models(self) -> dict[str, LoggedModel]:
        experiment = self.client.get_experiment_by_name("bertline").experiment_id
        found = self.client.search_logged_models([experiment])
        assert len({model.name for model in found}) == len(found)
        return {model.name: model for model in found}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, fresh_database: Path) -> Kept:
    """A run named v1.5 that fine-tunes external weights: it keeps a model that answers, and two that classify."""
    folder = tmp_path_factory.mktemp("kept")
    shutil.copy(fresh_database, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        record = write_run(folder, tasks=("squad_v1", "cola"), seeds=1)
        content = json.loads(record.read_text()) | {"run": "v1.5", "phases": [], "dataset": None}
        write(record, content | {"kept": content["kept"] | {"glue/cola/random-weights": "kept-random"}})
        random = "cola-random-0.0005-1"
        write(Path("results/kept/kept-random/choice.json"), {"best": random, "kept": [random], "scores": {}})
        for name in ("train.tsv", "dev.tsv"):
            Path(name).write_text(name)
        for key, finetuning, class_of_model in (
            ("squad_v1", "squad_v1-pretrained-0.0005-1", transformers.BertForQuestionAnswering),
            ("cola", "cola-pretrained-0.0005-1", transformers.BertForSequenceClassification),
            ("random", random, transformers.BertForSequenceClassification),
        ):
            write_finetuned(Path(f"results/finetunings/{finetuning}/huggingface"), class_of_model)
            link = Path(f"results/kept/kept-{key}/model")
            link.symlink_to(f"../../finetunings/{finetuning}/huggingface")
        track([record], uri())
        loads = log_model(record, uri=uri(), register="river", output=Path("logged.json")).splitlines()
        return Kept(folder, record, loads, json.loads(Path("logged.json").read_text()))


def write_finetuned(folder: Path, class_of_model: type, task: Json | None = None, **shape: Any) -> None:
    """A very small fine-tuned model with large random weights, as bertline writes it."""
    shape |= {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = class_of_model.config_class(vocab_size=len(WORDS), initializer_range=0.5, **shape)
    torch.manual_seed(1)
    class_of_model(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=16).save_pretrained(folder)
    lengths = {"max_sequence_length": 16, "doc_stride": 3, "max_query_length": 4, "max_answer_length": 3}
    write(folder / "task.json", (task or {"task": "squad_v1"}) | {"settings": lengths})


def test_a_kept_model_is_a_logged_model_of_its_fine_tuning_with_its_scores_and_data(kept: Kept) -> None:
    models = kept.models()
    assert models.keys() == {"v1-5-squad_v1", "v1-5-glue-cola", "v1-5-glue-cola-random-weights"}
    model = models["v1-5-glue-cola"]
    run = kept.client.get_run(model.source_run_id)
    assert run.info.run_name == "glue/cola/seed1"
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
    scores = {metric.key: metric for metric in model.metrics}
    assert {key: metric.value for key, metric in scores.items()} == {
        key: value for key, value in run.data.metrics.items() if key.startswith("score/")
    }
    (given,) = run.inputs.dataset_inputs
    measured_on = {(metric.dataset_name, metric.dataset_digest) for metric in scores.values()}
    assert measured_on == {(given.dataset.name, given.dataset.digest)} == {("glue/cola", given.dataset.digest)}
    assert json.loads(given.dataset.profile) == {"train": 2000, "dev": 400}
    assert len(kept.client.get_metric_history(run.info.run_id, "score/matthews")) == 1


def test_one_key_registers_the_models_of_tasks_and_a_second_time_adds_nothing(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kept.folder)
    models = kept.models()
    names = {"river-squad_v1": models["v1-5-squad_v1"], "river-cola": models["v1-5-glue-cola"]}  # no baseline
    assert log_model(kept.record, uri=uri(), register="river").splitlines() == kept.loads
    assert kept.models().keys() == models.keys()
    assert sorted((version.name, version.source) for version in kept.client.search_model_versions()) == sorted(
        (name, f"models:/{model.model_id}") for name, model in names.items()
    )
    assert kept.loads[0] == (
        f'mlflow.pyfunc.load_model("models:/{models["v1-5-squad_v1"].model_id}")   river-squad_v1 version 1'
    )
    assert [entry["load"] for entry in kept.output["models"]] == [line.split("   ")[0] for line in kept.loads]


@pytest.mark.parametrize("changed", ["files", "moved", "digests"])
def test_models_of_tasks_whose_files_changed_since_are_logged_again_and_nothing_is_added(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    shutil.copytree(kept.folder, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    copy = Kept(Path.cwd(), kept.record, kept.loads, kept.output)
    before = {name: sorted(map(str, model.metrics)) for name, model in copy.models().items()}
    if changed == "files":
        Path("dev.tsv").write_text("other data")
    elif changed == "moved":
        Path("dev.tsv").rename("moved.tsv")
    else:  # a store that has other digests, or none, of what the models were measured on
        for path in Path("results/finetunings").glob("*/recipe.json"):
            write(path, json.loads(path.read_text()) | {"data": {"dev": "dev.tsv"}, "sha256": {"dev.tsv": "f" * 64}})
    assert log_model(kept.record, uri=uri(), register="river").splitlines() == kept.loads
    assert {name: sorted(map(str, model.metrics)) for name, model in copy.models().items()} == before


# Loads as a user would, without bertline.
LOAD = """
import json, sys
sys.modules["bertline"] = None
import mlflow
question, text = sys.argv[1:]
row = json.loads(question)
print(json.dumps([
    mlflow.pyfunc.load_model("models:/river-squad_v1/1").predict(row),
    mlflow.transformers.load_model("models:/river-cola/1")(text),
    mlflow.pyfunc.load_model("models:/river-cola/1").predict([{"text": text}]).to_dict("records"),
]))
"""


@pytest.mark.slow
def test_registered_models_answer_as_their_folders_in_a_process_without_bertline(kept: Kept) -> None:
    row = {"question": "is a river long", "context": "a river is long long is a a river " * 3}
    text = "a river is long"
    environment = os.environ | {"MLFLOW_TRACKING_URI": kept.client.tracking_uri}
    command = [sys.executable, "-c", LOAD, json.dumps(row), text]
    output = subprocess.run(
        command, env=environment, cwd=kept.folder, check=True, capture_output=True, text=True
    ).stdout
    answers, classes, table = json.loads(output.splitlines()[-1])
    folders = {name: kept.folder / f"results/kept/kept-{name}/model" for name in ("squad_v1", "cola")}
    ((expected,),) = predictions(load_finetuned(folders["squad_v1"]), [{"id": "1", **row}])
    assert answers == [expected["prediction"]]
    assert classes == table == transformers.pipeline("text-classification", model=str(folders["cola"]))(text)
    requirements = {path.read_text() for path in (kept.folder / "mlartifacts").glob("**/requirements.txt")}
    assert requirements == {"mlflow\ntorch\ntransformers"}


@pytest.mark.parametrize("architecture", ["Bert", "ModernBert"])
def test_a_saved_model_answers_every_question_as_its_folder(tmp_path: Path, architecture: str) -> None:
    folder = tmp_path / "folder"
    ids = {f"{name}_token_id": number for number, name in enumerate(("pad", "bos", "eos", "sep"))} | {"cls_token_id": 2}
    write_finetuned(
        folder, getattr(transformers, f"{architecture}ForQuestionAnswering"), **(ids if architecture != "Bert" else {})
    )
    save_model(folder, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    generator = np.random.default_rng(1)
    texts = [" ".join(generator.choice(WORDS[5:], size=length)) for length in (1, 5, 9, *range(17, 41))]
    rows = [{"question": question, "context": context} for question in texts[:3] for context in [*texts, ""]]
    folders_model = load_finetuned(folder)
    for threshold in (None, 0.5, -0.5):
        loaded.unwrap_python_model().null_threshold = threshold
        ours = [row | {"id": str(number)} for number, row in enumerate(rows)]
        (expected,) = predictions(folders_model, ours, null_threshold=threshold)
        assert loaded.predict(rows) == [row["prediction"] for row in expected]
        assert len({row["prediction"] for row in expected}) > 5


def test_a_saved_model_answers_lists_of_questions_and_names_a_cell_that_is_no_text(tmp_path: Path) -> None:
    write_finetuned(tmp_path / "folder", transformers.BertForQuestionAnswering)
    save_model(tmp_path / "folder", tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    rows = [{"question": "is a", "context": "a river is long"}, {"question": "long", "context": "long is a river"}]
    expected = [loaded.predict(row)[0] for row in rows]
    assert len(set(expected)) == 2
    lists = {name: [row[name] for row in rows] for name in ("question", "context")}
    assert loaded.predict(lists) == loaded.predict(pd.DataFrame(rows, index=[7, 9])) == expected
    assert loaded.predict({name: texts[:1] for name, texts in lists.items()}) == expected[:1]
    for given in (
        [*rows, rows[0] | {"context": None}],
        lists | {"question": ["a", "b", "c"], "context": ["a", "b", None]},
    ):
        with pytest.raises(ValueError, match=r"^row 2 of the column context is \S+, not a text$"):
            loaded.predict(given)
    with pytest.raises(ValueError, match="matching element counts"):
        loaded.predict(lists | {"context": ["a river is long"]})


def test_a_saved_roberta_answers_every_question_as_its_folder(tmp_path: Path) -> None:
    """With two separators between a question and its context."""
    folder = tmp_path / "folder"
    encoder = write_roberta(folder, texts=[" ".join(WORDS[5:])])
    model = transformers.RobertaForQuestionAnswering(encoder.config)
    model.roberta.load_state_dict(encoder.roberta.state_dict())
    model.save_pretrained(folder)
    lengths = {"max_sequence_length": 24, "doc_stride": 5, "max_query_length": 8, "max_answer_length": 4}
    write(folder / "task.json", {"task": "squad_v1", "settings": lengths})
    save_model(folder, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    generator = np.random.default_rng(1)
    texts = [" ".join(generator.choice(WORDS[5:], size=length)) for length in (1, 5, *range(9, 30))]
    rows = [{"question": question, "context": context} for question in texts[:3] for context in [*texts, ""]]
    ours = [row | {"id": str(number)} for number, row in enumerate(rows)]
    (expected,) = predictions(load_finetuned(folder), ours)
    assert loaded.predict(rows) == [row["prediction"] for row in expected]
    assert len({row["prediction"] for row in expected}) > 5


PAIRS: dict[str, Json] = {
    "mrpc": {"task": "mrpc"},
    "stsb": {"task": "stsb"},
    "table": {"task": "table/news", "table": {"kind": "classification", "texts": ["title", "body"], "label": "kind"}},
    "ranking": {"task": "ranking/marco", "table": {"kind": "ranking", "metric": "mrr_10", "relevance_level": 1}},
}


@pytest.mark.parametrize("task", PAIRS)
def test_a_saved_model_of_pairs_predicts_from_both_texts_as_its_folder(tmp_path: Path, task: str) -> None:
    folder = tmp_path / "folder"
    shape = {"num_labels": 1, "problem_type": "regression"} if task == "stsb" else {}
    write_finetuned(folder, transformers.BertForSequenceClassification, PAIRS[task], **shape)
    save_model(folder, tmp_path / "saved")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    pairs = [("a river", "is long"), ("a river", "is long river"), ("long " * 30, "a"), ("a a", "river is " * 20)]
    rows = [dict(zip(("text", "text_pair"), pair, strict=True)) for pair in pairs]
    (expected,) = predictions(load_finetuned(folder), [{"texts": pair} for pair in pairs])
    scores = [row["probability"] if "probability" in row else row["prediction"] for row in expected]
    assert len({f"{score:.4f}" for score in scores}) == len(pairs)
    for given in (rows, pd.DataFrame(rows)):
        predicted = loaded.predict(given)
        assert predicted["score"].tolist() == pytest.approx(scores, rel=1e-4)
        if task != "stsb":
            assert predicted["label"].tolist() == [row["prediction"] for row in expected]


def test_a_saved_model_of_texts_predicts_for_too_long_ones_as_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_finetuned(folder, transformers.BertForSequenceClassification, {"task": "cola"})
    save_model(folder, tmp_path / "saved")
    texts = ["a river is long", "river long is a " * 10, "is " * 1000]
    (expected,) = predictions(load_finetuned(folder), [{"texts": (text,)} for text in texts])
    predicted = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict([{"text": text} for text in texts])
    assert predicted["score"].tolist() == pytest.approx([row["probability"] for row in expected], rel=1e-4)


# MLflow evaluates texts without a column's name as Python, where it can.
LITERALS = ["1984", "'a river'", '"is long"', "('a', 'river')", "[]", "None", "3.5e2", "{'text': 'a'}", "(" * 300]
SINGLE_TEXTS: dict[str, tuple[Json, Json]] = {
    "cola": ({"task": "cola"}, {}),
    "regression": (
        {"task": "table/age", "table": {"kind": "regression", "texts": ["title"], "label": "age"}},
        {"num_labels": 1, "problem_type": "regression"},
    ),
}


@pytest.mark.parametrize("task", SINGLE_TEXTS)
def test_a_saved_model_of_texts_predicts_for_those_that_look_like_python_as_its_folder(
    tmp_path: Path, task: str
) -> None:
    folder = tmp_path / "folder"
    written, shape = SINGLE_TEXTS[task]
    write_finetuned(folder, transformers.BertForSequenceClassification, written, **shape)
    save_model(folder, tmp_path / "saved")
    (expected,) = predictions(load_finetuned(folder), [{"texts": (text,)} for text in LITERALS])
    scores = [row["probability"] if "probability" in row else row["prediction"] for row in expected]
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    rows = [{"text": text} for text in LITERALS]
    alone = [loaded.predict([row])["score"].item() for row in rows]
    for predicted in (loaded.predict(pd.DataFrame(rows))["score"].tolist(), alone):
        assert predicted == pytest.approx(scores, rel=1e-4)
    with pytest.raises(MlflowException, match="missing inputs"):
        loaded.predict(LITERALS)


def test_a_saved_tagger_gives_the_tags_of_its_folder(tmp_path: Path) -> None:
    write_finetuned(tmp_path / "folder", transformers.BertForTokenClassification)
    save_model(tmp_path / "folder", tmp_path / "saved")
    text = "a river is long"
    tags = mlflow.transformers.load_model(str(tmp_path / "saved"))(text)
    assert tags == transformers.pipeline("token-classification", model=str(tmp_path / "folder"))(text)
    assert len(tags) > 2


@pytest.mark.parametrize("head", ["MaskedLM", "QuestionAnswering", "SequenceClassification", "TokenClassification"])
def test_a_saved_model_has_no_path_of_this_machine_and_no_licence_that_is_not_its_own(
    tmp_path: Path, head: str
) -> None:
    write_finetuned(tmp_path / "folder", getattr(transformers, f"BertFor{head}"), {"task": "glue/cola"})
    save_model(tmp_path / "folder", tmp_path / "saved")
    files = {path: path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert not [path for path, content in files.items() if str(tmp_path).encode() in content]
    described = (tmp_path / "saved/MLmodel").read_text()
    assert str(Path(flavors.__file__).parent) not in described
    assert not [path for path in files if "license" in path.name.lower()]


@pytest.mark.parametrize("architecture", ["Bert", "ModernBert"])
def test_the_exported_network_of_a_saved_model_has_no_path_of_this_machine(tmp_path: Path, architecture: str) -> None:
    ids = {f"{name}_token_id": number for number, name in enumerate(("pad", "bos", "eos", "sep"))} | {"cls_token_id": 2}
    class_of_model = getattr(transformers, f"{architecture}ForMaskedLM")
    write_finetuned(tmp_path / "folder", class_of_model, **(ids if architecture != "Bert" else {}))
    save_model(tmp_path / "folder", tmp_path / "saved")
    folders = [Path(module.__file__).parents[levels] for module, levels in ((flavors, 3), (torch, 1), (mlflow, 1))]
    private = [str(folder).encode() for folder in (*folders, tempfile.gettempdir(), tmp_path)]
    with zipfile.ZipFile(tmp_path / "saved/data/model.pt2") as archive:
        assert b'"nodes"' in archive.read("model/models/model.json")
        for member in archive.namelist():
            assert not [path for path in private if path in archive.read(member)], member
