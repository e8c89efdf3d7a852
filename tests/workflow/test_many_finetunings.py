"""A grid of thousands of fine-tunings: planned, shown, and its record written."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, jobs_of, run_snakemake

from bertline.tasks.glue import GLUE_TASKS

ARGUMENT_BYTES = 128 * 1024  # the longest single argument that Linux takes
RATES = [2.0e-5, 3.0e-5, 4.0e-5, 5.0e-5, 1.0e-4]


@pytest.fixture
def graph(workflow_folder: Path) -> Path:
    """A folder with a text, and a file for each set of GLUE's tasks; no job ever reads them."""
    (workflow_folder / "text.txt").write_text("A sentence.\n")
    for described in GLUE_TASKS.values():
        for name in described.files.values():
            path = workflow_folder / "glue" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name}\n")
    return workflow_folder


def write_config(graph: Path, *, rates: list[float], seeds: int, **settings: Any) -> None:
    config: dict[str, Any] = copy.deepcopy(SMALL_CONFIG)
    config["corpora"] = {"text": {"source": "files", "paths": ["text.txt"]}}
    config["datasets"]["small"]["corpora"] = ["text"]
    config["evaluation"] = {"glue": "glue"}
    grid = {"learning_rate": rates, "batch_size": [16, 32], "epochs": [2, 3, 4]}
    task = {"seeds": seeds, "grid": grid, "max_sequence_length": 64, **settings}
    config["runs"]["first"]["finetune"] = {"glue": {name: task for name in GLUE_TASKS}}
    (graph / "grid.yaml").write_text(yaml.dump(config, Dumper=NoAliases))


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


OPTIONS = ("--profile", "profiles/local", "--configfile", "grid.yaml")


@pytest.mark.slow
def test_thousands_of_finetunings_are_shown_and_their_scores_are_on_no_command_line(graph: Path) -> None:
    """A submission chooses among them. Nothing is written."""
    write_config(graph, rates=RATES, seeds=12, predict_test=True)
    output = run_snakemake(graph, "all", "submission", "--dry-run", "--printshellcmds", *OPTIONS).stdout
    assert jobs_of(output)["finetune_task"] == 9 * 30 * 12 > 3000
    assert jobs_of(output)["write_report"] == 1
    commands = [line for line in output.splitlines() if ".py " in line]
    assert any("glue_submission.py" in line for line in commands)
    assert max(map(len, commands)) < 2000
    assert not (graph / "results/recipes").exists()


@pytest.mark.slow
def test_a_record_that_is_longer_than_an_argument_reaches_its_job(graph: Path) -> None:
    """Of the grid that BERT's authors searched, with five seeds."""
    write_config(graph, rates=RATES[:4], seeds=5)
    finished = run_snakemake(graph, "report", "--until", "describe_run", *OPTIONS)
    (record,) = graph.glob("results/runs/first/record-*.json")
    assert record.stat().st_size > ARGUMENT_BYTES
    assert len(json.loads(record.read_text())["finetunings"]) == 9 * 24 * 5
    # Settings are in files, and the terminal is for what happens.
    assert len(finished.stdout) < ARGUMENT_BYTES
    # Of fine-tunings, models, phases, the dataset, the corpus, the run, and the plan of the graph.
    assert len(list(graph.glob("results/recipes/*.json"))) == 9 * 24 * 5 + 9 + 2 + 1 + 1 + 1 + 1
