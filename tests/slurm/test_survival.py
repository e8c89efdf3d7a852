"""What a cluster does to a training job: after each, the weights are those of a training that nothing disturbed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import STEPS
from graphs import (
    EVERY_STEP,
    ONE_NODE,
    accounted,
    config,
    durable_step,
    jobs_in_queue,
    journal_steps,
    last_job,
    resumptions,
    submitted,
    trained_here,
    trained_weights,
    training_log,
    weights,
    write_site,
    write_yaml,
)
from slurm_cluster import Cluster, nodes_in_state, trainers_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.fault(row="slurm")]


@pytest.fixture
def training(graph: Path) -> Path:
    """A graph whose one phase takes STEPS steps of one process."""
    write_yaml(graph / "small.yaml", config(STEPS))
    write_site(graph, ONE_NODE)
    return graph


def assert_as_if_nothing_happened(graph: Path, undisturbed: Path) -> None:
    assert weights(graph) == weights(undisturbed)
    assert journal_steps(graph) == journal_steps(undisturbed)


def running_job() -> str:
    return next(job for job, state in jobs_in_queue().items() if state == "RUNNING")


def test_a_requeued_job_continues_where_it_stopped(training: Path, undisturbed: Path) -> None:
    before = last_job()
    with submitted(training, trained_weights(training), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(training) >= 40, "training")
        subprocess.run(["scontrol", "requeue", running_job()], check=True)
        submission.finish()
    last, resumed = resumptions(training)[0]
    assert resumed == last  # it was saved on the way out: no step is taken twice
    assert_as_if_nothing_happened(training, undisturbed)
    jobs = [(job, state) for job, state, *_ in accounted(before)]
    assert jobs[0][1] == "REQUEUED"
    assert jobs[1] == (jobs[0][0], "COMPLETED")


@pytest.mark.long
def test_two_gpus_of_a_node_are_one_task_whose_ranks_continue_where_they_were_put_back(
    graph: Path, prepared: Path, tmp_path: Path, cluster: Cluster
) -> None:
    """Slurm starts one task, and its launcher a rank for each GPU."""
    write_yaml(graph / "small.yaml", config(STEPS))
    write_site(graph, {"nodes": 1, "gpus_per_node": 2})
    with submitted(graph, trained_weights(graph), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(graph) >= 40, "training")
        ranks = [its for _, its in trainers_of(cluster.root) if "RANK" in its]
        subprocess.run(["scontrol", "requeue", running_job()], check=True)
        submission.finish()
    assert sorted(its["RANK"] for its in ranks) == ["0", "1"]
    assert {(its["WORLD_SIZE"], its["SLURM_PROCID"]) for its in ranks} == {("2", "0")}
    last, resumed = resumptions(graph)[0]
    assert resumed == last
    assert weights(graph) == weights(trained_here(prepared, tmp_path / "here", steps=STEPS, processes=2))


@pytest.mark.long
def test_ranks_on_two_nodes_are_saved_when_their_job_is_put_back(graph: Path, prepared: Path, tmp_path: Path) -> None:
    """Slurm's signal comes to the ranks, and to srun, which could end them before they have saved."""
    straight = trained_here(prepared, tmp_path / "straight", steps=100, processes=2)
    write_yaml(graph / "small.yaml", config(100))
    write_site(graph, {"nodes": 2, "gpus_per_node": 1})
    with submitted(graph, trained_weights(graph), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(graph) >= 20, "training")
        subprocess.run(["scontrol", "requeue", running_job()], check=True)
        submission.finish()
    last, resumed = resumptions(graph)[0]
    assert resumed == last
    assert_as_if_nothing_happened(graph, straight)


@pytest.mark.long
def test_a_preempted_job_saves_within_the_grace_time_and_continues_afterwards(
    training: Path, undisturbed: Path
) -> None:
    with submitted(training, trained_weights(training), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(training) >= 40, "training")
        urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null"]
        asked = subprocess.run([*urgent, "--wrap=true"], capture_output=True, text=True, check=True)
        submission.finish()
    last, resumed = resumptions(training)[0]
    assert resumed == last
    assert_as_if_nothing_happened(training, undisturbed)
    states = {job: state for job, state, *_ in accounted()}
    assert states[asked.stdout.strip()] == "COMPLETED"


@pytest.mark.long
def test_a_job_whose_node_dies_continues_elsewhere(training: Path, undisturbed: Path, cluster: Cluster) -> None:
    before = last_job()
    with submitted(training, trained_weights(training), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(training) >= 40, "training")
        node = subprocess.run(["squeue", "--noheader", "--format=%N"], capture_output=True, text=True, check=True)
        dead = node.stdout.strip()
        cluster.kill_node(dead)
        submission.finish()
    cluster.start_node(dead)
    wait_until(lambda: dead in nodes_in_state("idle"), f"node {dead}", cluster)
    last, resumed = resumptions(training)[0]
    assert 0 <= last - resumed <= 20 + 2  # what was not saved yet, and what was being written
    assert_as_if_nothing_happened(training, undisturbed)
    jobs = accounted(before)
    assert [state for _, state, *_ in jobs] == ["NODE_FAIL", "COMPLETED"]
    assert dead not in jobs[1][2]


@pytest.mark.long
def test_cancelled_or_interrupted_it_leaves_no_process_and_the_next_call_continues(
    training: Path, undisturbed: Path, cluster: Cluster
) -> None:
    with submitted(training, trained_weights(training), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(training) >= 20, "training")
        subprocess.run(["scancel", running_job()], check=True)
        wait_until(lambda: not trainers_of(cluster.root), "the end of every trainer", seconds=60)
        # The executor (2.8) takes sacct's "CANCELLED by 0" for a job that still runs: a person stops snakemake as well.
        submission.interrupt()
        assert submission.wait() != 0
    with submitted(training, trained_weights(training), *EVERY_STEP) as submission:
        submission.wait_until(lambda: durable_step(training) >= 60, "training")
        submission.interrupt()
        wait_until(lambda: not trainers_of(cluster.root), "the end of every trainer", seconds=60)
        assert submission.wait() != 0
        wait_until(lambda: not jobs_in_queue(), "an empty queue", seconds=60)
    with submitted(training, trained_weights(training), *EVERY_STEP) as submission:
        submission.finish()
    assert [last - resumed for last, resumed in resumptions(training)] == [0, 0]
    assert_as_if_nothing_happened(training, undisturbed)


@pytest.mark.long
def test_when_snakemake_is_killed_the_next_call_waits_for_its_job_in_the_queue(
    training: Path, undisturbed: Path, cluster: Cluster
) -> None:
    before = last_job()
    with submitted(training, trained_weights(training), *EVERY_STEP) as first:
        first.wait_until(lambda: durable_step(training) >= 20, "training")
        orphan = running_job()
        first.kill()
        # On quick cores the training would be over before the next call comes.
        halted = [trainer for trainer, _ in trainers_of(cluster.root)]
        for trainer in halted:
            trainer.suspend()
        unlock = [sys.executable, "workflow/scripts/unlock.py", "--configfile", "small.yaml"]
        subprocess.run(unlock, cwd=training, check=True)
        with submitted(training, trained_weights(training), *EVERY_STEP) as second:
            second.wait_until(lambda: len(jobs_in_queue()) == 2, "a second job")
            states = jobs_in_queue()
            assert states.pop(orphan) == "RUNNING"
            assert set(states.values()) == {"PENDING"}
            for trainer in halted:
                trainer.resume()
            second.finish()
    assert_as_if_nothing_happened(training, undisturbed)
    # The first trained all of it; the second found the last checkpoint and published it.
    assert resumptions(training) == [(STEPS, STEPS)]
    assert {state for _, state, *_ in accounted(before)} == {"COMPLETED"}


@pytest.mark.long
def test_a_walltime_far_too_short_is_enough(graph: Path) -> None:
    """Slurm's shortest walltime, a minute, for a training that takes longer: it stops in time, every time."""
    write_yaml(graph / "small.yaml", config(20 * STEPS))
    write_site(graph, {**ONE_NODE, "walltime": 1})
    before = last_job()
    with submitted(graph, trained_weights(graph), *EVERY_STEP) as submission:
        submission.wait_until(lambda: len(resumptions(graph)) >= 2, "the third job")
    assert all(resumed == last > 0 for last, resumed in resumptions(graph))
    jobs = accounted(before)
    assert len({job for job, *_ in jobs}) == 1
    assert "TIMEOUT" not in {state for _, state, *_ in jobs}


@pytest.mark.long
def test_ten_jobs_of_one_step_each_train_as_one_does(graph: Path, prepared: Path, tmp_path: Path) -> None:
    straight = trained_here(prepared, tmp_path / "straight", steps=10)
    write_yaml(graph / "small.yaml", config(10))
    write_site(graph, ONE_NODE)
    before = last_job()
    options = ("pretrain_phase:log_every=1", "pretrain_phase:trainer_options='--stop-after-minutes 0.001'")
    with submitted(graph, trained_weights(graph), "--set-resources", *options) as submission:
        submission.finish(seconds=900)
    # The tenth leaves the evaluation after the last step to the eleventh, which then reports that step and publishes.
    assert resumptions(graph) == [*((step, step) for step in range(1, 10)), (9, 10)]
    assert_as_if_nothing_happened(graph, straight)
    memory = {asked for job, _, _, asked in accounted(before) if job == str(before + 1)}
    assert len(memory) == 1


@pytest.mark.long
def test_three_attempts_without_a_step_are_enough_and_the_reason_is_printed_last(training: Path) -> None:
    before = last_job()
    options = ("--set-resources", "pretrain_phase:trainer_options=--load-balancing=2,1")
    with submitted(training, trained_weights(training), *options) as submission:
        assert submission.wait() != 0
    said = [line for line in submission.output().splitlines() if line.strip()]
    refused = "error: --load-balancing: given 2"
    gave_up = f"pretrain_phase: error: 3 attempts in a row ended without a step beyond 0 (the last: {refused}"
    assert any(line.startswith(gave_up) for line in said[-5:])
    attempts = [line for line in training_log(training).splitlines() if line.startswith(refused)]
    assert len(attempts) == 3
    jobs = accounted(before)
    assert [state for _, state, *_ in jobs] == ["FAILED"] * 4
    # What training takes does not grow.
    assert {memory for *_, memory in jobs} == {3000}
