"""Tokenized collections of the rankings of a plan: one for all fine-tunings with the same tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertline.encoding.tokenizer_config import DEFAULTS, read_settings
from bertline.files import Json
from bertline.fingerprint import fingerprint, stage_versions
from bertline.planning.corpora import digests
from bertline.planning.entries import CollectionRecipe, RunEntry
from bertline.planning.plan import Plan
from bertline.planning.task_data import TaskData
from bertline.results import paths

# Of a ranking's files, those that are tokenized for all of its jobs.
TOKENIZED = ("collection", "train_tfrecords", "dev_tfrecords")


def add_ranking(plan: Plan, run: RunEntry, tokenizer: str | None, data: TaskData) -> None:
    """Add a ranking's tokenized collection to the plan, and put it into the files, and the content, of `data`.

    tokenizer: its file; None for that of the run's dataset.
    """
    for kind in TOKENIZED:
        if kind in data.files:
            data.files[kind] = add_collection(
                plan, data.files[kind], data.content[kind], kind != "collection", run["dataset"], tokenizer
            )
    if versions := versions_of_collections():
        data.content["versions"] = versions


def versions_of_collections() -> dict[str, int]:
    """Return the version of collections for the fingerprints of what reads them; the first is in none of them."""
    versions = stage_versions("collection")
    return versions if versions["collection"] > 1 else {}


def add_collection(
    plan: Plan, source: str, content: Any, tfrecords: bool, dataset: str | None, tokenizer: str | None
) -> str:
    """Add a tokenized collection to the plan; return its folder.

    Args:
        source: the file; `content` identifies its content: the SHA-256, as a list, if it is not downloaded.
        tfrecords: whether it is a TFRecord file.
        dataset, tokenizer: a dataset by its fingerprint, or the file of another tokenizer.
    """
    read_by: dict[str, object] = {}
    if tokenizer is not None:
        read_by["tokenizer"] = _content_of(plan, tokenizer)
    elif dataset is not None:
        read_by["dataset"] = plan.datasets[dataset]["fingerprint_without_lengths"]
    key = fingerprint({"source": content, "tfrecords": tfrecords, **read_by, "versions": stage_versions("collection")})
    checksums = {} if source in plan.downloads else {source: content[0]}
    recipe: CollectionRecipe = {"fingerprint": key, "source": source, "sha256": checksums, "tfrecords": tfrecords}
    if tokenizer is not None:
        recipe["tokenizer"] = tokenizer
    elif dataset is not None:
        recipe["dataset"] = dataset
    plan.collections[key] = recipe
    return paths.COLLECTION.format(collection=key)


def _content_of(plan: Plan, tokenizer: str) -> list[str | Json]:
    """Return what identifies a tokenizer; nothing if its file is absent, which is a problem of the plan already.

    That is the file's digest, and of a vocab.txt the settings next to it that differ from their defaults. Raises
    BertlineError for invalid ones.
    """
    if tokenizer in plan.fetched:  # the folder of the weights: a revision or a digest is part of its name
        return [tokenizer]
    path = Path(tokenizer)
    if not path.is_file():
        return []
    stated = read_settings(path) if path.suffix == ".txt" else DEFAULTS
    settings = {key: stated[key] for key, default in DEFAULTS.items() if stated[key] != default}
    return [*digests([path]).values(), *([settings] if settings else [])]
