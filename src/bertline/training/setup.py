"""Construction of model, data and optimizer from a recipe or a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.training.checkpoints import load_checkpoint
from bertline.training.data.opening import TrainingData
from bertline.training.data.shapes import Batching
from bertline.training.distributed.fsdp import apply_fsdp, check_fsdp, load_weights
from bertline.training.distributed.optimizer_sharding import OptimizerSharding
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import (
    carried_over_position,
    load_carried_over_moments,
    load_initial_weights,
    make_model,
)
from bertline.training.micro_batch import choose_batching
from bertline.training.objective import prepare_network, prepare_precision
from bertline.training.optimizers.kfac import Kfac, check_kfac
from bertline.training.optimizers.registry import OPTIMIZERS, load_optimizer_tensors, make_optimizer
from bertline.training.options import Options
from bertline.training.scaling import LossScale
from bertline.training.step import Learner

logger = logging.getLogger(__name__)


def prepare_device(settings: Mapping[str, Any], group: Group, options: Options) -> None:
    """Set PyTorch's switches. Raises BertlineError for options that the device or the settings do not allow."""
    prepare_precision(settings["precision"], group.device)
    if options.cuda_graphs and group.device.type != "cuda":
        raise BertlineError("--cuda-graphs: there is no GPU here; leave it out")
    if options.cuda_graphs and not options.compiled:
        raise BertlineError("--cuda-graphs: needs fixed shapes; give --compile as well, or leave it out")
    if options.profiler == "nsight" and options.profile is None:
        raise BertlineError("--profiler nsight: only marks the steps of --profile START:STOP; give them as well")
    if options.kfac_share != 1 and not settings["kfac"]:
        raise BertlineError("--kfac-share: the recipe has no kfac; leave it out")
    check_fsdp(options, settings, needs_whole_matrices=OPTIMIZERS[settings["optimizer"]].needs_whole_matrices)
    check_kfac(options, settings)
    # On a CPU, all kernels used here are deterministic anyway, except that a compiled program adds the gradients of
    # embeddings with atomic operations, in the order in which its threads arrive.
    if options.deterministic or (options.compiled and group.device.type == "cpu"):
        # cuBLAS needs CUBLAS_WORKSPACE_CONFIG in the environment before PyTorch is imported: see `set_environment`.
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        # Do not fill memory that is overwritten anyway.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def make_learner(
    recipe: dict[str, Any],
    data: TrainingData,
    group: Group,
    options: Options,
    *,
    initial_weights: Path | None = None,
    resumed: tuple[Path, dict[str, Any]] | None = None,
    batching: Batching | None = None,
    votes: tuple[str, ...] = (),
) -> Learner:
    """Make the network, its data and its optimizer on the group's device, from a checkpoint or the recipe's start.

    Args:
        initial_weights: the folder that the recipe's `initial_weights` names.
        resumed: a checkpoint and its state; None for a new phase.
        batching: of the micro-batches; None for that of the options.
        votes: see `GradientAccumulator`.
    """
    settings = recipe["settings"]
    before = resumed[1]["reproducibility"] if resumed else None
    model = make_model(recipe, data)
    prepare_network(model, settings["precision"], group.device)
    # A network without a pair head learns only from masked words, even if the dataset has pairs.
    data = replace(data, has_pairs=data.has_pairs and model.scores_pairs)
    if before is None:
        load_initial_weights(model, recipe, initial_weights, data)
    elif options.keep_threads and before["world_size"] == group.world_size:
        keep_threads(before)
    if options.fsdp:
        apply_fsdp(model, group)
    model.to(group.device).train()
    model.encoder.activation_checkpointing = options.activation_checkpointing
    batching = batching or choose_batching(model, data, recipe, group, options, before=before)
    sharding = OptimizerSharding(model, group, enabled=options.sharded_optimizer)
    optimizer = make_optimizer(model, settings, compiled=options.compiled_optimizer, owns=sharding.owns)
    kfac = Kfac(model, settings["kfac"], group, share=options.kfac_share)
    accumulator = GradientAccumulator(
        model,
        data,
        recipe,
        group,
        batching,
        first_position=resumed[1]["first_position"] if resumed else carried_over_position(recipe, initial_weights),
        compiled=options.compiled,
        cuda_graphs=options.cuda_graphs,
        votes=votes,
    )
    scale = LossScale(settings["precision"])
    learner = Learner(settings, model, data, batching, accumulator, optimizer, kfac, sharding, scale)
    if resumed is None:
        load_carried_over_moments(optimizer, kfac, scale, model, recipe, initial_weights)
    else:
        restore_learner(learner, *resumed)
    _balance_load(accumulator, group, options, before)
    return learner


def keep_threads(before: Mapping[str, Any]) -> None:
    """Compute with as many threads as the trainer of the resumed checkpoint: the last bits depend on it."""
    given, threads = torch.get_num_threads(), before["threads"]
    if given != threads:
        logger.warning(
            "threads of a process: %d, as before, for the same bits; --no-keep-threads takes the %d given now",
            threads, given,
        )  # fmt: skip
        torch.set_num_threads(threads)


def restore_learner(learner: Learner, path: Path, state: Mapping[str, Any]) -> None:
    """Load a checkpoint's weights, moments and loss scale. Raises BertlineError if they are of another model."""
    weights, moments = load_checkpoint(path)
    expected = learner.model.state_dict()
    if weights.keys() != expected.keys() or any(weights[key].shape != expected[key].shape for key in weights):
        raise BertlineError(f"the checkpoint {path} is of another model; move it away and run again")
    load_weights(learner.model, weights)
    try:
        if state["step"] == 0 and not moments:
            learner.optimizer.state.clear()  # it has none before its first step
        else:
            load_optimizer_tensors(learner.optimizer, learner.model, moments, kind=learner.settings["optimizer"])
        learner.kfac.load(moments)
    except BertlineError as error:
        raise BertlineError(f"the checkpoint {path}: {error}; move it away and run again") from None
    learner.scale.restore(state["loss_scale"])
    logger.info("resuming %s at step %d", path, state["step"])


def _balance_load(
    accumulator: GradientAccumulator, group: Group, options: Options, before: Mapping[str, Any] | None
) -> None:
    """Divide batches as the resumed checkpoint's trainer did, unless the options specify otherwise."""
    keeps = options.load_balancing in ("equal", "measured")
    if before is not None and keeps and len(before["rank_weights"]) == group.world_size:
        accumulator.rank_weights = before["rank_weights"]
    else:
        accumulator.balance_load(options.load_balancing)
