"""Overlap of documents with the evaluation sets, on which a model should not be trained.

A document overlaps with an evaluation set if both share a sequence of 13 words, the criterion of GPT-3 (Brown et al.,
Language Models are Few-Shot Learners, 2020, appendix C); `ngrams` defines words, also of scripts without spaces.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from pyarrow.parquet import ParquetFile

from bertline.arrays import NOT_AN_ARRAY
from bertline.console import BertlineError, progress
from bertline.corpus.columnar import arrow_errors
from bertline.corpus.documents import read_documents, tidy
from bertline.corpus.json_rows import json_objects
from bertline.corpus.ngrams import in_groups, ngram_hashes, ngram_hashes_of
from bertline.corpus.tables import csv_cells
from bertline.corpus.unpacking import as_damage_error
from bertline.files import (
    Json,
    Recipe,
    one_line_damage,
    read_json,
    read_object,
    read_text,
    write_atomically,
    write_json,
)

NGRAM_WORDS = 13
EXAMPLES = 5


def collect_ngrams(recipe: Recipe, output: Path) -> None:
    """Write the 13-word sequences of the evaluation sets as an `.npz`, atomically.

    Args:
        recipe: a JSON file with `sets`: the name of each, and its files.
        output: the `.npz` to write. It contains `names` (of the sets), `hashes` (uint64, sorted) and `sets` (uint32,
            bit i for names[i]).

    Raises BertlineError for a file that is missing, damaged, or not in the format of its name.
    """
    sets: dict[str, list[str]] = recipe["sets"]
    hashes, bits = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.uint32)]
    for number, files in enumerate(sets.values()):
        blocks = [
            block
            for file in progress(files, description="evaluation sets", unit="files", total=len(files))
            for text in texts_of(file)
            for block in ngram_hashes(tidy(text), NGRAM_WORDS)
        ]
        distinct = np.unique(np.concatenate([hashes[0], *blocks]))
        hashes.append(distinct)
        bits.append(np.full(len(distinct), 1 << number, dtype=np.uint32))
    together, place = np.unique(np.concatenate(hashes), return_inverse=True)
    of_together = np.zeros(len(together), dtype=np.uint32)
    np.bitwise_or.at(of_together, place, np.concatenate(bits))
    with write_atomically(output) as temporary, temporary.open("wb") as file:
        np.savez(file, names=np.array(list(sets), dtype=str), hashes=together, sets=of_together)


def texts_of(file: Path | str) -> Iterator[str]:
    """Yield every string of a JSON file, or every cell of a table: labels and ids are too short to matter.

    Tables are `.jsonl`, `.ndjson`, `.csv`, `.parquet`, and any other file, with a row per line and tabs between cells.
    """
    path = Path(file)
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".csv"):
        with _open(path) as stream:
            rows = csv_cells(stream, path, "utf-8") if suffix == ".csv" else json_objects(stream, path)
            for _, row in rows:
                yield from _strings(row)
    elif suffix == ".json":
        yield from _strings(read_json(path))
    elif suffix == ".parquet":
        with _open(path) as stream, arrow_errors(path), ParquetFile(stream, page_checksum_verification=True) as table:
            for batch in table.iter_batches():
                yield from _strings(batch.to_pylist())
    else:
        for line in read_text(path).split("\n"):
            yield from line.split("\t")


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; put the task's file there") from None
    except (IsADirectoryError, PermissionError) as error:
        raise BertlineError(f"{path} cannot be read ({error.strerror}); give another file, or allow it") from None


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings within lists and the values of objects. Recursion would end at Python's limit of levels."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def find_overlap(documents: Path | str, ngrams: Path | str, output: Path | str) -> None:
    """Write which documents of a part share sequences with which evaluation sets, as JSON, atomically.

    Args:
        documents: a `.jsonl.zst`.
        ngrams: the output of `collect_ngrams`, which is held in memory: 12 bytes per sequence.
        output: the JSON file to write. It contains `sets`, the names of all evaluation sets; `documents`, the number of
            documents read; `overlaps`, for each overlapping document its `document` (number in the part, from 0), `id`,
            and `shared` (set -> how many of the document's sequences).
    """
    try:
        with as_damage_error(str(ngrams)), np.load(ngrams, allow_pickle=False) as arrays:
            names, hashes, sets = arrays["names"].tolist(), arrays["hashes"], arrays["sets"]
    except (*NOT_AN_ARRAY, AttributeError) as error:  # an array alone; other arrays; a pickle
        raise BertlineError(f"{ngrams} is not the output of collect_ngrams ({error}); make it again") from None
    overlaps, number = [], 0
    shown = progress(read_documents(documents), description="overlap", unit="documents")
    for group in in_groups(shown, lambda document: len(document["text"])):
        for place, blocks in _that_may_overlap([document["text"] for document in group], hashes):
            shared: Counter[str] = Counter()
            for block in blocks:
                found = sets[_look_up(block, hashes)]
                shared.update({name: int((found >> bit & 1).sum()) for bit, name in enumerate(names)})
            if shared := +shared:
                overlaps.append({"document": number + place, "id": group[place]["id"], "shared": dict(shared)})
        number += len(group)
    write_json(output, {"sets": names, "documents": number, "overlaps": overlaps})


def _that_may_overlap(
    texts: Sequence[str], hashes: npt.NDArray[np.uint64]
) -> Iterator[tuple[int, Iterable[npt.NDArray[np.uint64]]]]:
    """Yield those of a group of texts that may overlap, by number, each with the hashes of its sequences in blocks."""
    if len(texts) == 1:
        yield 0, ngram_hashes(texts[0], NGRAM_WORDS)
        return
    of_all, counts = ngram_hashes_of(texts, NGRAM_WORDS)
    known = hashes[_look_up(of_all, hashes)]
    if len(known):
        ends = np.cumsum(counts)
        found = np.searchsorted(ends, np.flatnonzero(np.isin(of_all, known)), side="right")
        yield from ((text, [of_all[ends[text] - counts[text] : ends[text]]]) for text in np.unique(found).tolist())


def _look_up(wanted: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the places among `hashes` of those that are there, in no particular order."""
    if not len(hashes):
        return np.empty(0, dtype=np.int64)
    wanted = np.sort(wanted)  # four times faster than looking them up in text order
    places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    found: npt.NDArray[np.int64] = places[hashes[places] == wanted]
    return found


def sum_up_overlap(parts: Mapping[str, Sequence[Path | str]], pieces: Iterable[Json] | None = None) -> Json:
    """Return for each evaluation set how many documents overlap with it, in all and by corpus, and the first of them.

    Args:
        parts: corpus -> the output of `find_overlap` for each of its parts.
        pieces: of all shards of a dataset's plan, outside of which no document counts; if None, all documents count.
    """
    in_dataset = None if pieces is None else _overlapping_in(pieces, parts)
    summary: Json = {}
    for corpus, paths in parts.items():
        for path in paths:
            with one_line_damage(path):
                content = read_object(path)
                if in_dataset is not None:
                    of_part = in_dataset[corpus, Path(path).stem]
                    content["overlaps"] = [found for found in content["overlaps"] if found["document"] in of_part]
                _add_overlap(summary, corpus, content)
    return summary


def _overlapping_in(
    pieces: Iterable[Json], parts: Mapping[str, Sequence[Path | str]]
) -> dict[tuple[str, str], set[int]]:
    """Return the documents that overlap and are in pieces of shards, by corpus and part.

    Raises BertlineError for a piece of another part.
    """
    overlapping = {
        (corpus, Path(path).stem): np.array(sorted(overlapping_documents(path)), dtype=np.int64)
        for corpus, paths in parts.items()
        for path in paths
    }
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for piece in pieces:
        key = piece["corpus"], Path(piece["part"]).name.removesuffix(".txt.zst")
        if (documents := overlapping.get(key)) is None:
            raise BertlineError(f"the plan names {key[1]} of {key[0]}, which has no such part; delete the plan")
        firsts, ends = np.array(piece["ranges"], dtype=np.int64)[:, :2].T
        place = np.searchsorted(firsts, documents, side="right") - 1
        found[key].update(documents[(place >= 0) & (documents < ends[place])].tolist())
    return found


def _add_overlap(summary: Json, corpus: str, content: Json) -> None:
    for name in content["sets"]:
        of_set = summary.setdefault(name, {"documents": 0, "corpora": {}, "examples": []})
        of_set["corpora"].setdefault(corpus, 0)
    for found in content["overlaps"]:
        for name, count in found["shared"].items():
            of_set = summary[name]
            of_set["documents"] += 1
            of_set["corpora"][corpus] += 1
            if len(of_set["examples"]) < EXAMPLES:
                of_set["examples"].append({"corpus": corpus, "id": found["id"], "shared": count})


def overlapping_documents(path: Path | str) -> dict[int, list[str]]:
    """Return the documents of a part that overlap, by number, with the names of the sets."""
    with one_line_damage(path):
        return {int(found["document"]): list(found["shared"]) for found in read_object(path)["overlaps"]}
