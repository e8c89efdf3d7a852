"""The real files of the end-to-end test as a configuration: a mirror of dumps, books, vocabularies, tasks, tags."""

from __future__ import annotations

import bz2
import hashlib
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

DUMP = "20200101"
# enwiki-table-markup has no <siteinfo>, without which the extractor finds no articles: that is a one-line error.
ENGLISH_PARTS = ("enwiki-p10p30302-shortened", "enwiki-3page-sample")
LATGALIAN_PARTS = ("ltgwiki-smallwiki-pages-articles",)
LATIN_1_BOOKS = ("chesterton-ball.txt", "shakespeare-caesar.txt")

TASK = {"epochs": 1, "learning_rate": 5.0e-4, "precision": "fp32", "max_sequence_length": 128}
PHASE = {"optimizer": "adamw", "schedule": "linear", "warmup": 0.1, "precision": "fp32"}


NAMES = {
    "PER": ["Peter Blackburn", "Maria Silva", "Blackburn", "Anna"],
    "LOC": ["Brussels", "New York", "Riga"],
    "ORG": ["European Commission", "Reuters", "United Nations"],
}
SENTENCES = [
    "PER said in LOC .",
    "ORG rejects the call of PER .",
    "PER of ORG went to LOC on Thursday .",
    "It was late .",
]


def write_conll(path: Path, sentences: int, seed: int) -> int:
    """Write word, part of speech, chunk and tag with spaces between, as CoNLL-2003's files are; return the words."""
    drawn, lines, words = np.random.default_rng(seed), ["-DOCSTART- -X- -X- O\n\n"], 0
    for _ in range(sentences):
        for part in drawn.choice(SENTENCES).split():
            for place, word in enumerate(drawn.choice(NAMES[part]).split() if part in NAMES else [part]):
                tag = f"{'I' if place else 'B'}-{part}" if part in NAMES else "O"
                lines.append(f"{word} NN B-NP {tag}\n")
                words += 1
        lines.append("\n")
    path.write_text("".join(lines))
    return words


def make_mirror(test_data: Path, mirror: Path) -> None:
    """Lay the sample dumps out as dumps.wikimedia.org does, with a dumpstatus.json that gives their digests."""
    for wiki, sources in (("enwiki", ENGLISH_PARTS), ("ltgwiki", LATGALIAN_PARTS)):
        folder = mirror / wiki / DUMP
        folder.mkdir(parents=True)
        files = {}
        for number, source in enumerate(sources, start=1):
            name = f"{wiki}-{DUMP}-pages-articles-multistream{number}.xml-p{number}p{number}.bz2"
            shutil.copy(test_data / "wiki" / f"{source}.xml.bz2", folder / name)
            content = (folder / name).read_bytes()
            files[name] = {
                "size": len(content),
                "url": f"/{wiki}/{DUMP}/{name}",
                "sha1": hashlib.sha1(content).hexdigest(),  # noqa: S324 - the dumps' own digest
                "md5": hashlib.md5(content).hexdigest(),  # noqa: S324
            }
        status = {"version": "0.8", "jobs": {"articlesmultistreamdump": {"status": "done", "files": files}}}
        (folder / "dumpstatus.json").write_text(json.dumps(status))


def count_pages(path: Path) -> dict[str, int]:
    """Articles, redirects and pages of other namespaces in a dump, read with an XML parser."""
    counts = {"pages": 0, "articles": 0, "redirects": 0, "other_namespaces": 0}
    with bz2.open(path) as file:
        for _, element in ElementTree.iterparse(file):  # noqa: S314
            if element.tag.rsplit("}", 1)[-1] != "page":
                continue
            children = {child.tag.rsplit("}", 1)[-1]: child for child in element}
            counts["pages"] += 1
            if children["ns"].text != "0":
                counts["other_namespaces"] += 1
            elif "redirect" in children:
                counts["redirects"] += 1
            else:
                counts["articles"] += 1
            element.clear()
    return counts


def configuration(test_data: Path, mirror: Path) -> dict:
    """English with Google's vocabulary and all tasks; Latgalian with a vocabulary of its own."""
    books = sorted(path for path in (test_data / "books").glob("*.txt"))
    model = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    phase1 = {**PHASE, "sequence_length": 128, "global_batch_size": 32, "steps": 120, "learning_rate": 1.0e-3}
    phase2 = {**PHASE, "sequence_length": 512, "global_batch_size": 8, "steps": 16, "learning_rate": 3.0e-4}
    return {
        "experiment": "real-input",
        "mirrors": [str(mirror)],
        "corpora": {
            "english": {"source": "wikimedia", "language": "en", "dump": DUMP},
            "latgalian": {"source": "wikimedia", "language": "ltg", "dump": DUMP, "minimum_characters": 50},
            "books": {"source": "files", "paths": [str(path) for path in books if path.name not in LATIN_1_BOOKS]},
            "latin_1_books": {
                "source": "files",
                "encoding": "latin-1",
                "paths": [str(path) for path in books if path.name in LATIN_1_BOOKS],
            },
        },
        "datasets": {
            "english": {
                "corpora": ["english", "books", "latin_1_books"],
                "shards": 3,
                "held_out": 0.05,
                "tokenizer": {"file": str(test_data / "vocab/bert-base-uncased-vocab.txt")},
            },
            "latgalian": {
                "corpora": ["latgalian"],
                "shards": 2,
                "held_out": 0.05,
                "tokenizer": {"train": "wordpiece", "vocab_size": 3000, "lowercase": False},
            },
        },
        "evaluation": {
            "squad_v1": {
                "train": str(test_data / "squad/train-v1.1-slice.json"),
                "dev": str(test_data / "squad/dev-v1.1.json"),
            },
            "glue": str(test_data / "glue"),
            "tables": {
                "names": {"kind": "tagging", "train": "train.conll", "dev": "dev.conll", "word": 0, "tag": -1},
            },
        },
        "runs": {
            "english": {
                "dataset": "english",
                "model": model,
                "phases": {"phase1": phase1, "phase2": phase2},
                "finetune": {
                    "squad_v1": {**TASK, "max_sequence_length": 320},
                    "glue": {"cola": TASK, "mrpc": TASK, "rte": {**TASK, "max_sequence_length": 192}},
                    "tables": {"names": {**TASK, "learning_rate": 1.0e-3, "epochs": 5, "max_sequence_length": 64}},
                },
            },
            "latgalian": {
                "dataset": "latgalian",
                "model": model,
                "phases": {"phase1": {**phase1, "steps": 10}},
            },
        },
    }
