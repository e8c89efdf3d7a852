"""BM25 scores of candidates, as Lucene computes them, on a network's tokens.

Libraries hold the index of a whole collection in memory; here only candidates are scored, in slices.
Source: Kamphuis et al. 2020, "Which BM25 do you mean?", the variant "Lucene (accurate)"; k1 and b are Anserini's.
"""

from __future__ import annotations

import numpy as np

from bertline.encoding.ranges import concatenated_ranges
from bertline.finetuning.ranking.pairs import Pairs
from bertline.finetuning.ranking.texts import Texts

K1, B = 0.9, 0.4
SLICE = 2**14  # candidates that are scored at once


def bm25_scores(pairs: Pairs, document_frequency: np.ndarray) -> np.ndarray:
    """Return the BM25 score of each pair, float64 [N]; a token counts as often as the query contains it.

    document_frequency: int64 [vocabulary], the number of passages of the collection that contain a token.
    """
    texts = pairs.passages
    average = max(1, texts.offsets[-1]) / len(texts)  # of texts without a token, any: no token of a query is in them
    weights = np.log1p((len(texts) - document_frequency + 0.5) / (document_frequency + 0.5))
    vocabulary = len(document_frequency)
    scores = np.zeros(len(pairs))
    for start in range(0, len(pairs), SLICE):
        part = slice(start, min(start + SLICE, len(pairs)))
        size = part.stop - part.start
        # Keys of a candidate's number and a token: which tokens of the passage are in the query, and how often.
        wanted, repeats = np.unique(_keys(pairs.queries, pairs.query_rows[part], vocabulary), return_counts=True)
        present = np.sort(_keys(texts, pairs.passage_rows[part, 0], vocabulary))
        frequency = np.searchsorted(present, wanted, side="right") - np.searchsorted(present, wanted)
        candidate, token = np.divmod(wanted, vocabulary)
        lengths = texts.lengths_of(pairs.passage_rows[part, 0])
        saturation = K1 * (1 - B + B * lengths[candidate] / average)
        values = repeats * weights[token] * frequency / (frequency + saturation)
        scores[part] = np.bincount(candidate, values, minlength=size)
    return scores


def _keys(texts: Texts, rows: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return place * vocabulary + token for each token of the texts `rows`, int64."""
    lengths = texts.lengths_of(rows)
    tokens = texts.tokens[concatenated_ranges(texts.offsets[rows], lengths)].astype(np.int64)
    return np.repeat(np.arange(len(rows)), lengths) * vocabulary + tokens
