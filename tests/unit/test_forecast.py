"""The time left of a graph: what each of its jobs is expected to take, and that no error ends a run."""

from __future__ import annotations

import io
import json
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from snakemake_interface_logger_plugins.common import LogEvent

from bertline.planning.estimate import estimates, record_speed
from bertline.planning.expected import ExpectedTimes, finetuning_estimates
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.training.contract import WAITS_FOR_GPU
from snakemake_logger_plugin_bertline import LogHandler
from snakemake_logger_plugin_bertline.display import Display
from snakemake_logger_plugin_bertline.dry_run import DryRun
from snakemake_logger_plugin_bertline.forecast import WAITS_FOR_GPU as LOOKED_FOR
from snakemake_logger_plugin_bertline.forecast import Forecast, Job
from snakemake_logger_plugin_bertline.schedule import GraphJob, RemainingJobs

MODEL = {"hidden_size": 32, "num_hidden_layers": 3}
SETTINGS = {
    "sequence_length": 128,
    "global_batch_size": 8,
    "precision": "bf16",
    "packing": False,
    "batch_size_warmup": None,
    "steps": 100,
}


# --- what is known of a run


def forecast_of(rest: RemainingJobs, expected: dict[str, float], *running: Job) -> Forecast:
    forecast = Forecast(lambda: running)
    forecast.expected_of = lambda rule, wildcards: (rule, expected.get(rule))
    forecast.remaining_jobs = lambda: rest
    return forecast


def test_the_time_left_is_known_before_the_first_job_and_complete_only_if_it_is_known_of_every_job() -> None:
    rest = RemainingJobs([GraphJob(1, "read"), GraphJob(2, "train", needs=(1,)), GraphJob(3, "all", is_target=True)], 2)
    forecast = forecast_of(rest, {"read": 10, "train": 50})
    forecast.update()
    assert forecast.left is not None
    assert (forecast.left.seconds, forecast.left.is_complete) == (60, True)
    forecast = forecast_of(rest, {"read": 10})
    forecast.update()
    assert forecast.left is not None
    assert (forecast.left.seconds, forecast.left.is_complete) == (10, False)
    forecast = forecast_of(rest, {})
    forecast.update()
    assert forecast.left is None


def test_a_checkpoint_of_the_graph_adds_jobs_of_which_nothing_is_known() -> None:
    forecast = forecast_of(RemainingJobs([GraphJob(1, "list", adds_jobs=True)], 1), {"list": 1})
    forecast.update()
    assert forecast.left is not None
    assert not forecast.left.is_complete


def test_jobs_that_failed_and_those_after_them_are_not_waited_for_unless_they_are_tried_again() -> None:
    rest = RemainingJobs([GraphJob(1, "a"), GraphJob(2, "b", needs=(1,)), GraphJob(3, "c")], 1)
    forecast = forecast_of(rest, {"a": 1, "b": 10, "c": 100})
    job = Job(1, "a", {}, "a")
    forecast.end(job, failed=True)
    forecast.update()
    assert forecast.left is not None
    assert forecast.left.seconds == 100
    forecast.begin(job)
    forecast.update()
    assert forecast.left.seconds == 111


def test_a_running_training_counts_by_its_own_speed_and_waiting_ones_by_their_own_estimates() -> None:
    rest = RemainingJobs([GraphJob(1, "train", {"phase": "a"}), GraphJob(2, "train", {"phase": "b"}, needs=(1,))], 1)
    forecast = Forecast(lambda: [Job(1, "train", {"phase": "a"}, "a")])
    forecast.remaining_jobs = lambda: rest
    forecast.expected_of = lambda rule, wildcards: (wildcards["phase"], {"a": 500.0, "b": 7.0}[wildcards["phase"]])
    forecast.progress_of = lambda rule, wildcards: ("step 5", 30.0)
    forecast.update()
    assert forecast.left is not None
    assert forecast.left.seconds == pytest.approx(30 + 7 * (30 + 60) / (500 + 60), abs=0.1)


def test_a_run_that_is_slower_than_the_records_is_expected_to_stay_so() -> None:
    finished = Job(1, "read", {}, "read")
    finished.started -= 240  # expected were 30 seconds
    forecast = forecast_of(RemainingJobs([GraphJob(2, "split")], 1), {"read": 30, "split": 100})
    forecast.end(finished, failed=False)
    forecast.update()
    assert forecast.left is not None
    assert forecast.left.seconds == pytest.approx(100 * (240 + 60) / (30 + 60), abs=1)


def test_trainings_that_wait_for_a_gpu_run_as_few_at_a_time_as_those_that_do_not(tmp_path: Path) -> None:
    """On one machine, Snakemake starts one for each core."""
    assert LOOKED_FOR == WAITS_FOR_GPU
    others = f"10:00:00 {WAITS_FOR_GPU} every GPU; waiting for number 0\n"
    running = [Job(number, "finetune_task", {}, "a", str(tmp_path / f"{number}.log")) for number in range(16)]
    for job in running:
        job.started -= 100
        Path(str(job.log)).write_text(others if job.number else "10:00:00 cola: 8,551 training inputs\n")
    rest = RemainingJobs([GraphJob(number, "finetune_task") for number in range(45)], 16)
    forecast = forecast_of(rest, {"finetune_task": 300}, *running)
    forecast.update()
    assert forecast.left is not None
    assert forecast.left.seconds == pytest.approx(45 * 300 - 100, abs=2)
    # The first one has ended, the second one has its GPU, another one starts.
    forecast.end(running[0], failed=False)
    Path(str(running[1].log)).write_text(others + "10:05:00 cola: 8,551 training inputs\n")
    running = [*running[1:], Job(16, "finetune_task", {}, "a", str(tmp_path / "16.log"))]
    forecast.running = lambda: running
    forecast.remaining_jobs = lambda: RemainingJobs(rest.jobs[1:], 16)
    forecast.update()
    assert forecast.left.seconds == pytest.approx(44 * 100, abs=2)


# --- what is expected of a job


def write(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def record(rule: str, key: str, *seconds: float) -> None:
    for number, time in enumerate(seconds):
        write(f"benchmarks/{rule}/{key}/{number:05d}.tsv", f"s\tcpu_time\n{time}\tNA\n")


def corpus(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "parts": {"part-00000": [text]}, "settings": {"source": "files", "cleaning": []}}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A corpus and a phase, and nothing on record; its folder is where the test works."""
    monkeypatch.chdir(tmp_path)
    plan = Plan({"sequence_lengths": [128]}, {}, Path("models"))
    plan.corpora["book-1"] = corpus("book", "a.txt")
    plan.phases["0" * 16] = {"phase": "phase1", "model": MODEL, "dataset": "d", "settings": SETTINGS}
    plan.datasets["d"] = {"path": "d"}
    return plan


def expected(plan: Plan, rule: str, **wildcards: str) -> float | None:
    return ExpectedTimes(plan)(rule, wildcards).seconds


def test_parts_are_expected_to_take_as_long_as_others_of_their_corpus(plan: Plan) -> None:
    assert expected(plan, "read_part", corpus="book-1", part="part-00007") is None
    record("read_part", "book-2", 3)  # of another corpus, which may be a thousand times larger
    assert expected(plan, "read_part", corpus="book-1", part="part-00007") is None
    record("read_part", "book-1", 60, 70, 800)
    assert expected(plan, "read_part", corpus="book-1", part="part-00007") == 70


def test_the_same_text_under_other_settings_takes_as_long(plan: Plan) -> None:
    record("read_part", "book-2", 30)
    write("results/recipes/book-2.json", json.dumps(corpus("book", "other.txt")))
    assert expected(plan, "read_part", corpus="book-1", part="part-00000") is None
    same = corpus("book", "a.txt") | {"settings": {"source": "files", "cleaning": ["headings"]}}
    write("results/recipes/book-2.json", json.dumps(same))
    assert expected(plan, "read_part", corpus="book-1", part="part-00000") == 30


def test_another_vocabulary_of_the_same_text_takes_as_long(plan: Plan) -> None:
    plan.datasets["new"] = dataset = {
        "corpora": ["book-1"],
        "settings": {"shards": 2, "tokenizer": {"vocab_size": 500}},
    }
    plan.phases["0" * 16]["dataset"] = "new"
    other = {**dataset, "settings": {"shards": 2, "tokenizer": {"vocab_size": 400}}, "sequence_lengths": [128]}
    write("results/recipes/old.json", json.dumps(other))
    write("results/recipes/oldphase.json", json.dumps({**plan.phases["0" * 16], "dataset": "old"}))
    record("encode_shard", "old", 20, 22, 24)
    write("benchmarks/trigram_baseline/oldphase.tsv", "s\n9\n")
    assert expected(plan, "encode_shard", dataset="new", shard="00000") == 22
    assert expected(plan, "trigram_baseline", phase="0" * 16) == 9
    write("results/recipes/old.json", json.dumps({**other, "settings": {"shards": 9}}))
    assert expected(plan, "encode_shard", dataset="new", shard="00000") is None


def test_another_seed_of_a_fine_tuning_takes_as_long(plan: Plan) -> None:
    one = {"task": "cola", "model": MODEL, "data": {"train": "t.tsv"}, "seed": 1}
    settings = {"epochs": 3, "learning_rate": 1e-5}
    plan.finetunings["1" * 16] = one | {"settings": settings}
    write("benchmarks/finetune_task/" + "2" * 16 + ".tsv", "s\n40\n")
    other = write("results/recipes/" + "2" * 16 + ".json", json.dumps(one | {"seed": 2, "settings": {"epochs": 9}}))
    assert expected(plan, "finetune_task", finetuning="1" * 16) is None
    other.write_text(json.dumps(one | {"seed": 2, "settings": settings | {"learning_rate": 2e-5}}))
    assert expected(plan, "finetune_task", finetuning="1" * 16) == 40


def test_the_fine_tunings_that_are_left_are_estimated_by_task(plan: Plan) -> None:
    finished, left, other = "2" * 16, "1" * 16, "3" * 16
    for key, task in ((finished, "cola"), (left, "cola"), (other, "squad_v1")):
        plan.finetunings[key] = {"task": task, "model": MODEL, "data": {}, "settings": {}}
        write(f"results/recipes/{key}.json", json.dumps(plan.finetunings[key]))
    plan.runs["first"] = {
        "finetunings": {"glue/cola/seed2": finished, "glue/cola/seed1": left, "squad_v1/seed1": other}
    }
    for name in paths.FINETUNING_OUTPUTS:
        write(f"results/finetunings/{finished}/{name}", "{}")
    write(f"benchmarks/finetune_task/{finished}.tsv", "s\n36\n")
    cola, squad = finetuning_estimates(plan)
    assert (cola.what, cola.jobs, cola.node_hours) == ("fine-tunings first/glue/cola", 1, pytest.approx(0.01))
    assert (squad.what, squad.node_hours) == ("fine-tunings first/squad_v1", None)


def test_a_phase_trains_as_fast_as_finished_ones_of_its_network_and_starts_as_they_did(plan: Plan) -> None:
    assert expected(plan, "pretrain_phase", phase="0" * 16) is None
    folder = Path("results/phases", "1" * 16)
    recipe = {"model": MODEL, "settings": SETTINGS, "world_size": 2, "hardware": "a CPU"}
    write(str(folder / paths.RECIPE), json.dumps({**recipe, "started": 1_000, "finished": 51_000}))
    write(str(folder / paths.WEIGHTS), "")
    point = {
        "step": 10,
        "timestamp": 9000,
        "metrics": {"train/samples_per_second": 8.0, "train/overall_samples_per_second": 8.0},
    }
    write(str(folder / paths.JOURNAL), json.dumps(point) + "\n")
    write(f"benchmarks/pretrain_phase/{folder.name}.tsv", "s\n57\n")  # 50 of training
    assert expected(plan, "pretrain_phase", phase="0" * 16) == pytest.approx(100 * 8 / 8 + 7)


def test_a_phase_of_which_nothing_is_on_record_is_of_the_kind_of_others_with_the_same_work(plan: Plan) -> None:
    plan.phases["1" * 16] = plan.phases["0" * 16] | {"settings": SETTINGS | {"learning_rate": 9.0}}
    plan.phases["2" * 16] = plan.phases["0" * 16] | {"settings": SETTINGS | {"steps": 9}}
    times = ExpectedTimes(plan)
    kinds = [times("pretrain_phase", {"phase": number * 16}).kind for number in "012"]
    assert kinds[0] == kinds[1] != kinds[2]


def test_before_the_first_training_of_a_network_a_trial_of_some_steps_predicts_it(plan: Plan) -> None:
    recipe = {"model": MODEL | {"vocab_size": 9}, "settings": {**SETTINGS, "global_batch_size": 4, "optimizer": "lamb"}}
    record_speed(recipe, {"processes": 2, "device": "a CPU", "busy_seconds": 0.5})
    assert expected(plan, "pretrain_phase", phase="0" * 16) == pytest.approx(100 * 8 / 4 * 0.5)
    (left,) = estimates(plan)
    assert left.basis == "a trial of some steps, on a CPU"


@pytest.mark.parametrize(
    "other",
    [
        *({"sequence_length": 512}, {"precision": "fp32"}, {"packing": True}, {"optimizer": "muon"}),
        *({"optimizer": "shampoo", "shampoo": {"root_interval": 1}}, {"optimizer": "shampoo", "shampoo": {}}),
        *({"kfac": {}}, {"kfac": {"inverse_interval": 1}}),
    ],
)
def test_a_trial_with_other_settings_of_the_speed_predicts_nothing(plan: Plan, other: dict[str, Any]) -> None:
    recipe = {"model": MODEL, "settings": SETTINGS | other}
    record_speed(recipe, {"processes": 2, "device": "a CPU", "busy_seconds": 0.5})
    assert expected(plan, "pretrain_phase", phase="0" * 16) is None
    plan.phases["0" * 16]["settings"] = recipe["settings"]
    assert expected(plan, "pretrain_phase", phase="0" * 16) == pytest.approx(100 * 8 / 8 * 0.5)


def test_settings_of_an_optimizer_that_take_no_time_need_no_other_trial(plan: Plan) -> None:
    settings = SETTINGS | {"optimizer": "shampoo", "kfac": {"damping": 0.1, "skip": []}}
    record_speed(
        {"model": MODEL, "settings": settings | {"shampoo": {"root_interval": 5, "betas": [0.9, 0.99]}}},
        {"processes": 2, "device": "a CPU", "busy_seconds": 0.5},
    )
    other = {"shampoo": {"root_interval": 5, "betas": [0.8, 0.9]}, "kfac": {"damping": 0.2, "skip": []}}
    plan.phases["0" * 16]["settings"] = settings | other | {"soap": {"basis_interval": 3}}
    assert expected(plan, "pretrain_phase", phase="0" * 16) == pytest.approx(100 * 8 / 8 * 0.5)
    plan.phases["0" * 16]["settings"] |= {"shampoo": {"root_interval": 6}}
    assert expected(plan, "pretrain_phase", phase="0" * 16) is None


def test_a_damaged_record_predicts_nothing(plan: Plan) -> None:
    record("read_part", "book-1", 60)
    write("benchmarks/read_part/book-1/00001.tsv", "\0\0")
    write("results/recipes/book-3.json", "[1")
    write("results/recipes/book-4.json", "[]")
    Path("results/recipes/book-5.json").write_bytes(b"\xff")
    assert expected(plan, "read_part", corpus="book-1", part="part-00001") == 60
    assert expected(plan, "split_sentences", corpus="book-1", part="part-00001") is None
    write(f"results/phases/{'1' * 16}/{paths.RECIPE}", "{}")
    for name in (paths.WEIGHTS, paths.JOURNAL):
        write(f"results/phases/{'1' * 16}/{name}", "")
    assert expected(plan, "pretrain_phase", phase="0" * 16) is None


# --- the display


def display_of(rest: RemainingJobs, seconds: float) -> Display:
    display = Display()
    display.console = display.live.console = Console(file=io.StringIO(), width=120, height=40)
    display.describe_jobs(
        lambda rule, wildcards: rule,
        lambda rule, wildcards: None,
        lambda rule, wildcards: (rule, seconds),
        lambda: rest,
    )
    return display


def below(display: Display) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(display.live.get_renderable())
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_terminal_shows_share_and_time_left_from_the_start() -> None:
    display = display_of(RemainingJobs([GraphJob(1, "read"), GraphJob(2, "train", needs=(1,))], 2), 300)
    display.total = 2
    display.forecast.update()
    assert "0 of 2 jobs, 0 %, about 0:10:00 left" in below(display)
    display.done = 2  # before the next look
    assert "2 of 2 jobs\n" in below(display)


def test_a_dry_run_says_how_long_its_jobs_take() -> None:
    dry_run = DryRun()
    dry_run.console = Console(file=io.StringIO(), width=120)
    dry_run.describe_jobs(
        lambda rule, wildcards: rule,
        lambda rule, wildcards: None,
        lambda rule, wildcards: (rule, 300.0),
        lambda: RemainingJobs([GraphJob(1, "read"), GraphJob(2, "train", needs=(1,))], 2),
    )
    for number, rule in ((1, "read"), (2, "train")):
        fields = {"rule_name": rule, "wildcards": {}, "log": [], "output": ["x"], "reason": "", "is_checkpoint": False}
        dry_run.show(event(LogEvent.JOB_INFO, jobid=number, **fields))
    dry_run.stop()
    assert "2 jobs would run, in about 0:10:00." in dry_run.console.file.getvalue()  # type: ignore[attr-defined]


def event(kind: LogEvent, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("snakemake", logging.INFO, "", 0, "", None, None)
    record.__dict__.update(event=kind, **fields)
    return record


def broken(*_: Any) -> Any:
    raise RuntimeError("set changed size during iteration")


def test_an_error_of_the_display_is_one_line_and_ends_no_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VERBOSE", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    handler = LogHandler(SimpleNamespace(dryrun=False), None)  # type: ignore[arg-type]
    assert isinstance(handler.display, Display)
    handler.display.name_of = broken
    for number in (1, 2):
        handler.emit(event(LogEvent.JOB_INFO, jobid=number, rule_name="read", wildcards={}, log=[]))
    handler.close()
    assert capsys.readouterr().err.count("the display has failed") == 1


@pytest.mark.parametrize("is_dry", [True, False])
def test_where_no_graph_is_run_snakemakes_messages_are_shown(
    is_dry: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for --unlock, and --delete-all-output with and without --dry-run."""
    monkeypatch.delenv("VERBOSE", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    said = [message("Building DAG of jobs..."), message("Would delete a.txt"), message("the disk is slow", 30)]
    handler = LogHandler(SimpleNamespace(dryrun=is_dry), None)  # type: ignore[arg-type]
    for record in said:
        handler.emit(record)
    handler.close()
    shown = "".join(capsys.readouterr())
    assert [shown.count(record.getMessage()) for record in said] == [1, 1, 1]
    handler = LogHandler(SimpleNamespace(dryrun=is_dry), None)  # type: ignore[arg-type]
    for record in (message("Assuming a file system."), event(LogEvent.WORKFLOW_STARTED), message("Using shell: bash")):
        handler.emit(record)
    handler.close()
    assert capsys.readouterr() == ("", "")


def message(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("snakemake", level, "", 0, text, None, None)


def test_an_error_of_the_forecast_or_of_drawing_is_no_time_left() -> None:
    display = display_of(RemainingJobs([GraphJob(1, "read")], 2), 300)
    display.total = 1
    looked = threading.Event()

    def break_once_looked() -> RemainingJobs:
        looked.set()
        return broken()

    display.forecast.remaining_jobs = break_once_looked
    display.forecast.start()
    assert looked.wait(240)
    display.stop()
    assert "0 of 1 jobs\n" in below(display)
    display._render = broken  # type: ignore[method-assign]
    assert below(display).strip() == ""
