"""Rows that describe samples as positions among a shard's tokens, and the samples' ids and lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bertline.encoding.ranges import concatenated_ranges
from bertline.encoding.tokenization import TokenizedShard

Row = tuple[int, int, int, int, int, int]  # of `Samples.table`, with these columns
FIRST_BEGIN, FIRST_END, SECOND_BEGIN, SECOND_END, LABEL, DOCUMENT = range(6)
# Number of random reads after which a shard's memory is freed, see `Spool`.
READS_PER_RELEASE = 32


def sample_lengths(table: np.ndarray) -> np.ndarray:
    """Return the tokens of each sample, including [CLS] and [SEP]: int64 [N], from rows of a table."""
    first = table[:, FIRST_END] - table[:, FIRST_BEGIN]
    second = table[:, SECOND_END] - table[:, SECOND_BEGIN]
    return first + 2 + second + (second > 0)


def second_segment_starts(table: np.ndarray) -> np.ndarray:
    """Return the index of the second segment's first token in its sample, 0 if there is none: int64 [N]."""
    has_second = table[:, SECOND_END] > table[:, SECOND_BEGIN]
    return np.where(has_second, table[:, FIRST_END] - table[:, FIRST_BEGIN] + 2, 0)


def sample_ids(shard: TokenizedShard, table: np.ndarray, cls: int, sep: int) -> Iterator[np.ndarray]:
    """Yield the ids of a few concatenated samples at a time: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` each."""
    for start in range(0, len(table), 2 * READS_PER_RELEASE):
        yield _ids_of_rows(shard.ids, table[start : start + 2 * READS_PER_RELEASE], cls, sep)
        shard.release()


def _ids_of_rows(source: np.ndarray, table: np.ndarray, cls: int, sep: int) -> np.ndarray:
    begins = np.zeros((len(table), 5), dtype=np.int64)
    lengths = np.ones_like(begins)
    for column, begin, end in ((1, FIRST_BEGIN, FIRST_END), (3, SECOND_BEGIN, SECOND_END)):
        begins[:, column] = table[:, begin]
        lengths[:, column] = table[:, end] - table[:, begin]
    lengths[:, 4] = lengths[:, 3] > 0
    places = np.cumsum(lengths.ravel()).reshape(lengths.shape) - lengths
    ids = source[concatenated_ranges(begins.ravel(), lengths.ravel())]
    ids[places[:, 0]] = cls
    ids[places[:, 2]] = sep
    ids[places[:, 4][lengths[:, 4] > 0]] = sep
    return ids
