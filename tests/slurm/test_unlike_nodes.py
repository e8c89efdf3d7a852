"""One training on nodes of two kinds: a heterogeneous job, and work in proportion to speed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
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

pytestmark = pytest.mark.slow


def test_ranks_on_unlike_nodes_train_the_bits_of_as_many_here_and_are_saved_when_put_back(
    graph: Path, prepared: Path, tmp_path: Path, cluster: Cluster
) -> None:
    steps, division = 60, "--division 1,1,2"
    here = trained_here(prepared, tmp_path / "here", steps=steps, processes=3, trainer_options=division)
    write_yaml(graph / "small.yaml", config(steps))
    two_kinds = {"gpus_per_node": 2, "constraint": "new", "beside": [{"gpus_per_node": 1, "partition": "old"}]}
    write_site(graph, two_kinds)
    options = ("pretrain_phase:log_every=1", f"pretrain_phase:trainer_options='{division} --checkpoint-every 10'")
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
@pytest.mark.skipif(psutil.cpu_count() < 2, reason="one core can be no faster than another")
def test_a_node_that_others_slow_down_gets_less_of_the_work(graph: Path, tmp_path: Path, cluster: Cluster) -> None:
    """Two nodes share a core, the third has what another program leaves of the other; nobody tells the trainer."""
    small = config(15)
    run = small["runs"]["first"]
    run["model"] |= {"hidden_size": 128, "num_hidden_layers": 2, "intermediate_size": 512}
    run["phases"]["phase1"] |= {"global_batch_size": 60}
    write_yaml(graph / "small.yaml", small)
    write_site(graph, {"nodes": 2, "constraint": "new", "beside": [{"nodes": 1, "partition": "old"}]})
    with slowed(cluster, "gpu3"):
        again = shutil.copytree(graph, tmp_path / "equal", symlinks=True)
        measured = seconds_a_step(graph)
        equal = seconds_a_step(again, "pretrain_phase:trainer_options=--division=equal")
    (said,) = re.findall(r"measured shares of the ranks: (.*)", training_log(graph))
    shares = [float(share) for share in said.split(", ")]
    print(f"shares {said}; a step {measured:.2f} s, with equal parts {equal:.2f} s")
    assert shares[2] < min(shares[:2])
    assert measured < equal


@contextlib.contextmanager
def slowed(cluster: Cluster, slow: str) -> Iterator[None]:
    """A busy program that comes first on the core that `slow` has for itself; the other nodes share another core."""
    first, second, *_ = every = sorted(psutil.Process().cpu_affinity())
    for name in ("gpu1", "gpu2", "gpu3"):
        cluster.bind_node(name, [second if name == slow else first])
    busy = psutil.Popen([sys.executable, "-c", "while True: pass"])
    busy.cpu_affinity([second])
    busy.nice(-7)  # five of six parts of it
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
        for name in ("gpu1", "gpu2", "gpu3"):
            cluster.bind_node(name, every)


def seconds_a_step(graph: Path, *resources: str) -> float:
    """Train through Slurm; the median over the steps."""
    options = ("pretrain_phase:log_every=1", "pretrain_phase:evaluate_every=0", *resources)
    with submitted(graph, trained_weights(graph), "--set-resources", *options) as submission:
        submission.finish()
    points = [json.loads(line)["metrics"] for line in (phase_folder(graph) / "metrics.jsonl").read_text().splitlines()]
    speeds = [point["train/samples_per_second"] for point in points if "train/samples_per_second" in point]
    return 60 / statistics.median(speeds)
