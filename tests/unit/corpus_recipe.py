"""Recipes of corpora, with the schema's defaults, as the plan writes them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertline.corpus import sources
from bertline.files import Recipe
from bertline.settings.configuration import fill_defaults, load_schema

SCHEMA = Path(__file__).parents[2] / "config/config.schema.yaml"


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


def dump_recipe(**settings: Any) -> Recipe:
    """Make the recipe of the corpus of a dump."""
    return Recipe(corpus_recipe("wikimedia", dump="20260101", **settings), wiki="samplewiki")
