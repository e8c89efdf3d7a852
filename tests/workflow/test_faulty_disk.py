"""Disks that are full, over a quota or read-only at a random stage: one line, and the same command continues later."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_counts import TIMES, drawing
from finished_results import assert_same_results
from snakemake_runs import SMALL_CONFIG, copy_workflow, run_snakemake

pytestmark = [pytest.mark.slow, pytest.mark.fault(row="disk")]
# Targets go before it.
OPTIONS = ("--profile", "profiles/local", "--configfile", "small.yaml", "--retries", "0")
SCORES = ("finetune", "report")  # all but MLflow, whose database is on another disk
FAILURES = 2 * TIMES  # of each kind
FAILED = re.compile(r"^Error in rule (\w+):$", re.MULTILINE)


def mounted(undo: ExitStack, folder: Path, *options: str) -> None:
    """Mount a disk for as long as the test runs; skip it where that is not allowed."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    done = subprocess.run(["mount", *options, folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting a small disk is not allowed here: {done.stderr.strip()}")
    undo.callback(subprocess.run, ["umount", "--lazy", folder], check=True)


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def graph(tmp_path: Path, sample: Path) -> Path:
    folder = copy_workflow(tmp_path / "graph")
    shutil.copytree(sample, folder / "resources/sample")
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL_CONFIG, sort_keys=False))
    return folder


def fail(graph: Path, reason: str, targets: tuple[str, ...]) -> str:
    """Run the graph into the fault; returns the rule that met it, or `start` if none had started."""
    output = run_snakemake(graph, *targets, *OPTIONS, check=False).stdout
    assert "Traceback (most recent call last)" not in output, output[-4000:]
    errors = [text.strip() for text in output.splitlines() if text.strip().startswith("error: ")]
    assert errors, output[-4000:]
    assert all(re.search(reason, text, re.IGNORECASE) for text in errors), errors
    assert not list((graph / "results").rglob("*.part"))
    return next(iter(FAILED.findall(output)), "start")


def mend_often(
    graph: Path,
    reason: str,
    give: Callable[[int], None],
    draw: random.Random,
    needed: int,
    targets: tuple[str, ...] = (),
) -> Counter[str]:
    """Give the results more room after each failure, a random one, in the end enough; returns the rules that failed."""
    rooms = sorted(draw.randrange(needed // 50, needed) for _ in range(FAILURES))
    failed = Counter[str]()
    for room in rooms:
        give(room)
        failed[fail(graph, reason, targets)] += 1
    give(needed * 4)
    run_snakemake(graph, *targets, *OPTIONS)
    return failed


def size_of(results: Path) -> int:
    return int(subprocess.run(["du", "-sb", results], capture_output=True, text=True, check=True).stdout.split()[0])


def test_a_disk_that_is_full_at_a_random_stage(
    graph: Path, finished: Path, undo: ExitStack, record_property: Any
) -> None:
    results = graph / "results"
    mounted(undo, results, "-t", "tmpfs", "-o", "size=64k", "tmpfs")

    def give(room: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={room}", results], check=True)

    needed = size_of(finished / "results")
    failed = mend_often(graph, "no space left", give, drawing("full disks"), needed)
    assert_same_results(graph, finished)
    record_property("faults", FAILURES)
    record_property("failed in", json.dumps(failed))


def test_a_disk_that_is_full_before_the_first_job(graph: Path, undo: ExitStack) -> None:
    """The plan remembers the digests of inputs in the results."""
    mounted(undo, graph / "results", "-t", "tmpfs", "-o", "size=4k", "tmpfs")
    (graph / "results/filler").write_bytes(bytes(4096))
    output = run_snakemake(graph, "--dry-run", *OPTIONS, check=False).stdout
    (error,) = (line for line in output.splitlines() if "no space left" in line.lower())
    where = "results/digests-of-inputs.json"
    assert error == f"error: no space left while writing {where}; free some space and run the same command again"


def test_a_quota_that_is_reached_at_a_random_stage(
    graph: Path, finished: Path, tmp_path: Path, undo: ExitStack, record_property: Any
) -> None:
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("a disk with quotas needs btrfs (Debian: apt install btrfs-progs)")
    disk, results = tmp_path / "disk", graph / "results"
    with (tmp_path / "image").open("wb") as image:
        image.truncate(512 << 20)
    subprocess.run(["mkfs.btrfs", "--quiet", image.name], check=True)
    mounted(undo, disk, "-o", "loop", image.name)
    for command in ("quota enable", "subvolume create"):
        subprocess.run(["btrfs", *command.split(), disk / "results" if "create" in command else disk], check=True)
    results.symlink_to(disk / "results")

    def give(room: int) -> None:
        subprocess.run(["btrfs", "qgroup", "limit", str(room), disk / "results"], check=True)

    needed = size_of(finished / "results")
    failed = mend_often(graph, "no quota left|disk quota exceeded", give, drawing("quotas"), needed, SCORES)
    assert_same_results(graph, finished)
    record_property("faults", FAILURES)
    record_property("failed in", json.dumps(failed))


@pytest.fixture
def encoded(tmp_path: Path, finished: Path) -> Path:
    """A graph whose data is encoded, and nothing trained."""
    folder = shutil.copytree(finished, tmp_path / "encoded", symlinks=True)
    for name in ("phases", "finetunings", "kept", "runs", "report"):
        shutil.rmtree(folder / "results" / name)
    return folder


def test_results_that_cannot_be_written_any_more(
    encoded: Path, finished: Path, undo: ExitStack, record_property: Any
) -> None:
    results = encoded / "results"
    mounted(undo, encoded / "disk", "-t", "tmpfs", "tmpfs")
    shutil.move(results, encoded / "disk/results")
    results.symlink_to("disk/results")
    for stage in ("encode", "pretrain"):
        run_snakemake(encoded, stage, *OPTIONS)
        subprocess.run(["mount", "-o", "remount,ro", encoded / "disk"], check=True)
        output = run_snakemake(encoded, *OPTIONS, check=False).stdout
        assert "error: results cannot be written; allow it, or mount its disk for writing" in output
        subprocess.run(["mount", "-o", "remount,rw", encoded / "disk"], check=True)
    run_snakemake(encoded, *SCORES, *OPTIONS)
    assert_same_results(encoded, finished)
    record_property("faults", 2)


@pytest.mark.parametrize(
    "folder", [".snakemake", "results/recipes", "results/runs/first", "results/phases", "logs/pretrain_phase"]
)
def test_a_folder_that_another_user_may_only_read_is_one_line(encoded: Path, undo: ExitStack, folder: str) -> None:
    path = encoded / folder
    mounted(undo, path, "--bind", str(path))
    subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    done = run_snakemake(encoded, "pretrain", *OPTIONS, check=False)
    errors = [line for line in done.stdout.splitlines() if "error" in line.lower()]
    assert len(errors) == 1, done.stdout[-4000:]
    assert re.match(
        rf"error: .*{re.escape(folder)}\b.*(cannot be written|Read-only file system); .*allow it", errors[0]
    )
    assert "Traceback" not in done.stdout
    assert done.returncode == 1


def test_a_clock_that_was_set_back_is_one_line_and_runs_nothing_twice(encoded: Path, finished: Path) -> None:
    """What was made before it has times in the future, and what was made of it seems older."""
    in_three_hours = time.time() + 3 * 3600
    for path in encoded.rglob("*"):
        os.utime(path, (in_three_hours, in_three_hours), follow_symlinks=False)
    output = run_snakemake(encoded, "pretrain", *OPTIONS, check=False).stdout
    assert "3.0 hours ahead of this machine's clock; set the clock right" in output
    subprocess.run(
        ["find", "resources", "results", "-exec", "touch", "--no-dereference", "{}", "+"], cwd=encoded, check=True
    )
    run_snakemake(encoded, "pretrain", *OPTIONS)
    assert "Nothing to be done" in run_snakemake(encoded, "pretrain", *OPTIONS).stdout
    weights = [path.relative_to(finished) for path in finished.glob("results/phases/*/model.safetensors")]
    assert len(weights) == 2
    assert all((encoded / path).read_bytes() == (finished / path).read_bytes() for path in weights)
