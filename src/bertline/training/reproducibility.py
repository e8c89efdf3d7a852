"""Conditions other than the recipe that determine the last bits of the weights.

A checkpoint records them, and a resumed training compares them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.registry import OPTIMIZERS
from bertline.training.options import Options
from bertline.training.step import Learner

logger = logging.getLogger(__name__)


def reproducibility_of(options: Options, group: Group, learner: Learner) -> dict[str, Any]:
    """Return how this process computes, JSON-compatible; a checkpoint stores rank 0's."""
    optimizer = OPTIMIZERS[learner.settings["optimizer"]]
    return {
        "world_size": group.world_size,
        "rank_weights": list(learner.accumulator.rank_weights),
        "threads": torch.get_num_threads(),
        "rows": learner.layout.rows,
        "micro_batches": [list(shape) for shape in learner.layout.shapes] or "by tokens",
        "compiled": options.compiled,
        "cuda_graphs": options.cuda_graphs,
        "compiled_optimizer": options.compiled_optimizer,
        # The batch of one matrix product depends on how many matrices a rank has.
        "sharded_matrices": options.sharded_optimizer and optimizer.needs_whole_matrices,
        "fsdp": options.fsdp,
        "deterministic": options.deterministic,
        "device": group.device_name,
        # NCCL's order of summation depends on the ranks' placement.
        "processes_per_node": group.local_world_size if group.device.type == "cuda" else False,
        "torch": torch.__version__,
    }


def report_lost_reproducibility(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Log what differs from the trainer of a checkpoint. Switches missing from its state count as off."""
    for name, value in now.items():
        was = before.get(name, "not recorded" if name == "micro_batches" else False)
        if was != value:
            logger.warning(
                "%s was %s and is %s: same samples in the same batches, but no longer the same bits", name, was, value
            )
