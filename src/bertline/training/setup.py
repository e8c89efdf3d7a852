"""Construction of model, data and optimizer from a recipe or a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.training.data.opening import TrainingData
from bertline.training.data.shapes import Batching
from bertline.training.distributed.fsdp import apply_fsdp, check_fsdp
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
from bertline.training.optimizers.registry import OPTIMIZERS, make_optimizer
from bertline.training.options import Options
from bertline.training.reproducibility import keep_threads
from bertline.training.restoring import restore_tensors
from bertline.training.scaling import LossScale
from bertline.training.step import Learner

logger = logging.getLogger(__name__)


def prepare_device(settings: Mapping[str, Any], group: Group, options: Options) -> None:
    """Set PyTorch's switches, and report steps that are never reached.

    Raises BertlineError for options that the device or the settings do not allow.
    """
    prepare_precision(settings["precision"], group.device)
    if options.cuda_graphs and group.device.type != "cuda":
        raise BertlineError("--cuda-graphs: there is no GPU here; leave it out")
    if options.cuda_graphs and not options.compiled:
        raise BertlineError("--cuda-graphs: needs fixed shapes; give --compile as well, or leave it out")
    if options.profiler == "nsight" and options.profile is None:
        raise BertlineError("--profiler nsight: only marks the steps of --profile START:STOP; give them as well")
    if options.kfac_share != 1 and not settings["kfac"]:
        raise BertlineError("--kfac-share: the recipe has no kfac; leave it out")
    if beyond := [step for step in options.keep_steps if step > settings["steps"]]:
        steps = ", ".join(map(str, beyond))
        logger.warning("--keep-steps %s: the phase ends with step %d", steps, settings["steps"])
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
    else:
        keep_threads(before, group, options)
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
    accumulator.balance_load(options.load_balancing, before)
    return learner


def restore_learner(learner: Learner, path: Path, state: Mapping[str, Any]) -> None:
    """Load a checkpoint's weights, moments and loss scale. Raises BertlineError if they are of another model."""
    restore_tensors(
        path,
        learner.model,
        learner.optimizer,
        kind=learner.settings["optimizer"],
        may_lack_moments=state["step"] == 0,
        kfac=learner.kfac,
    )
    learner.scale.restore(state["loss_scale"])
    logger.info("resuming %s at step %d", path, state["step"])
