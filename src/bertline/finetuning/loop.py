"""Training loop of a fine-tuning: steps, early stopping, checkpoints, and predictions."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
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
from bertline.training.checkpoints import CheckpointWriter, agree_on_checkpoint, load_checkpoint
from bertline.training.distributed.process_group import Group
from bertline.training.journal import Journal
from bertline.training.lock import TrainingLock
from bertline.training.optimizers.registry import load_optimizer_tensors, optimizer_tensors
from bertline.training.optimizers.schedules import batch_size_factor, learning_rate_at, share_or_steps
from bertline.training.reproducibility import report_lost_reproducibility
from bertline.training.stop import StopSignal, end_with_saved

logger = logging.getLogger(__name__)

JOURNAL_POINTS = 100
EVALUATION_TOKENS = 8192  # per batch, with padding: larger batches are not faster on a CPU


@dataclass
class Best:
    """State of early stopping: the best dev score so far, its step and weights, and the evaluations since."""

    score: float = -math.inf
    step: int = 0
    evaluations_ago: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Progress:
    """State of a fine-tuning between two steps, besides weights and moments."""

    step: int = 0
    loss: float = 0.0  # sum over the steps since the last point of the journal
    counted: int = 0  # these steps


class Trained(NamedTuple):
    """Result of a training: rank 0's journal, the number of updates made, and the state of early stopping."""

    journal: Journal | None
    steps: int
    best: Best | None


def train(
    learner: Learner,
    output: Path,
    fingerprint: str,
    *,
    lock: TrainingLock | None = None,
    stop_signal: StopSignal | None = None,
) -> Trained:
    """Train with AdamW, linear warm-up and decay, resuming from the newest checkpoint below `output`.

    A training that was killed and restarted on the same ranks ends with the same weights as an uninterrupted one. With
    `patience`, the dev set is scored after every epoch, training ends after that many successive scores no better than
    the best one, and the model gets the weights of the best one.

    When any rank's `stop_signal` is set, all save a checkpoint and exit with status 75. Raises BertlineError for a
    warm-up longer than the training, or a loss that is not finite.
    """
    task, settings, group, options = learner.task, learner.settings, learner.group, learner.options
    an_epoch, steps = _number_of_steps(task, settings)
    every = max(1, steps // JOURNAL_POINTS)
    peak = settings["learning_rate"] * batch_size_factor(settings, settings["batch_size"])
    best = None if settings["patience"] is None else Best()
    state, best, batches = _start(learner, output, fingerprint, best)
    journal = None
    if group.is_rank_zero:
        journal = Journal(output / paths.STARTED_JOURNAL, last_step=state.step if state.step else -1)

    def before_checkpoint() -> None:
        if lock is not None:
            lock.check()
        if journal is not None:
            journal.make_durable()

    writer = CheckpointWriter(output / paths.CHECKPOINTS, keep=1, before=before_checkpoint)
    written = time.monotonic()
    learner.model.train()
    remaining = range(state.step + 1, steps + 1)
    with closing(writer):
        for step in progress(remaining, description="fine-tuning", unit="step", shown=group.is_rank_zero):
            if best is not None and best.evaluations_ago >= settings["patience"]:
                break
            learning_rate = learning_rate_at(step, peak=peak, total=steps, warmup=settings["warmup"], schedule="linear")
            votes = {
                "stop_wanted": float(stop_signal is not None and stop_signal.received),
                "checkpoint_wanted": float(time.monotonic() - written >= 60 * options.checkpoint_every_minutes),
            }
            result = train_step(learner, next(batches), step, learning_rate, votes)
            if not result.fine:
                raise BertlineError(
                    f"the loss is not finite at step {step} of {steps}; lower the learning rate "
                    f"{settings['learning_rate']} or lengthen the warm-up"
                )
            state = Progress(step, state.loss + result.loss, state.counted + 1)
            if step % every == 0 or step == steps:
                mean = state.loss / state.counted
                metrics = {"train/loss": mean, "train/learning_rate": learning_rate, "train/gradient_norm": result.norm}
                _record(journal, step, metrics)
                state = Progress(step)
            if best is not None and (step % an_epoch == 0 or step == steps):
                _compare(best, step, learner, journal)
            if step < steps and (result.checkpoint_wanted or result.stop_wanted):
                if group.is_rank_zero:
                    _save(writer, learner, fingerprint, state, best)
                written = time.monotonic()
            if step < steps and result.stop_wanted:
                writer.wait()
                group.barrier()
                end_with_saved(step)
        writer.wait()
    if best is not None:
        learner.model.load_state_dict(best.weights)
    return Trained(journal, state.step, best)


def _number_of_steps(task: PreparedTask, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Return the steps of an epoch and of the training. Raises BertlineError for a warm-up that is longer."""
    an_epoch = math.ceil(len(task.train) / settings["batch_size"])
    steps = max(1, round(settings["epochs"] * an_epoch))
    if share_or_steps(settings["warmup"], steps) > steps:
        raise BertlineError(
            f"warmup: given {settings['warmup']}, allowed is a share of the steps, or at most the fine-tuning's steps, "
            f"{steps}; otherwise the learning rate is never reached"
        )
    return an_epoch, steps


def _start(
    learner: Learner, output: Path, fingerprint: str, best: Best | None
) -> tuple[Progress, Best | None, Iterator[np.ndarray]]:
    """Load the newest checkpoint, if there is one. Returns the state and the remaining batches."""
    group, lengths = learner.group, learner.task.train.lengths
    state = Progress()
    found = agree_on_checkpoint(group, output / paths.CHECKPOINTS, fingerprint)
    before = None
    if found is not None:
        path, kept = found
        weights, tensors = load_checkpoint(path)
        learner.model.load_state_dict(weights)
        load_optimizer_tensors(learner.optimizer, learner.model, tensors, kind="adamw")
        learner.scale.restore(kept["loss_scale"])
        state, before = Progress(kept["step"], kept["loss"], kept["counted"]), kept["reproducibility"]
        torch.set_num_threads(before["threads"])
        if best is not None and "early_stop" in kept:
            score, at, ago = kept["early_stop"]
            best = Best(score, at, ago, {name: tensors[f"best.{name}"] for name in weights})
        logger.info("resuming %s at step %d", path, state.step)
    batch_size, seed = learner.settings["batch_size"], learner.seed
    learner.balance_load(next(training_batches(lengths, batch_size, seed)), before)
    if before is not None:
        report_lost_reproducibility(before, learner.reproducibility())
    return state, best, islice(training_batches(lengths, batch_size, seed), state.step, None)


def _save(writer: CheckpointWriter, learner: Learner, fingerprint: str, state: Progress, best: Best | None) -> None:
    tensors = optimizer_tensors(learner.optimizer, learner.model)
    described = {
        "fingerprint": fingerprint,
        **asdict(state),
        "loss_scale": learner.scale.state(),
        "reproducibility": learner.reproducibility(),
    }
    if best is not None and best.step:
        tensors |= {f"best.{name}": tensor for name, tensor in best.weights.items()}
        described["early_stop"] = [best.score, best.step, best.evaluations_ago]
    writer.start(learner.model.state_dict(), tensors, described)


def _record(journal: Journal | None, step: int, metrics: Mapping[str, float]) -> None:
    if journal is not None:
        journal.append(step, metrics)


def _compare(best: Best, step: int, learner: Learner, journal: Journal | None) -> None:
    """Score the dev set and keep the weights if they are the best so far."""
    task, group = learner.task, learner.group
    outputs = predict(learner.model, task.dev.inputs, task.padding, learner.settings["precision"], group)
    learner.model.train()
    scores = group.broadcast(task.dev.evaluate(outputs).scores if group.is_rank_zero else None)
    _record(journal, step, {f"dev/{name}": value for name, value in scores.items()})
    best.evaluations_ago += 1
    if scores[task.primary] > best.score:
        best.score, best.step, best.evaluations_ago = scores[task.primary], step, 0
        best.weights = copy.deepcopy(learner.model.state_dict())


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
