"""Tokenized inputs of a task: flat, unpadded arrays and the boundaries of the inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tokenizers import Tokenizer

from bertline.encoding.ranges import concatenated_ranges, offsets_of
from bertline.encoding.tokenizer import separators_in_pair, special_token_ids


class Inputs(Protocol):
    """The inputs of a task, in memory or joined when they are needed."""

    def __len__(self) -> int:
        """Return the number of examples N. Each is one input; for a pairwise loss, it is several."""

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each example, int [N]; for several inputs, with their padding to the longest."""

    @property
    def offsets(self) -> np.ndarray:
        """Index of each example's first token among those of all, and their number, int64 [N+1]."""

    def take(self, rows: np.ndarray) -> Sequences:
        """Return the inputs of the examples `rows`."""


@dataclass(frozen=True)
class Sequences:
    """Inputs of the form [CLS] first [SEP] or [CLS] first [SEP] second [SEP]; of RoBERTa, with two [SEP] between.

    Attributes:
        tokens: int32 [T], the ids of all inputs, one after the other.
        offsets: int64 [N+1], input i is tokens[offsets[i]:offsets[i+1]].
        second_segment_start: int32 [N], index within the input of the first token of the second segment; 0 = none.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    second_segment_start: np.ndarray

    def __len__(self) -> int:
        return len(self.second_segment_start)

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each input, int64 [N]."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> Sequences:
        """Return inputs `rows`."""
        begins, ends = self.offsets[rows], self.offsets[rows + 1]
        return Sequences(
            self.tokens[concatenated_ranges(begins, ends - begins)],
            offsets_of(ends - begins),
            self.second_segment_start[rows],
        )


def make_sequences(pairs: Iterable[tuple[Sequence[int], Sequence[int] | None]], tokenizer: Tokenizer) -> Sequences:
    """Join each (first, second) by the tokenizer's template; if `second` is None, there is a single segment."""
    special, between = special_token_ids(tokenizer), separators_in_pair(tokenizer)
    tokens: list[int] = []
    offsets, second_segment_start = [0], []
    for first, second in pairs:
        tokens.append(special["[CLS]"])
        tokens.extend(first)
        if second is None:
            second_segment_start.append(0)
        else:
            tokens.extend([special["[SEP]"]] * between)
            second_segment_start.append(len(first) + 1 + between)
            tokens.extend(second)
        tokens.append(special["[SEP]"])
        offsets.append(len(tokens))
    return Sequences(
        np.array(tokens, dtype=np.int32),
        np.array(offsets, dtype=np.int64),
        np.array(second_segment_start, dtype=np.int32),
    )


def truncate_pair(first: Sequence[int], second: Sequence[int], limit: int) -> tuple[Sequence[int], Sequence[int]]:
    """Truncate the longer of the two, token by token, until both have `limit` tokens together (Google's rule)."""
    excess = len(first) + len(second) - limit
    if excess <= 0:
        return first, second
    # Ties truncate the second: the longer shrinks to the other's length, then both in turn.
    from_longer = min(excess, abs(len(first) - len(second)))
    rest = excess - from_longer
    from_first = rest // 2 + (from_longer if len(first) > len(second) else 0)
    return first[: len(first) - from_first], second[: len(second) - (excess - from_first)]


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, without special tokens."""
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
