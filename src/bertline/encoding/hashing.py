"""An integer hash with the same bits in NumPy and in PyTorch on any device.

The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), on 64-bit integers that wrap around.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB
WORD = 1 << 64


def mix(values: np.ndarray) -> np.ndarray:
    """Hash each element: uint64 array -> uint64 array of the same shape."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(GOLDEN)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(FIRST)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(SECOND)
        return values ^ (values >> np.uint64(31))


def mix_tensor(values: Tensor) -> Tensor:
    """Hash each element: int64 tensor -> int64 tensor with the bits of `mix`'s result."""
    values = values + as_signed(GOLDEN)
    values = (values ^ _shifted(values, 30)) * as_signed(FIRST)
    values = (values ^ _shifted(values, 27)) * as_signed(SECOND)
    return values ^ _shifted(values, 31)


def mix_integers(*values: int) -> int:
    """Hash a sequence of integers into an unsigned 64-bit integer."""
    state = 0
    for value in values:
        state = int(mix(np.array((state ^ value) % WORD, dtype=np.uint64)))
    return state


def as_signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit integer, for PyTorch's int64 operations."""
    value %= WORD
    return value - WORD if value >= WORD // 2 else value


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shift right filling with zeros; PyTorch's shift of int64 repeats the sign bit."""
    return torch.bitwise_right_shift(values, bits) & ((1 << (64 - bits)) - 1)


def uniform(hashes: Tensor) -> Tensor:
    """Return the upper 31 bits of each hash: int64 from 0 to 2**31 - 1."""
    return _shifted(hashes, 33)
