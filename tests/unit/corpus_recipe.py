"""Recipes of corpora, with the schema's defaults, as the plan writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertline.corpus import sources
from bertline.corpus.documents import read_documents, validate_documents
from bertline.files import SCHEMA, Recipe, read_json
from bertline.settings.configuration import fill_defaults, load_schema


@cache
def schema_of_configurations() -> dict[str, Any]:
    return load_schema(SCHEMA)


def corpus_recipe(source: str, parts: dict[str, list[str]] | None = None, **settings: Any) -> Recipe:
    """Make the recipe of a corpus called `books`, with the given parts and settings."""
    schema = schema_of_configurations()
    filled = fill_defaults({"source": source, **settings}, schema["$defs"]["corpus"], schema)
    return Recipe(name="books", key="books-01234567", settings=filled, parts=parts or {})


def read_texts(files: Sequence[Path | str], documents: Path | str, counts: Path | str, **settings: Any) -> None:
    """Read files as the only part of a corpus with the source `files`."""
    corpus = corpus_recipe("files", {"part-00000": [str(file) for file in files]}, **settings)
    sources.read_part(corpus, "part-00000", documents, counts)


def read(folder: Path, *files: Path | str, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
    """Read files as `read_texts` does; return the documents and the counts."""
    paths = folder / "out.jsonl.zst", folder / "out.counts.json"
    read_texts(files, *paths, **settings)
    return read_part(*paths)


def read_part(documents: Path, counts: Path) -> tuple[list[Any], dict[str, Any]]:
    """Return the documents and the counts of a part, which have to be valid."""
    validate_documents(documents, counts)
    return list(read_documents(documents)), read_json(counts)


def dump_recipe(**settings: Any) -> Recipe:
    """Make the recipe of the corpus of a dump."""
    return Recipe(corpus_recipe("wikimedia", dump="20260101", **settings), wiki="samplewiki")
