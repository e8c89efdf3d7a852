"""Choice of a micro-batch's rows: the requested ones, or the best ones on this machine."""

from __future__ import annotations

import itertools
import logging
import math
import resource
import timeit
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bertline.console import BertlineError
from bertline.encoding.masking import Masking
from bertline.limits import available_memory
from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.data.batches import GlobalBatch, global_batch
from bertline.training.data.collation import micro_batches
from bertline.training.data.opening import TrainingData
from bertline.training.data.order import data_seed_of
from bertline.training.data.shapes import MAX_WIDTHS, Batching, fix_shapes, full_shape
from bertline.training.distributed.process_group import Group
from bertline.training.objective import compute_loss, make_loss_fn
from bertline.training.optimizers.registry import OPTIMIZERS, make_optimizer
from bertline.training.options import Options

logger = logging.getLogger(__name__)

# A phase gets one compiled program for this many micro-batches of a rank: with fewer, a program would not save the half
# minute of its compilation.
MICRO_BATCHES_OF_A_PROGRAM = 200
# Fraction of a GPU's memory: fragmentation and the optimizer's step take the rest.
HEADROOM = 0.9
PASSES = 3  # timed for each size; the fastest counts
MIN_GAIN = 0.02  # in time per row: less is noise, and smaller micro-batches need less memory
PATIENCE = 2  # number of sizes without a gain after which larger ones are not tried
TYPICAL = 1 << 16  # number of samples whose lengths are taken for those of all


def rows_of(micro_batch_tokens: int, settings: dict[str, Any], world_size: int) -> int:
    """Return the rows of a micro-batch: as many as fit, such that a rank's part of a global batch is split evenly."""
    most = max(1, micro_batch_tokens // settings["sequence_length"])
    of_rank = _max_rows(settings, world_size)
    pieces = -(-of_rank // most)
    return -(-of_rank // pieces)


def choose_batching(
    model: PreTrainingNetwork,
    data: TrainingData,
    recipe: dict[str, Any],
    group: Group,
    options: Options,
    *,
    before: Mapping[str, Any] | None,
) -> Batching:
    """Choose how the phase's samples become micro-batches; the same on every rank.

    Args:
        before: how the resumed checkpoint was computed. Its measured size is kept for the same number of ranks on the
            same device: the last bits depend on it.
    """
    settings = recipe["settings"]
    batching = Batching(
        settings["sequence_length"],
        1,
        packed=settings["packing"],
        # FlashAttention's kernels take no mask: on a GPU, micro-batches of full rows justify a separate program.
        mask_free=group.device.type == "cuda",
    )
    tokens = options.micro_batch_tokens_on(group.device.type)
    if tokens == "auto":
        here = group.world_size, group.device_name
        # Rank 0 decides: other ranks may have other devices.
        if group.broadcast(before is not None and (before["world_size"], before["device"]) == here):
            rows = group.broadcast(before and before["rows"])
        else:
            found = find_micro_batch_tokens(model, data, recipe, batching, group)
            logger.info("micro-batches of %d tokens are the best here, found by trying", found)
            rows = rows_of(found, settings, group.world_size)
    else:
        rows = rows_of(tokens, settings, group.world_size)
    batching = replace(batching, rows=rows)
    if options.compiled:
        batching = fix_shapes_of_phase(batching, data, recipe, group.world_size)
        shapes = ", ".join(map(str, batching.shapes))
        logger.info("shapes of micro-batches, each with a program of its own: %s", shapes)
    return batching


def fix_shapes_of_phase(batching: Batching, data: TrainingData, recipe: dict[str, Any], world_size: int) -> Batching:
    """Return `batching` with the fixed shapes that compiled programs need, the same on every rank."""
    settings = recipe["settings"]
    masking, typical = Masking(**settings["masking"]), _typical_batch(data, recipe)
    samples = _max_rows(settings, world_size)
    micro_batches = settings["steps"] * max(1.0, samples * float(typical.lengths.mean()) / batching.tokens)
    most = min(MAX_WIDTHS, max(1, int(micro_batches / MICRO_BATCHES_OF_A_PROGRAM)))
    return fix_shapes(batching, data.train, masking, typical, samples=samples, most=most)


def _typical_batch(data: TrainingData, recipe: dict[str, Any]) -> GlobalBatch:
    """Return the first samples in the order of training."""
    return global_batch(
        data.train.lengths,
        start=0,
        size=TYPICAL,
        seed=data_seed_of(recipe),
        masking=Masking(**recipe["settings"]["masking"]),
        mask_counts=data.train.mask_counts,
        mixture=data.mixture,
    )


def find_micro_batch_tokens(
    model: PreTrainingNetwork, data: TrainingData, recipe: dict[str, Any], batching: Batching, group: Group
) -> int:
    """Find the best size for this phase on this hardware: the minimum over all ranks.

    On a GPU that is the largest that fits, on a CPU the fastest. Sizes are doubled, and each is tried with a forward
    and backward pass of a micro-batch of full rows with the maximum of masked positions, not compiled: a compiled pass
    takes at most as much memory.

    Args:
        batching: of the micro-batches; its rows are ignored.

    Raises BertlineError if not even one row fits.
    """
    settings = recipe["settings"]
    masking = Masking(**settings["masking"])
    loss_fn = make_loss_fn(model, precision=settings["precision"], compiled=False)
    typical = _typical_batch(data, recipe)

    def compute(rows: int) -> None:
        full = replace(batching, rows=rows)
        full = replace(full, shapes=(full_shape(full, data.train, masking, typical),))
        batch = typical.take(np.arange(len(typical.samples))[-rows:])
        made = micro_batches(batch, data.train, full)
        found = compute_loss(
            loss_fn, next(made).to(group.device), seed=data_seed_of(recipe), masking=masking, vocabulary=data.vocabulary
        )
        (found.mlm_loss + found.pair_loss).backward()
        model.zero_grad(set_to_none=True)

    most = _max_rows(settings, group.world_size)
    if group.device.type == "cuda":
        # The most that the optimizer will allocate.
        optimizer, new_state = make_optimizer(model, settings), OPTIMIZERS[settings["optimizer"]].new_state
        weights = (weight for param_group in optimizer.param_groups for weight in param_group["params"])
        moments = [new_state(optimizer, weight) for weight in weights]
        rows = largest(lambda rows: _fits(compute, rows, model), most)
        del moments
    else:
        rows = fastest(
            lambda rows: min(timeit.repeat(lambda: compute(rows), number=1, repeat=PASSES)),
            most,
            go_on=lambda: _has_memory_for_twice(group),
        )
    if not rows:
        raise BertlineError(
            f"micro_batch_tokens: auto: not even one sequence of {batching.sequence_length} tokens fits into the GPU's "
            "memory; give --activation-checkpointing, or choose a smaller model"
        )
    return group.all_reduce_min(rows) * batching.sequence_length


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Find the largest of 1, 2, 4, ... and `most` that fits, up to the first that does not; 0 if none does."""
    return max(itertools.takewhile(fits, _doubled(most)), default=0)


def fastest(seconds: Callable[[int], float], most: int, *, go_on: Callable[[], bool] = lambda: True) -> int:
    """Find the one of 1, 2, 4, ... and `most` that takes the least time per row; the smallest in case of a tie.

    Stops after `PATIENCE` sizes that were no faster, or when `go_on` returns False.
    """
    found, best, waited = 1, math.inf, 0
    for rows in _doubled(most):
        a_row = seconds(rows) / rows
        if a_row < (1 - MIN_GAIN) * best:
            found, best, waited = rows, a_row, 0
        else:
            waited += 1
        if waited == PATIENCE or not go_on():
            break
    return found


def _doubled(most: int) -> list[int]:
    return [*(1 << bits for bits in range((most - 1).bit_length())), most]


def _max_rows(settings: dict[str, Any], world_size: int) -> int:
    return -(-settings["global_batch_size"] // world_size)


def _fits(compute: Callable[[int], None], rows: int, model: PreTrainingNetwork) -> bool:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    limit = HEADROOM * (torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved())
    try:
        compute(rows)
        fitted = torch.cuda.max_memory_reserved() <= limit
    except torch.OutOfMemoryError:
        fitted = False
    model.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    return fitted


def _has_memory_for_twice(group: Group) -> bool:
    """Return whether memory suffices for twice this process's peak, an upper bound for the next size."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return peak < available_memory() / group.local_world_size
