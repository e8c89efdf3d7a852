"""The number of a dataset's shards, where its configuration gives their size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.unpacking import is_compressed
from bertline.files import Json
from bertline.planning.entries import CorpusEntry

MAX_SHARDS = 99999
# So many may each have little text. With more the graph alone takes minutes, and most would have no document.
MANY_SHARDS = 1000
LEAST_TEXT = 1000  # bytes
# Bytes of text in a byte of a file. English Wikipedia has 20 GB of text in 25 GB of bz2; compressed prose a third.
OF_DUMP = 0.8
OF_COMPRESSED = 3.0


def number_of_shards(name: str, dataset: Json, corpora: Sequence[CorpusEntry]) -> int:
    """Return the number of shards of about the size that a dataset asks for, estimated from the sizes of its files.

    Args:
        name: of the dataset.
        dataset: its settings, with `shards: {megabytes: ...}`.
        corpora: their recipes.

    Raises BertlineError if a corpus is not there yet, or there would be too many.
    """
    text = sum(size for corpus in corpora for size in _sizes(name, corpus))
    count = max(1, math.ceil(text / 1e6 / dataset["shards"]["megabytes"]))
    if count > MAX_SHARDS:
        raise BertlineError(
            f"configuration: datasets.{name}.shards.megabytes: about {text / 1e6:,.0f} MB of text make {count} shards, "
            f"at most {MAX_SHARDS} are allowed; raise it"
        )
    return count


def check_number_of_shards(name: str, number: int, corpora: Sequence[CorpusEntry]) -> None:
    """Raise BertlineError for thousands of shards with hardly any text, where the sizes of all files are known."""
    if number <= MANY_SHARDS or not all("paths" in corpus["settings"] for corpus in corpora):
        return
    text = sum(size for corpus in corpora for size in _sizes(name, corpus))
    if text < number * LEAST_TEXT:
        raise BertlineError(
            f"configuration: datasets.{name}.shards: {number} shards of about {text:,.0f} bytes of text have less than "
            f"{LEAST_TEXT} each; give fewer, such as {{megabytes: 200}}"
        )


def _sizes(name: str, corpus: CorpusEntry) -> Iterator[float]:
    """Yield about how many bytes of text each file of a corpus has."""
    if "paths" not in corpus["settings"]:
        raise BertlineError(
            f"configuration: datasets.{name}.shards: the size of {corpus['name']} is not known before it is "
            "downloaded; give a number"
        )
    if "listing" in corpus:
        yield from (OF_DUMP * file["size"] for file in corpus["listing"]["parts"].values())
        return
    for files in corpus["parts"].values():
        for file in files:
            yield Path(file).stat().st_size * (OF_COMPRESSED if is_compressed(file) else 1.0)
