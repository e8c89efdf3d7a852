"""Dropout. PyTorch's random numbers for it take up to a tenth of a step on a CPU, and several percent on a GPU.

PyTorch's CPU kernels draw one number per element, both eager and compiled. Here a 64-bit draw is split into four of 16
bits: the probability is a multiple of 1/65536 between 0 and 1. Compiled programs on a GPU compute four numbers of
Philox for each element, and use one; here each element's number is hashed. Draws follow `torch.manual_seed`, as
PyTorch's own do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RANGE = 1 << 16
TRIPLE32 = 0xED5AD4BB - (1 << 32), 0xAC4C1B51 - (1 << 32), 0x31848BAB  # as int32


class Dropout(nn.Module):
    """Dropout layer: zeroes elements with `probability` in training and scales the others (Srivastava et al. 2014)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, hidden: Tensor) -> Tensor:
        return drop(hidden, self.probability) if self.training else hidden


def drop(hidden: Tensor, probability: float) -> Tensor:
    """Zero elements of `hidden` with `probability`, and divide the others by 1 - probability."""
    if not probability:
        return hidden
    if hidden.device.type != "cpu":
        by_hash = torch.compiler.is_compiling() and probability < 1 and hidden.numel() < 1 << 31
        return drop_by_hash(hidden, probability) if by_hash else F.dropout(hidden, probability)
    return hidden * _factors(_draw_in_either_mode(list(hidden.shape), hidden.device), probability).to(hidden.dtype)


def drop_by_hash(hidden: Tensor, probability: float) -> Tensor:
    """Run `drop` with hashes of the elements' numbers, under two drawn keys, as random numbers.

    The hash is triple32, of the 32-bit hashes of few instructions the one with the least bias that Wellons found
    ("Prospecting for Hash Functions", 2018).
    """
    keys = torch.randint((1 << 31) - 1, (2,), device=hidden.device).to(torch.int32)
    hashed = torch.arange(hidden.numel(), dtype=torch.int32, device=hidden.device).view(hidden.shape) ^ keys[0]
    hashed = (hashed ^ _shifted(hashed, 17)) * TRIPLE32[0] ^ keys[1]
    hashed = (hashed ^ _shifted(hashed, 11)) * TRIPLE32[1]
    hashed = (hashed ^ _shifted(hashed, 15)) * TRIPLE32[2]
    hashed = hashed ^ _shifted(hashed, 14)
    least = min(round(probability * (1 << 32)), (1 << 32) - 1) - (1 << 31)  # the smallest hash that stays
    return torch.where(hashed >= least, hidden * (1 / (1 - probability)), 0.0)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shift int32 right filling with zeros; PyTorch's shift repeats the sign bit."""
    return (values >> bits) & ((1 << (32 - bits)) - 1)


def keep(shape: list[int], probability: float, generator: torch.Generator) -> Tensor:
    """Draw factors of `shape` on a CPU: 0 with `probability`, and 1 / (1 - probability); float32."""
    return _factors(_draw(shape, torch.device("cpu"), generator), probability)


def draw_seed(device: torch.device) -> Tensor:
    """Draw the seed of a generator on a CPU: int64 [1]."""
    return _draw_in_either_mode([4], device).view(torch.int64)


def _factors(draws: Tensor, probability: float) -> Tensor:
    dropped = min(max(1, round(probability * RANGE)), RANGE - 1)
    least, scale = dropped - RANGE // 2, RANGE / (RANGE - dropped)  # the smallest draw that stays
    if torch.compiler.is_compiling():
        return (draws >= least) * scale  # a byte per element is kept for the backward pass
    # The same numbers in a third of the time: PyTorch's kernels for Booleans on a CPU are not vectorised.
    return draws.clamp(least - 1, least).sub_(least - 1).to(torch.float32).mul_(scale)


def _draw_in_either_mode(shape: list[int], device: torch.device) -> Tensor:
    # An operator only under torch.compile: calling one loads the compiler, which takes a second.
    return _draw_as_operator(shape, device) if torch.compiler.is_compiling() else _draw(shape, device)


def _draw(shape: list[int], device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw uniform numbers from -32,768 to 32,767: int16 of `shape`."""
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64, device=device).random_(-(2**63), None, generator=generator)
    return draws.view(torch.int16)[:count].view(shape)


@torch.library.custom_op(
    "bertline::random_bits", mutates_args=(), device_types="cpu", tags=(torch.Tag.nondeterministic_seeded,)
)
def _draw_as_operator(shape: list[int], device: torch.device) -> Tensor:
    return _draw(shape, device)


@_draw_as_operator.register_fake
def _(shape: list[int], device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=torch.int16, device=device)
