"""A sweep's sizes, batches and scaling, with the trial of steps replaced by a formula."""

from __future__ import annotations

import csv
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from queue_lines import squeue_with

from bertline.console import BertlineError
from bertline.files import Json, read_json
from bertline.planning.resolve import make_plan
from bertline.planning.sweep import by_micro_batch, by_processes, full_name, occurring, recipe_of, sizes
from bertline.planning.trials import exit_on_signals, run_trial
from bertline.reporting.sweep import print_table, table_of_micro_batches, table_of_scaling, write_sweep
from bertline.settings.configuration import read_yaml

CONFIG = Path(__file__).parents[2] / "config"
PHASE: Json = {"settings": {"global_batch_size": 100, "sequence_length": 128}}
FINETUNING: Json = {"task": "cola", "settings": {"batch_size": 32, "max_sequence_length": 64}}


def trial(device: str = "cpu", most: int = 1000) -> Callable[[Json, int, int], Json]:
    """Steps of 10 ms and 1 ms a sequence, on processes that halve it exactly; 1 GB and 0.1 GB a sequence at once."""

    def run(recipe: Json, processes: int, tokens: int) -> Json:
        settings = recipe["settings"]
        sequences = settings.get("global_batch_size") or settings["batch_size"]
        at_once = tokens // (settings.get("sequence_length") or settings["max_sequence_length"])
        if at_once > most:
            return {"fits": False}
        seconds = 0.01 + 0.001 * sequences / processes
        return {
            "fits": True,
            "device": device,
            "sequences": sequences,
            "tokens": tokens * sequences // at_once,
            "step_seconds": seconds,
            "sequences_per_second": sequences / seconds,
            "tokens_per_second": 128 * sequences / seconds,
            "tflops_per_second": 1.0,
            "model_flops_utilization": None,
            "memory_bytes": 10**9 + 10**8 * at_once,
            "start_seconds": 1.0,
        }

    return run


@pytest.mark.parametrize(
    ("first", "last", "most", "expected"),
    [
        (1, 64, 64, [1, 2, 4, 8, 16, 32, 64]),
        (1, 1, 64, [1]),
        (3, 20, 64, [3, 6, 12, 20]),
        (4, 5, 64, [4, 5]),
        (2, 8, 8, [2, 4, 8]),
        (1, 64, 16, [1, 2, 4, 8, 16]),
        (4, 64, 13, [4, 8, 13]),
        (16, 64, 16, [16]),
    ],
)
def test_sizes_double_up_to_the_last_that_occurs(first: int, last: int, most: int, expected: list[int]) -> None:
    assert sizes(first, last, most=most) == expected


@pytest.mark.parametrize(
    ("first", "last", "line"),
    [
        (0, 4, "FROM=0 TO=4: give 1 or more"),
        (32, 4, "FROM=32 TO=4: give 1 or more"),
        (17, 64, "FROM=17: a process has 16 sequences of a step, and no more at once; give fewer"),
    ],
)
def test_impossible_sizes_are_one_line(first: int, last: int, line: str) -> None:
    with pytest.raises(BertlineError, match=f"^{line}"):
        sizes(first, last, most=16)


@pytest.mark.parametrize(
    ("batch", "processes", "given", "expected"),
    [
        (6, 1, [3, 5], [3]),
        (100, 1, [1, 2, 4, 8, 16, 32, 64, 100], [1, 2, 4, 8, 15, 25, 50, 100]),
        (100, 3, [16, 32, 34], [12, 17, 34]),
        (64, 2, [1, 8, 32], [1, 8, 32]),
    ],
)
def test_a_training_uses_every_size_that_is_timed(
    batch: int, processes: int, given: list[int], expected: list[int]
) -> None:
    phase = {"settings": {**PHASE["settings"], "global_batch_size": batch}}
    assert occurring(phase, given, processes) == expected
    rows = by_micro_batch(phase, expected, processes=processes, trial=trial())
    for row in rows:  # and its trial, too
        timed = {"settings": {**phase["settings"], "global_batch_size": row["sequences"]}}
        assert occurring(timed, [row["micro_batch_size"]], processes) == [row["micro_batch_size"]]
    # A fine-tuning fills its micro-batches one after the other.
    assert occurring(FINETUNING, [3, 5, 32], 1) == [3, 5, 32]


def test_the_first_size_that_does_not_fit_is_a_row_and_ends_the_sweep() -> None:
    rows = list(by_micro_batch(PHASE, [1, 2, 4, 8], processes=1, trial=trial("NVIDIA", most=2)))
    assert [(row["micro_batch_size"], row["fits"]) for row in rows] == [(1, True), (2, True), (4, False)]


def test_a_cpu_is_not_driven_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 GB and 0.1 GB a sequence: 8 at once need 1.8 GB, and two processes 3.6.
    monkeypatch.setattr("bertline.planning.sweep.available_memory", lambda: int(3.5e9))
    alone, two = (
        [row["fits"] for row in by_micro_batch(PHASE, [1, 2, 4, 8, 16, 32], processes=n, trial=trial())] for n in (1, 2)
    )
    assert alone == [True, True, True, True, True, False]
    assert two == [True, True, True, False]


def test_a_step_accumulates_as_many_micro_batches_as_the_phase_but_few() -> None:
    found = {
        row["micro_batch_size"]: row["sequences"]
        for row in by_micro_batch(PHASE, [1, 16, 64, 100], processes=1, trial=trial())
    }
    assert found == {1: 8, 16: 96, 64: 64, 100: 100}
    # A fine-tuning's batch is one micro-batch of each process.
    rows = by_micro_batch(FINETUNING, [4], processes=2, trial=trial())
    assert [row["sequences"] for row in rows] == [8]


def test_speed_up_is_by_the_same_global_batch() -> None:
    rows = list(by_processes(PHASE, [4, 1, 2], micro_batch_size=5, trial=trial()))
    assert [row["processes"] for row in rows] == [1, 2, 4]
    assert {row["sequences"] for row in rows} == {100}
    # 110, 60 and 35 ms.
    assert [round(row["speed_up"], 3) for row in rows] == [1.0, round(110 / 60, 3), round(110 / 35, 3)]
    assert [round(row["efficiency"], 3) for row in rows] == [1.0, round(110 / 120, 3), round(110 / 140, 3)]
    # Not by a larger one than the phase's.
    rows = list(by_processes(PHASE, [1, 4], micro_batch_size=50, trial=trial()))
    assert {row["sequences"] for row in rows} == {100}


def test_a_row_has_the_micro_batch_that_so_many_processes_compute() -> None:
    """With more of them, each has fewer sequences of the step."""
    asked = []

    def record(recipe: Json, processes: int, tokens: int) -> Json:
        asked.append(tokens)
        return trial()(recipe, processes, tokens)

    def micro_batches(recipe: Json, size: int, numbers: list[int]) -> list[int]:
        return [row["micro_batch_size"] for row in by_processes(recipe, numbers, micro_batch_size=size, trial=record)]

    assert micro_batches(PHASE, 100, [1, 2, 3]) == [100, 50, 34]
    assert asked == [128 * 100, 128 * 50, 128 * 34]
    assert micro_batches(FINETUNING, 32, [1, 2, 5]) == [32, 16, 7]
    assert micro_batches(FINETUNING, 8, [1, 2]) == [8, 8]


def test_a_pair_of_a_ranking_has_two_sequences() -> None:
    pairs: Json = {"task": "ranking", "settings": {**FINETUNING["settings"], "objective": "pairwise"}}
    asked = []

    def record(recipe: Json, processes: int, tokens: int) -> Json:
        asked.append(tokens)
        return trial()(recipe, processes, tokens)

    for recipe in (FINETUNING, pairs):
        list(by_micro_batch(recipe, [2], processes=1, trial=record))
    assert asked == [128, 256]


def test_a_training_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(read_yaml(CONFIG / "demo.yaml"), CONFIG / "config.schema.yaml", CONFIG / "models")
    phase = recipe_of(plan, "demo/phase1")
    assert phase["phase"] == "phase1"
    assert phase["initial_weights"] is None
    (dataset,) = plan.config["datasets"].values()
    assert phase["model"]["vocab_size"] == dataset["tokenizer"]["vocab_size"]
    assert recipe_of(plan, "demo/phase2")["initial_weights"] is None
    assert {full_name(plan, name) for name in ("", "demo", "demo/warm_up")} == {"demo/warm_up"}
    assert full_name(plan, "demo/glue/cola") == "demo/glue/cola"
    with pytest.raises(BertlineError, match="there is no training called demo/phas1; near it are demo/phase1"):
        recipe_of(plan, "demo/phas1")


def test_a_task_whose_data_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = read_yaml(CONFIG / "demo.yaml")
    config["evaluation"]["glue"] = "nowhere"
    plan = make_plan(config, CONFIG / "config.schema.yaml", CONFIG / "models")
    with pytest.raises(BertlineError, match=r"^demo/glue/cola: runs\.\S+glue\.cola is left out: .*nowhere"):
        recipe_of(plan, "demo/glue/cola")


def test_a_configuration_without_a_training_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = {"kind": "classification", "train": "no.csv", "dev": "no.csv", "texts": ["text"], "label": "label"}
    run = {"pretrained": {"hub": "user/bert", "revision": 40 * "0"}, "finetune": {"tables": {"t": {}}}}
    config = {"contact": "a@b.org", "evaluation": {"tables": {"t": table}}, "runs": {"mine": run}}
    plan = make_plan(config, CONFIG / "config.schema.yaml", CONFIG / "models")
    with pytest.raises(BertlineError, match=r"^mine: the configuration has no training to time here \(.*no\.csv"):
        recipe_of(plan, "mine")
    run["finetune"] = {}
    plan = make_plan(config, CONFIG / "config.schema.yaml", CONFIG / "models")
    with pytest.raises(BertlineError, match=r"^mine: the configuration has no training to time here; add one$"):
        recipe_of(plan, "mine")


def test_the_timed_steps_are_of_the_full_batch_and_without_what_steps_do_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = read_yaml(CONFIG / "demo.yaml")
    without = {"batch_size_warmup": None, "publish_best_every": None, "corpus_weights": {}, "carry_over": "weights"}
    given = {"batch_size_warmup": {"from": 8, "steps": 100}, "publish_best_every": 10}
    given |= {"corpus_weights": {"wikipedia": 2.0}, "carry_over": "weights+moments"}
    config["runs"]["demo"]["phases"]["phase1"] |= given
    plan = make_plan(config, CONFIG / "config.schema.yaml", CONFIG / "models")
    planned = plan.phases[plan.runs["demo"]["phases"]["phase1"]]["settings"]
    assert {key: planned[key] for key in given} == given
    assert recipe_of(plan, "demo/phase1")["settings"] == planned | without


def test_weights_that_are_not_fetched_yet_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("text,label\nwarm,a\ncold,b\n")
    table = {"kind": "classification", "train": "t.csv", "dev": "t.csv", "texts": ["text"], "label": "label"}
    run = {"pretrained": {"hub": "user/bert", "revision": 40 * "0"}, "finetune": {"tables": {"t": {}}}}
    config = {"contact": "a@b.org", "evaluation": {"tables": {"t": table}}, "runs": {"mine": run}}
    plan = make_plan(config, CONFIG / "config.schema.yaml", CONFIG / "models")
    with pytest.raises(BertlineError, match=r"config\.json does not exist; fetch the weights first: `snakemake \S+`"):
        recipe_of(plan, "mine/table/t")


def test_without_a_name_there_has_to_be_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = read_yaml(CONFIG / "demo.yaml")
    config["runs"] = {"first": config["runs"]["demo"], "second": config["runs"]["demo"]}
    plan = make_plan(config, CONFIG / "config.schema.yaml", CONFIG / "models")
    with pytest.raises(BertlineError, match="there are 2 runs; name one of them, or a training: first, second"):
        full_name(plan, "")


def sweep_of(rows: list[Json], scaling: list[Json]) -> Json:
    return {"name": "demo/phase1", "micro_batches": rows, "scaling": scaling}


def test_files_have_every_row(tmp_path: Path) -> None:
    rows = list(by_micro_batch(PHASE, [1, 2, 4], processes=1, trial=trial("NVIDIA", most=2)))
    scaling = list(by_processes(PHASE, [1, 2], micro_batch_size=2, trial=trial()))
    write_sweep(tmp_path, sweep_of(rows, scaling))
    assert read_json(tmp_path / "sweep.json")["micro_batches"] == rows
    read: list[dict[str, Any]] = list(csv.DictReader((tmp_path / "micro_batches.csv").open()))
    assert [row["fits"] for row in read] == ["True", "True", "False"]
    assert [float(row["sequences_per_second"]) for row in read[:2]] == [row["sequences_per_second"] for row in rows[:2]]
    assert read[2]["step_seconds"] == ""
    assert next(csv.DictReader((tmp_path / "scaling.csv").open()))["speed_up"] == "1.0"
    for name in ("micro_batches", "scaling"):
        assert ElementTree.parse(tmp_path / f"{name}.svg").getroot().tag.endswith("svg")  # noqa: S314 - our own
    assert "does not fit" in table_of_micro_batches(rows)
    assert "1.00" in table_of_scaling(scaling)


def test_figures_are_of_the_columns_that_their_axes_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Sequence[Any]] = {}

    def draw(name: str, *columns: Any) -> str:
        drawn[name] = columns
        return ""

    for name in ("speed_by_micro_batch", "speed_up"):
        monkeypatch.setattr(f"bertline.reporting.figures.{name}", partial(draw, name))
    rows = list(by_micro_batch(PHASE, [1, 2], processes=1, trial=trial()))
    scaling = list(by_processes(PHASE, [1, 2], micro_batch_size=2, trial=trial()))
    write_sweep(tmp_path, sweep_of(rows, scaling))
    assert drawn["speed_by_micro_batch"] == ([1, 2], [row["sequences_per_second"] for row in rows], [1.1, 1.2])
    assert drawn["speed_up"] == ([1, 2], [1.0, scaling[1]["speed_up"]])


def test_the_share_of_the_peak_is_in_percent() -> None:
    rows = list(by_micro_batch(PHASE, [1], processes=1, trial=trial()))
    assert table_of_micro_batches([rows[0] | {"model_flops_utilization": 0.4321}]).split()[-1] == "43.2"


@pytest.mark.parametrize(("size", "line"), [(1, "1 sequence: micro_batch_tokens=128"), (2, "2 sequences: ")])
def test_the_fastest_size_is_a_line(capsys: pytest.CaptureFixture[str], size: int, line: str) -> None:
    print_table("micro_batches", list(by_micro_batch(PHASE, [size], processes=1, trial=trial())))
    assert f"The fastest are micro-batches of {line}" in capsys.readouterr().out


def test_a_single_number_of_processes_has_no_table_of_scaling(tmp_path: Path) -> None:
    write_sweep(tmp_path, sweep_of(list(by_micro_batch(PHASE, [1], processes=1, trial=trial())), []))
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.json", "micro_batches.csv", "micro_batches.svg"}


def test_a_repeated_sweep_leaves_no_figure_of_the_one_before(tmp_path: Path) -> None:
    rows = list(by_micro_batch(PHASE, [2], processes=1, trial=trial()))
    scaling = list(by_processes(PHASE, [1, 2], micro_batch_size=2, trial=trial()))
    write_sweep(tmp_path, sweep_of(rows, scaling))
    assert (tmp_path / "scaling.svg").exists()
    # Of as many sizes and processes: it has the same folder.
    write_sweep(tmp_path, sweep_of(rows, [scaling[0], {"micro_batch_size": 2, "processes": 2, "fits": False}]))
    assert (tmp_path / "scaling.csv").exists()
    assert not (tmp_path / "scaling.svg").exists()


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--options='"], "--options ': No closing quotation; close each quotation mark"),
        (["--seconds", "-1"], "--seconds -1: give more than 0"),
        (["--seconds", "nan"], "--seconds nan: give more than 0"),
        (["--threads", "-1"], "--threads -1: give 1 or more"),
        (["--from", "128", "--to", "128"], "FROM=128: a process has 32 sequences of a step, and no more at once"),
        (
            ["--options=--compile --micro-batch-tokens 128"],
            "--options --micro-batch-tokens: a sweep varies it; give FROM and TO",
        ),
        (["--options=--micro_batch_tokens=128"], "--options --micro_batch_tokens=128: a sweep varies it; give FROM"),
        (
            ["--options=--threads 1"],
            "--options --threads: a sweep divides them; give workflow/scripts/sweep.py --threads",
        ),
        (["--options=--seconds 9"], "--options --seconds: a sweep sets it; give workflow/scripts/sweep.py --seconds"),
        (["--options=--output=x"], "--options --output=x: a sweep has files of its own; leave it out"),
        (["--options=--recipe x"], "--options --recipe: a sweep has files of its own; leave it out"),
        (["--options=--help"], "--options --help: it times nothing; run `python workflow/scripts/pretrain.py --help`"),
        (["--options=-h"], "--options -h: it times nothing; run `python workflow/scripts/pretrain.py --help`"),
        (["--options=--profile 2:3"], "--options --profile: a sweep writes no profile; leave it out"),
        (["--options=--no-profile"], "--options --no-profile: a sweep writes no profile; leave it out"),
        (["--options=--no_micro_batch_tokens"], "--options --no_micro_batch_tokens: a sweep varies it; give FROM"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(
    given: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = CONFIG.parent / "workflow/scripts/sweep.py"
    monkeypatch.setattr("sys.argv", ["sweep.py", "demo", "--configfile", str(CONFIG / "demo.yaml"), *given])
    with pytest.raises(SystemExit) as exited:
        runpy.run_path(str(script), run_name="__main__")
    assert f"error: {line}" in f"{exited.value} {capsys.readouterr().err}"


def run_sweep(
    monkeypatch: pytest.MonkeyPatch, run_trial: Callable[..., Json], *given: str, name: str = "demo/phase1"
) -> None:
    script, config = CONFIG.parent / "workflow/scripts/sweep.py", str(CONFIG / "demo.yaml")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # which the script sets: other tests do not see it then
    monkeypatch.setattr("bertline.planning.sweep.run_trial", run_trial)
    monkeypatch.setattr("sys.argv", ["sweep.py", name, "--configfile", config, "--gpus", "0", *given])
    runpy.run_path(str(script), run_name="__main__")


def test_no_size_is_timed_that_a_step_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    timed: list[tuple[int, int]] = []

    def run_trial(recipe: Json, *, processes: int, options: Sequence[str], **_: object) -> Json:
        timed.append((processes, int(options[1]) // 128))
        return trial()(recipe, processes, int(options[1]))

    caplog.set_level("INFO")
    monkeypatch.setattr("bertline.tracking.store.track_entry", lambda *_: None)
    run_sweep(monkeypatch, run_trial, "--to", "64", "--processes", "4,2")
    assert timed == [(2, 1), (2, 2), (2, 4), (2, 8), (2, 1), (4, 1)]
    assert "a step of demo/phase1 has 16 sequences: micro-batches of more than 8 do not occur" in caplog.text
    assert "timing 128 tokens at once, 2 processes\n" in caplog.text
    timed.clear()
    run_sweep(monkeypatch, run_trial, "--from", "3", "--to", "7", "--processes", "1")
    assert timed == [(1, 3), (1, 6)]  # of 16 sequences: 7 at once are 6
    assert "timing 384 tokens at once, 1 process\n" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BertlineError("a trial of some steps failed: no reason")])
@pytest.mark.parametrize(
    ("trials", "sizes_timed", "processes_timed"), [(2, ["1", "2"], []), (4, ["1", "2", "4"], ["1"])]
)
def test_what_ends_a_sweep_loses_no_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    trials: int,
    sizes_timed: list[str],
    processes_timed: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    done: list[int] = []

    def run_trial(recipe: Json, *, processes: int, options: Sequence[str], **_: object) -> Json:
        if len(done) == trials:
            raise error
        done.append(processes)
        return trial()(recipe, processes, int(options[1]))

    with pytest.raises(SystemExit) as ended:
        run_sweep(monkeypatch, run_trial, "--to", "4", "--processes", "1,2")
    assert ended.value.code in (130, "error: a trial of some steps failed: no reason")
    printed = capsys.readouterr().out
    assert "The fastest are micro-batches of" in printed
    (folder,) = (tmp_path / "results/sweeps/demo/phase1").iterdir()
    assert f"Tables and figures: {folder.relative_to(tmp_path)}" in printed
    rows = list(csv.DictReader((folder / "micro_batches.csv").open()))
    assert [row["micro_batch_size"] for row in rows] == sizes_timed
    assert [row["processes"] for row in read_json(folder / "sweep.json")["scaling"]] == list(map(int, processes_timed))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_a_sweep_loses_no_row_and_ends_its_trial(tmp_path: Path, number: signal.Signals) -> None:
    """As at the end of a job, and of a terminal."""
    for name in ("launch.py", "start_ranks.py"):
        (tmp_path / name).write_text((CONFIG.parent / "workflow/scripts" / name).read_text())
    speed = trial()({"settings": {"global_batch_size": 8, "sequence_length": 128}}, 1, 128)
    (tmp_path / "time_steps.py").write_text(f"""
import os, pathlib, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if given["--micro-batch-tokens"] == "128":
    pathlib.Path(given["--output"]).write_text('{json.dumps(speed)}')
else:
    pathlib.Path("rank").write_text(f"{{os.getpid()}} ")
    time.sleep(100)
""")
    script, config = CONFIG.parent / "workflow/scripts/sweep.py", CONFIG / "demo.yaml"
    program = f"""
import pathlib, runpy
from bertline.planning import trials
trials.SCRIPTS = pathlib.Path({str(tmp_path)!r})
runpy.run_path({str(script)!r}, run_name="__main__")
"""
    command = [sys.executable, "-c", program, "demo/phase1", "--configfile", config, "--gpus", "0", "--to", "2"]
    sweep, rank = subprocess.Popen(command, cwd=tmp_path), tmp_path / "rank"
    while not rank.exists() or not rank.read_text().endswith(" "):
        assert sweep.poll() is None
        time.sleep(0.05)
    sweep.send_signal(number)
    assert sweep.wait(60) == 128 + number
    (table,) = (tmp_path / "results/sweeps/demo/phase1").glob("*/micro_batches.csv")
    assert [row["micro_batch_size"] for row in csv.DictReader(table.open())] == ["1"]
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid := int(rank.read_text())) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_second_signal_does_not_interrupt_the_saving() -> None:
    saved = []

    def measure() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            saved.append("rows")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, exit_on_signals():
        measure()
    assert saved
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_sweep_that_ended_early_replaces_no_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertline.tracking.store.track_entry", lambda *_: None)
    left = 100

    def run_trial(recipe: Json, *, processes: int, options: Sequence[str], **_: object) -> Json:
        nonlocal left
        left -= 1
        if not left:
            raise BertlineError("a trial of some steps failed: no reason")
        return trial()(recipe, processes, int(options[1]))

    run_sweep(monkeypatch, run_trial, "--to", "4", "--processes", "1,2")
    (whole,) = (tmp_path / "results/sweeps/demo/phase1").iterdir()
    content = (whole / "sweep.json").read_bytes()
    left = 3
    with pytest.raises(SystemExit):
        run_sweep(monkeypatch, run_trial, "--to", "4", "--processes", "1,2")
    assert (whole / "sweep.json").read_bytes() == content
    assert len(list(whole.parent.iterdir())) == 2


def test_a_sweep_of_a_run_is_one_of_its_first_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertline.tracking.store.track_entry", lambda *_: None)

    def run_trial(recipe: Json, *, processes: int, options: Sequence[str], **_: object) -> Json:
        return trial()(recipe, processes, int(options[1]))

    for name in ("", "demo", "demo/warm_up"):
        run_sweep(monkeypatch, run_trial, "--to", "1", name=name)
    (file,) = Path("results/sweeps").rglob("sweep.json")
    assert read_json(file)["name"] == "demo/warm_up"
    assert file.parts[2:4] == ("demo", "warm_up")


def test_sweeps_with_other_threads_or_options_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertline.tracking.store.track_entry", lambda *_: None)
    started: list[tuple[int, int]] = []

    def run_trial(recipe: Json, *, processes: int, threads: int, options: Sequence[str], **_: object) -> Json:
        started.append((processes, threads))
        return trial()(recipe, processes, int(options[1]))

    one_size = ("--from", "2", "--to", "2")
    run_sweep(monkeypatch, run_trial, *one_size, "--processes", "2", "--threads", "1")
    run_sweep(monkeypatch, run_trial, *one_size, "--processes", "2", "--threads", "4")
    run_sweep(monkeypatch, run_trial, *one_size, "--processes", "2", "--threads", "4", "--options=--compile")
    assert started == [(2, 2), (2, 4), (2, 4)]  # at least one of each process
    recorded = [read_json(file)["options"] for file in Path("results/sweeps/demo/phase1").glob("*/sweep.json")]
    assert sorted(recorded) == [[], [], ["--compile"]]


def test_a_killed_rank_is_a_size_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory the kernel kills it; another signal is an error."""
    for name in ("launch.py", "start_ranks.py"):
        (tmp_path / name).write_text((CONFIG.parent / "workflow/scripts" / name).read_text())
    monkeypatch.setattr("bertline.planning.trials.SCRIPTS", tmp_path)
    killing = "import os, signal\nif os.environ.get('RANK', '0') == '0':\n    os.kill(os.getpid(), signal.{})\n"
    for processes in (1, 2):
        (tmp_path / "time_steps.py").write_text(killing.format("SIGKILL"))
        assert run_trial({}, processes=processes, threads=2, options=[]) == {"fits": False}
    (tmp_path / "time_steps.py").write_text(killing.format("SIGSEGV"))
    with pytest.raises(BertlineError, match=r"a trial of some steps failed: .* was ended by SIGSEGV"):
        run_trial({}, processes=1, threads=1, options=[])


def test_a_trial_in_a_job_with_a_walltime_gets_no_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scripts do not save, and have no option --stop-after-minutes."""
    for name in ("launch.py", "start_ranks.py"):
        (tmp_path / name).write_text((CONFIG.parent / "workflow/scripts" / name).read_text())
    (tmp_path / "time_steps.py").write_text(
        "import json, pathlib, sys\n"
        "output = pathlib.Path(sys.argv[sys.argv.index('--output') + 1])\n"
        "output.write_text(json.dumps({'arguments': sys.argv}))\n"
    )
    squeue = squeue_with("77", "RUNNING", "59:30", "0", "/somewhere", "rule_a")
    (tmp_path / "squeue").write_text(f"{squeue}touch '{tmp_path}/asked'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setattr("bertline.planning.trials.SCRIPTS", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for variable, value in (("SLURM_JOB_ID", "77"), ("BERTLINE_JOB_ENDS", str(time.time() + 3600))):
        with monkeypatch.context() as job:
            job.setenv(variable, value)
            arguments = run_trial({}, processes=1, threads=1, options=[])["arguments"]
        assert "--stop-after-minutes" not in arguments
    assert not (tmp_path / "asked").exists()


def test_without_gpus_a_sweep_times_the_cpus(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine with a GPU that the installed PyTorch cannot use, and with one that it would take."""
    shown: list[str] = []

    def run_trial(*_: object, **__: object) -> Json:
        shown.append(os.environ["CUDA_VISIBLE_DEVICES"])
        raise BertlineError("stopped here")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("bertline.planning.sweep.run_trial", run_trial)
    monkeypatch.setattr("bertline.proposal.machine._gpus", lambda: (("NVIDIA H100",), 80 * 10**9, True))
    monkeypatch.setattr("bertline.proposal.machine.metadata.version", lambda name: "2.13.0+cpu")
    script, config = CONFIG.parent / "workflow/scripts/sweep.py", str(CONFIG / "demo.yaml")
    said = []
    for more in ([], ["--gpus", "0"]):
        monkeypatch.setattr("sys.argv", ["sweep.py", "demo/phase1", "--configfile", config, *more])
        with pytest.raises(SystemExit) as exited:
            runpy.run_path(str(script), run_name="__main__")
        said.append(f"{exited.value} {capsys.readouterr().err}")
    assert "is a build for CPUs" in said[0]
    assert "error: stopped here" in said[1]
    assert shown == [""]
