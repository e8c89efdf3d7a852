"""The graph through a scheduler that is not Slurm: a fake that behaves as PBS, LSF, Cobalt and Grid Engine do."""

from __future__ import annotations

import contextlib
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

import psutil
import pytest
import yaml
from fake_scheduler import PROGRAMS, SLOTS, is_free, programs
from snakemake_runs import PHASE, SMALL_CONFIG, copy_workflow

from bertline.planning.resolve import make_plan, plan_of_files

pytestmark = pytest.mark.slow
BOOK = "resources/sample/books/book-001.txt"
CHECKPOINTS = ("--set-resources", "pretrain_phase:trainer_options=--checkpoint-every 20", "pretrain_phase:log_every=10")
PROFILE = (
    *("--profile", "profiles/cluster-generic", "--configfile", "small.yaml"),
    *("--seconds-between-status-checks", "1", "--latency-wait", "5"),
)

KINDS = list(PROGRAMS)


def config(steps: int) -> dict[str, Any]:
    """A run of one phase on a book."""
    model, dataset = SMALL_CONFIG["runs"]["first"]["model"], SMALL_CONFIG["datasets"]["small"]
    phases = {"phase1": {**PHASE, "sequence_length": 128, "steps": steps}}
    return {
        "sequence_lengths": [128],
        "corpora": {"book": {"source": "files", "paths": [BOOK], "separator": "* * *", "sentences": "unicode"}},
        "datasets": {"small": {**dataset, "corpora": ["book"], "shards": 1}},
        "runs": {"first": {"dataset": "small", "model": model, "phases": phases}},
    }


class Cluster:
    """A copy of the workflow and a fake scheduler."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder / "graph"
        self.folder.mkdir()
        copy_workflow(self.folder)
        self.use(kind)
        (self.folder / "text.txt").write_text("It rained. It rained all day.\n")
        self.write_site({})

    def use(self, kind: str) -> None:
        """Have the programs of this scheduler on the PATH."""
        self.kind, self.bin = kind, self.folder.with_name(kind)
        self.environment = {**os.environ, **programs(kind, self.bin), "NO_COLOR": "1"}

    def write_site(self, size: dict[str, int]) -> None:
        """The site file; sizes as little as can be."""
        given = {"gpus_per_node": 0, "cpus_per_gpu": 1, "memory_mb": 2000, "micro_batch_tokens": 1024}
        site: dict[str, Any] = {"account": "ours", "partitions": {"cpu": "small", "gpu": "large"}}
        site["grid_engine"] = {"one_node": "smp", "several_nodes": "filled"}
        (self.folder / "site.yaml").write_text(yaml.safe_dump({**site, "phases": {"default": {**given, **size}}}))

    def write_config(self, content: dict[str, Any]) -> str:
        """The configuration; returns the weights that it asks for."""
        (self.folder / "small.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        with contextlib.chdir(self.folder):
            (phase,) = make_plan(content, "config/config.schema.yaml", "config/models").phases
        return f"results/phases/{phase}/model.safetensors"

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *arguments, *PROFILE],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Background shells ignore it, and what they start inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def run(self, *arguments: str, succeeds: bool = True, **environment: str) -> str:
        process = self.start(*arguments, **environment)
        output, _ = process.communicate(timeout=300)
        assert (process.returncode == 0) == succeeds, output[-5000:] + self.logs()
        return output

    def jobs(self) -> list[dict[str, Any]]:
        """Every job sent, in the order of their numbers."""
        paths = sorted((self.bin / "jobs").glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in paths]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in (self.folder / "logs" / self.kind).glob("*.log"))

    def processes(self) -> list[psutil.Process]:
        """Those of any job."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("FAKE_JOB", "").startswith(str(self.bin)):
                    found.append(process)
        return found

    def kill(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, getattr(request, "param", "pbs"))
    yield made
    made.kill()


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Iterator[Cluster]:
    """A book that went through the graph up to its samples, job by job, on PBS."""
    made = Cluster(tmp_path_factory.mktemp("encoded"), "pbs")
    shutil.copytree(sample, made.folder / "resources/sample")
    made.write_config(config(steps=1))
    made.run("encode")
    yield made
    made.kill()


def wait_until(holds: Callable[[], object], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"no {what} after {seconds} s"
        time.sleep(0.1)


def test_the_data_jobs_went_through_the_queue(encoded: Cluster) -> None:
    jobs = encoded.jobs()
    assert {job["status"] for job in jobs} == {0}
    assert len(list(encoded.folder.glob("logs/pbs/*.log"))) == len(jobs)
    # Both shards in one job, one after the other: it has the memory of one.
    (log,) = encoded.folder.glob("logs/pbs/samples-*.log")
    assert re.findall(r"^Execute (\d+) jobs", log.read_text(), re.MULTILINE) == ["1", "1"]
    assert len(list(encoded.folder.glob("results/datasets/*/seq128/*.h5"))) == 2


def start_training(cluster: Cluster, weights: str) -> subprocess.Popen[str]:
    """Ask for weights, and wait until their training has saved a step."""
    process = cluster.start(weights, *CHECKPOINTS)
    saved = (cluster.folder / weights).with_name("checkpoints") / "durable.json"
    wait_until(lambda: saved.exists() or process.poll() is not None, "checkpoint")
    if process.poll() is not None:
        pytest.fail(process.communicate()[0][-5000:] + cluster.logs())
    return process


@pytest.mark.parametrize(("kind", "number"), [("pbs", "{}.fake"), ("cobalt", "{}")])
def test_a_training_that_its_walltime_ended_continues_in_the_next_job(encoded: Cluster, kind: str, number: str) -> None:
    """On two nodes, of which Cobalt tells only the first."""
    if encoded.kind != kind:
        encoded.use(kind)
    steps = 400 + KINDS.index(kind)  # another training for each
    weights = encoded.write_config(config(steps))
    encoded.write_site({"nodes": 2})
    process = start_training(encoded, weights)
    first = len(encoded.jobs())
    (encoded.bin / f"jobs/{first}.expire").touch()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output[-5000:] + encoded.logs()
    ended, last = encoded.jobs()[first - 1 :]
    assert (ended["status"], last["status"]) == (-29, 0)
    assert last["nodes"] == ["127.0.0.1", "127.0.0.2"]
    assert f"job {number.format(first)} was ended from outside (walltime" in output
    folder = (encoded.folder / weights).parent
    log = (folder / "checkpoints/training.log").read_text()
    assert log.count("node 1 of 2: 127.0.0.2") == 2
    (resumed,) = re.findall(r"resuming .* at step (\d+)", log)
    assert 0 < int(resumed) < steps
    assert f"asked to stop: step {resumed} is saved" in log
    trained = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert trained == sorted(set(trained))
    assert trained[-1] == steps
    recipe = json.loads((folder / "recipe.json").read_text())
    assert recipe["world_size"] == 2
    assert recipe["jobs"] == [f"{kind} {number.format(job)}" for job in (first, first + 1)]


def test_settings_and_checkpoints_of_the_command_line_reach_the_jobs(encoded: Cluster) -> None:
    """A job reads the configuration anew: without them it would know neither the phase nor the step to keep."""
    encoded.write_config(config(steps=5))
    encoded.write_site({})
    name, setting = "results/runs/first/phase1@step-2", "set=runs.first.phases.phase1.steps=3"
    refused = encoded.run(name, "--config", setting, succeeds=False)
    assert "error: --config replaces that of the profile, which names your site file; add site=site.yaml" in refused
    encoded.run(name, "--config", "site=site.yaml", setting)
    with contextlib.chdir(encoded.folder):
        (phase,) = plan_of_files(["small.yaml"], ["runs.first.phases.phase1.steps=3"]).phases
    assert (encoded.folder / f"results/phases/{phase}/exports/step-2/model.safetensors").exists()


def test_a_cancelled_snakemake_leaves_no_process(encoded: Cluster) -> None:
    encoded.use("pbs")
    weights = encoded.write_config(config(steps=100_000))
    encoded.write_site({})
    process = start_training(encoded, weights)
    assert encoded.processes()
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    wait_until(lambda: encoded.jobs()[-1]["state"] == "over", "end of the job")
    assert encoded.jobs()[-1]["status"] == 271
    assert not encoded.processes()
    assert not (encoded.folder / weights).exists()


def texts(*paths: str) -> dict[str, Any]:
    """A configuration with a corpus of each file."""
    content = config(steps=1)
    book = content["corpora"].pop("book")
    content["corpora"] = {path.partition(".")[0]: {**book, "paths": [path]} for path in paths}
    content["datasets"]["small"]["corpora"] = list(content["corpora"])
    return content


@pytest.mark.parametrize("cluster", list(PROGRAMS), indirect=True)
def test_a_job_that_fails_is_reported_with_its_reason_and_the_others_finish(cluster: Cluster) -> None:
    (cluster.folder / "bad.txt").write_bytes("Das M\u00e4dchen\n".encode("latin-1"))
    cluster.write_config(texts("text.txt", "bad.txt"))
    output = cluster.run("corpus", "--retries", "0", succeeds=False)
    assert len(list(cluster.folder.glob("results/corpora/text-*/documents/*.zst"))) == 1
    assert sorted(job["status"] for job in cluster.jobs()) == [0, 1]
    last = "\n".join(output.splitlines()[-8:])
    assert re.search(r"read_part: error: .*bad\.txt is not utf-8: byte 5 is 0xe4", last)


@pytest.mark.parametrize(
    ("cluster", "answer"),
    [
        ("pbs", "qsub: Unknown queue"),
        ("sge", 'Unable to run job: Job was rejected because job requests unknown queue "nowhere" Exiting.'),
    ],
    indirect=["cluster"],
)
def test_a_refused_job_is_one_line(cluster: Cluster, answer: str) -> None:
    cluster.write_config(texts("text.txt"))
    site = yaml.safe_load((cluster.folder / "site.yaml").read_text())
    site["partitions"]["cpu"] = "nowhere"
    (cluster.folder / "site.yaml").write_text(yaml.safe_dump(site))
    output = cluster.run("corpus", "--retries", "0", succeeds=False)
    assert f"error: qsub refused the job read_part: {answer}; see site.yaml" in output


# Waits, before its first submission, for the test to write to a pipe.
SLOW_QSUB = """#!/bin/sh
cd {bin}
mkdir asked 2> /dev/null && read go < pipe
cd "$OLDPWD"
exec {bin}/real-qsub "$@"
"""


def test_a_job_whose_submission_outlives_snakemake_is_cancelled(cluster: Cluster) -> None:
    """Ctrl-C while qsub is waiting for the server: snakemake ends before qsub answers."""
    cluster.write_config(texts("text.txt"))
    (cluster.bin / "qsub").rename(cluster.bin / "real-qsub")
    (cluster.bin / "qsub").write_text(SLOW_QSUB.format(bin=cluster.bin))
    (cluster.bin / "qsub").chmod(0o755)
    os.mkfifo(cluster.bin / "pipe")
    with contextlib.ExitStack() as held:
        # Jobs wait: no slot is free.
        for slot in range(SLOTS):
            assert is_free(cluster.bin / f"slot-{slot}", held)
        process = cluster.start("corpus")
        wait_until(lambda: (cluster.bin / "asked").exists() or process.poll() is not None, "submission")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) != 0
        assert not cluster.jobs()
        (cluster.bin / "pipe").write_text("go\n")
        output, _ = process.communicate(timeout=60)  # the submission, too, has ended
        assert "snakemake has ended; its new job 1.fake was canceled" in output
        wait_until(lambda: cluster.jobs()[0]["state"] == "over", "end of the job")
    assert [job["status"] for job in cluster.jobs()] == [271]
    assert not list(cluster.folder.glob("logs/pbs/sent-*"))


def test_jobs_that_cannot_be_cancelled_are_named(cluster: Cluster) -> None:
    """Ctrl-C while the scheduler's server is away."""
    cluster.write_config(texts("text.txt"))
    (cluster.bin / "qdel").rename(cluster.bin / "real-qdel")
    (cluster.bin / "qdel").write_text("#!/bin/sh\necho 'qdel: cannot connect to server' >&2\nexit 111\n")
    (cluster.bin / "qdel").chmod(0o755)
    with contextlib.ExitStack() as held:
        # Jobs wait: no slot is free.
        for slot in range(SLOTS):
            assert is_free(cluster.bin / f"slot-{slot}", held)
        process = cluster.start("corpus")
        wait_until(lambda: any(path.read_text() for path in cluster.folder.glob("logs/pbs/sent-*")), "submission")
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        assert "error: qdel: cannot connect to server; unfinished jobs run on until `qdel 1.fake`" in output
        subprocess.run([cluster.bin / "real-qdel", "1.fake"], env=cluster.environment, cwd=cluster.folder, check=True)
        wait_until(lambda: cluster.jobs()[0]["state"] == "over", "end of the job")
