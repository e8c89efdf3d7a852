"""A step of training: from a global batch to an update of the weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.data.batches import GlobalBatch
from bertline.training.data.opening import TrainingData
from bertline.training.data.shapes import Batching
from bertline.training.distributed.fsdp import own_part
from bertline.training.distributed.optimizer_sharding import OptimizerSharding
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.optimizers.kfac import Kfac
from bertline.training.optimizers.schedules import learning_rate_of_phase
from bertline.training.scaling import LossScale

UNFINISHED = "unfinished"  # the vote of a rank that has left out micro-batches


def has_overflowed(model: nn.Module) -> bool:
    """Return whether a weight of this rank is not finite."""
    return not bool(torch.stack([own_part(weight).isfinite().all() for weight in model.parameters()]).all())


@dataclass(frozen=True)
class Learner:
    """Model, data and optimizer of a training step; `setup.make_learner` makes it from a recipe."""

    settings: dict[str, Any]
    model: PreTrainingNetwork
    data: TrainingData
    batching: Batching
    accumulator: GradientAccumulator
    optimizer: torch.optim.Optimizer
    kfac: Kfac
    sharding: OptimizerSharding
    scale: LossScale


class StepResult(NamedTuple):
    """Result of a step; the same on every rank, except for `seconds` and the fields after it."""

    batch: GlobalBatch
    statistics: dict[str, float]  # `LossStatistics` and votes, summed over the global batch and the ranks
    norm: float  # of the gradient before clipping; nan if the step was interrupted
    learning_rate: float
    updated: bool  # False: loss or gradient was not finite, or the step was interrupted; the weights are unchanged
    backed_off: bool  # not updated because fp16's loss scale was too high, which is not an error
    interrupted: bool  # a rank left out micro-batches, because it was asked to stop
    seconds: float
    waited: float  # seconds for data
    tokens: tuple[int, int]  # of this rank: without padding, and with


def train_step(
    learner: Learner,
    step: int,
    batch_number: int,
    votes: Callable[[], Mapping[str, float]] = dict,
    stop_is_seen: Callable[[], bool] = lambda: False,
) -> StepResult:
    """Compute the gradient of a global batch and update the weights with it.

    Args:
        step: number of the update, counted from 1, which determines the learning rate.
        batch_number: of the global batch, counted from 0; must follow that of the last call.
        votes: returns this rank's numbers to sum over all ranks, by the names given to the accumulator; called after
            the last micro-batch.
        stop_is_seen: called between two micro-batches; if it returns True, this rank leaves out the others and the
            weights stay as they are, on all ranks. The accumulator needs the name `UNFINISHED`.
    """
    started = time.monotonic()
    accumulator, gradients = learner.accumulator, learner.accumulator.gradients
    kfac, scale, max_norm = learner.kfac, learner.scale, learner.settings["max_gradient_norm"]
    batch = accumulator.start_step(batch_number)
    with kfac.observe(step, scale.value):
        for number, micro_batch in enumerate(accumulator.micro_batches()):
            if number and stop_is_seen():
                gradients.add({UNFINISHED: 1.0})
                break
            kfac.start(micro_batch)
            statistics = accumulator.forward(micro_batch)
            loss = accumulator.mean_loss(statistics, batch)
            (loss * scale.value).backward()
            gradients.add(statistics._asdict())

    gradients.add(votes())
    totals = gradients.reduce()
    interrupted = totals.get(UNFINISHED, 0.0) > 0
    # K-FAC's own scale comes first.
    norm = math.nan if interrupted else gradients.clip(math.inf if kfac.enabled else max_norm, scale.value)
    updated = math.isfinite(norm) and math.isfinite(totals["mlm_loss"] + totals["pair_loss"])
    backed_off = not interrupted and scale.update(updated)
    learning_rate = learning_rate_of_phase(learner.settings, step)
    if updated and kfac.enabled:
        kfac.precondition(step, learning_rate, samples=len(batch.samples))
        updated = math.isfinite(gradients.clip(max_norm))
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
        interrupted=interrupted,
        seconds=time.monotonic() - started,
        waited=accumulator.waited,
        tokens=accumulator.tokens,
    )
