"""A step of fine-tuning: from a batch, of which every rank computes a part, to an update of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bertline.encoding.hashing import mix_integers
from bertline.finetuning.batches import micro_batches, pad
from bertline.finetuning.losses import loss_of, number_of_terms, targets_of
from bertline.finetuning.optimizer import make_optimizer, set_learning_rate
from bertline.finetuning.options import Options
from bertline.finetuning.prepared import PreparedTask
from bertline.finetuning.sequences import Inputs
from bertline.modeling.heads import TaskNetwork
from bertline.training.data.batches import assign_to_ranks
from bertline.training.data.load_balancing import measure_rank_weights, rank_weights_of
from bertline.training.distributed.gradients import Gradients
from bertline.training.distributed.process_group import Group
from bertline.training.objective import AUTOCAST
from bertline.training.reproducibility import device_of
from bertline.training.scaling import LossScale

MAX_GRADIENT_NORM = 1.0  # as in Google's run_squad.py and run_classifier.py
VOTES = ("stop_wanted", "checkpoint_wanted")


class Learner:
    """Network, data and optimizer of a fine-tuning's steps, on one rank."""

    def __init__(
        self,
        model: TaskNetwork,
        task: PreparedTask,
        settings: Mapping[str, Any],
        seed: int,
        group: Group,
        options: Options,
    ) -> None:
        """Make the optimizer of `model`, and set its activation checkpointing and its embeddings' kind of gradient."""
        self.model = model
        self.task = task
        self.settings = settings
        self.seed = seed
        self.group = group
        self.options = options
        model.encoder.activation_checkpointing = options.activation_checkpointing
        self.optimizer = make_optimizer(
            model, weight_decay=settings["weight_decay"], layerwise_decay=settings["layerwise_decay"]
        )
        # Several ranks reduce a dense buffer; on a GPU the sum of a sparse gradient's rows has no fixed order.
        model.encoder.embeddings.word.sparse = group.world_size == 1 and group.device.type == "cpu"
        self.gradients = Gradients(model, ("loss", *VOTES), world_size=group.world_size)
        self.scale = LossScale(settings["precision"])
        self.rank_weights: tuple[float, ...] = (1.0,) * group.world_size

    def balance_load(self, rows: np.ndarray, before: Mapping[str, Any] | None) -> None:
        """Set the part of each batch that every rank computes.

        Args:
            rows: a batch, to measure the ranks' speeds with.
            before: what `reproducibility` returned when the resumed checkpoint was written; None without one.
        """
        weights = rank_weights_of(
            self.options.load_balancing,
            self.group.world_size,
            before,
            lambda: measure_rank_weights(lambda: self._compute_one(rows), self.group),
        )
        self.rank_weights = tuple(weights)

    def reproducibility(self) -> dict[str, Any]:
        """Return what, besides the recipe, determines the last bits of the weights; JSON-compatible."""
        return {
            "world_size": self.group.world_size,
            "rank_weights": list(self.rank_weights),
            "threads": torch.get_num_threads(),
            "micro_batch_tokens": self.options.micro_batch_tokens,
            **device_of(self.group),
        }

    def backward(self, rows: np.ndarray) -> None:
        """Add the loss and the gradients of this rank's part of the batch `rows`, divided by the batch's terms."""
        terms = number_of_terms(self.task, rows)
        for part in self._micro_batches(rows):
            outputs, attention_mask = forward(
                self.model, self.task.train, part, self.task.padding, self.settings["precision"]
            )
            targets = targets_of(self.task, part).to(self.group.device)
            loss = loss_of(self.task.head, outputs, targets, attention_mask) / terms
            (loss * self.scale.value).backward()
            self.gradients.add({"loss": loss.detach()})

    def _micro_batches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        own = rows[assign_to_ranks(len(rows), self.rank_weights) == self.group.rank]
        return micro_batches(own, self.task.train.lengths, self.options.micro_batch_tokens)

    def _compute_one(self, rows: np.ndarray) -> int:
        """Compute this rank's part of the batch `rows` and discard the gradients. Returns its tokens."""
        self.backward(rows)
        self.gradients.zero()
        return sum(int(self.task.train.lengths[part].sum()) for part in self._micro_batches(rows))


class StepResult(NamedTuple):
    """Result of a step, the same on every rank."""

    loss: float  # mean over the batch
    norm: float  # of the gradient before clipping
    updated: bool  # False: loss or gradient was not finite; the weights are unchanged
    backed_off: bool  # not updated because fp16's loss scale was too high, which is not an error
    stop_wanted: bool
    checkpoint_wanted: bool


def train_step(
    learner: Learner, rows: np.ndarray, step: int, learning_rate: float, votes: Mapping[str, float]
) -> StepResult:
    """Compute the gradient of the batch `rows` and update the weights with it, unless loss or gradient is not finite.

    Args:
        rows: input indices in ascending length, the same on every rank.
        step: number of the update, counted from 1.
        votes: this rank's `VOTES`; one that any rank sets counts for all.
    """
    # Seeded by the step, so that no generator state has to be saved.
    torch.manual_seed(mix_integers(learner.seed, step, learner.group.rank))
    learner.gradients.zero()
    learner.backward(rows)
    learner.gradients.add(votes)
    totals = learner.gradients.reduce()
    norm = learner.gradients.clip(MAX_GRADIENT_NORM, learner.scale.value)
    updated = math.isfinite(totals["loss"]) and math.isfinite(norm)
    backed_off = learner.scale.update(updated)
    if updated:
        set_learning_rate(learner.optimizer, learning_rate)
        learner.optimizer.step()
    return StepResult(totals["loss"], norm, updated, backed_off, *(totals[name] > 0 for name in VOTES))


def forward(
    model: nn.Module, sequences: Inputs, rows: np.ndarray, padding: int, precision: str
) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs for inputs `rows`; return them and the attention mask."""
    device, dtype = next(model.parameters()).device, AUTOCAST[precision]
    inputs = pad(sequences, rows, padding, device)
    with torch.autocast(device.type, dtype, enabled=dtype is not None):
        return model(*inputs), inputs[2]
