"""Batches of inputs, and their padded tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import torch
from torch import Tensor

from bertline.finetuning.sequences import Inputs

MAX_BATCHES_IN_A_POOL = 32
MIN_POOLS = 4


def training_batches(lengths: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield infinite epochs of batches of input indices, a pure function of the arguments.

    Each epoch shuffles all inputs, sorts pools of them by length, splits these into batches and shuffles the batches:
    this needs little padding, and yet batches differ between epochs. (With all inputs in one pool, the shortest ones
    would always share a batch.) The last batch of an epoch may be smaller.
    """
    pool_size = batch_size * max(1, min(MAX_BATCHES_IN_A_POOL, len(lengths) // (MIN_POOLS * batch_size)))
    for epoch in count():
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        batches: list[np.ndarray] = []
        for start in range(0, len(order), pool_size):
            pool = order[start : start + pool_size]
            pool = pool[np.argsort(lengths[pool], kind="stable")]
            batches += [pool[at : at + batch_size] for at in range(0, len(pool), batch_size)]
        for index in generator.permutation(len(batches)):
            yield batches[index]


def evaluation_batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Yield all inputs once, in ascending length, in batches of at most `tokens` padded tokens, or of one input."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end - start + 1) * lengths[order[end]] > tokens:
            yield order[start:end]
            start = end


def micro_batches(rows: np.ndarray, lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Yield inputs `rows` in parts of at most `tokens` padded tokens, or of one input.

    `lengths` are those of all inputs.
    """
    for part in evaluation_batches(lengths[rows], tokens):
        yield rows[part]


def pad(inputs: Inputs, rows: np.ndarray, padding: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the inputs of `rows`: input_ids int64 [B,S], token_type_ids int64 [B,S], attention_mask bool [B,S].

    The mask is None if no input needs padding.
    """
    sequences = inputs.take(rows)
    input_ids, mask = pad_values(sequences.tokens, sequences, np.arange(len(sequences)), padding)
    second = sequences.second_segment_start[:, None]
    token_type_ids = mask & (second > 0) & (np.arange(mask.shape[1]) >= second)
    attention_mask = None if mask.all() else torch.from_numpy(mask).to(device)
    return (
        torch.from_numpy(input_ids).to(device),
        torch.from_numpy(token_type_ids.astype(np.int64)).to(device),
        attention_mask,
    )


def pad_values(values: np.ndarray, sequences: Inputs, rows: np.ndarray, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens' `values` [T] for inputs `rows`, int64 [B,S], and a mask that excludes padding, bool [B,S]."""
    lengths = sequences.lengths[rows]
    position = np.arange(lengths.max())
    mask = position < lengths[:, None]
    places = np.minimum(sequences.offsets[rows][:, None] + position, len(values) - 1)
    return np.where(mask, values[places], padding).astype(np.int64), mask
