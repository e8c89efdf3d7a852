"""The graph before anything ran: what is shown, what is refused."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake_runs import PHASE, ROOT, SMALL_CONFIG, book_config, copy_workflow, jobs_of, run_snakemake

from bertline.results import paths


@pytest.fixture(scope="module")
def default_dry_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a dry run of the default configuration."""
    folder = copy_workflow(tmp_path_factory.mktemp("default"))
    return run_snakemake(folder, "--profile", "profiles/local", "--dry-run").stdout


def test_the_default_configuration_dry_runs_without_network_or_inputs(default_dry_run: str) -> None:
    jobs = jobs_of(default_dry_run)
    assert jobs["list_dump_parts"] == 1
    assert jobs["pretrain_phase"] == 2
    assert jobs["finetune_task"] == 3 + 3 * 5
    assert "extract_part" not in jobs  # the parts' names are not known yet
    missing = "before a real run: configuration: contact: still you@university.edu"
    assert default_dry_run.splitlines()[-1].startswith(missing)


def test_a_result_is_finished_when_all_that_its_rule_declares_is_there(default_dry_run: str) -> None:
    for rule, names in (
        ("pretrain_phase", paths.PHASE_OUTPUTS),
        ("finetune_task", (*paths.FINETUNING_OUTPUTS, paths.EXPORT)),  # a model that is not kept is deleted
    ):
        job = default_dry_run.split(f"rule {rule}:", 1)[1]
        declared = re.search(r"^    output: (.*)$", job, re.MULTILINE)[1].split(", ")
        assert sorted(Path(path).name for path in declared) == sorted(names)


def test_a_duplicate_key_is_refused_and_not_dropped(workflow_folder: Path) -> None:
    config = (workflow_folder / "config/demo.yaml").read_text()
    (workflow_folder / "twice.yaml").write_text(config.replace("  books:", "  wikipedia:"))
    options = ("--profile", "profiles/local", "--configfile", "twice.yaml", "--dry-run")
    finished = run_snakemake(workflow_folder, *options, check=False)
    assert re.search(r"^error: \S*twice.yaml, line 11, column 3: duplicate key 'wikipedia'$", finished.stdout, re.M)


@pytest.mark.parametrize(
    ("name", "number"), [("one-gpu-day", 2), ("nvidia-bert-large", 2), ("roberta", 1), ("mini", 2)]
)
def test_other_recipes_dry_run_and_nothing_runs_with_a_training_on_one_machine(
    workflow_folder: Path, name: str, number: int
) -> None:
    """A fine-tuning there could take the memory of its GPU."""
    options = ("--profile", "profiles/local", "--configfile", f"config/{name}.yaml", "--dry-run", "--cores", "40")
    output = run_snakemake(workflow_folder, *options).stdout
    assert jobs_of(output)["pretrain_phase"] == number
    _, *phases = output.split("rule pretrain_phase:")
    assert [re.search(r"threads: (\d+)", phase)[1] for phase in phases] == ["40"] * number


def test_a_real_run_with_absent_inputs_is_refused_in_one_line(workflow_folder: Path) -> None:
    finished = run_snakemake(workflow_folder, "--profile", "profiles/local", "encode", check=False)
    assert finished.returncode != 0
    assert "error: configuration: contact: still you@university.edu; put your e-mail address there" in finished.stdout
    assert finished.stdout.rstrip().endswith("(and 1 more)")
    assert not (workflow_folder / "resources").exists()


def test_the_linter_does_not_list_absent_inputs(workflow_folder: Path) -> None:
    linted = run_snakemake(workflow_folder, "--lint", "--configfile", "config/demo.yaml").stdout
    assert linted.splitlines()[-1] == "Congratulations, your workflow is in a good condition!"


STAGES = ("list_parts", "download", "corpus", "encode", "pretrain", "finetune", "report")


@pytest.fixture(scope="module")
def demo_jobs(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> dict[str, int]:
    """What a dry run of the demo would run for each stage and for both layouts of other programs."""
    folder = copy_workflow(tmp_path_factory.mktemp("demo"))
    shutil.copytree(sample, folder / "resources/sample")
    options = ("--profile", "profiles/local", "--configfile", "config/demo.yaml", "--dry-run")
    return jobs_of(run_snakemake(folder, *STAGES, "nvidia", "gpauloski", *options).stdout)


def test_a_given_configuration_replaces_the_default_one(demo_jobs: dict[str, int]) -> None:
    """With a merge, the dry run would hold the 2 phases of bert-base as well, and Wikipedia's real dump."""
    assert demo_jobs["pretrain_phase"] == 3
    assert demo_jobs["list_dump_parts"] == 1


def test_every_stage_can_be_requested_by_name(demo_jobs: dict[str, int]) -> None:
    assert {name for name in STAGES if demo_jobs[name] != 1} == set()


def test_samples_are_exported_in_the_layouts_of_other_programs(demo_jobs: dict[str, int]) -> None:
    """Each shard in each length; not the held-out one for gpauloski's reader, which would train on it."""
    config = yaml.safe_load((ROOT / "config/demo.yaml").read_text())
    [shards], lengths = [dataset["shards"] for dataset in config["datasets"].values()], config["sequence_lengths"]
    assert demo_jobs["export_nvidia"] == len(lengths) * (shards + 1)
    assert demo_jobs["export_gpauloski"] == len(lengths) * shards


def test_samples_of_sentence_order_are_not_exported(workflow_folder: Path) -> None:
    config = book_config()
    config["datasets"]["small"]["pair_objective"] = "sentence_order"
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(config))
    (workflow_folder / "text.txt").write_text("A short book.")
    options = ("--dry-run", "--profile", "profiles/local", "--configfile", "small.yaml")
    for name in ("nvidia", "gpauloski", "results/runs/first/dataset/nvidia"):
        finished = run_snakemake(workflow_folder, name, *options, check=False)
        assert finished.returncode == 1
        (line,) = [line for line in finished.stdout.splitlines() if "error" in line.lower()]
        assert "datasets.small.pair_objective is sentence_order, which this layout does not have" in line
    run_snakemake(workflow_folder, "encode", *options)


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


SITE = {"account": "ours", "partitions": {"cpu": "small", "gpu": "big"}, "constraint": "a100"}
SIZE = {"gpus_per_node": 4, "cpus_per_gpu": 6}
OTHER_NODES = [{"nodes": 1, "gpus_per_node": 2, "partition": "new"}, {"constraint": "p100|v100"}]
PHASES = ("one_node", "two_nodes", "unlike_nodes")
SIZES = {
    "default": {**SIZE, "nodes": 1},
    "two_nodes": {**SIZE, "nodes": 2, "walltime": 600},
    "unlike_nodes": {**SIZE, "nodes": 2, "additional_nodes": OTHER_NODES},
    "absent": {"nodes": 4},
}


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> str:
    """The output of a dry run for Slurm, of a run whose phases have these sizes."""
    folder = copy_workflow(tmp_path_factory.mktemp("sized"))
    shutil.copytree(sample, folder / "resources/sample")
    config = copy.deepcopy(SMALL_CONFIG)
    config["runs"]["first"]["phases"] = {name: {**PHASE, "sequence_length": 128} for name in PHASES}
    (folder / "texts.txt").write_text("A text.\n")
    config["features"] = {"hidden": {"model": "results/runs/first/export", "inputs": ["texts.txt"]}}
    (folder / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    finetunings = {"default": {"gpus_per_node": 0}, "glue/cola": {"memory_mb": 9000}}
    (folder / "site.yaml").write_text(yaml.safe_dump({**SITE, "phases": SIZES, "finetunings": finetunings}))
    arguments = ("--configfile", "small.yaml", "--dry-run", "features", "all")
    return run_snakemake(folder, "--profile", "profiles/slurm", *arguments).stdout


def job_of(output: str, phase: str) -> str:
    """The output of a dry run for a phase's job."""
    jobs = [part for part in output.split("rule ") if part.startswith("pretrain_phase")]
    return jobs[PHASES.index(phase)]


def test_a_size_for_a_phase_that_no_run_has_is_reported(sized: str) -> None:
    told = [line for line in sized.splitlines() if "no run here has" in line]
    assert told[0] == "site.yaml: phases.absent: no run here has a phase of this name"
    assert told[1].startswith("site.yaml: finetunings.glue/cola: no run here has this task; its tasks are cola")


def test_predictions_have_a_gpu_only_where_fine_tunings_have_one(sized: str) -> None:
    (job,) = (part for part in sized.split("rule ") if part.startswith("predict_files"))
    assert "gres" not in job


def test_a_phase_on_two_nodes_is_one_slurm_task_a_rank(sized: str) -> None:
    job = job_of(sized, "two_nodes")
    for resource in (
        "nodes=2", "processes_per_node=4", "mpi=srun", "tasks=8", "cpus_per_task=6", "gres=gpu:4", "tasks_per_gpu=0",
        "slurm_extra=--ntasks-per-node=4", "runtime=600", "slurm_account=ours", "slurm_partition=big",
        "constraint=a100",
    ):  # fmt: skip
        assert f" {resource}" in job


def test_a_phase_on_one_node_is_one_slurm_task(sized: str) -> None:
    job = job_of(sized, "one_node")
    assert " cpus_per_task=24" in job
    assert " gres=gpu:4" in job
    for resource in (" mpi=", " tasks=", "slurm_extra="):
        assert resource not in job


def test_a_phase_on_unlike_nodes_is_a_heterogeneous_job_that_divides_by_measured_speed(sized: str) -> None:
    job = job_of(sized, "unlike_nodes")
    components = (
        ": -N1 -pnew -c6 -n2 --ntasks-per-node=2 --gpus-per-node=2"
        " : -N2 -pbig -c6 -C'p100|v100' -n8 --ntasks-per-node=4 --gpus-per-node=4"
    )
    for resource in (
        "nodes=2", "mpi=srun", "tasks=18", "cpus_per_task=6", "slurm_partition=big", "constraint=a100",
        f"slurm_extra=-n8 --ntasks-per-node=4 --gpus-per-node=4 {components}",
        "additional_nodes=1x2,2x4", "trainer_options=--load-balancing measured",
    ):  # fmt: skip
        assert f" {resource}" in job
    assert " gres=" not in job


def test_no_value_of_a_configuration_is_a_command_of_the_shell(workflow_folder: Path, sample: Path) -> None:
    config = copy.deepcopy(SMALL_CONFIG)
    config["corpora"] = {"book": {**config["corpora"]["book"], "separator": "; touch injected"}}
    config["datasets"]["small"]["corpora"] = ["book"]
    urls = {name: {"url": f"https://localhost/{name};touch$IFS-injected"} for name in ("train", "dev")}
    config["evaluation"]["squad_v1"] = urls
    run = config["runs"]["first"]
    run["finetune"]["squad_v1"] = {}
    next(iter(run["phases"].values()))["initial_weights"] = {"directory": "weights; touch injected"}
    config["runs"]["second"] = {"pretrained": "a bert; touch injected", "finetune": run["finetune"]}
    for name in ("weights; touch injected", "a bert; touch injected"):
        (workflow_folder / name).mkdir()
        for file in ("model.safetensors", "vocab.txt"):
            (workflow_folder / name / file).write_text("{}")
        (workflow_folder / name / "config.json").write_text(json.dumps({"vocab_size": 100, **run["model"]}))
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(config))
    shutil.copytree(sample, workflow_folder / "resources/sample")
    options = ("--profile", "profiles/local", "--configfile", "small.yaml", "--dry-run", "--printshellcmds")
    printed = run_snakemake(workflow_folder, *options).stdout
    commands = [
        line for line in printed.splitlines() if re.search("touch.*injected", line) and "workflow/scripts/" in line
    ]
    scripts = {script for line in commands for script in re.findall(r"workflow/scripts/(\w+)\.py", line)}
    assert scripts >= {"download_file", "pretrain", "finetune"}
    assert [line for line in commands if any(word.startswith("touch") for word in words_of(line))] == []


def words_of(line: str) -> list[str]:
    """Divide a shell line at spaces and at its operators, such as a ; that is not quoted."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(words)


LISTED = """
include: "Snakefile"

for rule in workflow.rules:
    if rule.name not in workflow._localrules and "slurm_partition" not in rule.resources and rule.shellcmd:
        print("without a partition:", rule.name)
"""


def test_every_job_that_slurm_gets_has_the_partition_of_the_site_file(workflow_folder: Path) -> None:
    (workflow_folder / "site.yaml").write_text("account: ours\npartitions: {cpu: small, gpu: big}\n")
    (workflow_folder / "listed.smk").write_text(LISTED)
    options = ("--snakefile", "listed.smk", "--profile", "profiles/slurm", "--configfile", "config/demo.yaml")
    finished = run_snakemake(workflow_folder, *options, "--dry-run", "list_parts")
    assert "without a partition" not in finished.stdout


def test_without_a_site_file_the_slurm_profile_explains_where_to_get_one(workflow_folder: Path) -> None:
    finished = run_snakemake(workflow_folder, "--profile", "profiles/slurm", "--dry-run", check=False)
    assert finished.returncode != 0
    assert "error: site.yaml does not exist; copy profiles/slurm/site.example.yaml there" in finished.stdout


def test_the_example_of_a_site_file_is_refused_without_slurm(workflow_folder: Path) -> None:
    """It names no real partition; without Slurm, this is reported."""
    shutil.copy(workflow_folder / "profiles/slurm/site.example.yaml", workflow_folder / "site.yaml")
    check = [sys.executable, "workflow/scripts/check_site.py", "site.yaml"]
    nowhere = {**os.environ, "PATH": ""}
    done = subprocess.run(check, cwd=workflow_folder, env=nowhere, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no Slurm here: sbatch is not on the PATH")


def test_there_is_no_default_profile() -> None:
    """Snakemake always loads profiles/default, and it would overrule --profile."""
    assert not (ROOT / "profiles/default").exists()
