"""From a recipe to what a step works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertline.modeling.float8 import compute_in_float8
from bertline.training.data.opening import TrainingData
from bertline.training.distributed.fsdp import apply_fsdp, check_fsdp
from bertline.training.distributed.optimizer_sharding import OptimizerSharding
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import load_initial_weights, make_model
from bertline.training.micro_batch import choose_layout
from bertline.training.objective import check_cuda_graphs, prepare_precision
from bertline.training.optimizers.registry import make_optimizer, optimizer_entry
from bertline.training.options import Options
from bertline.training.reproducibility import compute_deterministically
from bertline.training.scaling import LossScale
from bertline.training.step import Learner


def prepare_device(settings: Mapping[str, Any], group: Group, options: Options) -> None:
    """Set PyTorch's switches. Raises BertlineError for options that the device or the settings do not allow."""
    prepare_precision(settings["precision"], group.device)
    if options.cuda_graphs:
        check_cuda_graphs(group.device, compiled=options.compiled)
    if options.fsdp:
        name = settings["optimizer"]
        check_fsdp(options, optimizer=name, needs_whole_matrices=optimizer_entry(name).needs_whole_matrices)
    if options.deterministic:
        compute_deterministically()


def make_learner(
    recipe: dict[str, Any],
    data: TrainingData,
    group: Group,
    options: Options,
    *,
    initial_weights: Path | None,
    first_position: int,
    before: Mapping[str, Any] | None,
    votes: tuple[str, ...],
) -> Learner:
    """Make the network and all around it, on the group's device, with the recipe's initial weights.

    Parameters
    ----------
    initial_weights: the folder that the recipe's `initial_weights` names.
    first_position, votes: see `GradientAccumulator`.
    before: `reproducibility` of the checkpoint that is resumed, whose weights are loaded later; None for a new phase.
    """
    settings = recipe["settings"]
    model = make_model(recipe, data)
    if settings["precision"] == "fp8":
        compute_in_float8(model.encoder.layers)
    # A network without a pair head learns from masked words alone, whatever the dataset holds.
    data = replace(data, has_pairs=data.has_pairs and model.scores_pairs)
    if before is None:
        load_initial_weights(model, recipe, initial_weights, data)
    else:
        torch.set_num_threads(before["threads"])
    if options.fsdp:
        apply_fsdp(model, group)
    model.to(group.device).train()
    model.encoder.activation_checkpointing = options.activation_checkpointing
    layout = choose_layout(model, data, recipe, group, options, before=before)
    sharding = OptimizerSharding(model, group, enabled=options.sharded_optimizer)
    optimizer = make_optimizer(model, settings, compiled=options.compiled_optimizer, owns=sharding.owns)
    accumulator = GradientAccumulator(
        model,
        data,
        recipe,
        group,
        layout,
        first_position=first_position,
        compiled=options.compiled,
        cuda_graphs=options.cuda_graphs,
        votes=votes,
    )
    return Learner(settings, model, data, layout, accumulator, optimizer, sharding, LossScale(settings["precision"]))
