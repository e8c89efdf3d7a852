"""Bad input through the whole graph: one line with the problem, the place and advice, and nothing half-written."""

from __future__ import annotations

import bz2
import copy
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, run_snakemake

pytestmark = pytest.mark.slow

PROFILE = ("--profile", "profiles/local", "--configfile", "small.yaml")
STATUS = "resources/sample/mirror/samplewiki/20260101/dumpstatus.json"


@pytest.fixture
def graph(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished graph, to be spoiled."""
    return shutil.copytree(finished, tmp_path / "graph", symlinks=True)


def fresh(graph: Path) -> None:
    """As if nothing of the dump had been downloaded or made."""
    shutil.rmtree(graph / "resources/wikimedia")
    for corpus in graph.glob("results/corpora/wikipedia*"):
        shutil.rmtree(corpus)


def configure(graph: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = copy.deepcopy(SMALL_CONFIG)
    change(config)
    (graph / "small.yaml").write_text(yaml.safe_dump(config))


def a_part(graph: Path) -> Path:
    return sorted((graph / "resources/sample/mirror/samplewiki/20260101").glob("*.xml-*.bz2"))[0]


def put_part(graph: Path, content: bytes) -> None:
    """Replace a part of the dump by another that the mirror's listing declares to be right."""
    part = a_part(graph)
    part.write_bytes(content)
    status = json.loads((graph / STATUS).read_text())
    entry = status["jobs"]["articlesmultistreamdump"]["files"][part.name]
    entry["size"] = len(content)
    entry["sha1"] = hashlib.sha1(content).hexdigest()  # noqa: S324 - the dumps' own digest
    entry["md5"] = hashlib.md5(content).hexdigest()  # noqa: S324
    (graph / STATUS).write_text(json.dumps(status))


def spoil_missing_part(graph: Path) -> None:
    fresh(graph)
    a_part(graph).unlink()


def spoil_checksum(graph: Path) -> None:
    fresh(graph)
    part = a_part(graph)
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(bytes(content))


def spoil_truncated(graph: Path) -> None:
    fresh(graph)
    put_part(graph, a_part(graph).read_bytes()[:-2000])


def spoil_no_articles(graph: Path) -> None:
    fresh(graph)
    text = bz2.decompress(a_part(graph).read_bytes()).decode()
    put_part(graph, bz2.compress(text.replace("<ns>0</ns>", "<ns>1</ns>").encode()))


def spoil_encoding(graph: Path) -> None:
    book = graph / "resources/sample/books/book-001.txt"
    book.write_bytes("Das Mädchen\n".encode("latin-1") + book.read_bytes())


def spoil_empty(graph: Path) -> None:
    configure(graph, lambda config: config["corpora"]["book"].update(minimum_characters=10**8))


def spoil_vocabulary(graph: Path) -> None:
    (graph / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    configure(graph, lambda config: config["datasets"]["small"].update(tokenizer={"file": "vocab.txt"}))


def spoil_glue(graph: Path) -> None:
    shutil.rmtree(graph / "results/finetunings")
    train = graph / "resources/sample/glue/CoLA/train.tsv"
    train.write_text("".join(line.rsplit("\t", 1)[0] + "\n" for line in train.read_text().splitlines()))


def spoil_tokenizer_of_a_shard(graph: Path) -> None:
    change_attribute(graph, "tokenizer_sha256", np.bytes_("0" * 64))
    train_again(graph)


def spoil_layout_of_a_shard(graph: Path) -> None:
    change_attribute(graph, "layout_version", 99)
    train_again(graph)


def change_attribute(graph: Path, name: str, value: Any) -> None:
    with h5py.File(next(graph.glob("results/datasets/*/seq128/00000.h5")), "r+") as file:
        assert name in file.attrs
        file.attrs[name] = value


def train_again(graph: Path) -> None:
    configure(graph, lambda config: config["runs"]["first"]["phases"]["phase1"].update(learning_rate=2e-3))


def spoil_checkpoint(graph: Path) -> None:
    """Weights of the right name and fingerprint, and another shape: what a changed network without a version leaves."""
    for phase in graph.glob("results/phases/*"):
        (phase / "model.safetensors").unlink()
        (phase / "recipe.json").unlink()
        shutil.rmtree(phase / "huggingface", ignore_errors=True)
        for checkpoint in sorted(phase.glob("checkpoints/step-*")):
            make_another_model_of(checkpoint)


def make_another_model_of(checkpoint: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(checkpoint / "model.safetensors")
    name = "encoder.layers.0.output.weight"
    save_file({**weights, name: weights[name][:, :3].contiguous()}, checkpoint / "model.safetensors")
    state = json.loads((checkpoint / "state.json").read_text())
    del state["digests"]["state.json"]
    state["digests"]["model.safetensors"] = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    state["digests"]["state.json"] = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    (checkpoint / "state.json").write_text(json.dumps(state))


# What is spoiled, what is asked for, what the line says, and what must not be there afterwards.
CASES = [
    (
        spoil_missing_part,
        "corpus",
        r"part-00000.*does not exist|no such file|holds no",
        "resources/wikimedia/*/*/*-00000*",
    ),
    (spoil_checksum, "corpus", r"sha1", "resources/wikimedia/*/*/*-00000*.bz2"),
    (
        spoil_truncated,
        "corpus",
        r"truncated; delete it and download it again",
        "results/corpora/wikipedia*/documents/part-00000*",
    ),
    (spoil_no_articles, "corpus", r"no article", "results/corpora/wikipedia*/documents/part-00000*"),
    (spoil_encoding, "encode", r"book-001\.txt.*utf-8", "results/corpora/*/x"),
    (spoil_empty, "encode", r"is empty", "results/x"),
    (spoil_vocabulary, "encode", r"\[MASK\]", "results/datasets/*/x"),
    (spoil_glue, "finetune", r"train\.tsv.*line 1", "results/finetunings/*/metrics.json"),
    (spoil_tokenizer_of_a_shard, "pretrain", r"was encoded with another tokenizer", "results/x"),
    (spoil_layout_of_a_shard, "pretrain", r"layout version 99", "results/x"),
    (spoil_checkpoint, "pretrain", r"is of another model; move it away", "results/phases/*/model.safetensors"),
]


@pytest.mark.parametrize(("spoil", "target", "line", "absent"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_bad_input_is_one_line_and_leaves_nothing(
    graph: Path, spoil: Callable[[Path], None], target: str, line: str, absent: str
) -> None:
    spoil(graph)
    finished = run_snakemake(graph, target, *PROFILE, "--retries", "0", check=False)
    assert finished.returncode != 0
    errors = {text.strip() for text in finished.stdout.splitlines() if text.strip().startswith("error: ")}
    assert len(errors) == 1, errors
    assert re.search(line, errors.pop(), flags=re.IGNORECASE)
    assert "Traceback (most recent call last)" not in finished.stdout
    assert not list(graph.glob(absent))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_is_one_line_and_leaves_nothing(graph: Path, small_disk: Path) -> None:
    shutil.rmtree(graph / "results/datasets")
    os.symlink(small_disk, graph / "results/datasets")
    (small_disk / "ballast").write_bytes(bytes(8_000_000))
    finished = run_snakemake(graph, "encode", *PROFILE, "--retries", "0", check=False)
    assert finished.returncode != 0
    assert "Traceback (most recent call last)" not in finished.stdout
    errors = [text for text in finished.stdout.splitlines() if text.strip().startswith("error: ")]
    assert errors
    assert all("no space left" in text for text in errors), errors
    assert not list(small_disk.glob("**/*.part"))
    (small_disk / "ballast").unlink()
    run_snakemake(graph, "encode", *PROFILE)
