"""Fine-tuning of one task with one seed: prepare, train, predict, score, write."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer
from bertline.files import check_replaceable, read_json, write_folder_atomically, write_json, write_text
from bertline.finetuning.card import model_card
from bertline.finetuning.loop import Trained, predict, train
from bertline.finetuning.options import Options
from bertline.finetuning.prepared import Evaluation, PreparedTask, prepare_task
from bertline.finetuning.step import Learner
from bertline.finetuning.workers import best_worker, meet
from bertline.limits import available_cores
from bertline.modeling.architectures import architecture_of
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.huggingface import FILES, load_encoder, load_huggingface, write_huggingface
from bertline.modeling.huggingface_config import read_configuration
from bertline.modeling.network_config import config_from_dict
from bertline.modeling.vocabulary import MAX_PADDING, check_vocabulary
from bertline.results import paths
from bertline.tasks.registry import settings_of_task
from bertline.tasks.task import PLANNED_SETTINGS
from bertline.training import memory
from bertline.training.checkpoints import clean_up
from bertline.training.contract import is_rank_zero
from bertline.training.distributed.claims import claim_device, claim_whole_gpu
from bertline.training.distributed.process_group import Group, describe, join_group
from bertline.training.given_files import check_data, check_initial_weights, check_tokenizer
from bertline.training.journal import Journal
from bertline.training.lock import TrainingLock, acquire
from bertline.training.objective import prepare_precision
from bertline.training.recipe import complete_recipe
from bertline.training.started import frozen_recipe, write_started
from bertline.training.stop import StopSignal

logger = logging.getLogger(__name__)

# Keys in addition to those of every recipe.
KEYS = ("task", "start", "initial_weights", "data")
# The part of a recipe that is kept with the model.
PREDICTED_FROM = ("fingerprint", "task", "table", "settings", "seed", "start")


def finetune(
    recipe: Mapping[str, Any],
    tokenizer_path: Path,
    output: Path,
    *,
    initial_weights: Path | None = None,
    options: Options = Options(),  # noqa: B008 - immutable
    stop_signal: StopSignal | None = None,
) -> dict[str, Any]:
    """Run a recipe and write its results; return the content of metrics.json.

    When restarted, a run that was killed resumes from its newest checkpoint, with the same result. In torchrun's
    environment, every process of the group must call this once. When any process's `stop_signal` is set, all save a
    checkpoint and exit with status 75.

    Args:
        recipe: everything that determines the result, from `bertline.planning`. The same recipe on the same number of
            processes and CPU threads gives the same predictions.
        tokenizer_path: the tokenizer.json, or the vocab.txt, that the initial weights were pretrained with.
        output: a folder for the predictions, the model in Hugging Face's layout, metrics.jsonl, recipe.json and, last,
            metrics.json.
        initial_weights: a directory in Hugging Face's layout, if and only if the recipe names initial weights.
        options: how to compute it.
        stop_signal: None runs to the end.

    Raises BertlineError for a bad recipe or file, weights that do not match, a non-finite loss, or too little memory.
    """
    try:
        return _finetune(recipe, tokenizer_path, output, initial_weights, options, stop_signal)
    except memory.ERRORS as error:
        memory.raise_if_memory_ran_out(error, options.micro_batch_tokens, "let fewer fine-tunings share the GPU")
        raise


def _finetune(
    recipe: Mapping[str, Any],
    tokenizer_path: Path,
    output: Path,
    initial_weights: Path | None,
    options: Options,
    stop_signal: StopSignal | None,
) -> dict[str, Any]:
    began, started = time.monotonic(), _milliseconds()
    check_replaceable(output / paths.EXPORT, FILES, [tokenizer_path, *([initial_weights] if initial_weights else [])])
    recipe = _checked(recipe, tokenizer_path, initial_weights)
    group, _claims = join(options, stop_signal)  # held until the end of this function
    folder, settings, seed = output / paths.CHECKPOINTS, recipe["settings"], recipe["seed"]
    task = prepare_task(recipe["task"], recipe["data"], settings | {"seed": seed}, tokenizer_path, recipe.get("table"))
    prepare_precision(settings["precision"], group.device)
    model = _seeded_model(recipe, task, initial_weights, seed)
    tokenizer, rows = read_tokenizer(tokenizer_path), model.config.vocab_size
    check_vocabulary(tokenizer, tokenizer_path, rows, initial_weights or "the model", padding=MAX_PADDING)
    recipe["model"] = {**recipe["model"], "vocab_size": rows}
    logger.info("%s: %d training inputs, %d dev inputs", recipe["task"], len(task.train), len(task.dev.inputs))

    lock = TrainingLock(folder) if group.is_rank_zero else None
    job = _Job(recipe, task, initial_weights, options, lock, stop_signal)
    try:
        waited = acquire(lock, group, wait=True, stop_signal=stop_signal)
        if group.broadcast(waited and (output / paths.SCORES).exists()):
            logger.info("another fine-tuning has just written %s", output)
            return read_json(output / paths.SCORES)
        frozen = _write_started(output, recipe, group, started)
        if settings["synchronise"]:
            learner, trained = job.fit(model, seed, group, output)
            metrics = _evaluate_and_write(output, frozen, learner, trained, {}, tokenizer_path, began)
        else:
            best, scores = best_worker(job.fit_worker, settings["workers"], seed, group, folder, stop_signal)
            metrics = {}
            if best is not None:
                of_workers = {"scores_of_workers": scores}
                metrics = _evaluate_and_write(output, frozen, *best, of_workers, tokenizer_path, began)
            meet(group, "written", stop_signal)  # one rank alone has predicted everything
        group.barrier()
    finally:
        if lock is not None:
            lock.release()
    if group.is_rank_zero:
        shutil.rmtree(folder, ignore_errors=True)  # another may have just taken the lock, to find the results
    return metrics


def _seeded_model(
    recipe: Mapping[str, Any], task: PreparedTask, initial_weights: Path | None, seed: int
) -> TaskNetwork:
    torch.manual_seed(seed)
    return make_model(recipe["model"], task, recipe["settings"]["max_sequence_length"], initial_weights)


@dataclass(frozen=True)
class _Job:
    """What the trainings of a fine-tuning have in common."""

    recipe: Mapping[str, Any]
    task: PreparedTask
    initial_weights: Path | None
    options: Options
    lock: TrainingLock | None
    stop_signal: StopSignal | None

    def fit(
        self, model: TaskNetwork, seed: int, group: Group, folder: Path, *, save_end: bool = False
    ) -> tuple[Learner, Trained]:
        """Train a model on the ranks of `group`, with checkpoints below `folder`; `save_end` as of `train`."""
        learner = Learner(model.to(group.device), self.task, self.recipe["settings"], seed, group, self.options)
        fingerprint = self.recipe["fingerprint"]
        trained = train(learner, folder, fingerprint, lock=self.lock, stop_signal=self.stop_signal, save_end=save_end)
        return learner, trained

    def fit_worker(self, seed: int, group: Group, folder: Path) -> tuple[Learner, Trained]:
        """Make a model from a seed and train it; a checkpoint at its end is kept while other workers are trained."""
        model = _seeded_model(self.recipe, self.task, self.initial_weights, seed)
        return self.fit(model, seed, group, folder, save_end=True)


def _write_started(output: Path, recipe: dict[str, Any], group: Group, started: int) -> dict[str, Any]:
    """Remove what a killed fine-tuning left, write its recipe beside the checkpoints, and return that recipe."""
    folder, threads = output / paths.CHECKPOINTS, torch.get_num_threads()
    frozen = frozen_recipe(recipe, device=group.device, world_size=group.world_size, threads=threads)
    frozen["started"] = started
    if group.is_rank_zero:
        clean_up(folder, output)
    frozen["jobs"] = group.broadcast(write_started(folder, frozen) if group.is_rank_zero else None)
    return frozen


def _evaluate_and_write(
    output: Path,
    recipe: Mapping[str, Any],
    learner: Learner,
    trained: Trained,
    of_workers: dict[str, Any],
    tokenizer_path: Path,
    began: float,
) -> dict[str, Any]:
    """Score the trained model and, as rank 0, write the results; return the content of metrics.json, {} on others."""
    evaluations = evaluate(learner)
    if not learner.group.is_rank_zero:
        return {}
    metrics = scores_of(recipe, learner.task, trained, evaluations) | of_workers
    metrics["seconds"] = round(time.monotonic() - began, 3)
    publish_journal(trained, metrics["scores"], output / paths.JOURNAL)
    # A resumed training may have kept its number of threads.
    finished = {**recipe, "threads": torch.get_num_threads(), "finished": _milliseconds()}
    write_outputs(output, finished, metrics, learner, evaluations, tokenizer_path)
    return metrics


def _milliseconds() -> int:
    """Return the time since 1970."""
    return time.time_ns() // 1_000_000


def _checked(recipe: Mapping[str, Any], tokenizer_path: Path, initial_weights: Path | None) -> dict[str, Any]:
    """Return the recipe with all settings and, of external weights, their network's description, which it keeps."""
    recipe = check_recipe(recipe, initial_weights)
    check_tokenizer(recipe, tokenizer_path)
    if is_rank_zero():
        check_data(recipe)
    if initial_weights is not None:
        check_initial_weights(recipe, initial_weights)
    if "directory" in recipe["model"]:
        recipe["model"] = read_configuration(Path(recipe["model"]["directory"], paths.CONFIG)).to_dict()
    return recipe


def evaluate(learner: Learner) -> list[Evaluation]:
    """Predict everything that the task asks for, and score it. All ranks must call it; only rank 0 gets evaluations."""
    evaluations, precision = [], learner.settings["precision"]
    for predicted in learner.task.predicted:
        outputs = predict(learner.model, predicted.inputs, learner.task.padding, precision, learner.group)
        if learner.group.is_rank_zero:
            evaluations.append(predicted.evaluate(outputs))
    return evaluations


def scores_of(
    recipe: Mapping[str, Any], task: PreparedTask, trained: Trained, evaluations: Sequence[Evaluation]
) -> dict[str, Any]:
    """Return the content of metrics.json."""
    settings, early_stopping = recipe["settings"], trained.early_stopping
    scores = {name: value for evaluation in evaluations for name, value in evaluation.scores.items()}
    return {
        "task": recipe["task"],
        "seed": recipe["seed"],
        "start": recipe["start"],
        "learning_rate": settings["learning_rate"],
        "scores": scores,
        "primary": task.primary,
        "baselines": task.baselines,
        "examples": task.examples,
        "digests": {one.name: one.digest for one in task.predicted if one.digest},
        **evaluations[0].details,
        **({} if early_stopping is None else {"best_step": early_stopping.best_step, "last_step": trained.steps}),
    }


def publish_journal(trained: Trained, scores: Mapping[str, float], path: Path) -> None:
    """Copy rank 0's journal to `path`, with the scores as its last point if early stopping did not write them.

    They are only in the copy: killed now, the same command appends them again.
    """
    if trained.journal is None:
        return
    trained.journal.close()
    write_text(path, trained.journal.path.read_text(encoding="utf-8"))
    if trained.early_stopping is None:
        published = Journal(path, last_step=trained.steps)
        published.append(trained.steps, {f"dev/{name}": value for name, value in scores.items()})
        published.close()


def write_outputs(
    output: Path,
    recipe: Mapping[str, Any],
    metrics: Mapping[str, Any],
    learner: Learner,
    evaluations: Sequence[Evaluation],
    tokenizer_path: Path,
) -> None:
    """Write model, predictions, recipe and, last, scores."""
    model, task = learner.model, learner.task
    with write_folder_atomically(output / paths.EXPORT) as export:
        write_huggingface(
            model.config,
            model.state_dict(),
            tokenizer_path,
            export,
            head=task.head,
            labels=task.labels,
            max_length=recipe["settings"]["max_sequence_length"],
        )
        # What predictions need besides: lengths, the columns of the texts, a threshold. Paths of the data stay here.
        described = {key: recipe[key] for key in PREDICTED_FROM if key in recipe}
        write_json(export / paths.FINETUNED_TASK, described | evaluations[0].details)
        write_text(export / "README.md", model_card(recipe, metrics, task.head))
    for evaluation in evaluations:
        evaluation.write_predictions(output)
    write_json(output / paths.RECIPE, recipe)
    write_json(output / paths.SCORES, metrics)


def join(options: Options, stop_signal: StopSignal | None) -> tuple[Group, object]:
    """Join the other processes of torchrun's environment, if there are any, on a device of one's own.

    Returns the group and what reserves the device. Raises SystemExit with status 75 when any rank's `stop_signal` is
    set while they wait for it.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        group = join_group(options.threads or available_cores())
        if not group.is_rank_zero:
            logging.getLogger().setLevel(logging.ERROR)
        logger.info(describe(group))
        return group, claim_whole_gpu(group, stop_signal)
    if options.threads:
        torch.set_num_threads(options.threads)
    device, claim = claim_device(options.fine_tunings_per_gpu, stop_signal)
    return Group(0, 1, device), claim


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
