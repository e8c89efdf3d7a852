"""Profiles of Snakemake: what is finished stays finished, and a job that its cluster starts again stays one job."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROFILES = {path.parent.name: yaml.safe_load(path.read_text()) for path in ROOT.glob("profiles/*/config.yaml")}


@pytest.mark.parametrize("name", PROFILES)
def test_an_edit_of_a_rule_or_another_environment_runs_nothing_again(name: str) -> None:
    """Fingerprints contain what decides results: with the trigger `code`, a new comment would repeat a training."""
    assert PROFILES[name]["rerun-triggers"] == ["mtime", "params"]
    assert PROFILES[name]["rerun-incomplete"] is True


def test_a_job_that_slurm_requeues_is_still_waited_for() -> None:
    """Otherwise snakemake takes the job of a dead node for failed, and submits another one."""
    assert PROFILES["slurm"]["slurm-requeue"] is True
