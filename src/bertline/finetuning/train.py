"""Fine-tuning of one task with one seed: prepare, train, predict, score, write."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer
from bertline.files import write_folder_atomically, write_json, write_text
from bertline.finetuning.card import model_card
from bertline.finetuning.device import claim_device
from bertline.finetuning.loop import predict, train
from bertline.finetuning.prepared import PreparedTask
from bertline.finetuning.tasks.registry import prepare_task, settings_of_task
from bertline.finetuning.tasks.task import PLANNED_SETTINGS
from bertline.modeling.architectures import architecture_of, config_from_dict
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.huggingface import load_encoder, load_huggingface, read_configuration, write_huggingface
from bertline.modeling.vocabulary import MAX_PADDING, check_vocabulary
from bertline.results import paths
from bertline.training.checkpoints import clean_up
from bertline.training.objective import prepare_precision
from bertline.training.recipe import complete_recipe
from bertline.training.started import frozen_recipe, write_started

logger = logging.getLogger(__name__)

# In addition to the keys of every recipe.
KEYS = ("task", "start", "initial_weights", "data")
# The part of a recipe that is kept with the model.
PREDICTED_FROM = ("fingerprint", "task", "table", "settings", "seed", "start")


def finetune(
    recipe: Mapping[str, Any],
    tokenizer_path: Path,
    output: Path,
    *,
    initial_weights: Path | None = None,
    threads: int | None = None,
    checkpoint_minutes: float = 10.0,
) -> dict[str, Any]:
    """Run a recipe and write its results; return the content of metrics.json.

    When restarted, a run that was killed resumes from its newest checkpoint, with the same result.

    Args:
        recipe: everything that determines the result, from `bertline.planning`. The same recipe on the same number of
            CPU threads gives the same predictions.
        tokenizer_path: the tokenizer.json, or the vocab.txt, that the initial weights were pretrained with.
        output: a folder for the predictions, the model in Hugging Face's layout, metrics.jsonl, recipe.json and, last,
            metrics.json.
        initial_weights: a directory in Hugging Face's layout, if and only if the recipe names initial weights.
        threads: CPU threads; None for PyTorch's default.
        checkpoint_minutes: time between two checkpoints.

    Raises BertlineError for a bad recipe or file, weights that do not match, or a non-finite loss.
    """
    started, started_at = time.monotonic(), datetime.now(UTC)
    recipe = check_recipe(recipe, initial_weights)
    if "directory" in recipe["model"]:  # of external weights, whose description is kept with the results
        recipe["model"] = read_configuration(Path(recipe["model"]["directory"], "config.json")).to_dict()
    settings = recipe["settings"]
    if threads:
        torch.set_num_threads(threads)
    task = prepare_task(
        recipe["task"], recipe["data"], settings | {"seed": recipe["seed"]}, tokenizer_path, recipe.get("table")
    )
    torch.manual_seed(recipe["seed"])
    device, _claim = claim_device()  # held until the end of this function
    prepare_precision(settings["precision"], device)
    model = make_model(recipe["model"], task, settings["max_sequence_length"], initial_weights).to(device)
    tokenizer, rows = read_tokenizer(tokenizer_path), model.config.vocab_size
    check_vocabulary(tokenizer, tokenizer_path, rows, initial_weights or "the model", padding=MAX_PADDING)
    logger.info("%s: %d training inputs, %d dev inputs", recipe["task"], len(task.train), len(task.dev.inputs))

    recipe["model"] = {**recipe["model"], "vocab_size": rows}
    folder = output / paths.CHECKPOINTS
    clean_up(folder, output)
    frozen = frozen_recipe(recipe, device=device, world_size=1, threads=torch.get_num_threads())
    frozen["started"] = started_at.isoformat()
    frozen["jobs"] = write_started(folder, frozen)
    try:
        journal, steps, best = train(
            model, task, settings, recipe["seed"], output, recipe["fingerprint"], checkpoint_minutes=checkpoint_minutes
        )
    except torch.OutOfMemoryError:
        raise BertlineError(
            f"the GPU's memory is too small for {settings['batch_size']} inputs of up to "
            f"{settings['max_sequence_length']} tokens; lower batch_size, or let fewer jobs share the GPU"
        ) from None
    evaluations = [
        predicted.evaluate(predict(model, predicted.inputs, task.padding, settings["precision"]))
        for predicted in task.predicted
    ]
    scores = {name: value for evaluation in evaluations for name, value in evaluation.scores.items()}
    if best is None:
        journal.append(steps, {f"dev/{name}": value for name, value in scores.items()})
    journal.close()

    metrics = {
        "task": recipe["task"],
        "seed": recipe["seed"],
        "start": recipe["start"],
        "learning_rate": settings["learning_rate"],
        "scores": scores,
        "primary": task.primary,
        "baselines": task.baselines,
        "examples": task.examples,
        **evaluations[0].details,
        **({} if best is None else {"best_step": best.step, "last_step": steps}),
        "seconds": round(time.monotonic() - started, 3),
    }
    frozen["finished"] = datetime.now(UTC).isoformat()
    for evaluation in evaluations:
        evaluation.write_predictions(output)
    with write_folder_atomically(output / paths.EXPORT) as export:
        weights = model.state_dict()
        write_huggingface(model.config, weights, tokenizer_path, export, head=task.head, labels=task.labels)
        # What predictions need besides: lengths, the columns of the texts, a threshold. Paths of the data stay here.
        described = {key: recipe[key] for key in PREDICTED_FROM if key in recipe}
        write_json(export / paths.FINETUNED_TASK, described | evaluations[0].details)
        write_text(export / "README.md", model_card(recipe, metrics, task.head))
    write_text(output / paths.JOURNAL, journal.path.read_text(encoding="utf-8"))
    write_json(output / paths.RECIPE, frozen)
    write_json(output / paths.SCORES, metrics)
    shutil.rmtree(folder)
    return metrics


def check_recipe(recipe: Mapping[str, Any], initial_weights: Path | None) -> dict[str, Any]:
    """Check a recipe against the configuration's schema; return it with the defaults of its settings filled in.

    Raises BertlineError for a missing or wrong key, or if recipe and command disagree on the initial weights.
    """
    recipe = complete_recipe(recipe, settings_of_task(str(recipe.get("task"))), others=KEYS)
    if recipe["initial_weights"] is None and initial_weights is not None:
        raise BertlineError(f"the recipe starts from random weights; leave out the initial weights {initial_weights}")
    if recipe["initial_weights"] is not None and initial_weights is None:
        raise BertlineError("the recipe starts from pretrained weights; name their directory with --initial-weights")
    settings = {key: value for key, value in recipe["settings"].items() if key not in PLANNED_SETTINGS}
    return {**recipe, "settings": settings}


def make_model(
    settings: Mapping[str, Any], task: PreparedTask, max_sequence_length: int, initial_weights: Path | None
) -> TaskNetwork:
    """Make the network with the task's head, its encoder from `initial_weights` if given, else from `settings`.

    Raises BertlineError if sequences are too long for it.
    """
    weights: Mapping[str, Tensor] = {}
    if initial_weights is None:
        config = config_from_dict({"vocab_size": task.vocabulary, **settings})
    else:
        config, weights = load_huggingface(initial_weights)
    if max_sequence_length > config.max_position_embeddings:
        raise BertlineError(
            f"max_sequence_length {max_sequence_length} is more than the model's {config.max_position_embeddings} "
            "positions; lower it"
        )
    model = architecture_of(config).task_network(config, task.head, task.outputs)
    if initial_weights is not None:
        load_encoder(model, weights)
    return model
