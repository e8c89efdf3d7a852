"""The hash of `bertline.splitmix` with the same bits in PyTorch on any device, and of sequences of integers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bertline.splitmix import FIRST, GOLDEN, SECOND, mix

WORD = 1 << 64


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
