"""How far a training is, and what nothing needs any more, from the files that trainings leave."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bertline.console import BertlineError
from bertline.planning.estimate import SECONDS_OF_DUMP_MEGABYTE, estimates, record_speed
from bertline.planning.expected import ExpectedTimes, finetuning_estimates
from bertline.planning.inputs import made
from bertline.planning.job_names import job_progress
from bertline.planning.plan import Plan
from bertline.planning.progress import overview, phase_statuses, steps_per_second
from bertline.planning.pruning import not_asked_for, prunable
from bertline.planning.requested import files_of_names
from bertline.planning.target_states import target_states
from bertline.planning.targets import of_runs, report_page
from bertline.results.journal import JournalPoint
from bertline.results.paths import FINETUNING_OUTPUTS, PHASE_OUTPUTS, RECIPE, TRACKED_PRETRAINING
from bertline.results.records import read_record
from bertline.settings.site import Gpu, Nodes, Site, Size
from bertline.training.data.batch_size_warmup import batch_size_warmup_of
from bertline.training.publishing import publish_phase

KEY = "0" * 16
PHASE = Path("results/phases", KEY)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """One run with one phase of 100 steps; its folder is where the test works."""
    monkeypatch.chdir(tmp_path)
    plan = Plan({}, {}, Path("models"))
    plan.phases[KEY] = {"settings": {"steps": 100, "global_batch_size": 8, "batch_size_warmup": None}}
    run = {"name": "first", "fingerprint": "f", "dataset": None, "phases": {"phase1": KEY}}
    plan.runs["first"] = {**run, "finetunings": {}, "kept": {}, "skipped": {}}
    return plan


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def finish(phase: Path, recipe: dict[str, object] | None = None) -> None:
    for output in PHASE_OUTPUTS:
        write(phase / output, json.dumps(recipe or {}) if output == RECIPE else "")


def write_journal(steps: range, milliseconds: int) -> None:
    points = [{"step": step, "timestamp": 5000 + milliseconds * step, "metrics": {}} for step in steps]
    write(PHASE / "checkpoints/journal.jsonl", "".join(json.dumps(point) + "\n" for point in points) + '{"step": 9')


def test_a_training_at_work(plan: Plan) -> None:
    write_journal(range(0, 41, 10), 250)
    write(PHASE / "checkpoints/durable.json", '{"step": 30}')
    lock = write(
        PHASE / "checkpoints/lock.json", json.dumps({"pid": 7, "host": "gpu1", "process_started": 0, "job": "12"})
    )
    (status,) = phase_statuses(plan)
    assert (status.state, status.step, status.saved_step) == ("trains", 40, 30)
    assert status.owner == "process 7 on gpu1, job 12"
    assert status.steps_per_second == pytest.approx(4)
    assert status.time_left == timedelta(seconds=15)
    # A lock without a heartbeat is that of a dead trainer.
    os.utime(lock, (time.time() - 1000, time.time() - 1000))
    (status,) = phase_statuses(plan)
    assert (status.state, status.owner, status.time_left) == ("stopped", "", None)


def test_the_time_left_of_a_batch_size_warmup_grows_with_its_steps(plan: Plan) -> None:
    """From 2 samples in a step to 8, at 4 samples a second."""
    plan.phases[KEY]["settings"]["batch_size_warmup"] = {"from": 2, "steps": 20}
    position = batch_size_warmup_of(plan.phases[KEY]["settings"]).position_at
    metrics = [
        (step, {"train/samples": position(step), "train/overall_samples_per_second": 4}) for step in range(1, 11)
    ]
    points = [{"step": step, "timestamp": 250 * position(step), "metrics": of_step} for step, of_step in metrics]
    write(PHASE / "checkpoints/journal.jsonl", "".join(json.dumps(point) + "\n" for point in points))
    write(PHASE / "checkpoints/lock.json", json.dumps({"pid": 7, "host": "gpu1", "process_started": 0}))
    left = (position(100) - position(10)) / 4
    assert phase_statuses(plan)[0].time_left == timedelta(seconds=round(left))
    assert job_progress(plan, "pretrain_phase", {"phase": KEY})[1] == pytest.approx(left)


def test_a_checkpoint_of_a_file_server_whose_clock_is_ahead_was_saved_now(plan: Plan) -> None:
    assert phase_statuses(plan)[0].saved_ago is None
    marker = write(PHASE / "checkpoints/durable.json", '{"step": 30}')
    ages = []
    for ahead in (30, -60):
        os.utime(marker, (time.time() + ahead, time.time() + ahead))
        ages.append(phase_statuses(plan)[0].saved_ago)
    assert ages[0] == timedelta(0)
    assert timedelta(seconds=60) <= ages[1] < timedelta(seconds=90)


def test_before_and_after_training(plan: Plan) -> None:
    assert phase_statuses(plan)[0].state == "to be trained"
    finish(PHASE)
    (status,) = phase_statuses(plan)
    assert (status.state, status.step) == ("finished", 100)


def answers(plan: Plan) -> dict[str, bool]:
    """Whether each program that asks takes the phase for finished."""
    record = write(Path("results/runs/first/record.json"), json.dumps(record_of(PHASE)))
    return {
        "plan": overview(plan)[0][3] == "finished",
        "status": phase_statuses(plan)[0].state == "finished",
        "estimate": not [left for left in estimates(plan) if left.what.startswith("phase1")],
        "pruning": any(entry.path.name == "step-00000050" for entry in prunable(plan)),
        "record": read_record(record).phases[0].finished,
    }


def record_of(phase: Path) -> dict[str, object]:
    phases = [{"name": "phase1", "fingerprint": KEY, "path": str(phase)}]
    return {"run": "first", "experiment": "e", "fingerprint": "f", "config": {}, "dataset": None, "phases": phases} | {
        "finetunings": [],
        "kept": {},
    }


def test_a_trainer_killed_between_its_last_writes_is_unfinished_for_all_who_ask(untrained: Plan) -> None:
    _, weights = (write(PHASE / f"checkpoints/step-{step:08d}/model.safetensors", "x") for step in (50, 100))
    write(PHASE / "checkpoints/durable.json", '{"step": 100}')
    journal = write(PHASE / "checkpoints/journal.jsonl", '{"step": 100, "timestamp": 1, "metrics": {}}\n')
    unwritable = {"killed here": float("nan")}  # JSON has no such number
    with pytest.raises(ValueError, match="JSON"):
        publish_phase(PHASE, weights, journal, unwritable)
    assert (PHASE / "model.safetensors").exists()
    assert answers(untrained) == dict.fromkeys(answers(untrained), False)
    recipe = {"settings": {**SETTINGS, "steps": 100}, "model": MODEL, "world_size": 1, "hardware": "a GPU"}
    publish_phase(PHASE, weights, journal, recipe)
    assert answers(untrained) == dict.fromkeys(answers(untrained), True)
    # Snakemake makes a phase again whose weights were deleted.
    (PHASE / "model.safetensors").unlink()
    assert answers(untrained) == dict.fromkeys(answers(untrained), False)


def test_only_what_a_finished_result_does_not_need_is_prunable(plan: Plan) -> None:
    for step in (10, 20, 30):
        write(PHASE / f"checkpoints/step-{step:08d}/model.safetensors", "x" * step)
    write(PHASE / "checkpoints/durable.json", '{"step": 30}')
    shard = write(Path("results/datasets/a/shards/00000.txt.zst"), "text")
    for other in ("unfinished", "of another configuration"):
        write(Path("results/datasets", other, "shards/00000.txt.zst"), "text")
    plan.datasets |= {"a": {"name": "a"}, "unfinished": {"name": "unfinished"}}
    assert prunable(plan) == []
    finish(PHASE)
    for finished in ("a", "of another configuration"):
        write(Path("results/datasets", finished, "dataset.json"), "{}")
    found = {entry.path: entry.size for entry in prunable(plan)}
    older = {PHASE / f"checkpoints/step-{step:08d}": step for step in (10, 20)}
    assert found == {shard: 4, **older}
    # The next phase takes the moments of the step that was published.
    finish(PHASE, {"published_step": 20})
    assert [entry.path.name for entry in prunable(plan)] == ["00000.txt.zst", "step-00000010"]
    # Another run starts from this one.
    assert plan.keep_checkpoint(KEY, 10, "runs.other.pretrained") is None
    assert [entry.path.name for entry in prunable(plan)] == ["00000.txt.zst"]


def test_nothing_of_a_phase_is_prunable_while_a_trainer_holds_its_lock(plan: Plan) -> None:
    """It may be a finished phase that is trained again."""
    for step in (10, 20):
        write(PHASE / f"checkpoints/step-{step:08d}/model.safetensors", "x")
    write(PHASE / "checkpoints/durable.json", '{"step": 20}')
    write(PHASE / "checkpoints/profile/trace.json", "{}")
    finish(PHASE)
    lock = write(PHASE / "checkpoints/lock.json", "{}")
    assert prunable(plan) == []
    lock.unlink()
    assert [entry.path.name for entry in prunable(plan)] == ["step-00000010", "profile"]


def test_what_another_configuration_may_need_is_not_prunable(plan: Plan) -> None:
    """Checkpoints from which it starts, and models among which it still has to choose."""
    plan.predictions["new.jsonl"] = {"model": {"finetuning": "predicted"}}
    write(
        Path("results/kept/made/choice.json"),
        json.dumps({"best": "best", "kept": ["best"], "scores": {"best": 2, "other": 1}}),
    )
    for phase in (PHASE, PHASE.with_name("1" * 16)):
        for step in (10, 20):
            write(phase / f"checkpoints/step-{step:08d}/model.safetensors", "x")
        write(phase / "checkpoints/durable.json", '{"step": 20}')
        finish(phase)
    for name in ("best", "other", "undecided elsewhere", "of the plan", "predicted"):
        for file in (*FINETUNING_OUTPUTS, "huggingface/model.safetensors"):
            write(Path("results/finetunings", name, file))
    plan.finetunings |= {"of the plan": {}, "predicted": {}}
    models = [Path("results/finetunings", name, "huggingface") for name in ("of the plan", "other")]
    assert [entry.path for entry in prunable(plan)] == [PHASE / "checkpoints/step-00000010", *models]


def test_remains_of_killed_jobs_are_prunable_once_no_job_can_be_writing_them(plan: Plan) -> None:
    remains = [
        write(Path("results/corpora/a/documents/.part-00000.jsonl.zst.a4a83d33.part"), "half"),
        write(Path("results/corpora/a/extracted/part-00000/articles.jsonl"), "text").parent,
    ]
    write(Path("results/corpora/a/documents/part-00000.jsonl.zst"), "documents")
    needed = write(Path("results/corpora/a/extracted/part-00001/articles.jsonl"), "text").parent
    nested = write(Path("results/collections/.0123456789abcdef.part/.ids.npy.part"), "text")
    remains.append(nested.parent)
    link = Path("results/runs/demo/.phase1.a4a83d33.part")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("nowhere")
    assert prunable(plan) == []
    for path in [nested, *remains, needed, link]:
        os.utime(path, (0, 0), follow_symlinks=False)
    assert {entry.path: entry.size for entry in prunable(plan)} == {**dict.fromkeys(remains, 4), link: 0}


NAMED_BY_FINGERPRINT = ("corpora", "evaluation", "datasets", "phases", "finetunings", "kept", "collections")


@pytest.mark.parametrize("kind", NAMED_BY_FINGERPRINT)
def test_results_of_other_configurations_are_distinguished(plan: Plan, kind: str) -> None:
    finish(PHASE)
    other = Path("results", kind, "1" * 16)
    finish(other)
    assert [entry.path for entry in not_asked_for(plan)] == [other]
    plan.runs.clear()  # their names need further keys
    # A rule could make it, but of a fingerprint that is not in the plan.
    with pytest.raises(BertlineError, match=f"{other}/{RECIPE}: there is no target of this name"):
        files_of_names(plan, [f"{other}/{RECIPE}"], rules=(), makes=lambda file: True)
    assert files_of_names(plan, [f"{PHASE}/{RECIPE}"], rules=(), makes=lambda file: True) == [f"{PHASE}/{RECIPE}"]
    inputs_of_rules = made(plan, [f"{other}/{RECIPE}", f"{PHASE}/{RECIPE}", "results/recipes/any.json"])
    assert inputs_of_rules == [f"{PHASE}/{RECIPE}", "results/recipes/any.json"]


MODEL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
SETTINGS = {
    **{"sequence_length": 128, "global_batch_size": 8, "precision": "bf16", "packing": False},
    "batch_size_warmup": None,
}
MASKING = {"probability": 0.15, "max_predictions": 20}
SIZE = Size(2, 4, 8, "gpu", None, memory_mb=64000, walltime=60, micro_batch_tokens=16384, additional_nodes=())
SITE = Site("site.yaml", None, None, {}, None, {"default": SIZE}, {}, Gpu(peak_tflops=100.0, share=0.5))


@pytest.fixture
def untrained(plan: Plan) -> Plan:
    """A phase of 100 steps with nothing on record."""
    plan.config["sequence_lengths"] = [128]
    settings = {**SETTINGS, "steps": 100, "masking": MASKING}
    plan.phases[KEY] = {"phase": "phase1", "model": MODEL, "dataset": "d", "settings": settings}
    plan.datasets["d"] = {
        "name": "books",
        "corpora": ["c", "w"],
        "shards": ["00000", "00001"],
        "settings": {"tokenizer": {"train": "wordpiece", "vocab_size": 1000}},
    }
    return plan


SPEEDS = ("train/samples_per_second", "train/overall_samples_per_second")


def write_speed(path: Path, *samples_per_second: float) -> None:
    """A journal; its last line is half written."""
    points = [{"step": 1, "timestamp": 5000, "metrics": dict.fromkeys(SPEEDS, rate)} for rate in samples_per_second]
    write(path, "".join(json.dumps(point) + "\n" for point in points) + '{"step": 2, "met')


def test_the_remaining_work_on_data_is_estimated_from_the_recorded_jobs(untrained: Plan) -> None:
    untrained.corpora["c"] = {"name": "shelf", "parts": {"part-00000": []}, "settings": {"source": "files"}}
    untrained.corpora["w"] = {"name": "wiki", "wiki": "enwiki", "settings": {"source": "wikimedia", "dump": "1"}}
    untrained.corpora["unused"] = {"name": "unused", "parts": {"part-00000": []}, "settings": {"source": "files"}}
    shelf, wiki, data, _ = estimates(untrained)
    assert (shelf.jobs, shelf.core_hours) == (2, None)
    assert shelf.basis == "unknown: none of its read_part jobs is finished"
    assert (wiki.jobs, wiki.basis) == (None, "unknown: the dump is not listed yet (snakemake list_parts)")
    assert (data.what, data.jobs, data.core_hours) == ("dataset books, its shards", 4, None)
    # Jobs of 1800 and 3600 CPU seconds; those of another dataset tell nothing.
    write(Path("benchmarks/write_shard/d/00002.tsv"), "s\tcpu_time\n1\t1800\n1\tNA\n")
    write(Path("benchmarks/encode_shard/d/00002.tsv"), "s\tcpu_time\n1\t3600\n")
    write(Path("benchmarks/encode_shard/other/00000.tsv"), "s\tcpu_time\n1\t1\n")
    write(Path(untrained.dataset_folder("d"), "seq128/00002.h5"), "x" * 10)
    write(Path("results/corpora/c/documents/part-00000.jsonl.zst"))
    write(Path("results/corpora/c/sentences/part-00000.txt.zst"))
    parts = {"part-00000": {"file": "pages1.xml.bz2", "size": 3_000_000_000}}
    write(Path("resources/wikimedia/enwiki/1/parts.json"), json.dumps({"parts": parts}))
    wiki, data, _ = estimates(untrained)
    assert data.core_hours == pytest.approx(2 * 0.5 + 2 * 1)
    assert (data.size, data.basis) == (20, "2 finished jobs of the same kind")
    assert wiki.core_hours == pytest.approx(3000 * SECONDS_OF_DUMP_MEGABYTE / 3600)
    assert wiki.basis.startswith("3 GB of dump, at ")


def test_shards_that_lack_one_of_the_sequence_lengths_are_still_to_be_encoded(untrained: Plan) -> None:
    untrained.config["sequence_lengths"] = [128, 512]
    folder = Path(untrained.dataset_folder("d"))
    for shard in ("00000", "00001"):
        write(folder / f"shards/{shard}.txt.zst")
        write(folder / f"seq128/{shard}.h5")

    def jobs() -> list[int | None]:
        return [left.jobs for left in estimates(untrained) if left.what.startswith("dataset")]

    assert jobs() == [2]
    write(folder / "seq512/00000.h5")
    assert jobs() == [1]


@pytest.fixture
def trained(untrained: Plan) -> Plan:
    """The same, with everything made, and the dataset and its corpora deleted since."""
    untrained.datasets["d"]["corpora"] = ["c"]
    untrained.datasets["d"]["shards"] = ["00000", "00001", "held_out"]
    untrained.corpora["c"] = {"key": "c", "name": "shelf", "parts": {"part-00000": []}, "settings": {"source": "files"}}
    untrained.runs["first"]["dataset"] = "d"
    finish(PHASE, {"model": MODEL, "settings": SETTINGS, "world_size": 1, "hardware": "a GPU"})
    for made_of_it in (PHASE / "dataset.json", PHASE / "trigram.json", PHASE / "huggingface/config.json"):
        write(made_of_it)
    write(Path(report_page(untrained)))
    for marker in of_runs(TRACKED_PRETRAINING, untrained.runs):
        write(Path(marker))
    return untrained


def jobs_left(plan: Plan) -> dict[str, int | None]:
    return {left.what: left.jobs for left in estimates(plan)}


def state_of_dataset(plan: Plan) -> str:
    return next(state for _, what, _, state in overview(plan) if what == "dataset")


def states_of_data(plan: Plan) -> dict[str, str]:
    """The states of the names of the dataset and its corpora."""
    states = {name.removeprefix("results/runs/first/"): state for name, state in target_states(plan, None)}
    return {name: state for name, state in states.items() if name.startswith(("dataset", "corpora"))}


def test_a_phase_whose_weights_were_deleted_after_all_that_needs_them_is_not_needed(trained: Plan) -> None:
    """Its checkpoints are still there."""
    write(PHASE / "checkpoints/durable.json", '{"step": 100}')
    (PHASE / "model.safetensors").unlink()

    def states() -> list[str]:
        phase1 = dict(target_states(trained, None))["results/runs/first/phase1"]
        return [overview(trained)[-1][3], phase_statuses(trained)[0].state, phase1]

    assert states() == ["not needed"] * 3
    (marker,) = of_runs(TRACKED_PRETRAINING, trained.runs)
    Path(marker).unlink()
    assert states() == ["continues from step 100 of 100", "stopped", "started: step 100 of 100 is saved"]
    # Whoever trains it knows better.
    write(Path(marker))
    write(PHASE / "checkpoints/lock.json", json.dumps({"pid": 7, "host": "gpu1", "process_started": 0}))
    assert states() == ["not needed", "trains", "trains: step 100 of 100 is saved"]


def test_a_dataset_is_finished_with_all_its_samples(trained: Plan) -> None:
    for file in ("dataset.json", *(f"seq128/{shard}.h5" for shard in trained.datasets["d"]["shards"])):
        write(Path("results/datasets/d", file))
    assert state_of_dataset(trained) == states_of_data(trained)["dataset"] == "finished"
    for shard in ("00000", "held_out"):
        Path(f"results/datasets/d/seq128/{shard}.h5").unlink()
    assert state_of_dataset(trained) == "1 of 3 files encoded, the others are not needed"
    assert states_of_data(trained)["dataset"] == "2 of 4 finished, the others are not needed"


DATA = ("dataset", "dataset/shards", "dataset/seq128", "corpora/shelf")


def test_a_dataset_that_was_deleted_after_the_last_phase_on_it_is_no_work(trained: Plan) -> None:
    assert jobs_left(trained) == {}
    assert state_of_dataset(trained) == "not needed"
    assert states_of_data(trained) == dict.fromkeys(DATA, "not needed")
    write(Path("results/datasets/d/seq128/00000.h5"))
    assert states_of_data(trained)["dataset/seq128"] == "1 of 3 finished, the others are not needed"


def test_a_phase_that_was_deleted_after_the_next_one_is_no_work(trained: Plan) -> None:
    last = "1" * 16
    trained.phases[last] = {**trained.phases[KEY], "phase": "phase2", "initial_weights": {"phase": KEY}}
    trained.runs["first"]["phases"]["phase2"] = last
    finish(Path("results/phases", last), {"model": MODEL, "settings": SETTINGS, "world_size": 1, "hardware": "a GPU"})
    write(Path("results/phases", last, "huggingface/config.json"))
    shutil.rmtree(PHASE)
    assert jobs_left(trained) == {}
    assert [row[3] for row in overview(trained)] == ["not needed", "not needed", "finished"]
    assert dict(target_states(trained, None))["results/runs/first/phase1"] == "not needed"

    shutil.rmtree(Path("results/phases", last, "huggingface"))
    of_data = {"corpus shelf": 2, "dataset books, its shards": 2}
    assert jobs_left(trained) == of_data  # the tokenizer
    Path("results/phases", last, "model.safetensors").unlink()
    assert jobs_left(trained).keys() == {*of_data, f"phase1 ({KEY})", f"phase2 ({last})"}
    assert [row[3] for row in overview(trained)] == ["to be made", "to be trained", "to be trained"]

    for file in ("model.safetensors", "huggingface/config.json"):
        write(Path("results/phases", last, file))
    (marker,) = of_runs(TRACKED_PRETRAINING, trained.runs)
    Path(marker).unlink()
    assert f"phase1 ({KEY})" in jobs_left(trained)  # its journal


def test_a_finished_fine_tuning_whose_model_is_needed_again_is_work(trained: Plan) -> None:
    finetuning = Path("results/finetunings", "2" * 16)
    trained.finetunings[finetuning.name] = {"dataset": "d", "task": "cola"}
    trained.runs["first"]["finetunings"] = {"glue/cola/seed1": finetuning.name}
    for file in FINETUNING_OUTPUTS:
        write(finetuning / file, "{}")
    assert [left.what for left in finetuning_estimates(trained)] == []
    prediction = {"kind": "predict", "model": {"finetuning": finetuning.name}, "absent": [], "inputs": []}
    trained.predictions["results/predictions/a.tsv"] = prediction
    assert [left.jobs for left in finetuning_estimates(trained)] == [1]
    assert overview(trained)[-1][3] == "0 of 1 finished"


def test_the_baseline_of_a_report_that_is_there_needs_no_deleted_dataset(trained: Plan) -> None:
    (PHASE / "trigram.json").unlink()
    assert jobs_left(trained) == {}
    Path(report_page(trained)).unlink()
    assert jobs_left(trained).keys() == {"corpus shelf", "dataset books, its shards"}


def test_a_deleted_dataset_is_work_if_the_next_phase_needs_it(trained: Plan) -> None:
    trained.phases["1" * 16] = {**trained.phases[KEY], "phase": "phase2"}
    of_data = {"corpus shelf": 2, "dataset books, its shards": 6}
    assert jobs_left(trained) == {**of_data, f"phase2 ({'1' * 16})": 1}
    assert state_of_dataset(trained) == "to be made"
    assert states_of_data(trained) == dict.fromkeys(DATA, "planned")


def test_samples_that_were_deleted_are_work_if_the_next_phase_needs_them(trained: Plan) -> None:
    trained.config["sequence_lengths"] = [128, 512]
    for file in ("dataset.json", "plan.jsonl", "tokenizer.json", "seq512/00000.h5", "seq128/00001.h5"):
        write(Path("results/datasets/d", file))
    assert jobs_left(trained) == {}
    assert state_of_dataset(trained) == "2 of 6 files encoded, the others are not needed"
    trained.phases["1" * 16] = {**trained.phases[KEY], "phase": "phase2", "model": {**MODEL, "vocab_size": 1000}}
    assert jobs_left(trained)["dataset books, its shards"] == 2 + 2  # of 00000 and the held-out text
    assert state_of_dataset(trained) == "2 of 6 files encoded"
    # The card is written again after them, with the counts of the corpora.
    assert jobs_left(trained)["corpus shelf"] == 2


def test_a_dataset_of_no_run_is_work_until_the_report_is_made(trained: Plan) -> None:
    trained.datasets["e"] = {**trained.datasets["d"], "name": "other"}
    assert jobs_left(trained) == {}
    Path(report_page(trained)).unlink()
    assert jobs_left(trained) == {"corpus shelf": 2, "dataset other, its shards": 6}


def test_of_a_deleted_dataset_a_new_fine_tuning_needs_the_tokenizer(trained: Plan) -> None:
    trained.finetunings["new"] = {"dataset": "d"}
    assert jobs_left(trained) == {"corpus shelf": 2, "dataset books, its shards": 2}
    assert state_of_dataset(trained) == "only its tokenizer is needed"
    write(Path("results/datasets/d/tokenizer.json"))
    assert jobs_left(trained) == {}


def test_node_hours_follow_from_trainings_of_the_same_network(untrained: Plan) -> None:
    unknown = estimates(untrained)[-1]
    assert (unknown.node_hours, unknown.basis) == (
        None,
        "unknown: no record of such a training, and no `gpu` in site.yaml",
    )
    # Four processes that did 10 samples a second, whatever the batch.
    recipe = {"model": {**MODEL, "more": 1}, "settings": {**SETTINGS, "global_batch_size": 64, "steps": 50}}
    recipe |= {"world_size": 4, "hardware": "a GPU"}
    finish(Path("results/phases/before"), recipe)
    write_speed(Path("results/phases/before/metrics.jsonl"), 10, 10, 1)
    known = estimates(untrained)[-1]
    assert known.node_hours == pytest.approx(100 * 8 / 10 / 3600)
    assert known.basis == "1 finished phase of this network with such an optimizer, on a GPU"
    # Two nodes of four processes take as many node-hours as one.
    assert estimates(untrained, SITE)[-1].node_hours == pytest.approx(known.node_hours)
    eight = replace(SITE, phases={"default": replace(SITE.phases["default"], gpus_per_node=8)})
    assert estimates(untrained, eight)[-1].node_hours == pytest.approx(known.node_hours / 2)
    # Steps of a batch-size warm-up have fewer samples: here 2, 3, 4, 5, 6 and 7 of 8.
    settings = {**untrained.phases[KEY]["settings"], "batch_size_warmup": {"from": 2, "steps": 6}}
    untrained.phases[KEY] = {**untrained.phases[KEY], "settings": settings}
    assert estimates(untrained)[-1].node_hours == pytest.approx((2 + 2 + 4 + 4 + 6 + 6 + 94 * 8) / 10 / 3600)
    # Another network says nothing about this one.
    write(Path("results/phases/before/recipe.json"), json.dumps({**recipe, "model": {"hidden_size": 64}}))
    assert estimates(untrained)[-1].node_hours is None


def test_a_training_is_expected_to_take_the_time_of_the_sites_processes(untrained: Plan) -> None:
    """On record are two processes that did 8 samples a second, in a job of 7 seconds more than the steps."""
    folder = Path("results/phases/before")
    recipe = {"model": MODEL, "settings": SETTINGS, "world_size": 2, "hardware": "a GPU"}
    finish(folder, recipe | {"started": 1_000, "finished": 51_000})
    write_speed(folder / "metrics.jsonl", 8)
    write(Path("benchmarks/pretrain_phase/before.tsv"), "s\n57\n")

    def seconds(site: Site | None) -> float | None:
        return ExpectedTimes(untrained, site)("pretrain_phase", {"phase": KEY}).seconds

    assert seconds(None) == pytest.approx(100 * 8 / 8 + 7)
    assert seconds(SITE) == pytest.approx(100 * 8 * (2 / 8) / 8 + 7)
    more = replace(SIZE, additional_nodes=(Nodes(1, 8, 8, "gpu", None),))
    assert seconds(replace(SITE, phases={"default": more})) == pytest.approx(100 * 8 * (2 / 16) / 8 + 7)


def test_a_trial_on_this_machine_tells_nothing_of_a_sites_nodes(untrained: Plan) -> None:
    record_speed({"model": MODEL, "settings": SETTINGS}, {"processes": 1, "device": "a CPU", "busy_seconds": 0.5})
    assert estimates(untrained)[-1].node_hours == pytest.approx(100 * 0.5 / 3600)
    assert estimates(untrained, replace(SITE, gpu=None))[-1].node_hours is None


def test_node_hours_of_a_training_that_was_started_follow_from_its_own_journal(untrained: Plan) -> None:
    write(PHASE / "checkpoints/durable.json", '{"step": 25}')
    write(PHASE / "checkpoints/step-00000025/state.json", '{"reproducibility": {"world_size": 2}}')
    write_speed(PHASE / "checkpoints/journal.jsonl", 5)
    left = estimates(untrained)[-1]
    assert left.node_hours == pytest.approx(75 * 8 / 5 / 3600)
    assert left.basis == "its own journal, up to step 25 of 100"


def test_the_time_between_a_stop_and_the_continuation_slows_no_training() -> None:
    def point(step: int, seconds: int) -> JournalPoint:
        metrics = {"train/samples": 8.0 * step, "train/overall_samples_per_second": 16.0}  # 2 steps a second
        return JournalPoint(step, 1000 * seconds, metrics)

    assert steps_per_second([point(10, 5), point(20, 10), point(30, 5000), point(40, 5005)]) == pytest.approx(2)
    other = [JournalPoint(step, 100 * step, {}) for step in (10, 20)]  # without these metrics: by the clock
    assert steps_per_second(other) == pytest.approx(10)


def test_the_first_step_which_may_take_a_minute_slows_no_training() -> None:
    points = [JournalPoint(step, milliseconds, {}) for step, milliseconds in ((0, 0), (1, 60_000), (11, 61_000))]
    assert steps_per_second(points) == pytest.approx(10)
    assert steps_per_second(points[:2]) is None


def test_node_hours_include_evaluations_and_checkpoints(untrained: Plan) -> None:
    """Of two points' time, steps took all and half: 1.5 times as long as steps alone."""
    write(PHASE / "checkpoints/durable.json", '{"step": 25}')
    write(PHASE / "checkpoints/step-00000025/state.json", '{"reproducibility": {"world_size": 2}}')
    rates = [{"train/samples_per_second": 5, "train/overall_samples_per_second": overall} for overall in (5, 2.5)]
    points = [json.dumps({"step": 1, "timestamp": 5000, "metrics": metrics}) for metrics in rates]
    write(PHASE / "checkpoints/journal.jsonl", "".join(f"{point}\n" for point in points))
    assert estimates(untrained)[-1].node_hours == pytest.approx(1.5 * 75 * 8 / 5 / 3600)


@pytest.mark.parametrize(("max_predictions", "masked"), [(20, 0.15 * 128), (10, 10), (None, 0.15 * 128)])
def test_without_a_training_on_record_node_hours_are_reckoned_and_say_so(
    untrained: Plan, max_predictions: int | None, masked: float
) -> None:
    """The formula of docs/training.md by hand: 6 (N - n) s + 6 n m + 12 L h s^2 + 6 m (h^2 + h V)."""
    settings = {**untrained.phases[KEY]["settings"], "masking": {**MASKING, "max_predictions": max_predictions}}
    untrained.phases[KEY] = {**untrained.phases[KEY], "settings": settings}
    after_attention = 32 * 32 + 2 * 32 * 64
    before = 3 * (4 * 32 * 32 + 2 * 32 * 64) - after_attention
    flops = 6 * before * 128 + 12 * 3 * 32 * 128**2 + 6 * masked * (after_attention + 32**2 + 32 * 1000)
    left = estimates(untrained, SITE)[-1]
    assert left.node_hours == pytest.approx(100 * 8 * flops / (100e12 * 0.5) / 4 / 3600)
    assert left.basis.startswith("computed: ")
    assert left.basis.endswith("at 50 % of 100 TFLOP/s per GPU (site.yaml)")
    without_gpus = replace(SITE, phases={"default": replace(SIZE, gpus_per_node=0)})
    assert estimates(untrained, without_gpus)[-1].node_hours is None
    assert estimates(untrained, replace(SITE, gpu=None))[-1].node_hours is None
