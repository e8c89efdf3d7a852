"""The file format of shards: `*.txt.zst` with one sentence per line and an empty line after each document.

This is the input format of Google's BERT. Each part of a corpus is split into sentences in this format, with an index
of its documents; one plan, made from the indexes, lists the ranges of parts that make each shard; one job per shard
then copies them. At most one part's index is in memory. Version 1.

The plan, `plan.jsonl`, has its sums and the names of its shards in its first line, and then a line for each shard, in
order of their names, among which a job finds its own by bisection. A line ends with a checksum, so that a flipped bit
is not taken for other ranges.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertline.console import BertlineError, progress
from bertline.corpus.compressed import read_compressed, write_compressed
from bertline.corpus.documents import read_documents
from bertline.corpus.index import INDEX_TYPE, Index, index_of, read_index, write_index
from bertline.corpus.removal import Removed, part_of, read_removals, removal_inputs
from bertline.corpus.sampling import SAMPLED_OUT, UNITS, Amounts, Orders, groups_of, last_of_sample, sampling_order
from bertline.corpus.sources import files_of_dataset
from bertline.files import Json, Recipe, open_existing, parse_json, write_atomically
from bertline.results import paths
from bertline.results.paths import HELD_OUT
from bertline.spool import Spool

_CHECKED_LINE = re.compile(rb'(.*), "crc32": (\d+)\}\n?', re.DOTALL)  # of a plan
_SUMS = ("documents", "held_out_documents", "sentences", "bytes")
_KEYS_OF_PLAN = {"shards", "corpora", *_SUMS}
FEW_DOCUMENTS = 5  # with fewer, a held-out document would be too large a part of the text
COPY_BYTES = 1 << 20
ROWS_AT_ONCE = 1 << 12  # of an index, in memory
# Documents are counted by the bytes of their sentences, in powers of two: [0, 64), [64, 128), ..., [64 MiB, ...).
LENGTH_EDGES = [0, *(1 << power for power in range(6, 27)), 1 << 62]
# The split of a document: in the held-out set, removed, or in a training shard.
_HELD_OUT, _REMOVED, _TRAINED = -1, -2, 0


class _Choice(NamedTuple):
    """Criteria that assign a document to a split.

    Attributes:
        threshold: documents of a lower hash are held out.
        removals: documents that are removed.
        last_places: by corpus, the highest place in the sampling order; corpora that stay whole are left out.
    """

    threshold: np.uint64
    removals: Mapping[tuple[str, str], Removed]
    last_places: Mapping[str, np.uint64]


def hash_of_id(corpus: str, document_id: str) -> int:
    """Return the first 8 bytes, little endian, of the SHA-256 of `{corpus}/{id}`, which selects held-out documents."""
    return int.from_bytes(hashlib.sha256(f"{corpus}/{document_id}".encode()).digest()[:8], "little")


def split_part(
    documents: Path | str, corpus: str, split: Callable[[str], list[str]], sentences: Path | str, index: Path | str
) -> None:
    """Split the documents of one part into sentences.

    Args:
        documents: a `.jsonl.zst`.
        corpus: the corpus's name, which is hashed with the documents' ids.
        split: from a paragraph to its sentences, see `sentences.load_splitter`.
        sentences, index: the `.txt.zst` and the `.index.npy` to write, each atomically.
    """
    rows: list[tuple[int, int, int, int]] = []
    offset = 0
    with write_compressed(sentences) as file:
        spool = Spool(Path(sentences).parent, INDEX_TYPE)
        for document in progress(read_documents(documents), description=Path(documents).name, unit="documents"):
            lines = [line for paragraph in document["text"].split("\n") for line in split(paragraph)]
            content = ("\n".join(lines) + "\n\n").encode()
            file.write(content)
            rows.append((offset, len(content), hash_of_id(corpus, document["id"]), len(lines)))
            offset += len(content)
            if len(rows) == ROWS_AT_ONCE:
                spool.append(np.array(rows, dtype=INDEX_TYPE))
                rows = []
    spool.append(np.array(rows, dtype=INDEX_TYPE))
    write_index(index, spool.read())


def stream_plan(
    corpora: list[tuple[str, list[str]]],
    shards: int,
    held_out: float,
    removed: Path | str | None,
    sample: Json | None,
) -> tuple[Json, Iterator[tuple[str, list[Json]]]]:
    """Assign every document of the sample that is not removed to one shard, or to the held-out set.

    Training documents fill the shards in order; a document goes to the shard that contains the middle of its bytes, so
    no shard differs from the average by more than the longest document.

    Args:
        corpora: pairs of a corpus's name and the `.txt.zst` of its parts, in order; the index of `x.txt.zst` is
            `x.index.npy` next to it.
        shards: number of shards, named 00000, 00001, ... With few documents some may be empty.
        held_out: a document is held out if its hash / 2**64 is below this. If none is, that of the lowest hash is held
            out, unless there are fewer than FEW_DOCUMENTS.
        removed: the removal list, see `removal.write_removals`; if None, no document is removed.
        sample: see `sampling.groups_of`; if None, all documents are taken.

    Returns:
        The plan: `shards`, their names, `held_out` last; `corpora`: for each its `name`, `documents`,
        `held_out_documents`, `sentences` and `bytes` of those not removed, `removed` (by reason) and
        `length_histogram` (documents by bytes); and the sums of the first four numbers. And an iterator of each shard's
        name and pieces `{"corpus", "corpus_index", "part", "ranges"}` in order, a range being `[first document, last
        document exclusive, first byte, bytes]` of the part. The pieces of one shard are in memory, and those of the
        held-out set.

    Raises BertlineError for a corpus without documents, a removal list of other parts, and if there is no training
    document.
    """
    choice = _Choice(np.uint64(0), read_removals(removed) if removed is not None else {}, {})
    _check_removals(corpora, choice)
    choice = choice._replace(last_places=_last_places(corpora, sample or {}, choice))
    choice = choice._replace(threshold=_threshold(corpora, choice, held_out))
    summaries = [_summary(name, parts, choice, held_out) for name, parts in corpora]
    training_bytes = sum(summary.pop("training_bytes") for summary in summaries)
    if training_bytes == 0:
        more = "take a larger sample" if sample else "add text"
        if choice.threshold > int(held_out * 2**64):  # even of no share, the documents of one id are held out
            raise BertlineError(f"all documents are held out, because all have the same id; {more}")
        raise BertlineError(f"all documents are held out; lower held_out, given {held_out}, or {more}")
    sums = {key: sum(summary[key] for summary in summaries) for key in _SUMS}
    names = [*(f"{shard:05d}" for shard in range(shards)), HELD_OUT]

    def pieces_of_shards() -> Iterator[tuple[str, list[Json]]]:
        waiting: dict[int, list[Json]] = defaultdict(list)
        position = yielded = 0
        for corpus_index, (name, parts) in enumerate(corpora):
            for part, index, splits in _read_splits(name, parts, choice):
                shard_of_document, position = _assign(index, splits, shards, position, training_bytes)
                for shard, ranges in _ranges(index, shard_of_document).items():
                    piece = {"corpus": name, "corpus_index": corpus_index, "part": part, "ranges": ranges}
                    waiting[shard].append(piece)
                # Training documents fill the shards in order: all before the last one are complete.
                for shard in range(yielded, max(waiting, default=0)):
                    yield names[shard], waiting.pop(shard, [])
                    yielded = shard + 1
        for shard in range(yielded, shards):
            yield names[shard], waiting.pop(shard, [])
        yield HELD_OUT, waiting[_HELD_OUT]

    return {"shards": names, "corpora": summaries} | sums, pieces_of_shards()


def _check_removals(corpora: list[tuple[str, list[str]]], choice: _Choice) -> None:
    """Raise BertlineError for removed documents of no part: the form of a corpus changed, and with it the parts."""
    parts = {(name, part_of(part)) for name, files in corpora for part in files}
    for corpus, part in sorted(choice.removals.keys() - parts):
        raise BertlineError(
            f"the removal list names {part} of {corpus}, which has no such part; delete the list and make it again"
        )


def _last_places(corpora: list[tuple[str, list[str]]], sample: Json, choice: _Choice) -> dict[str, np.uint64]:
    last_places = {}
    for names, unit, amount in groups_of(sample, [name for name, _ in corpora]):

        def documents(names: list[str] = names, unit: str = unit) -> Iterator[tuple[Orders, Amounts]]:
            for name, parts in corpora:
                for _, index, splits in _read_splits(name, parts if name in names else [], choice):
                    kept = index[splits != _REMOVED]
                    amounts = dict(zip(UNITS, (np.ones(len(kept)), kept["sentences"], kept["length"]), strict=True))
                    yield sampling_order(kept["id_hash"]), amounts[unit].astype(np.int64)

        if (last := last_of_sample(documents, amount)) is not None:
            last_places.update(dict.fromkeys(names, last))
    return last_places


def _threshold(corpora: list[tuple[str, list[str]]], choice: _Choice, held_out: float) -> np.uint64:
    """Return the threshold of a share, at least the lowest that holds out a document if there are FEW_DOCUMENTS."""
    documents, lowest = 0, 2**64 - 1
    for name, parts in corpora:
        for _, index, splits in _read_splits(name, parts, choice):
            hashes = index["id_hash"][splits == _TRAINED]
            documents += len(hashes)
            lowest = min(lowest, int(hashes.min(initial=lowest)))
    least = lowest + 1 if documents >= FEW_DOCUMENTS else 0
    return np.uint64(min(max(int(held_out * 2**64), least), 2**64 - 1))


def _read_splits(corpus: str, parts: list[str], choice: _Choice) -> Iterator[tuple[str, Index, npt.NDArray[np.int8]]]:
    """Yield each part, its index, and for each of its documents _TRAINED, _HELD_OUT or _REMOVED.

    Documents outside of the sample are _REMOVED.
    """
    for part in parts:
        index = read_index(index_of(part))
        splits = np.where(index["id_hash"] < choice.threshold, _HELD_OUT, _TRAINED).astype(np.int8)
        if (last_place := choice.last_places.get(corpus)) is not None:
            splits[sampling_order(index["id_hash"]) > last_place] = _REMOVED
        if removed := choice.removals.get((corpus, part_of(part))):
            if (last := max(removed.documents)) >= len(index):
                raise BertlineError(
                    f"the removal list names document {last} of {part}, which has {len(index)}; "
                    "delete the list and make it again"
                )
            splits[np.array(removed.documents)] = _REMOVED
        yield part, index, splits


def _summary(name: str, parts: list[str], choice: _Choice, held_out: float) -> Json:
    numbers: Counter[str] = Counter(documents=0, held_out_documents=0, sentences=0, bytes=0, training_bytes=0)
    reasons: Counter[str] = Counter()
    lengths = np.zeros(len(LENGTH_EDGES) - 1, dtype=np.int64)
    hashes = [np.empty(0, dtype=np.uint64)]  # of held-out documents
    seen = 0
    for part, index, splits in _read_splits(name, parts, choice):
        taken = index[splits != _REMOVED]
        seen += len(index)
        removed = choice.removals.get((name, part_of(part)))
        # `+=` keeps no zeros, so a whole corpus has no entry for its sample.
        reasons += Counter({SAMPLED_OUT: len(index) - len(taken) - (len(removed.documents) if removed else 0)})
        if removed:
            reasons += removed.reasons
        lengths += np.histogram(taken["length"], LENGTH_EDGES)[0]
        hashes.append(index["id_hash"][splits == _HELD_OUT])
        numbers.update(
            documents=len(taken),
            held_out_documents=int((splits == _HELD_OUT).sum()),
            sentences=int(taken["sentences"].sum(dtype=np.int64)),
            bytes=int(taken["length"].sum()),
            training_bytes=int(index["length"][splits == _TRAINED].sum()),
        )
    if seen == 0:
        raise BertlineError(f"the corpus {name} is empty: its {len(parts)} parts hold no document; see its counts.json")
    if problem := _problem_of_ids(name, np.concatenate(hashes), numbers["documents"], held_out):
        if name not in choice.last_places:
            raise BertlineError(problem)
        # One id may have much of a small sample, so the whole corpus shows whether its ids repeat too much.
        whole = choice._replace(threshold=np.uint64(0), last_places={})
        whole = whole._replace(threshold=_threshold([(name, parts)], whole, held_out))
        _summary(name, parts, whole, held_out)
    histogram = {"edges": LENGTH_EDGES, "counts": lengths.tolist()}
    return {"name": name, **numbers, "removed": dict(reasons), "length_histogram": histogram}


def _problem_of_ids(corpus: str, hashes: Orders, documents: int, held_out: float) -> str | None:
    """Return an error if a tenth of a corpus or more is held out, against intention, because its ids repeat.

    Documents of one id, such as the paragraphs of a book, may be meant to stay together.

    Args:
        hashes: of the ids of its held-out documents.
        documents: number of its documents.
        held_out: the share that is intended.
    """
    found, ids, intended = len(hashes), len(np.unique(hashes)), max(1, round(documents * held_out))
    if found > 2 * ids and found > 2 * intended and found > documents / 10:
        return (
            f"the corpus {corpus}: {found} of its {documents} documents would be held out, not about {intended}: "
            f"they have only {ids} different id{'s' if ids > 1 else ''}; select another column as its id, or none"
        )
    return None


def _assign(
    index: Index, splits: npt.NDArray[np.int8], shards: int, position: int, training_bytes: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the shard of every document of a part, or its split, and the training bytes up to the part's end."""
    lengths = np.where(splits == _TRAINED, index["length"], 0).astype(np.int64)
    ends = position + np.cumsum(lengths)
    # In half bytes, and divided before multiplying: products of bytes and shards could exceed 64 bits.
    middles = (2 * ends - lengths).astype(np.float64) / (2.0 * training_bytes)
    shard_of_document = np.minimum((middles * shards).astype(np.int64), shards - 1)
    return np.where(splits == _TRAINED, shard_of_document, splits), int(ends[-1]) if len(index) else position


def _ranges(index: Index, shard_of_document: npt.NDArray[np.int64]) -> dict[int, list[list[int]]]:
    """Return for each shard (or _HELD_OUT) the runs of adjacent documents that belong to it, in order."""
    ranges: dict[int, list[list[int]]] = defaultdict(list)
    if len(index) == 0:
        return ranges
    borders = np.flatnonzero(np.diff(shard_of_document)) + 1
    for first, last in zip([0, *borders.tolist()], [*borders.tolist(), len(index)], strict=True):
        start = int(index["offset"][first])
        end = int(index["offset"][last - 1] + index["length"][last - 1])
        ranges[int(shard_of_document[first])].append([first, last, start, end - start])
    ranges.pop(_REMOVED, None)
    return ranges


def write_plan(path: Path | str, plan: Json, pieces: Iterable[tuple[str, list[Json]]]) -> None:
    """Write a plan of `stream_plan` atomically."""
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write(_checked_line(json.dumps(plan, ensure_ascii=False)))
        for shard, of_shard in pieces:
            file.write(_checked_line(_begin_of_line(shard) + json.dumps(of_shard, ensure_ascii=False) + "}"))


def _checked_line(content: str) -> str:
    """Return the line of a JSON object with a checksum of what is before it as its last key."""
    return f'{content[:-1]}, "crc32": {zlib.crc32(content[:-1].encode())}}}\n'


def _begin_of_line(shard: str) -> str:
    return f'{{"shard": "{shard}", "pieces": '


def read_plan(path: Path | str) -> Json:
    """Return a plan of `stream_plan`, without the pieces. Raises BertlineError."""
    with open_existing(path) as file:
        plan: Json = _parsed(file.readline(), path)
    del plan["crc32"]
    if "shards" not in plan or plan.keys() - _KEYS_OF_PLAN:
        raise BertlineError(f"{path} is not a plan (its first line has other keys); delete it and make it again")
    return plan


def read_pieces(path: Path | str, shard: str) -> list[Json]:
    """Return the pieces of one shard of a plan. Raises BertlineError if the plan does not contain it."""
    wanted = _begin_of_line(shard).encode()
    with open_existing(path) as file:
        before, after = 0, file.seek(0, io.SEEK_END)  # the line wanted begins after the one, at or before the other
        while before < after - 1:
            middle = (before + after) // 2
            file.seek(middle - 1)
            file.readline()
            begin = file.read(len(wanted))
            is_earlier = begin < wanted and begin != b""
            before, after = (middle, after) if is_earlier else (before, middle)
        file.seek(before)
        file.readline()
        line = file.readline()
    if line.startswith(wanted):
        pieces: list[Json] = _parsed(line, path)["pieces"]
        return pieces
    first = ", ".join(read_plan(path)["shards"][:3])
    raise BertlineError(f"{path} has no shard '{shard}', only {first}, ..., {HELD_OUT}; name one of these")


def _parsed(line: bytes, path: Path | str) -> Any:
    checked = _CHECKED_LINE.fullmatch(line)
    if not checked or zlib.crc32(checked[1]) != int(checked[2]):
        raise BertlineError(f"{path} is damaged or not a plan (the checksum of a line); delete it and make it again")
    return parse_json(line.decode())


def plan_shards(recipe: Recipe, output: Path) -> None:
    """Write the plan of a dataset's shards.

    Args:
        recipe: of the dataset.
        output: the plan.jsonl to write.
    """
    removed = paths.REMOVED.format(dataset=recipe["fingerprint"]) if removal_inputs(recipe) else None
    corpora, settings = list(files_of_dataset(recipe, paths.SENTENCES).items()), recipe["settings"]
    write_plan(output, *stream_plan(corpora, settings["shards"], settings["held_out"], removed, settings.get("sample")))


def write_shard(plan: Path | str, shard: str, output: Path | str) -> None:
    """Write one shard (or `held_out`) by copying its ranges, streaming.

    Args:
        plan: the plan.jsonl of the dataset.
        shard: 00000, 00001, ... or held_out.
        output: the `.txt.zst` to write.

    Raises BertlineError if the plan does not contain the shard or does not match a part, and if a part is missing.
    """
    pieces = read_pieces(plan, shard)
    missing = [piece["part"] for piece in pieces if not Path(piece["part"]).exists()]
    if missing:
        raise BertlineError(f"{missing[0]} does not exist; run `snakemake corpus`, which makes what is missing again")
    with write_compressed(output) as file:
        for piece in progress(pieces, description=f"shard {shard}", unit="parts", total=len(pieces)):
            with read_compressed(piece["part"]) as part:
                for _, _, start, length in piece["ranges"]:
                    part.seek(start)
                    remaining, content = length, b""
                    while remaining and (content := part.read(min(COPY_BYTES, remaining))):
                        file.write(content)
                        remaining -= len(content)
                    if remaining or content[-1:] != b"\n":
                        where = f"bytes {start} to {start + length} of {piece['part']}"
                        raise BertlineError(f"{plan} does not fit {where}; delete the plan and make it again")
