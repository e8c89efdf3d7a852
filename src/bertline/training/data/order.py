"""The order of samples: a pure function of (seed, position), independent of the number of ranks.

Every epoch is a permutation of all samples, given by a keyed Feistel network with cycle walking (Black and Rogaway
2002): the sample at any position is computed independently, so nothing is stored and a resume has nothing to restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bertline.encoding.hashing import mix_integers
from bertline.splitmix import mix

ROUNDS = 6


def data_seed_of(recipe: Mapping[str, Any]) -> int:
    """Return the seed of a phase's order of samples, masks and dropout: the run's, unless the recipe numbers an order.

    Phases with other weights of corpora than an earlier one have numbered orders, so that no sample has a mask twice.
    """
    return mix_integers(recipe["seed"], recipe["data_order"]) if "data_order" in recipe else int(recipe["seed"])


def samples_at(positions: np.ndarray, *, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples at `positions` of the infinite stream of epochs.

    Args:
        positions: int64 [N], not negative.
        seed: of the run.
        count: number of samples in an epoch, at least 1.

    Returns the samples, int64 [N] below `count`, and their epochs, int64 [N].
    """
    epochs, within = np.divmod(positions.astype(np.int64), count)
    samples = np.empty_like(within)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        samples[chosen] = permute(within[chosen], key=mix_integers(seed, int(epoch)), count=count)
    return samples, epochs


def permute(indices: np.ndarray, *, key: int, count: int) -> np.ndarray:
    """Apply the permutation of 0..count-1 given by `key` to each of `indices` (int64 [N])."""
    half_bits = max(1, ((count - 1).bit_length() + 1) // 2)
    round_keys = [np.uint64(mix_integers(key, number)) for number in range(ROUNDS)]
    permuted = _feistel(indices.astype(np.uint64), half_bits, round_keys)
    # The network permutes a power of four, less than four times `count`: repeat until the value is below `count`.
    outside = permuted >= count
    while outside.any():
        permuted[outside] = _feistel(permuted[outside], half_bits, round_keys)
        outside = permuted >= count
    return permuted.astype(np.int64)


def _feistel(values: np.ndarray, half_bits: int, round_keys: list[np.uint64]) -> np.ndarray:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & mask
    for key in round_keys:
        left, right = right, left ^ (mix(right ^ key) & mask)
    return (left << shift) | right
