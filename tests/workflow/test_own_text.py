"""From a folder of texts to a configuration that the graph accepts, with the real trial of training steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from snakemake_runs import environment, run_snakemake

from bertline.settings.configuration import read_yaml

pytestmark = pytest.mark.slow

LINES = [
    "The old wall of the town was built by people who came from the north.",
    "Nobody knew why the river had left its bed in that summer.",
    "She read the letter twice, and then she put it back into the drawer.",
]


def new_configuration(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "workflow/scripts/mine.py", *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def test_texts_get_a_configuration_that_the_graph_plans(workflow_folder: Path) -> None:
    texts = workflow_folder / "my texts"
    texts.mkdir()
    for number in range(30):
        text = " ".join(LINES[(number + shift) % 3] for shift in range(30))
        (texts / f"{number}.txt").write_text(f"Number {number}. {text}")
    rows = "".join(f"{LINES[number % 3]} {number},{number % 3}\n" for number in range(60))
    (texts / "lines.csv").write_text(f"text,label\n{rows.replace(', ', ' ')}")
    given = ("--time", "1m", "--gpus", "0", "--table", "my texts/lines.csv")
    done = new_configuration(workflow_folder, "my texts", *given)
    assert done.returncode == 0, done.stderr
    assert "30 documents" in done.stdout
    assert "Not among the texts, because they are TABLE: my texts/lines.csv\n" in done.stdout
    assert "language en" in done.stdout
    phases = read_yaml(workflow_folder / "mine.yaml")["runs"]["mine"]["phases"]
    assert all(phase["steps"] >= 20 for phase in phases.values())
    planned = run_snakemake(workflow_folder, "--profile", "profiles/local", "--configfile", "mine.yaml", "--dry-run")
    assert "pretrain_phase" in planned.stdout

    written = (workflow_folder / "mine.yaml").read_bytes()
    again = new_configuration(workflow_folder, "my texts")
    assert again.returncode == 1
    assert again.stderr == "error: mine.yaml exists and is not overwritten; give OUTPUT=another.yaml, or FORCE=yes\n"
    assert (workflow_folder / "mine.yaml").read_bytes() == written


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([""], "error: there is no text; give a folder or a file, as make mine TEXT=folder\n"),
        (["absent"], "error: absent does not exist; give a folder of texts or a file, as TEXT=folder\n"),
        (["config", "--time", "soon"], "error: TIME=soon: give a number and s, m, h or d, such as 15m, 2h or 1d\n"),
    ],
)
def test_a_first_mistake_is_one_line(workflow_folder: Path, arguments: list[str], line: str) -> None:
    done = new_configuration(workflow_folder, *arguments)
    assert (done.returncode, done.stderr) == (1, line)
    assert not (workflow_folder / "mine.yaml").exists()
