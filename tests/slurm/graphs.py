"""Small graphs on the test cluster: a copy of the workflow that is encoded already, and snakemake run in it."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from slurm_cluster import wait_until
from snakemake_runs import SMALL_CONFIG, copy_workflow, run_snakemake

from bertline.demo_data.generate import generate
from bertline.planning.resolve import make_plan

LOCAL = ("--profile", "profiles/local", "--configfile", "small.yaml", "--cores", "1")
PROFILE = (
    *("--profile", "profiles/slurm"),
    *("--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"),
)
SLURM = (*PROFILE, "--configfile", "small.yaml")
# What a rank computes at once decides the last bits, so it is the same here and on one machine.
MICRO_BATCH_TOKENS = 1024
ONE_NODE = {"nodes": 1, "gpus_per_node": 1}
EVERY_STEP = (
    "--set-resources",
    "pretrain_phase:log_every=1",
    "pretrain_phase:trainer_options='--checkpoint-every 20'",
)


def config(steps: int = 4) -> dict[str, Any]:
    """One run of one phase."""
    small = copy.deepcopy(SMALL_CONFIG)
    run = small["runs"]["first"]
    run["phases"] = {"phase1": {**run["phases"]["phase1"], "steps": steps}}
    del run["finetune"], small["evaluation"]
    return small


def prepare(folder: Path) -> Path:
    """A copy of the workflow, encoded."""
    copy_workflow(folder)
    generate(folder / "resources/sample", 1)
    write_yaml(folder / "small.yaml", config())
    run_snakemake(folder, "encode", *LOCAL)
    return folder


def write_yaml(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def write_site(folder: Path, size: dict[str, Any], **others: Any) -> None:
    """The site file of the test cluster, every phase in jobs of `size`."""
    given = {"cpus_per_gpu": 1, "memory_mb": 3000, "walltime": 20, "micro_batch_tokens": MICRO_BATCH_TOKENS}
    site = {"account": "bert", "partitions": {"cpu": "cpu", "gpu": "gpu"}, **others}
    write_yaml(folder / "site.yaml", {**site, "phases": {"default": {**given, **size}}})


def trained_weights(folder: Path) -> str:
    """What a test of training alone asks snakemake for, without export and tracking: the weights of the last phase."""
    with contextlib.chdir(folder):
        plan = make_plan(yaml.safe_load(Path("small.yaml").read_text()), "config/config.schema.yaml", "config/models")
    *_, phase = plan.phases
    return f"results/phases/{phase}/model.safetensors"


class Submission:
    """A snakemake that sends jobs to Slurm, in a process group of its own; its output is in a file."""

    def __init__(self, folder: Path, *arguments: str, config: str) -> None:
        self.folder = folder
        self.log = folder / f"snakemake-{time.monotonic_ns()}.log"
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", *arguments, *PROFILE, "--configfile", config],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A background shell starts programs that ignore Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def output(self) -> str:
        return self.log.read_text()

    def finish(self, *, seconds: float = 600) -> str:
        """Wait until it ends well; returns its output."""
        status = self.wait(seconds=seconds)
        assert status == 0, self.output()[-6000:] + training_log(self.folder)[-3000:]
        return self.output()

    def wait(self, *, seconds: float = 600) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"snakemake is still running:\n{self.output()[-4000:]}\n{training_log(self.folder)[-3000:]}")

    def wait_until(self, holds: Callable[[], object], what: str, *, seconds: float = 400) -> None:
        """Wait while it runs."""

        def holds_or_ended() -> object:
            return holds() or self.process.poll() is not None

        try:
            wait_until(holds_or_ended, what, seconds=seconds)
        except TimeoutError as error:
            self.kill()
            pytest.fail(f"{error}:\n{self.output()[-4000:]}\n{training_log(self.folder)[-3000:]}")
        assert holds(), f"snakemake ended before {what}:\n{self.output()[-4000:]}"

    def kill(self) -> None:
        """As `kill -9` by a person, or a login node that goes down."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def interrupt(self) -> None:
        """As Ctrl-C in a terminal, which goes to the whole process group."""
        os.killpg(self.process.pid, signal.SIGINT)


@contextlib.contextmanager
def submitted(folder: Path, *arguments: str, config: str = "small.yaml") -> Iterator[Submission]:
    """A submission that does not outlive its test, with all its jobs."""
    submission = Submission(folder, *arguments, config=config)
    try:
        yield submission
    finally:
        submission.kill()
        subprocess.run(["scancel", "--user=root"], check=False)
        wait_until(lambda: not jobs_in_queue(), "an empty queue")


def jobs_in_queue() -> dict[str, str]:
    """The state of every job by its number."""
    listed = subprocess.run(["squeue", "--noheader", "--format=%i|%T"], capture_output=True, text=True, check=True)
    return dict(line.split("|") for line in listed.stdout.split())


def accounted(since: int = 0) -> list[tuple[str, str, str, int]]:
    """Return Slurm's accounting of every job after `since`: number, state, nodes, requested megabytes."""
    fields = ("--format=JobIDRaw,State,NodeList,ReqMem", "--parsable2", "--noheader", "--allocations", "--duplicates")
    listed = subprocess.run(["sacct", *fields], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in listed.stdout.splitlines()]
    return [(job, state, nodes, megabytes(memory)) for job, state, nodes, memory in rows if int(job) > since]


def megabytes(memory: str) -> int:
    number = float(re.sub(r"[^0-9.]", "", memory) or 0)
    return round(number * 1024 if "G" in memory else number)


def last_job() -> int:
    return max((int(job) for job, *_ in accounted()), default=0)


def phase_folder(folder: Path) -> Path:
    """The folder of the graph's one phase; where none is, one that does not exist."""
    return next(folder.glob("results/phases/*"), folder / "results/phases/none")


def durable_step(folder: Path) -> int:
    path = phase_folder(folder) / "checkpoints/durable.json"
    return json.loads(path.read_text())["step"] if path.exists() else 0


def training_log(folder: Path) -> str:
    """The log of all attempts of the training."""
    path = phase_folder(folder) / "checkpoints/training.log"
    return path.read_text() if path.exists() else ""


def resumptions(folder: Path) -> list[tuple[int, int]]:
    """For every resumption: the last step that the log shows before, and the step it went on from."""
    last, found = 0, []
    for line in training_log(folder).splitlines():
        resumed = re.search(r"resuming .* at step (\d+)", line)
        step = re.search(r"\bstep (\d+)/\d+", line)
        if resumed:
            found.append((last, int(resumed.group(1))))
        elif step:
            last = int(step.group(1))
    return found


def weights(folder: Path) -> bytes:
    return (phase_folder(folder) / "model.safetensors").read_bytes()


def journal_steps(folder: Path) -> list[int]:
    lines = (phase_folder(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def trained_here(prepared: Path, folder: Path, *, steps: int, processes: int = 1, trainer_options: str = "") -> Path:
    """The same training on this machine, undisturbed."""
    shutil.copytree(prepared, folder, symlinks=True)
    write_yaml(folder / "small.yaml", config(steps))
    options = [f"processes_per_node={processes}", f"micro_batch_tokens={MICRO_BATCH_TOKENS}", "log_every=1"]
    options.append(f"trainer_options='{trainer_options}'")
    resources = [f"pretrain_phase:{option}" for option in options]
    run_snakemake(folder, trained_weights(folder), *LOCAL, "--set-resources", *resources)
    return folder
