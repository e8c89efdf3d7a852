"""Fine-tune one task with one seed: prepare, train, predict the dev set, score, write."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertline.console import BertlineError, progress
from bertline.files import write_json, write_text
from bertline.finetuning.batches import evaluation_batches, pad, training_batches
from bertline.finetuning.optimizer import AdamW, layerwise_factors
from bertline.finetuning.sequences import Sequences
from bertline.finetuning.tasks import PreparedTask, prepare_task
from bertline.modeling.architectures import architecture_of, config_from_dict
from bertline.training.journal import Journal
from bertline.training.recipe import frozen_recipe
from bertline.training.schedules import learning_rate_at

logger = logging.getLogger(__name__)

MAX_GRADIENT_NORM = 1.0  # as in Google's run_squad.py and run_classifier.py
JOURNAL_POINTS = 100
EVALUATION_TOKENS = 8192  # in a batch, with padding: larger ones are no faster on a CPU

REQUIRED: tuple[str, ...] = ("fingerprint", "task", "seed", "start", "model", "initial_weights", "data", "settings")
REQUIRED_SETTINGS: tuple[str, ...] = (
    *("epochs", "batch_size", "learning_rate", "warmup", "weight_decay", "layerwise_decay"),
    *("precision", "max_sequence_length"),
)
REQUIRED_FOR_SQUAD: tuple[str, ...] = ("doc_stride", "max_query_length", "max_answer_length")


def finetune(
    recipe: Mapping[str, Any],
    tokenizer_path: Path | str,
    output: Path | str,
    *,
    initial_weights: Path | str | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Run a recipe and write its results; returns the content of metrics.json.

    Parameters
    ----------
    recipe: everything that alters the result, as `bertline.plan` makes it. The same recipe on the same number of CPU
        threads gives the same predictions.
    tokenizer_path: the tokenizer.json that the initial weights were pretrained with.
    output: a folder; it gets predictions.json or predictions.tsv, metrics.jsonl, recipe.json and, last, metrics.json.
    initial_weights: a directory in Hugging Face's layout, exactly when the recipe names initial weights.
    threads: CPU threads; None leaves PyTorch's choice.

    Raises BertlineError for a bad recipe or file, weights that do not fit, and a loss that is not finite.
    """
    begun, started = time.monotonic(), datetime.now(UTC)
    check_recipe(recipe, initial_weights)
    settings, output = recipe["settings"], Path(output)
    if threads:
        torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    task = prepare_task(recipe["task"], recipe["data"], settings, tokenizer_path)
    torch.manual_seed(recipe["seed"])
    model = make_model(recipe["model"], task, settings["max_sequence_length"], initial_weights).to(device)
    logger.info("%s: %d training inputs, %d dev inputs", recipe["task"], len(task.train), len(task.dev))

    journal = Journal(output / "checkpoints" / "journal.jsonl", last_step=-1)
    steps = train(model, task, settings, recipe["seed"], journal)
    evaluation = task.evaluate(predict(model, task, task.dev, settings["precision"]))
    journal.append(steps, {f"dev/{name}": value for name, value in evaluation.scores.items()})
    journal.close()

    metrics = {
        "task": recipe["task"],
        "seed": recipe["seed"],
        "start": recipe["start"],
        "learning_rate": settings["learning_rate"],
        "scores": evaluation.scores,
        "primary": task.primary,
        "baselines": task.baselines,
        "examples": task.examples,
        **evaluation.details,
        "seconds": round(time.monotonic() - begun, 3),
    }
    frozen = frozen_recipe(dict(recipe), device=device, world_size=1, threads=torch.get_num_threads())
    frozen |= {"started": started.isoformat(), "finished": datetime.now(UTC).isoformat()}
    evaluation.write_predictions(output)
    write_text(output / "metrics.jsonl", journal.path.read_text(encoding="utf-8"))
    write_json(output / "recipe.json", frozen)
    write_json(output / "metrics.json", metrics)
    shutil.rmtree(journal.path.parent)
    return metrics


def check_recipe(recipe: Mapping[str, Any], initial_weights: Path | str | None) -> None:
    """Raise BertlineError for a missing key, and where recipe and command do not agree on the initial weights."""
    required = [(recipe, REQUIRED, "recipe"), (recipe.get("settings", {}), REQUIRED_SETTINGS, "recipe.settings")]
    if str(recipe.get("task")).startswith("squad"):
        required.append((recipe.get("settings", {}), REQUIRED_FOR_SQUAD, "recipe.settings"))
    for holder, keys, where in required:
        for key in keys:
            if key not in holder:
                raise BertlineError(f"{where}: the key '{key}' is missing")
    if recipe["settings"]["precision"] not in ("fp32", "bf16"):
        raise BertlineError(
            f"recipe.settings.precision: given '{recipe['settings']['precision']}', allowed are fp32, bf16"
        )
    if recipe["initial_weights"] is None and initial_weights is not None:
        raise BertlineError(f"the recipe starts from random weights; leave out the initial weights {initial_weights}")
    if recipe["initial_weights"] is not None and initial_weights is None:
        raise BertlineError("the recipe starts from pretrained weights; name their directory with --initial-weights")


def make_model(
    settings: Mapping[str, Any], task: PreparedTask, max_sequence_length: int, initial_weights: Path | str | None
) -> nn.Module:
    """The network with the task's head, its encoder from `initial_weights` where given; `settings` shape it otherwise.

    Raises BertlineError when the tokenizer has more entries than the network, or sequences are longer than it reads.
    """
    weights: Mapping[str, Tensor] = {}
    if initial_weights is None:
        config = config_from_dict({"vocab_size": task.vocabulary, **settings})
    else:
        from bertline.modeling.huggingface import load_huggingface

        config, weights = load_huggingface(initial_weights)
    if task.vocabulary > config.vocab_size:
        raise BertlineError(
            f"the tokenizer has {task.vocabulary} entries, {initial_weights or 'the model'} only {config.vocab_size}; "
            "name the tokenizer that the model was made with"
        )
    if max_sequence_length > config.max_position_embeddings:
        raise BertlineError(
            f"max_sequence_length {max_sequence_length} is more than the model's {config.max_position_embeddings} "
            "positions; lower it"
        )
    networks = architecture_of(config)
    if task.outputs:
        model = networks.sequence_classification(config, task.outputs)
    else:
        model = networks.question_answering(config)
    if initial_weights is not None:
        from bertline.modeling.huggingface import load_encoder

        load_encoder(model, weights)
    return model


def train(model: nn.Module, task: PreparedTask, settings: Mapping[str, Any], seed: int, journal: Journal) -> int:
    """Train in place with AdamW, linear warm-up and decay; returns the number of updates made."""
    batch_size = settings["batch_size"]
    steps = max(1, round(settings["epochs"] * math.ceil(len(task.train) / batch_size)))
    every = max(1, steps // JOURNAL_POINTS)
    device = next(model.parameters()).device
    factors = layerwise_factors(model, settings["layerwise_decay"])
    optimizer = AdamW(model.parameters(), weight_decay=settings["weight_decay"], factors=factors)
    batches = training_batches(task.train.lengths, batch_size, seed)
    model.train()
    summed, counted = torch.zeros((), device=device), 0
    for step in progress(range(1, steps + 1), description="fine-tuning", unit="step", total=steps):
        learning_rate = learning_rate_at(
            step, peak=settings["learning_rate"], total=steps, warmup=settings["warmup"], schedule="linear"
        )
        rows = next(batches)
        inputs = pad(task.train, rows, task.special.padding, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings["precision"] == "bf16"):
            outputs = model(*inputs)
        loss = loss_of(outputs, torch.from_numpy(task.train_targets[rows]).to(device), inputs[2])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step(learning_rate)
        summed += loss.detach()
        counted += 1
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
    return steps


def loss_of(outputs: Tensor | tuple[Tensor, Tensor], targets: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The mean loss over a batch: of classes, of scores, or of first and last tokens.

    Padding is no possible answer, so the loss of an input does not depend on which others share its batch.
    """
    if isinstance(outputs, tuple):
        start, end = (
            logits.float() if attention_mask is None else logits.float().masked_fill(~attention_mask, -torch.inf)
            for logits in outputs
        )
        return (F.cross_entropy(start, targets[:, 0]) + F.cross_entropy(end, targets[:, 1])) / 2
    if targets.is_floating_point():
        return F.mse_loss(outputs[:, 0].float(), targets)
    return F.cross_entropy(outputs.float(), targets)


@torch.inference_mode()
def predict(model: nn.Module, task: PreparedTask, sequences: Sequences, precision: str) -> np.ndarray:
    """The network's outputs in the order of the inputs: float32 [N, outputs], or [tokens, 2] for answers in a text."""
    device = next(model.parameters()).device
    model.eval()
    rows_of_result = len(sequences) if task.outputs else len(sequences.tokens)
    result = np.zeros((rows_of_result, task.outputs or 2), dtype=np.float32)
    for rows in evaluation_batches(sequences.lengths, EVALUATION_TOKENS):
        inputs = pad(sequences, rows, task.special.padding, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            outputs = model(*inputs)
        if task.outputs:
            result[rows] = outputs.float().cpu().numpy()
            continue
        logits = torch.stack(outputs, dim=-1).float().cpu().numpy()
        for row, values in zip(rows, logits, strict=True):
            begin, end = sequences.offsets[row], sequences.offsets[row + 1]
            result[begin:end] = values[: end - begin]
    return result
