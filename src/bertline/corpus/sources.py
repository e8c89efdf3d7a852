"""The kinds of corpora, and the recipes by which jobs read them.

A corpus's recipe is a JSON file of the plan: `name`; `key`, its name with its fingerprint; `settings`, with every
default filled in; and `parts`, for each part the files to read (empty if they are not local). That of a dump has
`listing` instead, its files and their sizes, or `wiki`, the database name of one that is downloaded, whose files are
known only after it was listed. `sha256` has the digests of files that are not downloaded, by path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from bertline.console import BertlineError
from bertline.corpus.documents import Document, Dropped, write_documents
from bertline.corpus.given_files import planned_files
from bertline.corpus.plain_text import Converter
from bertline.files import Json, Recipe, read_json, read_object
from bertline.results import paths

BYTES_PER_SLICE = 200_000_000  # of a compressed dump: some minutes of wikiextractor's time

Reader = Callable[[Json, str, Converter, Json], Iterator[Document | Dropped]]


class Source(NamedTuple):
    """A kind of corpus; config/config.schema.yaml defines its settings under the same name.

    Attributes:
        reader: the module with `read_part(corpus, part, converter, counts)`, which yields the documents of a part.
        memory_mb, runtime: of a job that reads a part; minutes.
    """

    reader: str
    memory_mb: int = 1000
    runtime: int = 120


# Wikimedia dumps have rules of their own, because they are downloaded and extracted before they are read.
SOURCES = {
    "files": Source("bertline.corpus.text_files"),
    "gutenberg": Source("bertline.corpus.text_files"),
    "huggingface": Source("bertline.corpus.hub_dataset", memory_mb=2000, runtime=720),
    "warc": Source("bertline.corpus.warc"),
}


def reader_of(corpus: Json) -> Reader:
    """Return the function `read_part` of a corpus's source."""
    return cast("Reader", import_module(SOURCES[corpus["settings"]["source"]].reader).read_part)


def read_part(recipe: Recipe, part: str, documents: Path, counts: Path) -> None:
    """Turn a part of a corpus into documents, by the reader of its source.

    Args:
        recipe: of the corpus: its settings, and the files of its parts.
        part: its name in the recipe.
        documents: the .jsonl.zst to write, a document per line.
        counts: the .counts.json to write. It also contains `plain_text.Converter.counts` and the reader's own counts.
            Reasons to drop: `empty`, `short`, and the reader's own.

    Raises BertlineError for a part that the corpus does not have, for files that changed since they were planned, and
    the reader's own.
    """
    if part not in recipe["parts"]:
        some = ", ".join(list(recipe["parts"])[:3])
        raise BertlineError(f"the corpus {recipe['name']} has no part '{part}', only {some}, ...; name one of these")
    read, converter = reader_of(recipe), Converter(recipe)
    more: Json = {}

    def records() -> Iterator[Document | Dropped]:
        with planned_files(recipe, recipe["parts"][part]):
            yield from read(recipe, part, converter, more)
        more.update(converter.counts())

    write_documents(records(), documents, counts, more)


def slices_of(listing: Json) -> dict[str, tuple[str, int, int]]:
    """Return the slices, which are read by one job each: name -> (part, index of the slice from 0, number of slices).

    Only large multistream files are split, see `dump.read_dump`; any other file is one slice with the part's name.
    """
    slices = {}
    for part, file in listing["parts"].items():
        is_multistream = file.get("multistream", "multistream" in file["file"])
        of = -(-file["size"] // BYTES_PER_SLICE) if is_multistream else 1
        for number in range(of):
            slices[part if of == 1 else f"{part}-slice-{number:03d}-of-{of:03d}"] = (part, number, of)
    return slices


def parts_of(corpus: Mapping[str, Any]) -> list[str]:
    """Return the names of a corpus's parts, in order; those of a dump are slices of the files in its listing."""
    return list(corpus["parts"] if "parts" in corpus else slices_of(listing_of(corpus)))


def listing_of(corpus: Mapping[str, Any]) -> Json:
    """Return the listing of a dump's files. Raises BertlineError if it is one to download, and is not listed yet."""
    if "listing" in corpus:
        return dict(corpus["listing"])
    return read_object(paths.DUMP_LISTING.format(wiki=corpus["wiki"], dump=corpus["settings"]["dump"]), "parts")


def files_of(corpus: Mapping[str, Any], template: str) -> list[str]:
    """Return a file of every part of a corpus, in order; `template` is one of results/paths.py, as `DOCUMENTS`."""
    return [template.format(corpus=corpus["key"], part=part) for part in parts_of(corpus)]


def files_of_dataset(dataset: Json, template: str) -> dict[str, list[str]]:
    """Return a file of every part of a dataset's corpora, by the corpora's names, in the dataset's order."""
    corpora = [read_json(paths.PLANNED_RECIPE.format(fingerprint=key)) for key in dataset["corpora"]]
    return {corpus["name"]: files_of(corpus, template) for corpus in corpora}
