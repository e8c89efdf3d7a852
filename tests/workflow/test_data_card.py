"""From documents to the card: what a dataset leaves out, and that every document read is accounted for."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, copy_workflow, jobs_of, run_snakemake

from bertline.corpus.compressed import read_compressed

pytestmark = pytest.mark.slow
PROFILE = ("--profile", "profiles/local", "--configfile", "small.yaml")


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """A dataset of a dump, a shelf, and a shelf that repeats the first with a book that quotes a task's dev set."""
    folder = copy_workflow(tmp_path_factory.mktemp("card"))
    shutil.copytree(sample, folder / "resources/sample")
    quoted = max((folder / "resources/sample/glue/RTE/dev.tsv").read_text().split("\n"), key=len).split("\t")[1]
    assert len(quoted.split()) > 13
    (folder / "quoting.txt").write_text(f"Once upon a time. {quoted} The end.\n")
    config = copy.deepcopy(SMALL_CONFIG)
    book = {**config["corpora"].pop("book"), "separator": "* * *", "sentences": "unicode"}
    book["licence"] = "public domain"
    book["cleaning"] = ["markup", "symbols"]
    config["corpora"] |= {"shelf": book, "again": {**book, "paths": [*book["paths"], "quoting.txt"]}}
    dataset = config["datasets"]["small"]
    dataset |= {"corpora": ["wikipedia", "shelf", "again"], "duplicates": "near", "evaluation_overlap": "drop"}
    write_config(folder, config)
    run_snakemake(folder, "encode", *PROFILE)
    return folder


def write_config(folder: Path, config: dict) -> None:
    (folder / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def card_of(folder: Path) -> dict:
    (card,) = folder.glob("results/datasets/*/dataset.json")
    return json.loads(card.read_text())


def test_every_document_read_is_in_the_samples_or_counted_as_left_out(encoded: Path) -> None:
    card = card_of(encoded)
    for corpus in card["corpora"]:
        (folder,) = (encoded / "results/corpora").glob(f"{corpus['name']}-*")
        read = sum(json.loads(path.read_text())["read"] for path in folder.glob("documents/*.counts.json"))
        left_out = sum(corpus["dropped"].values()) + sum(corpus["removed"].values())
        assert read == corpus["read"] == corpus["documents"] + left_out
    assert card["documents"] + card["held_out_documents"] == sum(corpus["documents"] for corpus in card["corpora"])
    in_shards = 0
    for shard in encoded.glob("results/datasets/*/shards/*.txt.zst"):
        with read_compressed(shard) as file:
            in_shards += file.read().count(b"\n\n")
    assert card["documents"] + card["held_out_documents"] == in_shards


def test_duplicates_and_quotations_are_left_out_and_named(encoded: Path) -> None:
    wikipedia, shelf, again = card_of(encoded)["corpora"]
    assert again["kept"] == shelf["documents"] + 1 > 2
    assert again["removed"] == {"exact_duplicate": shelf["documents"], "evaluation_overlap": 1}
    assert again["documents"] == again["sequence_lengths"]["128"]["samples"] == 0
    assert (shelf["removed"], shelf["licence"]) == ({}, "public domain")
    assert wikipedia["settings"] == {
        "source": "wikimedia",
        "language": "sample",
        "dump": "20260101",
        "sentences": "unicode",
    }
    assert (encoded / f"results/corpora/wikipedia-{wikipedia['fingerprint']}").is_dir()
    assert wikipedia["cleaning"]["headings"]["lines"] > 0
    assert shelf["cleaning"].keys() == {"markup", "symbols", "normalisation"}
    assert wikipedia["sentences"] > 0 < wikipedia["sequence_lengths"]["512"]["tokens"]
    assert wikipedia["licence"] == "CC BY-SA 4.0 and GFDL"
    overlap = card_of(encoded)["evaluation_overlap"]
    assert {key: value for key, value in overlap["glue/rte"]["examples"][-1].items() if key != "shared"} == {
        "corpus": "again",
        "id": "quoting.txt#0",
    }


def test_the_validator_accepts_the_dataset(encoded: Path) -> None:
    (card,) = encoded.glob("results/datasets/*/dataset.json")
    command = [sys.executable, "workflow/scripts/validate_dataset.py", str(card.relative_to(encoded))]
    subprocess.run(command, cwd=encoded, check=True)


def test_a_dataset_among_the_results_that_a_path_names_is_not_made(encoded: Path) -> None:
    """It is finished, of another configuration, whose corpora are not in this one."""
    (card,) = encoded.glob("results/datasets/*/dataset.json")
    run = {**SMALL_CONFIG["runs"]["first"], "finetune": {}}
    config = {"datasets": {"small": {"path": str(card.parent.relative_to(encoded))}}, "runs": {"first": run}}
    (encoded / "given.yaml").write_text(yaml.safe_dump(config))
    options = (*PROFILE[:-1], "given.yaml", "--dry-run")
    assert "write_dataset_card" not in run_snakemake(encoded, "encode", *options).stdout
    jobs = jobs_of(run_snakemake(encoded, "pretrain", *options).stdout)
    assert jobs["pretrain_phase"] == 2
    assert "write_dataset_card" not in jobs
    refused = run_snakemake(encoded, *options, "--", "results/runs/first/dataset", check=False)
    (line,) = [line for line in refused.stdout.splitlines() if "error" in line.lower()]
    assert line.endswith("dataset.json is finished, and no rule makes it; leave the name out")


def test_reporting_writes_the_card_again_and_no_sample(encoded: Path) -> None:
    """Afterwards the configuration is as it was."""
    before = (encoded / "small.yaml").read_text()
    config = yaml.safe_load(before)
    config["datasets"]["small"] |= {"duplicates": "keep", "evaluation_overlap": "ignore"}
    write_config(encoded, config)
    without = jobs_of(run_snakemake(encoded, "encode", *PROFILE, "--dry-run").stdout)
    config["datasets"]["small"]["evaluation_overlap"] = "report"
    write_config(encoded, config)
    reporting = jobs_of(run_snakemake(encoded, "encode", *PROFILE, "--dry-run").stdout)
    (encoded / "small.yaml").write_text(before)
    assert not {"list_removed", "write_signatures", "find_overlap"} & without.keys()
    assert not {"list_removed", "write_signatures"} & reporting.keys()
    assert reporting["encode_shard"] == without["encode_shard"]


def test_reporting_the_overlap_of_a_finished_dataset_writes_its_card_alone(encoded: Path) -> None:
    config = yaml.safe_load((encoded / "small.yaml").read_text())
    config["datasets"]["small"] |= {"duplicates": "keep", "evaluation_overlap": "ignore", "shards": 1}
    write_config(encoded, config)
    run_snakemake(encoded, "encode", *PROFILE)
    config["datasets"]["small"]["evaluation_overlap"] = "report"
    write_config(encoded, config)
    done = run_snakemake(encoded, "encode", *PROFILE)
    assert not {"encode_shard", "write_shard", "train_tokenizer"} & jobs_of(done.stdout).keys()
    cards = [json.loads(card.read_text()) for card in encoded.glob("results/datasets/*/dataset.json")]
    assert [
        card["evaluation_overlap"] is not None for card in cards if len(card["sequence_lengths"]["128"]["train"]) == 1
    ] == [True]
    assert "Nothing to be done" in run_snakemake(encoded, "encode", *PROFILE).stdout
