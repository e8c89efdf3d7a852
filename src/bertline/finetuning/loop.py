"""Training loop of a fine-tuning: batches, losses, early stopping, checkpoints, and predictions."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertline.console import BertlineError, progress
from bertline.finetuning.batches import evaluation_batches, pad, training_batches
from bertline.finetuning.losses import loss_of, number_of_terms, targets_of
from bertline.finetuning.optimizer import make_optimizer, set_learning_rate
from bertline.finetuning.prepared import PreparedTask
from bertline.finetuning.sequences import Inputs
from bertline.modeling.heads import TaskNetwork
from bertline.results import paths
from bertline.training.checkpoints import CheckpointWriter, find_checkpoint, load_checkpoint
from bertline.training.journal import Journal
from bertline.training.objective import AUTOCAST
from bertline.training.optimizers.registry import load_optimizer_tensors, optimizer_tensors
from bertline.training.optimizers.schedules import learning_rate_at
from bertline.training.scaling import LossScale

logger = logging.getLogger(__name__)

MAX_GRADIENT_NORM = 1.0  # as in Google's run_squad.py and run_classifier.py
JOURNAL_POINTS = 100
EVALUATION_TOKENS = 8192  # per batch, with padding: larger batches are no faster on a CPU


@dataclass
class Best:
    """State of early stopping: the best dev score so far, its step and weights, and the evaluations since."""

    score: float = -math.inf
    step: int = 0
    evaluations_ago: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)


def train(
    model: TaskNetwork,
    task: PreparedTask,
    settings: Mapping[str, Any],
    seed: int,
    output: Path,
    fingerprint: str,
    *,
    checkpoint_minutes: float,
) -> tuple[Journal, int, Best | None]:
    """Train in place with AdamW, linear warm-up and decay, resuming from the newest checkpoint below `output`.

    The state is written there every `checkpoint_minutes`; a training that was killed and restarted ends with the same
    weights as an uninterrupted one. With `patience`, the dev set is scored after every epoch, training ends after that
    many successive scores no better than the best one, and the model gets the weights of the best one.

    Returns the journal, the number of updates made, and the state of early stopping.
    """
    batch_size = settings["batch_size"]
    an_epoch = math.ceil(len(task.train) / batch_size)
    steps = max(1, round(settings["epochs"] * an_epoch))
    every = max(1, steps // JOURNAL_POINTS)
    device = next(model.parameters()).device
    optimizer = make_optimizer(
        model, weight_decay=settings["weight_decay"], layerwise_decay=settings["layerwise_decay"]
    )
    best = None if settings["patience"] is None else Best()
    scale, in_fp16 = LossScale(settings["precision"]), settings["precision"] == "fp16"
    summed, counted, done = torch.zeros((), device=device), 0, 0

    folder = output / paths.CHECKPOINTS
    found = find_checkpoint(folder, fingerprint)
    if found is not None:
        path, kept = found
        weights, tensors = load_checkpoint(path)
        model.load_state_dict(weights)
        load_optimizer_tensors(optimizer, model, tensors, kind="adamw")
        summed.copy_(tensors["loss"])
        counted, done = kept["counted"], kept["step"]
        scale.restore(kept["loss_scale"])
        _set_random_state(tensors, device)
        if best is not None and "early_stop" in kept:
            score, at, ago = kept["early_stop"]
            best = Best(score, at, ago, {name: tensors[f"best.{name}"] for name in weights})
        logger.info("resuming at step %d of %d", done, steps)
    journal = Journal(output / paths.STARTED_JOURNAL, last_step=done if found is not None else -1)
    writer = CheckpointWriter(folder, keep=1, before=journal.make_durable)
    written = time.monotonic()

    batches = islice(training_batches(task.train.lengths, batch_size, seed), done, None)
    model.train()
    with closing(writer):
        for step in progress(range(done + 1, steps + 1), description="fine-tuning", unit="step", total=steps - done):
            if best is not None and best.evaluations_ago >= settings["patience"]:
                break
            learning_rate = learning_rate_at(
                step, peak=settings["learning_rate"], total=steps, warmup=settings["warmup"], schedule="linear"
            )
            rows = next(batches)
            outputs, attention_mask = _forward(model, task.train, rows, task.padding, settings["precision"])
            loss = loss_of(task.head, outputs, targets_of(task, rows).to(device), attention_mask)
            loss = loss / number_of_terms(task, rows)
            (loss * scale.value).backward()
            norm = _clip(model, scale)
            if not (in_fp16 and scale.update(bool(torch.isfinite(norm)))):
                set_learning_rate(optimizer, learning_rate)
                optimizer.step()
            optimizer.zero_grad()
            summed += loss.detach()
            counted += 1
            done = step
            if step % every == 0 or step == steps:
                mean = float(summed) / counted
                if not math.isfinite(mean):
                    raise BertlineError(
                        f"the loss is not finite at step {step} of {steps}; lower the learning rate "
                        f"{settings['learning_rate']} or lengthen the warm-up"
                    )
                point = {"train/loss": mean, "train/learning_rate": learning_rate, "train/gradient_norm": float(norm)}
                journal.append(step, point)
                summed.zero_()
                counted = 0
            if best is not None and (step % an_epoch == 0 or step == steps):
                _compare(best, step, model, task, settings["precision"], journal)
            if time.monotonic() - written >= 60 * checkpoint_minutes and step < steps:
                tensors = optimizer_tensors(optimizer, model) | _random_state(device) | {"loss": summed}
                state = {"fingerprint": fingerprint, "step": step, "counted": counted, "loss_scale": scale.state()}
                if best is not None and best.step:
                    tensors |= {f"best.{name}": tensor for name, tensor in best.weights.items()}
                    state["early_stop"] = [best.score, best.step, best.evaluations_ago]
                writer.start(model.state_dict(), tensors, state)
                written = time.monotonic()
        writer.wait()
    if best is not None:
        model.load_state_dict(best.weights)
    return journal, done, best


def _forward(
    model: nn.Module, sequences: Inputs, rows: np.ndarray, padding: int, precision: str
) -> tuple[Tensor, Tensor | None]:
    """Compute the outputs for inputs `rows`; return them and the attention mask."""
    device, dtype = next(model.parameters()).device, AUTOCAST[precision]
    inputs = pad(sequences, rows, padding, device)
    with torch.autocast(device.type, dtype, enabled=dtype is not None):
        return model(*inputs), inputs[2]


def _clip(model: nn.Module, scale: LossScale) -> Tensor:
    """Divide the gradients by the loss scale and clip them; return their norm before clipping."""
    if scale.value != 1:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad /= scale.value
    return nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)


def _compare(best: Best, step: int, model: TaskNetwork, task: PreparedTask, precision: str, journal: Journal) -> None:
    """Score the dev set and keep the weights if they are the best so far."""
    scores = task.dev.evaluate(predict(model, task.dev.inputs, task.padding, precision)).scores
    model.train()
    journal.append(step, {f"dev/{name}": value for name, value in scores.items()})
    best.evaluations_ago += 1
    if scores[task.primary] > best.score:
        best.score, best.step, best.evaluations_ago = scores[task.primary], step, 0
        best.weights = copy.deepcopy(model.state_dict())


def _random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the state of dropout's random number generators."""
    states = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["random.cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_state(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


@torch.inference_mode()
def predict(model: TaskNetwork, sequences: Inputs, padding: int, precision: str) -> np.ndarray:
    """Return the outputs in the order of the inputs: float32 [N, outputs], or per token, [tokens, outputs].

    `padding` is the id of [PAD].
    """
    model.eval()
    by_token, outputs = model.kind != "sequence", model.classifier.out_features
    result = np.zeros((int(sequences.offsets[-1]) if by_token else len(sequences), outputs), dtype=np.float32)
    for rows in evaluation_batches(sequences.lengths, EVALUATION_TOKENS):
        values = _forward(model, sequences, rows, padding, precision)[0].float().cpu().numpy()
        if not by_token:
            result[rows] = values
            continue
        for row, of_row in zip(rows, values, strict=True):
            begin, end = sequences.offsets[row], sequences.offsets[row + 1]
            result[begin:end] = of_row[: end - begin]
    return result
