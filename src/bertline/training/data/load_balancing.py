"""How a global batch is divided among unlike ranks: in proportion to the speed of each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import distributed

from bertline.console import BertlineError
from bertline.training.distributed.process_group import Group

PASSES = 4  # the first one warms up
STEPS_OF_SHARES = 50


def parse_shares(text: str, world_size: int) -> list[float]:
    """Shares as in "3,1,1", one for each rank. Raises BertlineError for anything else."""
    try:
        shares = [float(share) for share in text.split(",")]
    except ValueError:
        raise BertlineError(
            f"division: given '{text}', allowed are equal, measured, measured-again, or shares as in 3,1,1"
        ) from None
    if len(shares) != world_size:
        raise BertlineError(
            f"division: given {len(shares)} shares for {world_size} ranks; give one for each, or measured, or equal"
        )
    if not all(0 <= share < math.inf for share in shares) or not any(shares):
        raise BertlineError(f"division: given '{text}', allowed are shares from 0 on, and not all 0")
    return shares


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
