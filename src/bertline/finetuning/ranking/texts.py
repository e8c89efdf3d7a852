"""Tokenized texts with ids: flat arrays, in memory or mapped from files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.finetuning.ranking.lines import read_lines
from bertline.finetuning.sequences import tokenize

CHUNK = 4096  # lines, or examples, that are read at once
CHARACTERS = 2**19  # of texts that are tokenized at once
MAX_TOKENS = 8192  # of a text; no network reads more
MAX_ID_BYTES = 64


@dataclass(frozen=True)
class Texts:
    """N tokenized texts, without special tokens.

    Attributes:
        tokens: uint16 or uint32 [T], of all texts, one after the other.
        offsets: int64 [N+1], text i is tokens[offsets[i]:offsets[i+1]].
        ids: bytes [N].
        order: int [N], which sorts the ids.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    ids: np.ndarray
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of tokens of the texts `rows`, int64, in their shape."""
        return self.offsets[rows.astype(np.int64) + 1] - self.offsets[rows]

    def find(self, ids: Sequence[bytes]) -> np.ndarray:
        """Return the number of the text of each id, int64; -1 if there is none."""
        wanted = np.array(ids, dtype=np.bytes_)
        if not len(self.order) or not len(wanted):
            return np.full(len(wanted), -1)
        places = np.minimum(np.searchsorted(self.ids, wanted, sorter=self.order), len(self.order) - 1)
        found = self.order[places].astype(np.int64)
        return np.where(self.ids[found] == wanted, found, -1)


def tokenized(path: Path, tokenizer: Tokenizer) -> Iterator[tuple[list[bytes], np.ndarray, np.ndarray]]:
    """Yield chunks of a file of lines `id<TAB>text`: ids, the numbers of tokens int64 [C], and all tokens int64 [T].

    Raises BertlineError naming a line without a tab, or with an id that a run file cannot hold.
    """
    ids: list[bytes] = []
    texts: list[str] = []
    characters = 0
    for where, line in read_lines(path):
        identifier, tab, text = line.partition("\t")
        if not tab:
            raise BertlineError(
                f"{where}: no tab: it has to be an id, a tab and a text without a line break; correct the line"
            )
        ids.append(id_of(identifier, where))
        texts.append(text)
        characters += len(texts[-1])
        if characters >= CHARACTERS:
            yield ids, *_arrays(tokenizer, texts)
            ids, texts, characters = [], [], 0
    if texts:
        yield ids, *_arrays(tokenizer, texts)


def _arrays(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    tokens = [found[:MAX_TOKENS] for found in tokenize(tokenizer, texts)]
    counts = np.array([len(found) for found in tokens], dtype=np.int64)
    return counts, np.concatenate([np.array(found, dtype=np.int64) for found in tokens])


def id_of(cell: str, where: str) -> bytes:
    """Return an id as bytes. Raises BertlineError for one that is empty, contains white space, or is very long."""
    encoded = cell.encode()
    if not cell or len(encoded) > MAX_ID_BYTES or len(cell.split()) != 1 or cell != cell.strip():
        raise BertlineError(
            f"{where}: the id {cell[:80]!r} is empty, contains white space, or is longer than {MAX_ID_BYTES} bytes; "
            "correct the line"
        )
    return encoded


def read_texts(path: Path, tokenizer: Tokenizer) -> Texts:
    """Tokenize a small file of `id<TAB>text`, such as queries, in memory. Raises BertlineError for a bad file."""
    ids: list[bytes] = []
    counts, tokens = [np.zeros(1, np.int64)], [np.zeros(0, dtype_for(tokenizer.get_vocab_size()))]
    for chunk, counted, flat in tokenized(path, tokenizer):
        ids += chunk
        counts.append(counted)
        tokens.append(flat.astype(tokens[0].dtype))
    if not ids:
        raise BertlineError(f"{path} contains no line; name a file with lines of an id, a tab and a text")
    all_ids = np.array(ids, dtype=np.bytes_)
    return Texts(np.concatenate(tokens), np.cumsum(np.concatenate(counts)), all_ids, sorted_order(all_ids, path))


def sorted_order(ids: np.ndarray, path: Path) -> np.ndarray:
    """Return int64 [N] that sorts the ids of a file. Raises BertlineError for two equal ones."""
    order = np.argsort(ids, kind="stable")
    same = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if len(same):
        first, second = order[same[0]], order[same[0] + 1]
        raise BertlineError(
            f"{path}: lines {first + 1} and {second + 1} have the same id '{ids[first].decode()}'; make ids unique"
        )
    return order


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """Return the type of tokens."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
