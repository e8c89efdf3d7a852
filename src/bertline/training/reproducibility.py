"""What the last bits of the weights depend on, apart from the recipe. A checkpoint records it, and resume compares."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.registry import optimizer_entry
from bertline.training.options import Options
from bertline.training.step import Learner

logger = logging.getLogger(__name__)


def compute_deterministically() -> None:
    """Let PyTorch take only kernels that give the same bits in every run; on a CPU all of ours do anyway.

    cuBLAS needs CUBLAS_WORKSPACE_CONFIG in the environment before PyTorch is imported: `pretrain.py` sets it.
    """
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # Memory that is about to be written is left as it is.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def reproducibility_of(options: Options, group: Group, learner: Learner) -> dict[str, Any]:
    """Return how this process computes, JSON-like; a checkpoint holds rank 0's."""
    optimizer = optimizer_entry(learner.settings["optimizer"])
    return {
        "world_size": group.world_size,
        "rank_weights": list(learner.accumulator.rank_weights),
        "threads": torch.get_num_threads(),
        "rows": learner.layout.rows,
        "compiled": options.compiled,
        "cuda_graphs": options.cuda_graphs,
        "compiled_optimizer": options.compiled_optimizer,
        # Matrices are multiplied as many at once as a rank has.
        "sharded_matrices": options.sharded_optimizer and optimizer.needs_whole_matrices,
        "fsdp": options.fsdp,
        "deterministic": options.deterministic,
        "device": group.device_name,
        # NCCL adds in an order that follows from where the ranks are.
        "processes_per_node": group.local_world_size if group.device.type == "cuda" else False,
        "torch": torch.__version__,
    }


def report_lost_reproducibility(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Log what is not as it was for the trainer of a checkpoint. A switch that its state does not name was off."""
    for name, value in now.items():
        was = before.get(name, False)
        if was != value:
            logger.warning(
                "%s was %s and is %s: same samples in the same batches, but no longer the same bits", name, was, value
            )
