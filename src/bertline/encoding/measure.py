"""Measurement of the number of tokens of a text, with a vocabulary trained on a sample of it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.corpus.compressed import write_compressed
from bertline.encoding.vocabulary import TRAINERS

TRAINED_CHARACTERS, COUNTED_TEXTS = 1_000_000, 200


def characters_per_token(texts: Sequence[str], *, train: str, vocab_size: int, **settings: Any) -> float:
    """Train a vocabulary on at most TRAINED_CHARACTERS of the texts; return the mean number of characters of a token.

    Args:
        train, vocab_size, settings: those of a dataset's `tokenizer`.
    """
    share = min(1.0, TRAINED_CHARACTERS / max(1, sum(map(len, texts))))
    taken = [text[: max(100, round(share * len(text)))] for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder, "sample.txt.zst")
        with write_compressed(shard) as file:
            for text in taken:
                file.write(f"{text}\n\n".encode(errors="replace"))
        tokenizer = TRAINERS[train]([shard], vocab_size=vocab_size, seed=1, **settings)
    counted = taken[:: max(1, len(taken) // COUNTED_TEXTS)]
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(counted, add_special_tokens=False))
    return sum(map(len, counted)) / max(1, tokens)
