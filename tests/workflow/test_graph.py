"""The graph before anything ran: what is shown, what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from snakemake_runs import ROOT, jobs_of, run_snakemake

from bertline.plan import make_plan
from bertline.sample.generate import generate


def test_the_default_configuration_dry_runs_without_network_or_inputs(workflow_folder: Path) -> None:
    output = run_snakemake(workflow_folder, "--profile", "profiles/local", "--dry-run").stdout
    jobs = jobs_of(output)
    assert jobs["list_dump_parts"] == 1
    assert jobs["pretrain_phase"] == 2
    assert jobs["finetune_task"] == 3 + 3 * 5
    assert "extract_part" not in jobs  # the parts' names are not known yet


@pytest.mark.parametrize("name", ["one-gpu-day", "nvidia-bert-large"])
def test_other_recipes_dry_run(workflow_folder: Path, name: str) -> None:
    options = ("--profile", "profiles/local", "--configfile", f"config/{name}.yaml", "--dry-run")
    assert jobs_of(run_snakemake(workflow_folder, *options).stdout)["pretrain_phase"] == 2


def test_a_real_run_with_absent_inputs_is_refused_in_one_line(workflow_folder: Path) -> None:
    finished = run_snakemake(workflow_folder, "--profile", "profiles/local", "encode", check=False)
    assert finished.returncode != 0
    assert "error: configuration: corpora.books.paths: no file matches 'resources/books/**/*.txt'" in finished.stdout
    assert not (workflow_folder / "resources").exists()


def test_a_given_configuration_replaces_the_default_one(workflow_folder: Path) -> None:
    """With a merge, the dry run would hold the 2 phases of bert-base as well, and Wikipedia's real dump."""
    generate(workflow_folder / "resources/sample", 1)
    output = run_snakemake(
        workflow_folder, "--profile", "profiles/local", "--configfile", "config/demo.yaml", "--dry-run"
    ).stdout
    assert jobs_of(output)["pretrain_phase"] == 3
    assert "samplewiki" in output
    assert "enwiki" not in output


@pytest.mark.parametrize("target", ["list_parts", "download", "corpus", "encode", "pretrain", "finetune", "report"])
def test_every_stage_can_be_asked_for_by_name(workflow_folder: Path, target: str) -> None:
    assert "Error" not in run_snakemake(workflow_folder, "--profile", "profiles/local", "--dry-run", target).stdout


def test_samples_are_exported_in_the_layouts_of_other_programs(workflow_folder: Path) -> None:
    """Each shard in each length; not the held-out one for gpauloski's reader, which would train on it."""
    generate(workflow_folder / "resources/sample", 1)
    options = ("--profile", "profiles/local", "--configfile", "config/demo.yaml", "--dry-run")
    config = yaml.safe_load((workflow_folder / "config/demo.yaml").read_text())
    [shards], lengths = [dataset["shards"] for dataset in config["datasets"].values()], config["sequence_lengths"]
    jobs = jobs_of(run_snakemake(workflow_folder, "nvidia", "gpauloski", *options).stdout)
    assert jobs["export_nvidia"] == len(lengths) * (shards + 1)
    assert jobs["export_gpauloski"] == len(lengths) * shards


def test_a_wrong_key_stops_the_graph_with_one_line(workflow_folder: Path) -> None:
    config = yaml.safe_load((workflow_folder / "config/config.yaml").read_text())
    config["runs"]["bert-base"]["phases"]["phase1"]["step"] = 5
    (workflow_folder / "config/config.yaml").write_text(yaml.safe_dump(config))
    finished = run_snakemake(workflow_folder, "--profile", "profiles/local", "--dry-run", check=False)
    assert finished.returncode != 0
    lines = [line for line in finished.stdout.splitlines() if "error:" in line]
    assert lines == [
        "error: configuration: runs.bert-base.phases.phase1: unknown key 'step'; did you mean 'steps'? "
        "Allowed are: " + ", ".join(phase_keys())
    ]
    assert "Traceback" not in finished.stdout


def phase_keys() -> list[str]:
    schema = yaml.safe_load((ROOT / "config/config.schema.yaml").read_text())
    return list(schema["$defs"]["phase"]["properties"])


def test_the_slurm_profile_sets_its_own_resources(workflow_folder: Path) -> None:
    output = run_snakemake(workflow_folder, "--profile", "profiles/slurm", "--dry-run").stdout
    phase = output.split("rule pretrain_phase")[1].split("rule ")[0]
    assert "gres=gpu:8" in phase
    assert "micro_batch_tokens=32768" in phase


def test_the_slurm_profile_selects_slurm(workflow_folder: Path) -> None:
    """Without a cluster the submission fails; that it is Slurm which was asked is seen."""
    generate(workflow_folder / "resources/sample", 1)
    config = yaml.safe_load((workflow_folder / "config/demo.yaml").read_text())
    with contextlib.chdir(workflow_folder):
        books = make_plan(config, "config/config.schema.yaml", "config/models").corpus_of_name["books"]
    finished = run_snakemake(
        workflow_folder,
        f"results/corpora/{books}/documents/part-00000.jsonl.zst",
        *("--profile", "profiles/slurm", "--configfile", "config/demo.yaml", "--retries", "0"),
        *("--slurm-init-seconds-before-status-checks", "1"),
        check=False,
    )
    assert finished.returncode != 0
    assert "SLURM run ID" in finished.stdout
    assert "local" not in finished.stdout.split("Provided")[1].splitlines()[0]


def test_there_is_no_default_profile() -> None:
    """Snakemake always loads profiles/default, and it would overrule --profile."""
    assert not (ROOT / "profiles/default").exists()
