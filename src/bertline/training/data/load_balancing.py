"""Load balancing: parts of a global batch in proportion to the speed of each rank."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.training.distributed.process_group import Group

logger = logging.getLogger(__name__)

PASSES = 4  # the first one warms up
WEIGHT_STEPS = 50


def rank_weights_of(
    load_balancing: str, world_size: int, before: Mapping[str, Any] | None, measure: Callable[[], list[float]]
) -> list[float]:
    """Return the weights of all ranks, in proportion to which they compute a batch.

    A resumed training keeps those of its checkpoint, because the last bits depend on them, unless `load_balancing`
    gives others, or the number of ranks is another.

    Args:
        load_balancing: `equal`, `measured`, `measured-again` (after a resume, too), or weights as in "3,1".
        before: the conditions that the resumed checkpoint records, see `reproducibility_of`; None without one.
        measure: returns measured weights; all ranks call it.

    Raises BertlineError for weights that cannot be parsed, or that are not one for each rank.
    """
    if load_balancing not in ("equal", "measured", "measured-again"):
        return parse_rank_weights(load_balancing, world_size)
    if before is not None and load_balancing != "measured-again" and len(before["rank_weights"]) == world_size:
        return list(before["rank_weights"])
    if load_balancing == "equal":
        return [1.0] * world_size
    weights = measure()
    logger.info("measured rank weights: %s", ", ".join(f"{weight:g}" for weight in weights))
    return weights


def parse_rank_weights(text: str, world_size: int) -> list[float]:
    """Parse weights such as "3,1,1", one for each rank. Raises BertlineError for anything else."""
    try:
        weights = [float(weight) for weight in text.split(",")]
    except ValueError:
        raise BertlineError(
            f"--load-balancing: given '{text}', allowed are equal, measured, measured-again, or weights as in 3,1,1"
        ) from None
    if len(weights) != world_size:
        raise BertlineError(
            f"--load-balancing: given {len(weights)} weights for {world_size} ranks; give one for each, or measured, "
            "or equal"
        )
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise BertlineError(f"--load-balancing: given '{text}', allowed are weights from 0 on, and not all 0")
    return weights


def measure_rank_weights(compute: Callable[[], int], group: Group) -> list[float]:
    """Measure the speed of each rank relative to the fastest; return the same list on every rank.

    Args:
        compute: forward and backward pass of one micro-batch; returns its tokens, 0 if the rank has nothing to do.

    All ranks measure at the same time, as in training. Weights are rounded to 1/50 of the fastest, so that noise does
    not divide a batch unequally among equal ranks.
    """
    compute()
    group.barrier()
    tokens, started = 0, 0.0
    for number in range(PASSES):
        if number == 1:
            tokens, started = 0, time.monotonic()
        tokens += compute()
        if group.device.type == "cuda":
            torch.cuda.synchronize()
    speeds = group.gather([tokens / (time.monotonic() - started)]).flatten().double()
    weights = (speeds / speeds.max() * WEIGHT_STEPS).round() / WEIGHT_STEPS
    return weights.clamp(min=1 / WEIGHT_STEPS).tolist()
