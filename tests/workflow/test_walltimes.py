"""The walltimes of a run's jobs are compared with the partitions of Slurm before the first job is submitted."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, book_config, copy_workflow, run_snakemake

SITE = {
    # The cluster has another one, so a run whose walltimes it allows ends with NEXT_ERROR instead of submitting jobs.
    "account": "ours",
    "partitions": {"cpu": "cpu", "gpu": "gpu"},
    "phases": {"default": {"gpus_per_node": 1, "walltime": 60}},
    "finetunings": {"default": {"walltime": 60}},
}
NEXT_ERROR = "error: site.yaml: account: given 'ours', yours are theirs"
FAILS = "#!/bin/sh\nexit 1\n"
OPTIONS = ("--profile", "profiles/slurm", "--slurm-status-command", "squeue", "--retries", "0")

Run = Callable[..., CompletedProcess]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run snakemake with the profile of Slurm, on a cluster whose partitions allow these times."""
    folder, programs = copy_workflow(tmp_path / "graph"), tmp_path / "programs"
    programs.mkdir()
    (folder / "site.yaml").write_text(yaml.safe_dump(SITE))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def run_on_cluster(config: dict, *arguments: str, cpu: str, gpu: str = "1-00:00:00") -> CompletedProcess:
        listed = f"cpu|20|{cpu}|(null)|64|256000|1-infinite|up|OFF\ngpu|2|{gpu}|gpu:2|64|256000|1-infinite|up|OFF\n"
        sinfo = f"#!/bin/sh\ncat <<'END'\n{listed}END\n"
        scripts = {"sinfo": sinfo, "sacctmgr": "#!/bin/sh\necho theirs\n", "sbatch": FAILS, "squeue": FAILS}
        for name, script in scripts.items():
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        (folder / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        return run_snakemake(folder, *arguments, *OPTIONS, "--configfile", "small.yaml", check=False)

    return run_on_cluster


def error_of(finished: CompletedProcess) -> str:
    (line,) = (line for line in finished.stdout.splitlines() if line.startswith("error: "))
    return line


def test_a_group_of_data_jobs_that_its_partition_does_not_allow_is_one_line(run: Run, tmp_path: Path) -> None:
    config = book_config()
    config["corpora"] = {f"book{number}": {"source": "files", "paths": [f"{number}.txt"]} for number in range(8)}
    config["datasets"]["small"]["corpora"] = list(config["corpora"])
    for number in range(8):
        (tmp_path / "graph" / f"{number}.txt").write_text(f"Text number {number}.")
    assert error_of(run(config, "corpus", cpu="4:00:00")) == (
        "error: site.yaml: partitions.cpu: a job of split_sentences asks for 480 minutes (8 of 60, one after the "
        "other), partition 'cpu' allows 240; choose another partition, or give --group-components sentences=4"
    )
    assert error_of(run(config, "corpus", "--group-components", "sentences=4", cpu="4:00:00")) == NEXT_ERROR
    assert error_of(run(config, "corpus", cpu="8:00:00")) == NEXT_ERROR


def test_parts_of_a_dump_count_before_they_are_listed(run: Run, tmp_path: Path, sample: Path) -> None:
    shutil.copytree(sample, tmp_path / "graph/resources/sample")
    refused = error_of(run(SMALL_CONFIG, "corpus", cpu="3:00:00"))
    assert "a job of extract_part and clean_part asks for 480 minutes (8 of 60, one after the other)" in refused
    assert refused.endswith("--group-components text=3")
    assert error_of(run(SMALL_CONFIG, "list_parts", cpu="3:00:00")) == NEXT_ERROR
    run_snakemake(tmp_path / "graph", "list_parts", "--cores", "1", "--configfile", "small.yaml")
    # This dump has two parts: then a group asks for two hours.
    assert error_of(run(SMALL_CONFIG, "corpus", cpu="3:00:00")) == NEXT_ERROR


def test_predictions_that_the_gpu_partition_does_not_allow_are_one_line(run: Run, tmp_path: Path, sample: Path) -> None:
    shutil.copytree(sample, tmp_path / "graph/resources/sample")
    config = copy.deepcopy(SMALL_CONFIG)
    (tmp_path / "graph/texts.txt").write_text("A text.\n")
    config["features"] = {"hidden": {"model": "results/runs/first/export", "inputs": ["texts.txt"]}}
    assert error_of(run(config, "features", cpu="infinite", gpu="3:00:00")) == (
        "error: site.yaml: partitions.gpu: a job of predict_files asks for 240 minutes, partition 'gpu' allows 180; "
        "choose another partition, or give --set-resources predict_files:runtime=180"
    )
