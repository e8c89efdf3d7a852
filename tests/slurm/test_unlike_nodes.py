"""One training on nodes of two kinds: a heterogeneous job, and work in proportion to speed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from graphs import (
    config,
    durable_step,
    jobs_in_queue,
    journal_steps,
    phase_folder,
    resumptions,
    submitted,
    trained_here,
    trained_weights,
    training_log,
    weights,
    write_site,
    write_yaml,
)
from slurm_cluster import Cluster, trainers_of

pytestmark = [pytest.mark.slow, pytest.mark.fault(row="slurm")]


def test_ranks_on_unlike_nodes_train_the_bits_of_as_many_here_and_are_saved_when_put_back(
    graph: Path, prepared: Path, tmp_path: Path, cluster: Cluster
) -> None:
    steps, balanced = 60, "--load-balancing 1,1,2"
    here = trained_here(prepared, tmp_path / "here", steps=steps, processes=3, trainer_options=balanced)
    write_yaml(graph / "small.yaml", config(steps))
    two_kinds = {
        "gpus_per_node": 2,
        "constraint": "new",
        "additional_nodes": [{"gpus_per_node": 1, "partition": "old"}],
    }
    write_site(graph, two_kinds)
    options = ("pretrain_phase:log_every=1", f"pretrain_phase:trainer_options='{balanced} --checkpoint-every 10'")
    with submitted(graph, trained_weights(graph), "--set-resources", *options) as submission:
        submission.wait_until(lambda: durable_step(graph) >= 10, "training")
        assert list(jobs_in_queue().values()) == ["RUNNING", "RUNNING"]  # a line for each kind
        places = {its["RANK"]: its["SLURMD_NODENAME"] for _, its in trainers_of(cluster.root) if "RANK" in its}
        job = min(jobs_in_queue())
        subprocess.run(["scontrol", "requeue", job.split("+")[0]], check=True)
        submission.finish()
    assert sorted(places) == ["0", "1", "2"]
    assert places["0"] == places["1"] != places["2"] == "gpu3"
    ((last, resumed),) = resumptions(graph)
    assert resumed == last
    assert journal_steps(graph) == journal_steps(here)
    assert weights(graph) == weights(here)


@pytest.mark.long
def test_a_node_that_others_slow_down_gets_less_of_the_work(graph: Path, tmp_path: Path, cluster: Cluster) -> None:
    """One of three nodes is halted three quarters of the time, without the trainer's knowledge."""
    small = config(15)
    run = small["runs"]["first"]
    run["model"] |= {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 512}
    run["phases"]["phase1"] |= {"global_batch_size": 60}
    write_yaml(graph / "small.yaml", small)
    write_site(graph, {"nodes": 2, "constraint": "new", "additional_nodes": [{"nodes": 1, "partition": "old"}]})
    with slowed(cluster, "gpu3"):
        again = shutil.copytree(graph, tmp_path / "equal", symlinks=True)
        measured = seconds_a_step(graph)
        equal = seconds_a_step(again, "pretrain_phase:trainer_options=--load-balancing=equal")
    (said,) = re.findall(r"measured rank weights: (.*)", training_log(graph))
    weights = [float(share) for share in said.split(", ")]
    print(f"weights {said}; a step {measured:.2f} s, with equal parts {equal:.2f} s")
    assert weights[2] < min(weights[:2])
    assert measured < equal


@contextlib.contextmanager
def slowed(cluster: Cluster, node: str) -> Iterator[None]:
    """From outside, as a quota does: what trains on `node` runs a quarter of the time, however busy this machine is."""
    ended = threading.Event()
    throttle = threading.Thread(target=halt_again_and_again, args=(cluster, node, ended))
    throttle.start()
    try:
        yield
    finally:
        ended.set()
        throttle.join()


def halt_again_and_again(cluster: Cluster, node: str, ended: threading.Event) -> None:
    trainers: list[psutil.Process] = []
    while not ended.wait(0.1):
        trainers = [trainer for trainer in trainers if trainer.is_running()] or [
            trainer
            for trainer, its in trainers_of(cluster.root)
            if its.get("SLURMD_NODENAME") == node and has_joined(trainer)
        ]
        with contextlib.suppress(psutil.NoSuchProcess):
            for trainer in trainers:
                trainer.suspend()
            ended.wait(0.3 if trainers else 0)
            for trainer in trainers:
                trainer.resume()


def has_joined(trainer: psutil.Process) -> bool:
    """Whether it speaks to other ranks: that it starts slowly, too, would only take time."""
    try:
        return bool(trainer.net_connections("tcp"))
    except psutil.Error:
        return False


def seconds_a_step(graph: Path, *resources: str) -> float:
    """Train through Slurm; the median over the steps."""
    options = ("pretrain_phase:log_every=1", "pretrain_phase:evaluate_every=0", *resources)
    with submitted(graph, trained_weights(graph), "--set-resources", *options) as submission:
        submission.finish()
    points = [json.loads(line)["metrics"] for line in (phase_folder(graph) / "metrics.jsonl").read_text().splitlines()]
    speeds = [point["train/samples_per_second"] for point in points if "train/samples_per_second" in point]
    return 60 / statistics.median(speeds)
