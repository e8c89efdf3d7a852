"""Fine-tunings as jobs of a real cluster: on two nodes, and several in one job."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from graphs import accounted, last_job, submitted, write_site, write_yaml
from snakemake_runs import TASK, write_external_weights

ONE_NODE = {"nodes": 1, "gpus_per_node": 1}


def write_graph(graph: Path, **task: Any) -> None:
    """Fine-tunings of the sample's tasks from weights that need no training."""
    write_external_weights(graph / "models/theirs")
    tasks = {"cola": {**TASK, **task}}
    config = {
        "evaluation": {"glue": "resources/sample/glue"},
        "runs": {"theirs": {"pretrained": "models/theirs", "finetune": {"glue": tasks}}},
    }
    write_yaml(graph / "small.yaml", config)


def records(graph: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(graph.glob("results/finetunings/*/recipe.json"))]


def test_a_fine_tuning_on_two_nodes_has_a_rank_on_each(graph: Path) -> None:
    write_graph(graph, seeds=1)
    size = {**ONE_NODE, "nodes": 2, "memory_mb": 3000, "walltime": 20}
    write_site(graph, ONE_NODE, finetunings={"default": ONE_NODE, "cola": size})
    before = last_job()
    with submitted(graph, "finetune") as submission:
        submission.finish()
    assert [record["world_size"] for record in records(graph)] == [2]
    assert [nodes for *_, nodes, _ in accounted(before) if re.search("[,-]", nodes)]
    (log,) = graph.glob("logs/finetune_task/*.log")
    assert log.read_text().count("ranks ") == 2


def test_fine_tunings_in_one_job_ask_for_the_resources_of_one(graph: Path) -> None:
    write_graph(graph, seeds=2)
    write_site(graph, ONE_NODE, finetunings={"default": {**ONE_NODE, "memory_mb": 1500, "walltime": 20}})
    path = graph / "profiles/slurm/config.yaml"
    profile = yaml.safe_load(path.read_text())
    profile["groups"]["finetune_task"] = "scores"
    profile["group-components"]["scores"] = 2
    write_yaml(path, profile)
    before = last_job()
    with submitted(graph, "finetune") as submission:
        submission.finish()
    (job,) = re.findall(r"SLURM jobid (\d+) \(log: \S*/group_scores", submission.output())
    fields = ["--format=ReqCPUS,ReqMem,NNodes", "--noheader", "--parsable2", "--allocations"]
    asked = subprocess.run(["sacct", "--jobs", job, *fields], capture_output=True, text=True, check=True).stdout
    assert asked.strip().split("|") == ["1", "1500M", "1"]
    assert job in {number for number, *_ in accounted(before)}
    first, second = sorted(records(graph), key=lambda record: record["started"])
    assert first["finished"] <= second["started"]
