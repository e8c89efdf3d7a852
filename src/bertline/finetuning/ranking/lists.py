"""Files of ids: judgements (qrels), candidates, and triples of a query, a relevant and another passage."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.ranges import concatenated_ranges
from bertline.finetuning.ranking.lines import read_fields
from bertline.finetuning.ranking.texts import CHUNK, Texts, id_of

logger = logging.getLogger(__name__)

PADDING = b"00000000"  # in the place of passages that a query lacks of its 1,000, in files made for TPUs
RANK = re.compile(r"[0-9]{1,15}(\.0*)?")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LARGEST_GRADE = 1000  # trec_eval takes memory for every grade up to the largest in the file

Qrels = dict[str, dict[str, int]]  # grade by query and passage


@dataclass(frozen=True)
class Candidates:
    """N passages to rank, grouped by query, in the order of the file's ranks.

    Attributes:
        query_ids: of Q queries.
        starts: int64 [Q+1], where the passages of each query begin.
        query_rows: int32 [N], numbers in the texts of the queries.
        passage_rows: int32 [N], numbers in the texts of the passages.
        passage_ids: bytes [N].
        padding: number of lines of the passage 00000000, which are left out.
    """

    query_ids: list[str]
    starts: np.ndarray
    query_rows: np.ndarray
    passage_rows: np.ndarray
    passage_ids: np.ndarray
    padding: int

    def __len__(self) -> int:
        return len(self.query_rows)


def read_qrels(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """Yield the place, the query, the passage and the grade of each line `query 0 passage grade`.

    Raises BertlineError for a line of another form, an id that a run file cannot hold, or a grade above 1,000.
    """
    for where, cells in read_fields(path):
        if len(cells) != 4 or not re.fullmatch("-?[0-9]{1,9}", cells[3]):
            raise BertlineError(f"{where}: it has to be a query, 0, a passage and a whole number; correct the line")
        if int(cells[3]) > LARGEST_GRADE:
            raise BertlineError(f"{where}: grade {cells[3]}, allowed are at most {LARGEST_GRADE}; lower the grades")
        for identifier in (cells[0], cells[2]):
            id_of(identifier, where)
        yield where, cells[0], cells[2], int(cells[3])


def read_judgements(path: Path, queries: Texts, passages: Texts, relevance_level: int) -> Qrels:
    """Return the judgements of `queries`; those of others are left out, and the log has their number.

    Raises BertlineError for a passage that is judged twice, or that has a grade above 0 and is not in the collection,
    which would lower every score; or if no query is judged, or no passage is relevant.
    """
    qrels: Qrels = {}
    graded: list[tuple[str, bytes]] = []
    present = set(queries.ids.tolist())
    others = 0
    for where, query, passage, grade in read_qrels(path):
        if query.encode() not in present:
            others += 1
            continue
        of_query = qrels.setdefault(query, {})
        if passage in of_query:
            raise BertlineError(f"{where}: passage {passage} is judged twice for query {query}; remove one line")
        of_query[passage] = grade
        if grade > 0:
            graded.append((where, passage.encode()))
    _rows(passages, [where for where, _ in graded], [passage for _, passage in graded], "passage", "the collection")
    if not qrels:
        raise BertlineError(f"{path}: none of the queries is judged; name the judgements of the same queries")
    _report_others(path, others)
    _check_any_relevant(path, qrels, relevance_level)
    return qrels


def _report_others(path: Path, judgements: int) -> None:
    if judgements:
        logger.info("%s: %d judgements of other queries are left out", path, judgements)


def _check_any_relevant(path: Path, qrels: Qrels, relevance_level: int) -> None:
    if not any(grade >= relevance_level for of_query in qrels.values() for grade in of_query.values()):
        raise BertlineError(f"{path}: no passage has a grade of at least {relevance_level}; lower relevance_level")


def labelled_candidates(
    path: Path, queries: Texts, labels: np.ndarray, relevance_level: int
) -> tuple[Candidates, Qrels]:
    """Return the records of a TFRecord file as candidates, and their labels as grades.

    Successive records of the same query are one list. Ids are numbers from 0: of these lists, and of the records.

    Args:
        path: for messages.
        queries: of each record. labels: uint8 [N].

    Raises BertlineError if no label is a grade of at least `relevance_level`.
    """
    rows = np.arange(len(queries), dtype=np.int32)
    starts = np.append(np.flatnonzero(np.append(True, _differs_from_previous(queries))), len(queries))
    passage_ids = rows.astype(f"S{len(str(len(rows)))}")
    qrels = {
        str(query): dict(zip(passage_ids[start:end].astype(str).tolist(), labels[start:end].tolist(), strict=True))
        for query, (start, end) in enumerate(pairwise(starts.tolist()))
    }
    _check_any_relevant(path, qrels, relevance_level)
    return Candidates(list(qrels), starts, rows, rows, passage_ids, padding=0), qrels


def _differs_from_previous(texts: Texts) -> np.ndarray:
    """Return whether each text but the first has other tokens than the one before it, bool [N-1]."""
    counts = np.diff(texts.offsets)
    differs = counts[1:] != counts[:-1]
    for start in range(1, len(texts), CHUNK):
        rows = start + np.flatnonzero(~differs[start - 1 : start - 1 + CHUNK])
        of_row, begins = counts[rows], texts.offsets[rows]
        own = texts.tokens[concatenated_ranges(begins, of_row)]
        unlike = own != texts.tokens[concatenated_ranges(begins - of_row, of_row)]
        differs[rows - 1] = np.bincount(np.repeat(np.arange(len(rows)), of_row), unlike, len(rows)) > 0
    return differs


def read_candidates(path: Path, queries: Texts, passages: Texts) -> Candidates:
    """Read the passages to rank, in one of the forms in which they are published.

    Lines are `query passage`, `query passage rank`, `query passage query-text passage-text` (top1000.dev), or those of
    TREC's run files, `query Q0 passage rank score name`. Without a rank, the order is that of the lines; TREC's are
    ordered as by trec_eval: by the score as float32, equal ones by the passage's id, the last first.

    Raises BertlineError for an empty file, a line of another form than these or the lines before, a query or passage
    that does not exist, a passage that is twice among the candidates of a query, or numbers that are not ranks.
    """
    query_rows, passage_rows, ranks = [], [], []
    padding = form = 0
    lines = _ranked_pairs(path)
    while chunk := list(islice(lines, CHUNK)):
        found = passages.find([line.passage for line in chunk])
        is_text = (found >= 0) | np.array([line.passage != PADDING for line in chunk])
        kept = [line for line, is_kept in zip(chunk, is_text, strict=True) if is_kept]
        padding += len(chunk) - len(kept)
        if not kept:
            continue
        places, query_ids, passage_ids, of_kept, (form, *_) = zip(*kept, strict=True)
        query_rows.append(_rows(queries, places, query_ids, "query", "the queries"))
        passage_rows.append(_rows(passages, places, passage_ids, "passage", "the collection"))
        ranks.append(np.array(of_kept))
    if not query_rows:
        raise BertlineError(f"{path} contains no candidate; name a file with at least one")
    rows, passages_of = np.concatenate(query_rows), np.concatenate(passage_rows)
    rank = np.concatenate(ranks)
    # Queries in the order in which they begin in the file.
    first = np.full(len(queries), len(rows))
    np.minimum.at(first, rows, np.arange(len(rows)))
    descending = -np.unique(passages.ids[passages_of], return_inverse=True)[1]  # of equal scores
    order = np.lexsort((descending, rank, first[rows]))
    rows, passages_of = rows[order], passages_of[order]
    starts = np.append(np.flatnonzero(np.append(True, rows[1:] != rows[:-1])), len(rows))
    given_ranks = rank[order] if form == 3 else np.full(len(rank), np.nan)
    _check_not_triples(path, given_ranks[starts[:-1]])
    _check_unique(path, rows, passages_of, queries, passages)
    _check_ranks(path, queries, rows, given_ranks)
    return Candidates(
        [queries.ids[row].decode() for row in rows[starts[:-1]]],
        starts,
        rows,
        passages_of,
        passages.ids[passages_of],
        padding,
    )


class Line(NamedTuple):
    """A candidate; `rank` orders those of a query, `form` is the number of cells of every line."""

    place: str
    query: bytes
    passage: bytes
    rank: float
    form: int


def _ranked_pairs(path: Path) -> Iterator[Line]:
    form = 0
    for number, (where, cells) in enumerate(read_fields(path)):
        form = form or len(cells)
        if len(cells) != form:
            raise BertlineError(
                f"{where}: {len(cells)} columns, the lines before have {form}; give all lines the same form"
            )
        match len(cells):
            case 4 if _is_judgement(cells):
                raise BertlineError(
                    f"{where}: it looks like a judgement: a query, 0, a passage and a grade; name a file of candidates"
                )
            case 2 | 4:
                query, passage, rank = cells[0], cells[1], float(number)
            case 3 if RANK.fullmatch(cells[2].strip()):
                query, passage, rank = cells[0], cells[1], float(cells[2])
            case 6:
                query, passage, rank = cells[0], cells[2], -_score(cells[4].strip(), where)
            case _:
                raise BertlineError(
                    f"{where}: it has to be a query, a passage and perhaps a rank, a whole number from 0, or a line of "
                    "a TREC run; correct it"
                )
        yield Line(where, id_of(query, where), id_of(passage, where), rank, form)


def _score(cell: str, where: str) -> float:
    """Return a score as trec_eval reads it. Raises BertlineError for one that is no number of float32."""
    with np.errstate(over="ignore"):
        score = np.float32(cell if NUMBER.fullmatch(cell) else np.nan)
    if not np.isfinite(score):
        raise BertlineError(f"{where}: score '{cell}', allowed are numbers of float32; correct the line")
    return float(score)


def _is_judgement(cells: list[str]) -> bool:
    """Return whether a line of four cells is one of judgements, not of top1000.dev, which has a passage 0 as well."""
    return cells[1] in ("0", "Q0") and len(cells[2].split()) == 1 and re.fullmatch("-?[0-9]{1,4}", cells[3]) is not None


def _rows(texts: Texts, places: Sequence[str], ids: Sequence[bytes], kind: str, place: str) -> np.ndarray:
    rows = texts.find(ids)
    absent = np.flatnonzero(rows < 0)
    if len(absent):
        where, wrong = places[absent[0]], ids[absent[0]].decode()
        raise BertlineError(f"{where}: {kind} '{wrong}' is not in {place}; add it there, or remove the line")
    return rows.astype(np.int32)


def _check_not_triples(path: Path, best: np.ndarray) -> None:
    """Raise BertlineError for passages of triples in the place of ranks.

    best: float64 [Q], the lowest rank of each query; NaN for a query without ranks.
    """
    if (best > 1).sum() > len(best) / 2:  # of some queries, the first ones may have been left out
        raise BertlineError(
            f"{path}: of most queries no candidate has rank 0 or 1, as in triples; name a file of candidates, or "
            "number them from 1"
        )


def _check_ranks(path: Path, queries: Texts, rows: np.ndarray, ranks: np.ndarray) -> None:
    """Raise BertlineError for ranks that a query has twice, as grades are.

    ranks: float64 [N], in rising order for each query; NaN for a candidate without one.
    """
    same = np.flatnonzero((rows[1:] == rows[:-1]) & (ranks[1:] == ranks[:-1]))
    if len(same):
        raise BertlineError(
            f"{path}: two candidates of query {queries.ids[rows[same[0]]].decode()} have rank {ranks[same[0]]:.0f}; "
            "give them different ranks, or none for the order of the lines"
        )


def _check_unique(path: Path, rows: np.ndarray, passages_of: np.ndarray, queries: Texts, passages: Texts) -> None:
    keys = np.sort(rows.astype(np.int64) * len(passages) + passages_of)
    same = keys[1:][keys[1:] == keys[:-1]]
    if len(same):
        query, passage = divmod(int(same[0]), len(passages))
        raise BertlineError(
            f"{path}: passage {passages.ids[passage].decode()} is twice among the candidates of query "
            f"{queries.ids[query].decode()}; remove one line"
        )


def read_triples(path: Path, queries: Texts, passages: Texts, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Read lines `query relevant-passage other-passage` of ids; at most the first `limit`.

    Returns the queries, int32 [M], and the passages, int32 [M, 2]. Raises BertlineError for an empty file, a line of
    another form, or an id that does not exist.
    """
    query_rows, passage_rows = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)]
    lines = islice(_triples(path), limit)
    while chunk := list(islice(lines, CHUNK)):
        places, query_ids, relevant, other = zip(*chunk, strict=True)
        query_rows.append(_rows(queries, places, query_ids, "query", "the queries"))
        sides = (_rows(passages, places, ids, "passage", "the collection") for ids in (relevant, other))
        passage_rows.append(np.stack(list(sides), axis=1))
    if len(query_rows) == 1:
        raise BertlineError(f"{path} contains no triple; name a file with at least one")
    return np.concatenate(query_rows), np.concatenate(passage_rows)


def _triples(path: Path) -> Iterator[tuple[str, bytes, bytes, bytes]]:
    for where, cells in read_fields(path):
        if len(cells) != 3:
            raise BertlineError(f"{where}: it has to be a query, a relevant passage and another one; correct the line")
        query, relevant, other = (id_of(cell, where) for cell in cells)
        yield where, query, relevant, other


def sample_triples(
    qrels: Path,
    candidates: Candidates,
    queries: Texts,
    passages: Texts,
    *,
    relevance_level: int,
    negatives: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Make triples of judged passages: each relevant one with `negatives` candidates that are not judged relevant.

    They are different ones if there are as many; otherwise some are drawn several times. Which ones is a pure function
    of the files and the seed. A query without relevant passages, or without other candidates, has none.

    Returns what `read_triples` does; raises BertlineError for an id that does not exist, a passage that is judged
    relevant twice, or if there is no triple.
    """
    relevant: dict[int, dict[int, None]] = {}  # keys in the order of the lines
    others = 0
    lines = (line for line in read_qrels(qrels) if line[3] >= relevance_level)
    while chunk := list(islice(lines, CHUNK)):
        places, query_ids, passage_ids, _ = zip(*chunk, strict=True)
        known = queries.find([one.encode() for one in query_ids])
        wanted = [place for place, row in enumerate(known) if row >= 0]
        others += len(known) - len(wanted)
        if wanted:
            ids = [passage_ids[place].encode() for place in wanted]
            rows = _rows(passages, [places[place] for place in wanted], ids, "passage", "the collection")
            for place, row in zip(wanted, rows, strict=True):
                of_query = relevant.setdefault(int(known[place]), {})
                if int(row) in of_query:
                    raise BertlineError(
                        f"{places[place]}: passage {passage_ids[place]} is judged twice for query {query_ids[place]}; "
                        "remove one line"
                    )
                of_query[int(row)] = None
    _report_others(qrels, others)
    query_rows, passage_rows = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)]
    for start, end in zip(candidates.starts[:-1], candidates.starts[1:], strict=True):
        query = int(candidates.query_rows[start])
        positive = np.array(list(relevant.get(query, ())), dtype=np.int32)
        other = np.setdiff1d(candidates.passage_rows[start:end], positive)
        if len(positive) and len(other):
            generator = np.random.default_rng([seed, query])
            # A single one is drawn as ever, so that finished trainings keep their names.
            again = negatives == 1 or negatives > len(other)
            drawn = np.concatenate([generator.choice(other, negatives, replace=again) for _ in positive])
            query_rows.append(np.full(len(drawn), query, dtype=np.int32))
            passage_rows.append(np.stack([np.repeat(positive, negatives), drawn], axis=1))
    if len(query_rows) == 1:
        raise BertlineError(f"{qrels}: no query has both a relevant passage and another candidate; name other files")
    return np.concatenate(query_rows), np.concatenate(passage_rows)
