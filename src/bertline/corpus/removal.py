"""The removal list of a dataset: the documents of its corpora that it excludes, each with the reason.

`removed.jsonl.zst` has a line for each, in the order of corpora, parts and documents: `corpus`, `part`, `document` (its
number in the part, from 0: line `document + 1` of the part's documents), `reason` (`evaluation_overlap`,
`exact_duplicate` or `near_duplicate`), and `sets` (the evaluation sets) or `duplicate_of` (`corpus`, `part`
and `document` of the one that is kept). Version 1.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed, write_compressed
from bertline.corpus.duplicates import EXACT, KEPT, NEAR, find_duplicates
from bertline.corpus.overlap import overlapping_documents
from bertline.corpus.signatures import open_signatures
from bertline.corpus.sources import files_of_dataset
from bertline.files import Json, Recipe, read_json
from bertline.results import paths

OVERLAP = "evaluation_overlap"

Corpora = Sequence[tuple[str, Sequence[str]]]


def removal_inputs(dataset: Json) -> dict[str, str]:
    """Return the templates of the files that the removal list of a dataset's recipe is made from, by their kind.

    The kinds are `signatures` and `overlaps`, as in `write_removals`; none if no document is removed.
    """
    templates = {}
    if dataset["settings"]["duplicates"] != "keep":
        templates["signatures"] = paths.SIGNATURES
    if dataset["settings"]["evaluation_overlap"] == "drop":
        templates["overlaps"] = overlap_template(dataset)
    return templates


def overlap_template(dataset: Json) -> str:
    """Return `paths.OVERLAP` for the evaluation sets of a dataset's recipe."""
    return paths.OVERLAP.replace("{evaluation}", dataset["evaluation"])


def write_removals(signatures: Corpora, overlaps: Corpora, output: Path | str, *, near: bool) -> None:
    """Write the removal list of a dataset atomically.

    Args:
        signatures: pairs of a corpus's name and the `{part}.npy` of its signatures, both in the dataset's order; if
            empty, duplicates are kept.
        overlaps: the same with the `{part}.json` of `overlap.find_overlap`; if empty, overlapping documents are kept.
        output: the `.jsonl.zst` to write.
        near: whether to remove near-duplicates in addition to exact ones.

    A document that overlaps with an evaluation set is no duplicate's original: a similar one that does not overlap is
    kept.
    """
    places = [(corpus, part_of(path)) for corpus, paths in signatures or overlaps for path in paths]
    parts, reports = ([path for _, paths in corpora for path in paths] for corpora in (signatures, overlaps))
    sets = [overlapping_documents(path) for path in reports] or [{} for _ in parts]
    sizes = [len(open_signatures(path)) for path in parts] or [read_json(path)["documents"] for path in reports]
    firsts = np.cumsum([0, *sizes])
    overlapping = np.zeros(firsts[-1], dtype=np.bool_)
    for first, found in zip(firsts[:-1].tolist(), sets, strict=True):
        overlapping[[first + document for document in found]] = True
    duplicate_of, is_exact = np.full(len(overlapping), KEPT, dtype=np.int64), np.zeros(len(overlapping), dtype=np.bool_)
    if parts:
        duplicate_of, is_exact = find_duplicates(parts, overlapping, near=near, folder=Path(output).parent)

    def locate(document: int) -> tuple[int, dict[str, Any]]:
        place = int(np.searchsorted(firsts, document, side="right")) - 1
        corpus, part = places[place]
        return place, {"corpus": corpus, "part": part, "document": document - int(firsts[place])}

    with write_compressed(output) as file:
        for document in np.flatnonzero(overlapping | (duplicate_of != KEPT)).tolist():
            place, record = locate(document)
            if overlapping[document]:
                record |= {"reason": OVERLAP, "sets": sets[place][record["document"]]}
            else:
                _, kept = locate(int(duplicate_of[document]))
                record |= {"reason": EXACT if is_exact[document] else NEAR, "duplicate_of": kept}
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


def part_of(path: Path | str) -> str:
    """Return the name of a file's part: `part-00000` for `sentences/part-00000.txt.zst`."""
    name = Path(path).name
    return next(name.removesuffix(suffix) for suffix in (".txt.zst", ".npy", ".json", "") if name.endswith(suffix))


class Removed(NamedTuple):
    """The removed documents of a part: their numbers, in order, and their count by reason."""

    documents: array[int]
    reasons: Counter[str]


def read_removals(path: Path | str) -> dict[tuple[str, str], Removed]:
    """Return the removed documents of each (corpus, part), 8 bytes each. Raises BertlineError naming a wrong line."""
    removals: dict[tuple[str, str], Removed] = {}
    with read_compressed(path) as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                key = record["corpus"], record["part"]
                of_part = removals.get(key) or removals.setdefault(key, Removed(array("q"), Counter()))
                of_part.documents.append(record["document"])
                of_part.reasons[record["reason"]] += 1
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
                raise BertlineError(f"{path}, line {number} is invalid ({error}); make the file again") from None
    return removals


def list_removed(recipe: Recipe, output: Path) -> None:
    """Write the removal list of a dataset.

    Args:
        recipe: of the dataset.
        output: the .jsonl.zst to write.
    """
    inputs = {kind: list(files_of_dataset(recipe, file).items()) for kind, file in removal_inputs(recipe).items()}
    is_near = recipe["settings"]["duplicates"] == "near"
    write_removals(inputs.get("signatures", []), inputs.get("overlaps", []), output, near=is_near)
