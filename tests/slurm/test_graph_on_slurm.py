"""The graph through Slurm: data jobs, training on two nodes, and what a site file may say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import psutil
import pytest
from graphs import (
    ONE_NODE,
    SLURM,
    accounted,
    config,
    durable_step,
    jobs_in_queue,
    journal_steps,
    last_job,
    submitted,
    trained_here,
    training_log,
    weights,
    write_site,
    write_yaml,
)
from slurm_cluster import Cluster, trainers_of
from snakemake_runs import run_snakemake

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_four_ranks_on_two_nodes_train_the_bits_of_four_ranks_here_and_are_followed_live(
    graph: Path, prepared: Path, tmp_path: Path, cluster: Cluster
) -> None:
    steps = 800  # half a minute of training, so that there is something to follow
    write_yaml(graph / "small.yaml", config(steps))
    write_site(graph, {"nodes": 2, "gpus_per_node": 2})
    log_every_step = (
        "--set-resources",
        "pretrain_phase:log_every=1",
        "pretrain_phase:trainer_options='--checkpoint-every 10'",
    )
    with submitted(graph, "pretrain", *log_every_step) as submission:
        submission.wait_until(lambda: durable_step(graph) >= 10, "training")
        assert list(jobs_in_queue().values()) == ["RUNNING"]
        trainers = trainers_of(cluster.root)
        nodes = {(its["SLURMD_NODENAME"], its.get("RANK")) for _, its in trainers}
        follow(graph)
        live = points(graph)
        # No rank has MLflow's database open, and each speaks to the others alone.
        opened = {file.path for process, _ in trainers for file in opened_by(process)}
        submission.finish()
    ranks = {rank: node for node, rank in nodes if rank is not None}
    assert sorted(ranks) == ["0", "1", "2", "3"]
    assert ranks["0"] == ranks["1"] != ranks["2"] == ranks["3"]
    said = re.findall(r"^ranks (\d) to (\d) of 4 on (gpu\d)$", training_log(graph), flags=re.MULTILINE)
    assert {(first, last) for first, last, _ in said} == {("0", "1"), ("2", "3")}
    assert len({node for *_, node in said}) == 2
    assert 0 < len(live) < steps
    assert not [path for path in opened if "mlflow" in path]
    assert points(graph) == [step for step in journal_steps(graph) if step > 0]
    assert weights(graph) == weights(trained_here(prepared, tmp_path / "here", steps=steps, processes=4))


def opened_by(process: psutil.Process) -> list:
    try:
        return process.open_files()
    except psutil.NoSuchProcess:
        return []


def follow(graph: Path) -> None:
    """What a user runs besides the UI: journals to MLflow, here on the submitting side."""
    records = sorted(map(str, graph.glob("results/runs/*/record-*.json")))
    subprocess.run([sys.executable, "workflow/scripts/track.py", *records], cwd=graph, check=True)


def points(graph: Path) -> list[int]:
    """The steps of the training loss that MLflow holds, in the order of their arrival."""
    client = mlflow.MlflowClient(f"sqlite:///{graph}/mlflow.db")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    phases = [run for run in client.search_runs(experiments) if "train/mlm_loss" in run.data.metrics]
    return [point.step for run in phases for point in client.get_metric_history(run.info.run_id, "train/mlm_loss")]


@pytest.mark.long
def test_data_jobs_share_submissions_and_one_that_slurm_ends_for_memory_gets_more(graph: Path) -> None:
    write_site(graph, ONE_NODE)
    shutil.rmtree(next(graph.glob("results/corpora/book-*")) / "documents")
    shutil.rmtree(graph / "results/datasets")
    before = last_job()
    with submitted(graph, "encode", "--set-resources", "plan_shards:mem_mb=60 * attempt ** 4") as submission:
        submission.finish()
    jobs = accounted(before)
    states = [state for _, state, *_ in jobs]
    # Without control groups Slurm has no state for this; it says so in the job's log.
    assert states.count("FAILED") == 1
    assert set(states) == {"FAILED", "COMPLETED"}
    killed = next(job for job, state, *_ in jobs if state == "FAILED")
    (told,) = graph.glob(f"logs/slurm/rule_plan_shards/*/{killed}.log")
    assert re.search(r"exceeded memory limit \(\d+ > \d+\), being killed", told.read_text())
    assert [memory for job, _, _, memory in jobs if job in (killed, str(int(killed) + 1))] == [60, 960]
    # read_part, sentences, plan_shards twice, write_shard of 3 shards, tokenizer, encode_shard of 3 shards, card
    assert len(states) == len(set(re.findall(r"SLURM jobid (\d+)", submission.output())))
    submitted_rules = re.findall(r"SLURM jobid \d+ \(log: \S*/logs/slurm/(\w+)", submission.output())
    assert submitted_rules.count("group_shards_write_shard") == 1
    assert submitted_rules.count("group_samples_encode_shard") == 1
    assert list(graph.glob("results/datasets/*/dataset.json"))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            {"partitions": {"cpu": "cpu", "gpu": "big"}},
            "partitions.gpu: given 'big', this cluster has cpu, gpu, old, urgent",
        ),
        (
            {"size": {"additional_nodes": [{}, {"partition": "old", "nodes": 2}]}},
            "phases.default.additional_nodes.1.nodes: given 2, partition 'old' has 1",
        ),
        ({"account": "nobody"}, "account: given 'nobody', yours are bert"),
        ({"qos": "no-such"}, "qos: given 'no-such', this cluster has normal"),
        ({"size": {"nodes": 9}}, "phases.default.nodes: given 9, partition 'gpu' has 3"),
        ({"size": {"gpus_per_node": 8}}, "phases.default.gpus_per_node: given 8, partition 'gpu' has nodes with 2"),
        ({"size": {"walltime": 5000}}, "phases.default.walltime: given 5000 minutes, partition 'gpu' allows 1440"),
    ],
)
def test_a_site_that_the_cluster_does_not_have_is_one_line_and_no_job(graph: Path, wrong: dict, line: str) -> None:
    write_site(graph, {**ONE_NODE, **wrong.pop("size", {})}, **wrong)
    before = last_job()
    finished = run_snakemake(graph, "pretrain", *SLURM, check=False)
    assert finished.returncode != 0
    said = [text for text in finished.stdout.splitlines() if "error: " in text]
    assert said
    assert said[0].startswith(f"error: site.yaml: {line}")
    assert last_job() == before


def test_the_reason_of_a_refused_group_is_what_sbatch_said(graph: Path) -> None:
    """The executor's own message about a group is lost."""
    write_site(graph, ONE_NODE)
    for samples in graph.glob("results/datasets/*/seq*"):
        shutil.rmtree(samples)
    options = ("--retries", "0", "--set-resources", "encode_shard:constraint=no-such")
    finished = run_snakemake(graph, "encode", *options, *SLURM, check=False)
    assert finished.returncode != 0
    line = "group samples: sbatch refused it: sbatch: error: Batch job submission failed: Invalid feature specification"
    assert line in finished.stdout.splitlines()
