"""Conditions other than the recipe that determine the last bits of the weights.

A checkpoint records them, and a resumed training compares them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch

from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.registry import OPTIMIZERS
from bertline.training.options import CommonOptions, Options
from bertline.training.started import hardware_of
from bertline.training.step import Learner

logger = logging.getLogger(__name__)


def reproducibility_of(options: Options, group: Group, learner: Learner) -> dict[str, Any]:
    """Return how this process computes, JSON-compatible; a checkpoint stores rank 0's."""
    optimizer = OPTIMIZERS[learner.settings["optimizer"]]
    on_gpu = group.device.type == "cuda"
    return {
        "world_size": group.world_size,
        "rank_weights": list(learner.accumulator.rank_weights),
        "threads": torch.get_num_threads(),
        "rows": learner.batching.rows,
        "micro_batches": [list(shape) for shape in learner.batching.shapes] or "by tokens",
        "compiled": options.compiled,
        "cuda_graphs": options.cuda_graphs,
        "compiled_optimizer": options.compiled_optimizer,
        # The batch of one matrix product depends on how many matrices a rank has.
        "sharded_matrices": options.sharded_optimizer and optimizer.batches_matrices,
        "fsdp": options.fsdp,
        "activation_checkpointing": options.activation_checkpointing,
        "deterministic": on_gpu and options.deterministic,
        # NCCL's order of summation depends on the ranks' placement.
        "processes_per_node": group.local_world_size if on_gpu else False,
        **device_of(group),
    }


def device_of(group: Group) -> dict[str, Any]:
    """Return what computes and with which kernels, JSON-compatible."""
    on_gpu = group.device.type == "cuda"
    return {
        "device": group.device_name,
        # Each has kernels of its own, and MKL chooses its by the processor.
        "instruction_set": False if on_gpu else _instruction_set(),
        "processor": False if on_gpu else hardware_of(group.device),
        "torch": torch.__version__,
    }


def keep_threads(before: Mapping[str, Any], group: Group, options: CommonOptions) -> None:
    """Compute with as many threads as the trainer of the resumed checkpoint: the last bits depend on it.

    Not if the number of processes is another, which alters the bits anyway, or without the options' `keep_threads`.
    """
    given, threads = torch.get_num_threads(), before["threads"]
    if not options.keep_threads or before["world_size"] != group.world_size or given == threads:
        return
    logger.warning(
        "threads of a process: %d, as before, for the same bits; --no-keep-threads takes the %d given now",
        threads, given,
    )  # fmt: skip
    torch.set_num_threads(threads)


def report_lost_reproducibility(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Log what differs from the trainer of a checkpoint."""
    for name, value in now.items():
        if before[name] != value:
            logger.warning(
                "%s was %s and is %s: same samples in the same batches, but no longer the same bits",
                name,
                before[name],
                value,
            )


def _instruction_set() -> str:
    """Return the instructions that PyTorch uses on this CPU, which ATEN_CPU_CAPABILITY limits, and oneDNN's own limit.

    https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    return torch.backends.cpu.get_cpu_capability() + (f", oneDNN up to {limit.upper()}" if limit else "")
