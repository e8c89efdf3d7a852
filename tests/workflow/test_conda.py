"""Rules in the conda environment that Snakemake makes of envs/bertline.yaml; only conda itself is a fake."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fake_conda
import pytest
import yaml
from snakemake_runs import PHASE, ROOT, SMALL_CONFIG, copy_workflow

pytestmark = pytest.mark.slow
PYTHON = next(
    entry.removeprefix("python =")
    for entry in yaml.safe_load((ROOT / "envs/bertline.yaml").read_text())["dependencies"]
    if str(entry).startswith("python =")
)
# Snakemake itself imports bertline, from where the tests do.
SNAKEMAKE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from snakemake.cli import main; main()"
TEXT = "\n* * *\n".join(f"It rained on day {day}. The river rose by {day} feet." for day in range(200))


@pytest.mark.skipif(
    f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON, reason=f"the environment is one of Python {PYTHON}"
)
def test_a_book_is_read_and_trained_on_in_the_conda_environment(tmp_path: Path) -> None:
    """No other environment has a Python with the packages that the scripts import, and none has bertline installed."""
    folder = copy_workflow(tmp_path / "checkout")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (folder / "book.txt").write_text(TEXT)
    dataset = {**SMALL_CONFIG["datasets"]["small"], "corpora": ["book"], "shards": 1}
    phases = {"phase1": {**PHASE, "sequence_length": 128, "steps": 1}}
    config = {
        "sequence_lengths": [128],
        "corpora": {"book": {"source": "files", "paths": ["book.txt"], "separator": "* * *", "sentences": "unicode"}},
        "datasets": {"small": dataset},
        "runs": {"first": {"dataset": "small", "model": SMALL_CONFIG["runs"]["first"]["model"], "phases": phases}},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(config))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{fake_conda.install(tmp_path / 'conda')}:/usr/bin:/bin"
    command = ["pretrain", "--sdm", "conda", "--profile", "profiles/local", "--configfile", "small.yaml"]
    done = subprocess.run(
        [sys.executable, "-c", SNAKEMAKE, str(ROOT / "src"), *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert list(folder.glob("results/phases/*/huggingface/model.safetensors"))
