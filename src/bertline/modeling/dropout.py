"""Dropout. On a CPU, its random numbers take up to a tenth of a step, so they are drawn four at a time.

PyTorch's CPU kernels draw one number per element, both eager and compiled. Here a 64-bit draw is split into four of 16
bits: the probability is a multiple of 1/65536 between 0 and 1. Draws follow `torch.manual_seed`, as PyTorch's own do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RANGE = 1 << 16


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
        return F.dropout(hidden, probability)
    return hidden * _factors(_draw_in_either_mode(list(hidden.shape), hidden.device), probability).to(hidden.dtype)


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
