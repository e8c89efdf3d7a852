"""Small collections to rank: a passage is relevant if it contains the birthplace of the person in the query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from finetuning_helpers import NAMES, PLACES, recipe_for, write_tokenizer

from bertline.encoding.tokenizer import read_tokenizer
from bertline.files import Recipe
from bertline.finetuning.ranking.collection import tokenize_collection

TABLE = {"kind": "ranking", "relevance_level": 1, "metric": "mrr_10"}
SETTINGS = {
    "objective": "pointwise",
    "training_examples": None,
    "negatives": 1,
    "max_query_length": 8,
    "max_sequence_length": 32,
}


def write_files(folder: Path, *, queries: int = 12, candidates: int = 8) -> dict[str, str]:
    """Write a collection and the lists of ids, the same for training and dev; return the files by key."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(4)
    passages, lists, qrels, triples = [], [], [], []
    for query in range(queries):
        relevant = int(generator.integers(candidates))
        for place in range(candidates):
            passage = f"p{query * candidates + place:03d}"
            verb = "born" if place == relevant else "died"
            words = [NAMES[query % len(NAMES)], "was", verb, "in", str(generator.choice(PLACES)), "."]
            passages.append(f"{passage}\t{' '.join(words)}\n")
            lists.append(f"q{query}\t{passage}\n")
            if place == relevant:
                qrels.append(f"q{query}\t0\t{passage}\t1\n")
            else:
                triples.append(f"q{query}\tp{query * candidates + relevant:03d}\t{passage}\n")
    texts = {
        "collection": passages,
        "queries": [f"q{query}\twhere was {NAMES[query % len(NAMES)]} born ?\n" for query in range(queries)],
        "candidates": lists,
        "qrels": qrels,
        "triples": triples,
    }
    for name, lines in texts.items():
        (folder / f"{name}.tsv").write_text("".join(lines))
    return {name: str(folder / f"{name}.tsv") for name in texts}


def tokenized(folder: Path, source: str, *, tfrecords: bool = False) -> str:
    """Tokenize a collection; return its folder."""
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    output = folder / f"tokenized-{Path(source).stem}"
    recipe = Recipe({"fingerprint": "0" * 16, "source": source, "tfrecords": tfrecords})
    tokenize_collection(recipe, tokenizer, output)
    return str(output)


def data_of(folder: Path, *, train: str = "triples", **sizes: int) -> dict[str, str]:
    """Write files and tokenize the collection; return the data of a recipe."""
    files = write_files(folder, **sizes)
    data = {"collection": tokenized(folder, files["collection"])}
    data |= {f"dev_{name}": files[name] for name in ("queries", "candidates", "qrels")}
    data["train_queries"] = files["queries"]
    names = ("triples",) if train == "triples" else ("qrels", "candidates")
    return data | {f"train_{name}": files[name] for name in names}


def ranking_recipe(data: dict[str, str], **changes: Any) -> dict[str, Any]:
    """Return a recipe that `data_of`'s files can be learned with."""
    recipe = recipe_for("cola", Path("unused"), **{"epochs": 4, "learning_rate": 5e-3, **changes})
    recipe["settings"] = {**SETTINGS, **recipe["settings"]}
    return {**recipe, "task": "ranking/births", "table": TABLE, "data": data}


def tokenizer_of(folder: Path) -> Any:
    return read_tokenizer(folder / "tokenizer.json")
