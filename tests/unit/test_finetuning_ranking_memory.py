"""Ranking takes memory that does not grow with the texts of the collection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from finetuning_helpers import WORDS, write_tokenizer

# Not ru_maxrss, which begins with what the process that started this one had; and without the pages of mapped files.
PEAK = """
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
ANONYMOUS = PEAK.replace("VmHWM", "RssAnon")
TOKENIZE = """
import sys
from pathlib import Path
from bertline.files import Recipe
from bertline.finetuning.ranking.collection import tokenize_collection
folder = Path(sys.argv[1])
recipe = Recipe({"fingerprint": "0" * 16, "source": str(folder / "collection.tsv"), "tfrecords": False})
tokenize_collection(recipe, folder / "tokenizer.json", folder / "tokenized")
"""
READ = """
import sys
from pathlib import Path
import numpy as np
from bertline.encoding.tokenizer import read_tokenizer
from bertline.finetuning.ranking.task import prepare_ranking
folder = Path(sys.argv[1])
data = {"collection": str(folder / "tokenized"), "train_triples": str(folder / "triples.tsv")}
data |= {f"{part}_queries": str(folder / "queries.tsv") for part in ("train", "dev")}
data |= {f"dev_{name}": str(folder / f"{name}.tsv") for name in ("candidates", "qrels")}
settings = {"objective": "pointwise", "training_examples": None, "negatives": 1, "seed": 1}
settings |= {"max_query_length": 16, "max_sequence_length": 512}
table = {"relevance_level": 1, "metric": "map"}
task = prepare_ranking(table, data, settings, read_tokenizer(folder / "tokenizer.json"))
for inputs in (task.train, task.dev.inputs):
    for rows in np.array_split(np.arange(len(inputs)), len(inputs) // 8):
        inputs.take(rows)
"""


def write_texts(folder: Path, passages: int, words: int) -> None:
    """Write passages of `words` words each, all of which are examples and candidates."""
    folder.mkdir()
    text = " ".join((WORDS * (words // len(WORDS) + 1))[:words])
    with (folder / "collection.tsv").open("w") as file:
        file.writelines(f"{passage}\t{text}\n" for passage in range(passages))
    (folder / "queries.tsv").write_text("q\twhere was n1 born ?\n")
    (folder / "qrels.tsv").write_text("q\t0\t0\t1\n")
    (folder / "candidates.tsv").write_text("".join(f"q\t{passage}\n" for passage in range(passages)))
    (folder / "triples.tsv").write_text("".join(f"q\t0\t{passage}\n" for passage in range(1, passages)))
    write_tokenizer(folder / "tokenizer.json")


def megabytes(program: str, folder: Path) -> int:
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_texts_of_the_collection(tmp_path: Path) -> None:
    """The same number of passages, of 3 MB and of 63 MB of text: 25 MB of tokens."""
    found = {}
    for name, words in (("short", 50), ("long", 1250)):
        write_texts(tmp_path / name, 12_500, words)
        found[name] = [megabytes(TOKENIZE + PEAK, tmp_path / name), megabytes(READ + ANONYMOUS, tmp_path / name)]
    assert (tmp_path / "long/collection.tsv").stat().st_size > 20 * (tmp_path / "short/collection.tsv").stat().st_size
    tokenizing, reading = zip(*found.values(), strict=True)
    assert reading[1] < reading[0] + 20, found
    assert tokenizing[1] < tokenizing[0] + 20, found
