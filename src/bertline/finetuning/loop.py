"""Training loop of a fine-tuning: steps, early stopping, checkpoints, and predictions."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from bertline.console import BertlineError, progress
from bertline.finetuning.batches import evaluation_batches, training_batches
from bertline.finetuning.prepared import PreparedTask
from bertline.finetuning.sequences import Inputs
from bertline.finetuning.step import Learner, forward, train_step
from bertline.modeling.heads import TaskNetwork
from bertline.results import paths
from bertline.training.checkpoints import CheckpointWriter, Retention, agree_on_checkpoint
from bertline.training.distributed.process_group import Group
from bertline.training.journal import Journal
from bertline.training.lock import TrainingLock
from bertline.training.optimizers.registry import optimizer_tensors
from bertline.training.optimizers.schedules import batch_size_factor, learning_rate_at
from bertline.training.recipe import too_long_warmup
from bertline.training.reproducibility import keep_threads, report_lost_reproducibility
from bertline.training.restoring import restore_tensors
from bertline.training.stop import StopSignal, end_with_saved

logger = logging.getLogger(__name__)

JOURNAL_POINTS = 100
EVALUATION_TOKENS = 8192  # per batch, with padding: larger batches are not faster on a CPU


@dataclass
class EarlyStopping:
    """The best score on the dev set so far, its step and weights, and the number of evaluations since."""

    best_score: float = -math.inf
    best_step: int = 0
    evaluations_since: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    def update(self, score: float, step: int, model: TaskNetwork) -> None:
        """Count an evaluation; keep the weights if its score is the best so far."""
        self.evaluations_since += 1
        if score > self.best_score:
            self.best_score, self.best_step, self.evaluations_since = score, step, 0
            self.best_weights = copy.deepcopy(model.state_dict())


@dataclass
class LossMean:
    """Mean loss of the steps since the last point of the journal."""

    total: float = 0.0
    steps: int = 0

    def add(self, loss: float) -> None:
        self.total, self.steps = self.total + loss, self.steps + 1

    def read(self) -> float:
        """Return the mean and start again."""
        mean = self.total / self.steps
        self.total, self.steps = 0.0, 0
        return mean


class Trained(NamedTuple):
    """Result of a training: rank 0's journal, the number of updates made, and the state of early stopping."""

    journal: Journal | None
    steps: int
    early_stopping: EarlyStopping | None


def train(
    learner: Learner,
    output: Path,
    fingerprint: str,
    *,
    lock: TrainingLock | None = None,
    stop_signal: StopSignal | None = None,
    save_end: bool = False,
) -> Trained:
    """Train with AdamW, linear warm-up and decay, resuming from the newest checkpoint below `output`.

    A training that was killed and restarted on the same ranks ends with the same weights as an uninterrupted one. With
    `patience`, the dev set is scored after every epoch, training ends after that many successive scores no better than
    the best one, and the model gets the weights of the best one.

    When any rank's `stop_signal` is set, all save a checkpoint and exit with status 75. With `save_end` there is also
    a checkpoint at the end, with which the same call returns without another step. Raises BertlineError for a warm-up
    longer than the training, or a loss that is not finite.
    """
    training = _Training(learner, output, fingerprint, lock, stop_signal, save_end=save_end)
    learner.model.train()
    remaining = range(training.step + 1, training.total_steps + 1)
    with closing(training.writer):
        for _ in progress(remaining, description="fine-tuning", unit="step", shown=learner.group.is_rank_zero):
            if training.is_over:
                break
            training.train_one_step()
        training.writer.wait()
    if training.early_stopping is not None:
        learner.model.load_state_dict(training.early_stopping.best_weights)
    return Trained(training.journal, training.step, training.early_stopping)


class _Training:
    """The state of a fine-tuning.

    Attributes:
        step: number of updates made, of `total_steps`.
        loss: for the next point of the journal.
        early_stopping: None without `patience`.
        batches: the remaining ones.
        journal: on rank 0 only.
        points: their number in the journal; None before the first, and if the checkpoint did not state it.
    """

    def __init__(
        self,
        learner: Learner,
        output: Path,
        fingerprint: str,
        lock: TrainingLock | None,
        stop_signal: StopSignal | None,
        *,
        save_end: bool,
    ) -> None:
        """Resume the newest checkpoint, if there is one."""
        self.learner, self.fingerprint, self.lock, self.stop_signal = learner, fingerprint, lock, stop_signal
        self.save_end = save_end
        self.settings, self.group = learner.settings, learner.group
        self.steps_per_epoch, self.total_steps = _number_of_steps(learner.task, self.settings)
        self.report_every = max(1, self.total_steps // JOURNAL_POINTS)
        self.step, self.loss = 0, LossMean()
        self.early_stopping = None if self.settings["patience"] is None else EarlyStopping()
        self.points: int | None = None
        self.batches = self._resume(output / paths.CHECKPOINTS)
        self.journal: Journal | None = None
        if self.group.is_rank_zero:
            journal, last_step = output / paths.STARTED_JOURNAL, self.step if self.step else -1
            self.journal = Journal(journal, last_step=last_step, points=self.points)
        self.writer = CheckpointWriter(
            output / paths.CHECKPOINTS, keep=Retention(newest=1), before=self._before_checkpoint
        )
        self.saved_at = time.monotonic()

    def _resume(self, checkpoints: Path) -> Iterator[np.ndarray]:
        """Load the newest checkpoint, if there is one, and divide batches among the ranks. Returns the batches left."""
        learner, settings = self.learner, self.settings
        found, before = agree_on_checkpoint(self.group, checkpoints, self.fingerprint), None
        if found is not None:
            path, state = found
            # Steps without an update count, too, so that the first ones may leave AdamW without moments.
            tensors = restore_tensors(path, learner.model, learner.optimizer, kind="adamw", may_lack_moments=True)
            learner.scale.restore(state["loss_scale"])
            self.step, self.loss = state["step"], LossMean(state["loss"], state["counted"])
            self.points = state.get("points")
            if self.early_stopping is not None and "early_stop" in state:
                score, best_step, since = state["early_stop"]
                best_weights = {name: tensors[f"best.{name}"] for name in learner.model.state_dict()}
                self.early_stopping = EarlyStopping(score, best_step, since, best_weights)
            before = state["reproducibility"]
            keep_threads(before, self.group, learner.options)
            logger.info("resuming %s at step %d", path, self.step)

        def batches() -> Iterator[np.ndarray]:
            return training_batches(learner.task.train.lengths, settings["batch_size"], learner.seed)

        learner.balance_load(next(batches()), before)
        if before is not None:
            report_lost_reproducibility(before, learner.reproducibility())
        return islice(batches(), self.step, None)

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or the last `patience` scores are no better than the best one."""
        early_stopping = self.early_stopping
        patience_is_exhausted = (
            early_stopping is not None and early_stopping.evaluations_since >= self.settings["patience"]
        )
        return self.step == self.total_steps or patience_is_exhausted

    def train_one_step(self) -> None:
        """Train one step; then write a point of the journal, score the dev set and save a checkpoint if they are due.

        Raises SystemExit with status 75 if a rank was asked to stop, and BertlineError for a loss that is not finite.
        """
        step, settings = self.step + 1, self.settings
        peak = settings["learning_rate"] * batch_size_factor(settings, settings["batch_size"])
        learning_rate = learning_rate_at(
            step, peak=peak, total=self.total_steps, warmup=settings["warmup"], schedule="linear"
        )
        result = train_step(self.learner, next(self.batches), step, learning_rate, self._votes())
        if not (result.updated or result.backed_off):
            raise BertlineError(
                f"the loss is not finite at step {step} of {self.total_steps}; lower the learning rate "
                f"{settings['learning_rate']} or lengthen the warm-up"
            )
        self.step = step
        self.loss.add(result.loss)
        last = step == self.total_steps
        if last or step % self.report_every == 0:
            metrics = {"train/learning_rate": learning_rate, "train/gradient_norm": result.norm}
            self._record({"train/loss": self.loss.read(), **metrics})
        if self.early_stopping is not None and (last or step % self.steps_per_epoch == 0):
            self.early_stopping.update(self._score(), step, self.learner.model)
        if self.is_over and not self.save_end:
            return
        if self.is_over or result.checkpoint_wanted or result.stop_wanted:
            self._save()
        if result.stop_wanted:
            self.writer.wait()
            self.group.barrier()
            end_with_saved(step)

    def _votes(self) -> dict[str, float]:
        minutes = (time.monotonic() - self.saved_at) / 60
        return {
            "stop_wanted": float(self.stop_signal is not None and self.stop_signal.received),
            "checkpoint_wanted": float(minutes >= self.learner.options.checkpoint_every_minutes),
        }

    def _record(self, metrics: Mapping[str, float]) -> None:
        if self.journal is not None:
            self.points = self.journal.append(self.step, metrics)

    def _score(self) -> float:
        """Record the scores of the dev set; return the main one."""
        learner, task, group = self.learner, self.learner.task, self.group
        outputs = predict(learner.model, task.dev.inputs, task.padding, self.settings["precision"], group)
        learner.model.train()
        scores = group.broadcast(task.dev.evaluate(outputs).scores if group.is_rank_zero else None)
        self._record({f"dev/{name}": value for name, value in scores.items()})
        return float(scores[task.primary])

    def _save(self) -> None:
        """Start writing a checkpoint, as rank 0."""
        self.saved_at = time.monotonic()
        if not self.group.is_rank_zero:
            return
        learner, early_stopping = self.learner, self.early_stopping
        # Without further steps, nothing needs the moments, which are twice as large as the weights.
        tensors = {} if self.is_over else optimizer_tensors(learner.optimizer, learner.model)
        state = {
            "fingerprint": self.fingerprint,
            "step": self.step,
            "loss": self.loss.total,
            "counted": self.loss.steps,
            "points": self.points,
            "loss_scale": learner.scale.state(),
            "reproducibility": learner.reproducibility(),
        }
        if early_stopping is not None and early_stopping.best_step:
            tensors |= {f"best.{name}": tensor for name, tensor in early_stopping.best_weights.items()}
            best = (early_stopping.best_score, early_stopping.best_step, early_stopping.evaluations_since)
            state["early_stop"] = list(best)
        self.writer.start(learner.model.state_dict(), tensors, state)

    def _before_checkpoint(self) -> None:
        if self.lock is not None:
            self.lock.check()
        if self.journal is not None:
            self.journal.make_durable()


def _number_of_steps(task: PreparedTask, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return the steps of an epoch and of the training. Raises BertlineError for a warm-up that is longer."""
    steps_per_epoch = math.ceil(len(task.train) / settings["batch_size"])
    steps = max(1, round(settings["epochs"] * steps_per_epoch))
    if problem := too_long_warmup(settings["warmup"], steps=steps):
        raise BertlineError(problem)
    return steps_per_epoch, steps


@torch.inference_mode()
def predict(
    model: TaskNetwork, sequences: Inputs, padding: int, precision: str, group: Group | None = None
) -> np.ndarray:
    """Return the outputs in the order of the inputs: float32 [N, outputs], or per token, [tokens, outputs].

    `padding` is the id of [PAD]. The ranks of a `group` compute a part each, and all return all of it. Raises
    BertlineError if an output is not finite.
    """
    model.eval()
    rank, world_size = (0, 1) if group is None else (group.rank, group.world_size)
    by_token, outputs = model.kind != "sequence", model.classifier.out_features
    result = np.zeros((int(sequences.offsets[-1]) if by_token else len(sequences), outputs), dtype=np.float32)
    for rows in islice(evaluation_batches(sequences.lengths, EVALUATION_TOKENS), rank, None, world_size):
        values = forward(model, sequences, rows, padding, precision)[0].float().cpu().numpy()
        if not by_token:
            result[rows] = values
            continue
        for row, of_row in zip(rows, values, strict=True):
            begin, end = sequences.offsets[row], sequences.offsets[row + 1]
            result[begin:end] = of_row[: end - begin]
    if group is not None and world_size > 1:
        everything = torch.from_numpy(result).to(group.device)
        distributed.all_reduce(everything)  # each output is 0 on all ranks but one
        result = everything.cpu().numpy()
    if not np.isfinite(result).all():
        raise BertlineError("the outputs of the network are not finite; train it with a lower learning rate")
    return result
