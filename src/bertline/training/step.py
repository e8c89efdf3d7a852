"""A step of training: from a global batch to an update of the weights."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.data.batches import GlobalBatch
from bertline.training.data.layouts import Layout
from bertline.training.data.opening import TrainingData
from bertline.training.distributed.optimizer_sharding import OptimizerSharding
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.optimizers.schedules import learning_rate_of_phase
from bertline.training.scaling import LossScale


@dataclass(frozen=True)
class Learner:
    """Model, data and optimizer of a training step; `setup.make_learner` makes it from a recipe."""

    settings: dict[str, Any]
    model: PreTrainingNetwork
    data: TrainingData
    layout: Layout
    accumulator: GradientAccumulator
    optimizer: torch.optim.Optimizer
    sharding: OptimizerSharding
    scale: LossScale


class StepResult(NamedTuple):
    """Result of a step; the same on every rank, except for `seconds` and the fields after it."""

    batch: GlobalBatch
    statistics: dict[str, float]  # `LossStatistics` and votes, summed over the global batch and the ranks
    norm: float  # of the gradient before clipping
    learning_rate: float
    updated: bool  # False: loss or gradient was not finite, and the weights are unchanged
    backed_off: bool  # not updated because fp16's loss scale was too high, which is no error
    seconds: float
    waited: float  # seconds for data
    tokens: tuple[int, int]  # of this rank: without padding, and with


def train_step(learner: Learner, step: int, batch_number: int, votes: Mapping[str, float]) -> StepResult:
    """Compute the gradient of a global batch and update the weights with it.

    Args:
        step: number of the update, counted from 1, which determines the learning rate.
        batch_number: of the global batch, counted from 0; must follow that of the last call.
        votes: this rank's numbers to sum over all ranks, by the names given to the accumulator.
    """
    started = time.monotonic()
    accumulator, gradients, scale = learner.accumulator, learner.accumulator.gradients, learner.scale
    batch = accumulator.start_step(batch_number)
    for micro_batch in accumulator.micro_batches():
        statistics = accumulator.forward(micro_batch)
        loss = accumulator.mean_loss(statistics, batch)
        (loss * scale.value).backward()
        gradients.add(statistics._asdict())

    gradients.add(votes)
    totals = gradients.reduce()
    norm = gradients.clip(learner.settings["max_gradient_norm"], scale.value)
    updated = math.isfinite(norm) and math.isfinite(totals["mlm_loss"] + totals["pair_loss"])
    backed_off = scale.update(updated)
    learning_rate = learning_rate_of_phase(learner.settings, step)
    if updated:
        for parameters in learner.optimizer.param_groups:
            parameters["lr"] = learning_rate
        learner.optimizer.step()
        learner.sharding.broadcast_weights()
    return StepResult(
        batch,
        totals,
        norm,
        learning_rate,
        updated=updated,
        backed_off=backed_off,
        seconds=time.monotonic() - started,
        waited=accumulator.waited,
        tokens=accumulator.tokens,
    )
