"""Inputs of a query and a passage, joined by the tokenizer's template when a batch needs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertline.encoding.ranges import concatenated_ranges, offsets_of
from bertline.finetuning.ranking.texts import Texts
from bertline.finetuning.sequences import Sequences

CHUNK = 2**20  # examples whose lengths are computed at once


@dataclass(frozen=True)
class Pairs:
    """N examples of G inputs each: a query with each of G passages.

    Attributes:
        queries: the texts of the queries.
        passages: the texts of the passages.
        query_rows: int32 [N], numbers in `queries`.
        passage_rows: int32 [N, G], numbers in `passages`.
        max_query: maximum tokens of a query in an input, without [CLS] and [SEP].
        max_passage: maximum tokens of a passage in an input, without [SEP].
        begin: id of [CLS].
        end: id of [SEP].
        between: number of [SEP] between the two.
    """

    queries: Texts
    passages: Texts
    query_rows: np.ndarray
    passage_rows: np.ndarray
    max_query: int
    max_passage: int
    begin: int
    end: int
    between: int

    def __len__(self) -> int:
        return len(self.query_rows)

    def cut_off(self) -> tuple[int, int]:
        """Return in how many inputs the query, and in how many the passage, is longer than allowed."""
        queries = passages = 0
        for start in range(0, len(self), CHUNK):
            part = slice(start, start + CHUNK)
            longer = self.queries.lengths_of(self.query_rows[part]) > self.max_query
            queries += self.passage_rows.shape[1] * int(longer.sum())
            passages += int((self.passages.lengths_of(self.passage_rows[part]) > self.max_passage).sum())
        return queries, passages

    @cached_property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each example, whose inputs are padded to the longest of them, int32 [N]."""
        lengths = np.empty(len(self), dtype=np.int32)
        for start in range(0, len(self), CHUNK):
            part = slice(start, start + CHUNK)
            passages = np.minimum(self.passages.lengths_of(self.passage_rows[part]), self.max_passage)
            queries = np.minimum(self.queries.lengths_of(self.query_rows[part]), self.max_query)
            lengths[part] = self.passage_rows.shape[1] * (2 + self.between + queries + passages.max(axis=1))
        return lengths

    @property
    def offsets(self) -> np.ndarray:
        """Index of each example's first token, padding included, int64 [N+1]."""
        return offsets_of(self.lengths)

    def take(self, rows: np.ndarray) -> Sequences:
        """Return the inputs of the examples `rows`: those of the first, then those of the second."""
        group = self.passage_rows.shape[1]
        query_begins, query_counts = _truncated(self.queries, np.repeat(self.query_rows[rows], group), self.max_query)
        begins, counts = _truncated(self.passages, self.passage_rows[rows].ravel(), self.max_passage)
        offsets = offsets_of(query_counts + counts + 2 + self.between)
        tokens = np.full(offsets[-1], self.end, dtype=np.int32)
        tokens[offsets[:-1]] = self.begin
        second = query_counts + 1 + self.between
        _put(tokens, offsets[:-1] + 1, self.queries, query_begins, query_counts)
        _put(tokens, offsets[:-1] + second, self.passages, begins, counts)
        return Sequences(tokens, offsets, second.astype(np.int32))


def _truncated(texts: Texts, rows: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first token of each text, and the number of its tokens up to `limit`."""
    return texts.offsets[rows], np.minimum(texts.lengths_of(rows), limit)


def _put(tokens: np.ndarray, places: np.ndarray, texts: Texts, begins: np.ndarray, counts: np.ndarray) -> None:
    """Copy the first `counts` tokens of texts, which are at `begins`, to `places` in `tokens`."""
    tokens[concatenated_ranges(places, counts)] = texts.tokens[concatenated_ranges(begins, counts)]
