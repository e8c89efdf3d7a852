"""Encoding a shard takes bounded memory, however large the shard is; so does reading all of what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from encoding_helpers import VOCABULARY, write_plan

from bertline.corpus.compressed import write_compressed
from bertline.encoding.layout import write_samples
from bertline.encoding.tokenizer import make_tokenizer, save_tokenizer

# BERTLINE_LARGE_SHARD=2000000000 tests a shard of 2 GB and a line of 200 MB: 12 minutes of processor time.
LARGE_BYTES = int(os.environ.get("BERTLINE_LARGE_SHARD", "30000000"))
PEAK = """
# Not ru_maxrss, which begins with what the process that started this one had.
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
ENCODE = """
import sys
from pathlib import Path
from bertline.encoding.encode_shard import encode_shard
from bertline.files import Recipe
folder = Path(sys.argv[1])
settings = {"seed": 1, "pair_objective": "next_sentence", "passes": 1, "short_sequence_probability": 0.1}
recipe = Recipe({"fingerprint": "0" * 16, "settings": settings, "sequence_lengths": [128, 512]})
encode_shard(recipe, "00000", folder)
"""
READ = """
import sys
from pathlib import Path
from bertline.encoding.description import describe_files
from bertline.encoding.validation import validate_samples
folder = Path(sys.argv[1])
validate_samples(folder / "seq128/00000.h5")
describe_files([folder / "seq128/00000.h5"])
"""
OPEN = """
import sys
from pathlib import Path
from bertline.encoding.dataset import SampleReader
from bertline.encoding.layout import open_samples

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))

file = open_samples(sys.argv[1])
before = anonymous()
reader = SampleReader([file], 128, {})
print(1024 * (anonymous() - before) / len(reader))
"""
IMPORT = """
import sys
from pathlib import Path
from bertline.encoding.imports import import_dataset
folder = Path(sys.argv[1])
import_dataset([folder / "theirs.hdf5"], folder / "vocab.txt", folder / "ours", name="theirs")
"""


def peak_megabytes(folder: Path, size: int, *, one_document: bool = False, one_line: bool = False) -> int:
    """Of a process that encodes a shard of `size` bytes: English-like words, two million of them different."""
    (folder / "shards").mkdir(parents=True)
    random = np.random.default_rng(1)
    letters = random.choice(list("etaoinshrdlu"), (2_000_000, 8)).view("<U8").ravel().tolist()
    words = [word[: 2 + number % 7] for number, word in enumerate(letters)]
    documents = 0
    with write_compressed(folder / "shards/00000.txt.zst") as file:
        written = 0
        while written < size:
            drawn = [words[index] for index in (random.pareto(0.9, 20_000) * 20).astype(int) % len(words)]
            end = " " if one_line else "\n" if one_document else "\n\n"
            content = ("\n" if not one_line else " ").join(
                " ".join(drawn[start : start + 20]) for start in range(0, len(drawn), 20)
            ) + end
            written += file.write(content.encode())
            documents += 1
        if one_document:
            file.write(b"end\n\n")
            documents = 1
    save_tokenizer(
        make_tokenizer(
            [*VOCABULARY, *"etoinshrdlu", *(f"##{letter}" for letter in "etaoinhrdlu")], lowercase=True, source="x"
        ),
        folder / "tokenizer.json",
    )
    write_plan(folder / "plan.jsonl", {"00000": [("news", 0, documents)]})
    return peak_of(ENCODE, folder)


def peak_of(program: str, folder: Path) -> int:
    """The most MB that a Python program held."""
    done = subprocess.run([sys.executable, "-c", program + PEAK, folder], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_shard(tmp_path: Path) -> None:
    small = peak_megabytes(tmp_path / "small", LARGE_BYTES // 20)
    large = peak_megabytes(tmp_path / "large", LARGE_BYTES)
    line = peak_megabytes(tmp_path / "line", LARGE_BYTES // 10, one_document=True, one_line=True)
    # The word cache fills on the way; a shard that is held would take several times its size.
    assert max(large, line) < min(1024, small + 400), (small, large, line)


def write_alike(folder: Path, samples: int, length: int) -> Path:
    """Write a file of samples of `length` tokens."""
    row = np.full(length, 7, dtype=np.uint16)
    row[[0, -1]] = 2, 3
    block = np.tile(row, samples // 100)
    columns = {
        "input_ids": [block] * 100,
        "sample_offsets": [np.arange(samples + 1) * length],
        **{name: [np.zeros(samples)] for name in ("second_segment_start", "next_sentence_labels", "corpus_index")},
        "document_index": [np.zeros(samples)],
    }
    none = ("sentences", "text_tokens", "unknown_tokens", "unplaced_tokens", "seed", "samples_with_random_next")
    attributes = {
        **dict.fromkeys((*none, "samples_without_partner"), 0),
        **{"fingerprint": "0" * 16, "shard": "00000", "sequence_length": 128, "pair_objective": "none"},
        **{"tokenizer_sha256": "0" * 64, "vocab_size": 100, "cls_id": 2, "sep_id": 3},
        **{"documents": 1, "documents_of_corpora": [1]},
    }
    path = folder / "seq128/00000.h5"
    write_samples(path, columns, samples=samples, tokens=length * samples, attributes=attributes)
    return path


def test_memory_does_not_grow_with_the_file_that_is_read(tmp_path: Path) -> None:
    """Mapped pages count as memory of the process."""
    path = write_alike(tmp_path, 600_000, 128)
    assert path.stat().st_size > 150_000_000
    assert peak_of(READ, tmp_path) < peak_of("import bertline.encoding.card", tmp_path) + 120


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_training_holds_two_bytes_of_each_sample(tmp_path: Path) -> None:
    path = write_alike(tmp_path, 2_000_000, 4)
    done = subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3


def peak_of_an_import(folder: Path, samples: int) -> int:
    """Of a process that imports a file of NVIDIA's layout, 128 tokens and 19 masks a sample."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    row = np.full(128, VOCABULARY.index("river"))
    row[[0, -1]] = VOCABULARY.index("[CLS]"), VOCABULARY.index("[SEP]")
    positions = np.append(np.arange(1, 20), 0)
    rows = {
        "input_ids": ("i4", row),
        "input_mask": ("i1", np.ones(128)),
        "segment_ids": ("i1", np.zeros(128)),
        "masked_lm_positions": ("i4", positions),
        "masked_lm_ids": ("i4", np.where(positions, VOCABULARY.index("king"), 0)),
        "next_sentence_labels": ("i1", np.zeros(())),
    }
    with h5py.File(folder / "theirs.hdf5", "w") as file:
        for name, (dtype, values) in rows.items():
            file.create_dataset(name, data=np.broadcast_to(values.astype(dtype), (samples, *values.shape)))
    return peak_of(IMPORT, folder)


def test_memory_does_not_grow_with_the_file_that_is_imported(tmp_path: Path) -> None:
    few, many = 10_000, 120_000
    # The larger file's columns, held whole as they are read, would take 500 MB; `Spool` holds up to 64 MB of each in
    # memory on purpose, here 15 MB in all.
    assert peak_of_an_import(tmp_path / "many", many) < peak_of_an_import(tmp_path / "few", few) + 120
