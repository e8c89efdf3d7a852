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
