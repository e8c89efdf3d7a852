"""The removal list of a dataset: the documents of its corpora that it excludes, each with the reason.

`removed.jsonl.zst` has a line for each, in the order of corpora, parts and documents: `corpus`, `part`, `document` (its
number in the part, from 0: line `document + 1` of the part's documents), `reason` (`evaluation_overlap`,
`exact_duplicate` or `near_duplicate`), and `sets` (the evaluation sets) or `duplicate_of` (`corpus`, `part`
and `document` of the one that is kept). Version 1.
"""

from __future__ import annotations

import heapq
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed, write_compressed
from bertline.corpus.duplicates import EXACT, NEAR, Links, find_duplicates
from bertline.corpus.overlap import overlapping_documents
from bertline.corpus.signatures import SignatureFiles
from bertline.corpus.sources import files_of_dataset
from bertline.files import Json, Recipe
from bertline.results import paths

OVERLAP = "evaluation_overlap"
LINES_AT_ONCE = 1 << 16

Corpora = Sequence[tuple[str, Sequence[str]]]
Place = tuple[str, str]  # a corpus and a part
_Line = tuple[int, int, str]  # the number of its place, and of its document in it, by which lines are merged


def removal_inputs(dataset: Json) -> dict[str, str]:
    """Return the templates of the files from which the removal list of a dataset's recipe is made, by their kind.

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

    A document that overlaps with an evaluation set is not the original of a duplicate: a similar one that does not
    overlap is kept.
    """
    places = [(corpus, part_of(path)) for corpus, paths in signatures or overlaps for path in paths]
    parts, reports = ([path for _, paths in corpora for path in paths] for corpora in (signatures, overlaps))
    lines = _overlap_lines(places, reports)
    if parts:
        firsts = SignatureFiles(parts).firsts
        ignored = (
            first + np.array([*overlapping_documents(path)], dtype=np.int64)
            for first, path in zip(firsts.tolist(), reports, strict=False)
        )
        found = find_duplicates(parts, ignored, near=near, folder=Path(output).parent)
        lines = heapq.merge(lines, _duplicate_lines(places, firsts, found))
    with write_compressed(output) as file:
        for _, _, line in lines:
            file.write(line.encode())


def _overlap_lines(places: Sequence[Place], reports: Sequence[Path | str]) -> Iterator[_Line]:
    """Yield the lines of documents that overlap, in order; `reports` are those of the places, or none."""
    for place, report in enumerate(reports):
        begin = _begin_of_line(places[place])
        for document, sets in sorted(overlapping_documents(report).items()):
            end = json.dumps({"reason": OVERLAP, "sets": sets}, ensure_ascii=False)
            yield place, document, f"{{{begin}{document}, {end[1:]}\n"


def _duplicate_lines(places: Sequence[Place], firsts: npt.NDArray[np.int64], found: Iterable[Links]) -> Iterator[_Line]:
    """Yield the lines of duplicates, in order; `firsts` are the numbers of the places' first documents."""
    begins = [_begin_of_line(place) for place in places]
    reasons = [f'"reason": "{reason}", "duplicate_of": {{' for reason in (NEAR, EXACT)]
    blocks = (links[start : start + LINES_AT_ONCE] for links in found for start in range(0, len(links), LINES_AT_ONCE))
    for links in blocks:
        ends = (links["document"], links["original"])
        of_document, of_original = (np.searchsorted(firsts, numbers, side="right") - 1 for numbers in ends)
        numbers = [(end - firsts[place]).tolist() for end, place in zip(ends, (of_document, of_original), strict=True)]
        for place, document, exact, of, original in zip(
            of_document.tolist(), numbers[0], links["exact"].tolist(), of_original.tolist(), numbers[1], strict=True
        ):
            line = f"{{{begins[place]}{document}, {reasons[exact]}{begins[of]}{original}}}}}\n"
            yield place, document, line


def _begin_of_line(place: Place) -> str:
    """Return the beginning of the JSON of a document, without a brace, up to its number."""
    corpus, part = place
    return json.dumps({"corpus": corpus, "part": part, "document": 0}, ensure_ascii=False)[1:-2]


def part_of(path: Path | str) -> str:
    """Return the name of a file's part: `part-00000` for `sentences/part-00000.txt.zst`."""
    name = Path(path).name
    return next(name.removesuffix(suffix) for suffix in (".txt.zst", ".npy", ".json", "") if name.endswith(suffix))


class Removed(NamedTuple):
    """The removed documents of a part: their numbers, in order, and their count by reason."""

    documents: array[int]
    reasons: Counter[str]


def read_removals(path: Path | str) -> dict[Place, Removed]:
    """Return the removed documents of each (corpus, part), 4 bytes each. Raises BertlineError naming a wrong line."""
    removals: dict[Place, Removed] = {}
    with read_compressed(path) as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                key = record["corpus"], record["part"]
                of_part = removals.get(key) or removals.setdefault(key, Removed(array("I"), Counter()))
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
