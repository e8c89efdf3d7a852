"""Slurm's own daemons are away for a while: nothing is submitted twice, no job is forgotten, snakemake continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import STEPS
from fault_counts import TIMES
from graphs import (
    EVERY_STEP,
    ONE_NODE,
    accounted,
    config,
    durable_step,
    last_job,
    submitted,
    trained_weights,
    weights,
    write_site,
    write_yaml,
)
from slurm_cluster import Cluster, succeeds, wait_until
from snakemake_runs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.fault(row="slurm")]

OUTAGE_SECONDS = 60 * TIMES
SBATCH = ROOT / "workflow/slurm/sbatch"


def sbatch(name: str, messages: Path) -> subprocess.Popen[str]:
    """Submit a job as the executor does."""
    command = [
        SBATCH,
        "--parsable",
        f"--job-name={name}",
        "--comment",
        "rule_encode",
        "--output=/dev/null",
        "--wrap=sleep 600",
    ]
    folders = (str(SBATCH.parent), str(Path(sys.executable).parent), os.environ["PATH"])
    environment = {**os.environ, "PATH": os.pathsep.join(folders), "BERTLINE_MESSAGES": str(messages)}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def away(cluster: Cluster) -> Callable[[], None]:
    cluster.stop_daemon("slurmctld")
    return lambda: cluster.start_daemon("slurmctld")


def hung(cluster: Cluster) -> Callable[[], None]:
    """The controller accepts what is sent and does not answer: sbatch fails, and the job is submitted all the same."""
    cluster.signal_daemon("slurmctld", signal.SIGSTOP)
    return lambda: cluster.signal_daemon("slurmctld", signal.SIGCONT)


@pytest.mark.parametrize("outage", [away, hung])
def test_a_submission_waits_for_the_controller_and_happens_once(
    cluster: Cluster, tmp_path: Path, outage: Callable[[Cluster], Callable[[], None]]
) -> None:
    end_outage, messages = outage(cluster), tmp_path / "messages.txt"
    with sbatch(outage.__name__, messages) as waiting:
        wait_until(messages.exists, "a message of the first failure", cluster)
        end_outage()
        printed, errors = waiting.communicate(timeout=120)
    listed = subprocess.run(
        ["squeue", "--noheader", f"--name={outage.__name__}", "--format=%i"], capture_output=True, text=True, check=True
    )
    subprocess.run(["scancel", "--name", outage.__name__], check=True)
    assert (waiting.returncode, errors) == (0, "")
    assert listed.stdout.split() == [printed.strip()]
    assert messages.read_text().count("\n") == 1


def test_accounting_that_is_away_is_not_taken_for_none(cluster: Cluster, tmp_path: Path) -> None:
    write_site(tmp_path, ONE_NODE)
    command = [sys.executable, ROOT / "workflow/scripts/check_site.py", tmp_path / "site.yaml"]
    cluster.stop_daemon("slurmdbd")
    away = subprocess.run(command, capture_output=True, text=True, check=False)
    cluster.start_daemon("slurmdbd")
    wait_until(lambda: succeeds("sacct"), "slurmdbd", cluster)
    assert away.stderr == (
        f"error: {tmp_path}/site.yaml: account: Slurm's accounting does not answer (sacctmgr fails); try again, or, if "
        "it never answers here, leave it out\n"
    )
    subprocess.run(command, capture_output=True, check=True)


def test_a_request_that_slurm_refuses_fails_at_once_with_its_reason(cluster: Cluster, tmp_path: Path) -> None:
    command = [SBATCH, "--partition=no-such", "--wrap=true"]
    folders = (str(SBATCH.parent), str(Path(sys.executable).parent), os.environ["PATH"])
    refused = subprocess.run(
        command,
        env={**os.environ, "PATH": os.pathsep.join(folders)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "invalid partition specified: no-such" in refused.stderr


@pytest.mark.long
def test_a_run_continues_after_outages_of_the_controller_and_of_accounting(
    graph: Path, undisturbed: Path, cluster: Cluster
) -> None:
    """Neither answers during the training. When accounting reports its end, no further job is accepted for a while."""
    before = last_job()
    both = config(STEPS)
    first = both["runs"]["first"]["phases"]["phase1"]
    both["runs"]["first"]["phases"]["phase2"] = {**first, "steps": 2}
    write_yaml(graph / "small.yaml", config(STEPS))
    first_weights = graph / trained_weights(graph)
    write_yaml(graph / "small.yaml", both)
    write_site(graph, ONE_NODE)
    second_weights = graph / trained_weights(graph)
    with submitted(graph, str(second_weights.relative_to(graph)), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(graph) >= 20, "training")
        for daemon in ("slurmctld", "slurmdbd"):
            cluster.stop_daemon(daemon)
        submission.wait_until(first_weights.exists, "the end of the training")
        time.sleep(OUTAGE_SECONDS)
        cluster.start_daemon("slurmdbd")
        wait_until(lambda: succeeds("sacct"), "slurmdbd", cluster)
        cluster.start_daemon("slurmctld")
        submission.wait_until(lambda: [state for _, state, *_ in accounted(before)] == ["COMPLETED"], "its accounting")
        cluster.stop_daemon("slurmctld")
        waits = "Slurm's controller does not answer"
        submission.wait_until(lambda: waits in submission.output(), "a submission that waits")
        time.sleep(OUTAGE_SECONDS)
        assert not second_weights.exists()
        cluster.start_daemon("slurmctld")
        output = submission.finish()
    assert output.count(waits) == 1
    assert first_weights.read_bytes() == weights(undisturbed)
    assert [state for _, state, *_ in accounted(before)] == ["COMPLETED", "COMPLETED"]
