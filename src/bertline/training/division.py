"""How a global batch is divided among unlike ranks: in proportion to the speed of each."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import distributed

from bertline.training.group import Group

PASSES = 4  # the first one warms up
STEPS_OF_SHARES = 50


def measure_shares(compute: Callable[[], int], group: Group) -> list[float]:
    """The share of each rank, the fastest's being 1; the same list on every rank.

    Parameters
    ----------
    compute: forward and backward of one micro-batch; returns its tokens, 0 where the rank has nothing to do.

    All ranks measure at the same time, as they will train. Shares are rounded to 1/50 of the fastest: the noise of a
    measurement is no reason to divide like ranks unequally.
    """
    tokens, begun = compute() * 0, 0.0
    group.wait()
    for number in range(PASSES):
        if number == 1:
            begun, tokens = time.monotonic(), 0
        tokens += compute()
        if group.device.type == "cuda":
            torch.cuda.synchronize()
    speeds = torch.zeros(group.world_size, dtype=torch.float64, device=group.device)
    speeds[group.rank] = tokens / (time.monotonic() - begun)
    distributed.all_reduce(speeds)
    shares = (speeds / speeds.max() * STEPS_OF_SHARES).round() / STEPS_OF_SHARES
    return shares.clamp(min=1 / STEPS_OF_SHARES).tolist()
