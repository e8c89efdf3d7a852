"""What runs again after a change, on a graph that ran once: a small dump and a book, a very small model."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fake_conda
import pytest
import yaml
from snakemake_runs import ROOT, SMALL_CONFIG, jobs_of, run_snakemake

from bertline.planning.resolve import plan_of_files
from bertline.planning.target_states import target_states

pytestmark = pytest.mark.slow
SHELL_LINE = re.compile(r"^ +shell:\n +((launch|run_script)\(\s*)?r?\"", re.MULTILINE)  # up to the quotation mark


def snakemake(folder: Path, *arguments: str, check: bool = True) -> str:
    # Targets first: after --configfile they would be read as further configurations.
    options = ("--profile", "profiles/local", "--configfile", "small.yaml")
    return run_snakemake(folder, *arguments, *options, check=check).stdout


def write_config(folder: Path, config: dict) -> None:
    (folder / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def state_of(folder: Path, name: str) -> str:
    with contextlib.chdir(folder):
        return dict(target_states(plan_of_files([Path("small.yaml")], []), None))[name]


@pytest.fixture(scope="module")
def own(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(finished, tmp_path_factory.mktemp("reruns") / "graph", symlinks=True)


@pytest.fixture
def graph(own: Path) -> Path:
    """The finished graph with its own configuration."""
    write_config(own, SMALL_CONFIG)
    return own


def test_a_finished_graph_has_nothing_to_do_and_shows_its_results(graph: Path) -> None:
    output = snakemake(graph)
    assert "Nothing to be done" in output
    assert "report:  results/report/latest/index.html" in output
    for only in ("--dag", "--dry-run", "results/runs/first/phase1"):
        assert "report:  " not in snakemake(graph, only)


def test_a_locked_folder_is_one_line(graph: Path) -> None:
    shutil.rmtree(Path(graph, "results/report/latest").resolve())
    (planned,) = re.findall(r"results/report/[0-9a-f]{16}", snakemake(graph, "--dry-run"))[:1]
    lock = graph / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(f"{planned}/index.html\n")
    done = run_snakemake(graph, "--profile", "profiles/local", "--configfile", "small.yaml", check=False)
    assert "error: a snakemake on another machine has locked this folder, or one that was killed;" in done.stdout
    assert "LockException" not in done.stdout
    assert done.returncode == 1
    lock.unlink()
    snakemake(graph)


def test_the_lock_of_a_running_snakemake_outlives_one_that_has_nothing_to_do(graph: Path) -> None:
    lock = graph / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("results/datasets/of-other-settings/dataset.json\n")
    snakemake(graph)
    assert [path.name for path in lock.parent.iterdir()] == [lock.name]
    snakemake(graph, "--unlock")
    assert not lock.exists()


def test_the_end_of_a_run_shows_its_results(graph: Path) -> None:
    shutil.rmtree(Path(graph, "results/report/latest").resolve())
    output = snakemake(graph)
    assert output.count("report:  results/report/latest/index.html") == 1
    assert output.count("The best model of each task") == 1


def test_placement_runs_nothing_again(graph: Path) -> None:
    output = snakemake(graph, "--dry-run", "--set-resources", "pretrain_phase:micro_batch_tokens=512")
    assert "Nothing to be done" in output


def test_a_move_to_a_conda_environment_runs_nothing_again(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{fake_conda.install(tmp_path)}:{os.environ['PATH']}")
    assert "Nothing to be done" in snakemake(graph, "--dry-run", "--sdm", "conda")


def test_the_size_of_a_phases_jobs_runs_nothing_again(graph: Path) -> None:
    site = {"partitions": {"cpu": "small", "gpu": "big"}}
    options = ("--profile", "profiles/slurm", "--configfile", "small.yaml", "--dry-run")
    for size in ({"nodes": 1, "gpus_per_node": 8}, {"nodes": 4, "gpus_per_node": 2, "walltime": 60}):
        (graph / "site.yaml").write_text(yaml.safe_dump({**site, "phases": {"default": size}}))
        assert "Nothing to be done" in run_snakemake(graph, *options).stdout


# The sample is small: without this, Snakemake would compare what files hold instead of their times.
COMPARE_TIMES = ("--max-checksum-file-size", "20000")


@pytest.fixture
def copied(graph: Path, tmp_path: Path) -> Path:
    """The graph as after a move to another disk."""
    return shutil.copytree(graph, tmp_path / "copy", symlinks=True)


def change_times(folder: Path, order: int) -> None:
    """Every file and folder gets another time, in an order that has nothing to do with who made it from what."""
    paths = sorted(folder.glob("re*/**/*"))
    random.Random(order).shuffle(paths)  # noqa: S311
    for number, path in enumerate(paths):
        os.utime(path, (1.7e9 + number, 1.7e9 + number), follow_symlinks=False)


def test_a_copy_with_other_times_runs_only_what_a_changed_book_asks_for(copied: Path) -> None:
    for order in range(3):
        change_times(copied, order)
        assert "Nothing to be done" in snakemake(copied, "--dry-run", *COMPARE_TIMES)
    book = copied / "resources/sample/books/book-001.txt"
    book.write_text(book.read_text() + "\n\nOne more sentence stands here.\n")
    change_times(copied, 3)
    jobs = jobs_of(snakemake(copied, "encode", "--dry-run", *COMPARE_TIMES))
    of_the_book = {"read_part": 1, "train_punkt": 1, "split_sentences": 1}
    of_the_dataset = {"plan_shards": 1, "write_shard": 3, "train_tokenizer": 1, "encode_shard": 3}
    last = {"write_dataset_card": 1, "encode": 1, "total": 13}
    assert jobs == of_the_book | of_the_dataset | last


@pytest.fixture(scope="module")
def edited(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished graph in a checkout where every rule's shell line was edited."""
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("edited") / "copy", symlinks=True)
    write_config(folder, SMALL_CONFIG)
    (folder / "site.yaml").write_text("partitions: {cpu: small, gpu: big}\n")
    for rules in folder.glob("workflow/rules/*.smk"):
        text = rules.read_text()
        assert "shell:" not in re.sub(SHELL_LINE, "", text), f"a shell line of {rules.name} is of another form"
        rules.write_text(re.sub(SHELL_LINE, r"\g<0>true; ", text))
    return folder


def test_snakemake_sees_that_the_shell_lines_were_edited(edited: Path) -> None:
    changed = snakemake(edited, "--list-changes", "code").splitlines()
    assert {path.rpartition("/")[2] for path in changed} >= {"parts.json", "dataset.json", "model.safetensors"}


@pytest.mark.parametrize("profile", sorted(path.name for path in (ROOT / "profiles").iterdir()))
def test_an_edited_shell_line_runs_nothing_again(edited: Path, profile: str) -> None:
    options = ("--profile", f"profiles/{profile}", "--configfile", "small.yaml", "--dry-run")
    assert "Nothing to be done" in run_snakemake(edited, *options).stdout


def test_a_new_setting_with_its_default_runs_nothing_again(copied: Path) -> None:
    """As in a new release: a fingerprint leaves defaults out."""
    path = copied / "config/config.schema.yaml"
    schema = yaml.safe_load(path.read_text())
    for part in ("built_dataset", "phase", "classification"):
        schema["$defs"][part]["properties"]["invented"] = {"type": "boolean", "default": False}
    path.write_text(yaml.safe_dump(schema))
    assert "Nothing to be done" in snakemake(copied, "--dry-run")


def test_what_snakemake_forgot_is_reported(copied: Path) -> None:
    """A book that was moved is read again and gives the same sentences; the new tokenizer depends on them."""
    changed = copy.deepcopy(SMALL_CONFIG)
    (copied / "shelf").mkdir()
    shutil.move(copied / "resources/sample/books/book-001.txt", copied / "shelf")
    changed["corpora"]["book"]["paths"] = ["shelf/book-001.txt"]
    changed["datasets"]["small"]["tokenizer"]["vocab_size"] = 300
    write_config(copied, changed)
    options = ("--profile", "profiles/local", "--configfile", "small.yaml")
    first = run_snakemake(copied, "encode", *options, check=False)
    assert first.returncode == 0 or "is still to be made; run the same command again" in first.stdout
    snakemake(copied, "encode")
    assert "Nothing to be done" in snakemake(copied, "encode", "--dry-run")


def test_a_deleted_shard_is_made_again_with_the_same_bytes_and_trains_nothing(graph: Path) -> None:
    shard = next(graph.glob("results/datasets/*/seq128/00000.h5"))
    before = shard.read_bytes()
    weights = {path: path.stat().st_mtime_ns for path in graph.glob("results/phases/*/model.safetensors")}
    shard.unlink()
    assert jobs_of(snakemake(graph, "encode", "--dry-run")).keys() == {
        "encode_shard",
        "write_dataset_card",
        "encode",
        "total",
    }
    snakemake(graph, "encode")
    assert shard.read_bytes() == before
    assert "Nothing to be done" in snakemake(graph)
    assert weights == {path: path.stat().st_mtime_ns for path in graph.glob("results/phases/*/model.safetensors")}


TRAINED = ("pretrain_phase", "trigram_baseline", "export_phase", "finetune_task", "keep_models")


def test_another_sequence_length_encodes_when_asked_for_and_trains_nothing(copied: Path) -> None:
    """The samples of one length do not depend on the other lengths."""
    weights = {path: path.stat().st_mtime_ns for path in copied.glob("results/phases/*/model.safetensors")}
    scores = {path: path.stat().st_mtime_ns for path in copied.glob("results/finetunings/*/metrics.json")}
    changed = copy.deepcopy(SMALL_CONFIG)
    changed["sequence_lengths"] = [64, 128, 512]
    write_config(copied, changed)
    assert not {*TRAINED, "encode_shard"} & jobs_of(snakemake(copied)).keys()
    jobs = jobs_of(snakemake(copied, "encode"))
    assert jobs["encode_shard"] == 3
    assert not {*TRAINED, "read_part", "split_sentences"} & jobs.keys()
    assert "Nothing to be done" in snakemake(copied)
    assert weights == {path: path.stat().st_mtime_ns for path in copied.glob("results/phases/*/model.safetensors")}
    assert scores == {path: path.stat().st_mtime_ns for path in copied.glob("results/finetunings/*/metrics.json")}
    one, other = copied.glob("results/datasets/*/dataset.json")
    assert json.loads(one.read_text())["fingerprint"] != json.loads(other.read_text())["fingerprint"]
    # A training goes on with the other dataset from its checkpoint.
    published = copied / "results/runs/first/phase1/model.safetensors"
    before = published.read_bytes()
    published.unlink()
    assert jobs_of(snakemake(copied, "results/runs/first/phase1"))["pretrain_phase"] == 1
    assert published.read_bytes() == before
    assert "resum" in (copied / "logs/pretrain_phase" / f"{published.resolve().parent.name}.log").read_text()
    # A phase at the new length starts from the finished one.
    first = changed["runs"]["first"]["phases"]
    first["phase3"] = {**first["phase1"], "sequence_length": 64}
    write_config(copied, changed)
    jobs = jobs_of(snakemake(copied, "pretrain"))
    assert jobs["pretrain_phase"] == 1
    assert not {"encode_shard", "write_shard"} & jobs.keys()


def test_the_model_of_a_seed_is_made_again_with_the_dataset_of_another_length(copied: Path) -> None:
    """Its tokenizer is not there yet."""
    write_config(copied, {**SMALL_CONFIG, "sequence_lengths": [64, 128, 512]})
    (model,) = copied.glob("results/finetunings/*/huggingface")
    assert state_of(copied, "results/runs/first/glue/cola/model") == "finished"
    shutil.rmtree(model)
    assert state_of(copied, "results/runs/first/glue/cola/model") == "planned"
    for asked in ("results/runs/first/glue/cola/seed1/huggingface", "finetune"):
        jobs = jobs_of(snakemake(copied, "--dry-run", asked))
        assert {"train_tokenizer", "finetune_task"} <= jobs.keys()
        assert "pretrain_phase" not in jobs


def test_deleted_datasets_are_not_made_again_for_what_is_finished(copied: Path) -> None:
    shutil.rmtree(copied / "results/datasets")
    shutil.rmtree(copied / "results/corpora")
    assert "Nothing to be done" in snakemake(copied, "--dry-run")
    assert "Nothing to be done" in snakemake(copied, "--dry-run", "pretrain", "finetune", "report")
    forced = jobs_of(snakemake(copied, "--dry-run", "pretrain", "--forcerun", "pretrain_phase"))
    assert {"write_dataset_card", "pretrain_phase"} <= forced.keys()
    model = "results/runs/first/glue/cola/seed1/huggingface"
    for option in ("--force", "--forcerun"):
        assert {"train_tokenizer", "finetune_task"} <= jobs_of(snakemake(copied, "--dry-run", option, model)).keys()
    scores = next(copied.glob("results/finetunings/*/metrics.json"))
    scores.unlink()
    jobs = jobs_of(snakemake(copied, "--dry-run", "finetune"))
    assert {"train_tokenizer", "finetune_task"} <= jobs.keys()
    assert "pretrain_phase" not in jobs


def test_a_finished_phase_is_not_deleted_because_its_job_did_not_return(copied: Path) -> None:
    """As when snakemake's machine dies while the job trains on a cluster, and the dataset is deleted afterwards."""
    shutil.rmtree(copied / "results/datasets")
    weights = next(path.relative_to(copied) for path in copied.glob("results/phases/*/model.safetensors"))
    markers = copied / ".snakemake/incomplete"
    markers.mkdir(exist_ok=True)
    for name in ("model.safetensors", "metrics.jsonl", "recipe.json"):
        (markers / base64.b64encode(str(weights.with_name(name)).encode()).decode()).touch()
    said = snakemake(copied, "pretrain", check=False)
    assert f"error: Snakemake would delete {weights} to make it again" in said
    assert (copied / weights).exists()
    (advised,) = re.findall(r"give the same command `(--cleanup-metadata [^`]*)` once", said)
    snakemake(copied, *advised.split())
    assert "Nothing to be done" in snakemake(copied, "pretrain")


def test_a_finished_fine_tuning_is_not_deleted_because_its_job_did_not_return(copied: Path) -> None:
    """The model is an output, too, and has a marker."""
    shutil.rmtree(copied / "results/datasets")
    folder = next(copied.glob("results/finetunings/*/metrics.json")).parent.relative_to(copied)
    markers = copied / ".snakemake/incomplete"
    markers.mkdir(exist_ok=True)
    for name in ("metrics.json", "metrics.jsonl", "recipe.json", "huggingface"):
        (markers / base64.b64encode(str(folder / name).encode()).decode()).touch()
    (advised,) = re.findall(r"`(--cleanup-metadata [^`]*)` once", snakemake(copied, "finetune", check=False))
    snakemake(copied, *advised.split())
    assert (copied / folder / "metrics.json").exists()
    assert "Nothing to be done" in snakemake(copied, "finetune")


def test_a_deleted_model_may_be_asked_for_in_every_way(copied: Path) -> None:
    config = copy.deepcopy(SMALL_CONFIG)
    config["runs"]["first"]["finetune"]["glue"]["cola"]["keep"] = "none"
    write_config(copied, config)
    shutil.rmtree(copied / "results/datasets")
    model = next(copied.glob("results/finetunings/*/metrics.json")).parent.relative_to(copied) / "huggingface"
    shutil.rmtree(copied / model, ignore_errors=True)
    for given in ([model], ["--until", model], ["pretrain", model, "--prioritize", model]):
        jobs = jobs_of(snakemake(copied, "--dry-run", *map(str, given)))
        assert {"finetune_task", "train_tokenizer"} <= jobs.keys(), given


def test_a_run_on_the_phase_of_another_describes_their_deleted_dataset(copied: Path) -> None:
    config = copy.deepcopy(SMALL_CONFIG)
    finetune = config["runs"]["first"]["finetune"]
    config["runs"]["second"] = {"pretrained": "results/runs/first/phase1", "finetune": finetune}
    write_config(copied, config)
    snakemake(copied)
    shutil.rmtree(copied / "results/datasets")
    shutil.rmtree(copied / "results/corpora")
    config["runs"]["second"]["description"] = "Described anew."
    write_config(copied, config)
    snakemake(copied)
    page = (copied / "results/report/latest/index.html").read_text()
    assert "Described anew." in page
    assert "Not finished" not in page
    assert not (copied / "results/datasets").exists()


def test_samples_are_made_before_a_new_phase_on_them_and_when_their_dataset_is_asked_for(copied: Path) -> None:
    for folder in (copied / "results/runs/first/dataset").resolve().glob("seq*"):
        shutil.rmtree(folder)
    assert "Nothing to be done" in snakemake(copied, "--dry-run")
    asked_for = jobs_of(snakemake(copied, "--dry-run", "results/runs/first/dataset"))
    assert asked_for.keys() == {"encode_shard", "write_dataset_card", "total"}
    changed = copy.deepcopy(SMALL_CONFIG)
    changed["runs"]["first"]["phases"]["phase2"]["steps"] += 1
    write_config(copied, changed)
    jobs = jobs_of(snakemake(copied, "--dry-run", "pretrain"))
    assert jobs["encode_shard"] > 0
    assert jobs["pretrain_phase"] == 1


def test_a_lost_file_of_samples_trains_no_vocabulary_again_when_the_shards_are_pruned(copied: Path) -> None:
    dataset = (copied / "results/runs/first/dataset").resolve()
    shutil.rmtree(dataset / "shards")
    next(dataset.glob("seq128/*.h5")).unlink()
    jobs = jobs_of(snakemake(copied, "--dry-run", "encode"))
    assert jobs == {"write_shard": 1, "encode_shard": 1, "write_dataset_card": 1, "encode": 1, "total": 4}


def test_reports_and_names_change_without_the_deleted_dataset_and_still_describe_it(copied: Path) -> None:
    shutil.rmtree(copied / "results/datasets")
    shutil.rmtree(copied / "results/corpora")
    forced = jobs_of(snakemake(copied, "--dry-run", "report", "--forcerun", "write_report"))
    assert forced == {"write_report": 1, "report": 1, "total": 2}
    changed = copy.deepcopy(SMALL_CONFIG)
    changed["runs"]["first"]["description"] = "Described anew."
    changed["experiment"] = "another"
    write_config(copied, changed)
    before = copied / "results/report/latest/index.html"
    rows = before.read_text().count("<td>dump</td>")
    snakemake(copied)
    page = (copied / "results/report/latest/index.html").read_text()
    assert "Described anew." in page
    assert "Not finished" not in page
    assert page.count("<td>dump</td>") == rows
    assert not (copied / "results/datasets").exists()
    assert not (copied / "results/corpora").exists()


def test_a_changed_tokenizer_encodes_again_but_extracts_nothing_and_changing_back_runs_nothing(graph: Path) -> None:
    changed = copy.deepcopy(SMALL_CONFIG)
    changed["datasets"]["small"]["tokenizer"]["vocab_size"] = 300
    write_config(graph, changed)
    rules = jobs_of(snakemake(graph, "--dry-run")).keys()
    assert {"train_tokenizer", "encode_shard", "pretrain_phase", "finetune_task"} <= rules
    assert not {"download_part", "extract_part", "clean_part", "split_sentences", "read_part"} & rules
    snakemake(graph, "encode")
    write_config(graph, SMALL_CONFIG)
    assert "Nothing to be done" in snakemake(graph)


def test_a_second_run_trains_only_the_new_model(graph: Path) -> None:
    changed = copy.deepcopy(SMALL_CONFIG)
    changed["runs"]["second"] = copy.deepcopy(changed["runs"]["first"])
    changed["runs"]["second"]["phases"]["phase2"]["learning_rate"] = 2.0e-3
    write_config(graph, changed)
    jobs = jobs_of(snakemake(graph, "--dry-run"))
    assert jobs["pretrain_phase"] == 1
    assert jobs["finetune_task"] == 1
    assert not {"encode_shard", "split_sentences"} & jobs.keys()


def test_a_deleted_result_is_made_again_and_is_the_same(copied: Path) -> None:
    """The folder of a result that is gone is made again, with the same scores."""
    scores = next(copied.glob("results/finetunings/*/metrics.json"))
    expected = json.loads(scores.read_text())["scores"]
    shutil.rmtree(scores.parent)
    snakemake(copied, "finetune")
    assert json.loads(scores.read_text())["scores"] == expected


def test_the_names_of_a_run_lead_to_its_results(graph: Path) -> None:
    run = graph / "results/runs/first"
    assert (run / "dataset/dataset.json").is_file()
    assert (run / "phase1/model.safetensors").is_file()
    assert (run / "export/config.json").is_file()
    assert (run / "glue/cola/seed1/metrics.json").is_file()
    assert json.loads((run / "record.json").read_text())["run"] == "first"


def test_every_job_left_a_log_and_a_benchmark(graph: Path) -> None:
    logged = {path.name for path in (graph / "logs").iterdir() if path.is_dir()}
    assert {"pretrain_phase", "encode_shard", "finetune_task", "track_run", "write_report"} <= logged
    assert {path.name for path in (graph / "benchmarks").iterdir() if path.is_dir()} >= {"pretrain_phase"}
    assert os.listdir(graph / "logs/pretrain_phase")


def test_what_is_pruned_is_not_made_again(graph: Path) -> None:
    shards = list(graph.glob("results/runs/first/dataset/shards/*.txt.zst"))
    assert shards
    prune = [sys.executable, "workflow/scripts/prune.py", "--configfile", "small.yaml"]
    shown = subprocess.run(prune, cwd=graph, check=True, capture_output=True, text=True).stdout
    assert "`make prune CONFIG=small.yaml DELETE=yes` deletes what is no longer needed" in shown
    assert all(shard.exists() for shard in shards)
    subprocess.run([*prune, "--delete"], cwd=graph, check=True)
    assert not any(shard.exists() for shard in shards)
    assert "Nothing to be done" in snakemake(graph, "--dry-run")
