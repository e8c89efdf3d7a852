"""A task ready for the loop: its inputs, its targets, and how its predictions are scored and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import load_tokenizer
from bertline.files import write_json, write_text
from bertline.finetuning.glue import GLUE_TASKS, GlueFile, GlueTask, read_glue
from bertline.finetuning.glue_metrics import compute_metrics
from bertline.finetuning.sequences import (
    Sequences,
    SpecialTokens,
    make_sequences,
    special_tokens,
    tokenize,
    truncate_pair,
)
from bertline.finetuning.squad import SquadFile, Windows, make_windows, read_squad
from bertline.finetuning.squad_answers import answer_questions, copy_position, most_frequent_answer
from bertline.finetuning.squad_metrics import best_null_threshold, score_squad

SQUAD_TASKS = ("squad_v1", "squad_v2")


@dataclass(frozen=True)
class Evaluation:
    """Scores of the dev set in percent, and a function that writes its predictions into a folder."""

    scores: dict[str, float]
    write_predictions: Callable[[Path], None]
    details: dict[str, float]


@dataclass(frozen=True)
class PreparedTask:
    """What the loop needs of a task.

    outputs: 0 for a question answering head (a start and an end logit for each token), otherwise the head's outputs.
    train, dev: the inputs. train_targets: int64 [N] classes, float32 [N] scores, or int64 [N, 2] first and last token.
    evaluate: takes the dev set's outputs, float32 [N, outputs], or [tokens, 2] with the inputs' tokens in their order.
    baselines: the primary score, in percent, of answers that need no network. examples: counts, by name.
    """

    outputs: int
    primary: str
    train: Sequences
    train_targets: np.ndarray
    dev: Sequences
    evaluate: Callable[[np.ndarray], Evaluation]
    baselines: dict[str, float]
    examples: dict[str, int]
    special: SpecialTokens
    vocabulary: int


def prepare_task(task: str, data: dict[str, str], settings: dict[str, Any], tokenizer_path: Path | str) -> PreparedTask:
    """Read and tokenize a task's train and dev files. Raises BertlineError for an unknown task or a bad file."""
    if task not in (*SQUAD_TASKS, *GLUE_TASKS):
        raise BertlineError(f"unknown task '{task}', allowed are {', '.join([*SQUAD_TASKS, *GLUE_TASKS])}")
    tokenizer = load_tokenizer(tokenizer_path)
    prepare = _prepare_squad if task in SQUAD_TASKS else _prepare_glue
    return prepare(task, data, settings, tokenizer, special_tokens(tokenizer))


def _prepare_squad(
    task: str, data: dict[str, str], settings: dict[str, Any], tokenizer: Tokenizer, special: SpecialTokens
) -> PreparedTask:
    version_2 = task == "squad_v2"
    files = {split: read_squad(data[split], version_2=version_2) for split in ("train", "dev")}
    cut = {key: settings[key] for key in ("max_sequence_length", "doc_stride", "max_query_length")}
    windows = {
        split: make_windows(file, tokenizer, special, **cut, for_training=split == "train")
        for split, file in files.items()
    }
    train, dev = windows["train"], windows["dev"]
    if len(train.sequences) == 0:
        raise BertlineError(f"{data['train']}: no question has an answer that stands at its offset; name another file")
    answers = {question.id: [answer.text for answer in question.answers] for question in files["dev"].questions}

    def score(predictions: dict[str, str]) -> dict[str, float]:
        return score_squad(answers, predictions, version_2=version_2)

    majority = most_frequent_answer(files["train"])
    baselines = {
        "majority": score(dict.fromkeys(answers, majority))["f1"],
        "copy_position": score(copy_position(train, files["dev"], dev))["f1"],
    }
    examples = {
        "train": len(files["train"].questions) - train.unusable,
        "dev": len(answers),
        "train_windows": len(train.sequences),
        "dev_windows": len(dev.sequences),
        "train_unusable": train.unusable,
        "train_misplaced": files["train"].misplaced_answers,
        "dev_misplaced": files["dev"].misplaced_answers,
    }
    return PreparedTask(
        0,
        "f1",
        train.sequences,
        train.answer,
        dev.sequences,
        lambda logits: _evaluate_squad(files["dev"], dev, answers, logits, settings["max_answer_length"], version_2),
        baselines,
        examples,
        special,
        tokenizer.get_vocab_size(),
    )


def _evaluate_squad(
    squad: SquadFile,
    windows: Windows,
    answers: dict[str, list[str]],
    logits: np.ndarray,
    max_answer_length: int,
    version_2: bool,
) -> Evaluation:
    answered = answer_questions(squad, windows, logits[:, 0], logits[:, 1], max_answer_length=max_answer_length)
    predictions = {question: found.best_text for question, found in answered.items()}
    details: dict[str, float] = {}
    if version_2:
        differences = {question: found.null_difference for question, found in answered.items()}
        threshold = best_null_threshold(answers, predictions, differences)
        predictions = {
            question: text if differences[question] <= threshold else "" for question, text in predictions.items()
        }
        details["null_threshold"] = threshold
    scores = score_squad(answers, predictions, version_2=version_2)
    return Evaluation(
        {name: value for name, value in scores.items() if name not in ("total", "missing")},
        lambda folder: write_json(folder / "predictions.json", predictions),
        details,
    )


def _prepare_glue(
    task: str, data: dict[str, str], settings: dict[str, Any], tokenizer: Tokenizer, special: SpecialTokens
) -> PreparedTask:
    description = GLUE_TASKS[task]
    train, dev = (read_glue(data[split], description) for split in ("train", "dev"))
    if description.is_regression:
        majority = np.full(len(dev.targets), train.targets.mean())
    else:
        majority = np.full(len(dev.targets), np.bincount(train.targets).argmax())
    limit = settings["max_sequence_length"]
    return PreparedTask(
        len(description.labels) or 1,
        description.primary,
        _glue_sequences(train, tokenizer, special, limit),
        train.targets,
        _glue_sequences(dev, tokenizer, special, limit),
        lambda logits: _evaluate_glue(description, dev.targets, logits),
        {"majority": _score_glue(description, majority, dev.targets)[description.primary]},
        {
            "train": len(train.targets),
            "dev": len(dev.targets),
            "train_skipped": train.skipped,
            "dev_skipped": dev.skipped,
        },
        special,
        tokenizer.get_vocab_size(),
    )


def _glue_sequences(file: GlueFile, tokenizer: Tokenizer, special: SpecialTokens, limit: int) -> Sequences:
    first = tokenize(tokenizer, file.first)
    if file.second is None:
        return make_sequences(((ids[: limit - 2], None) for ids in first), special)
    second = tokenize(tokenizer, file.second)
    return make_sequences((truncate_pair(*pair, limit - 3) for pair in zip(first, second, strict=True)), special)


def _evaluate_glue(task: GlueTask, targets: np.ndarray, outputs: np.ndarray) -> Evaluation:
    predicted = outputs[:, 0] if task.is_regression else outputs.argmax(axis=1)
    scores = _score_glue(task, predicted, targets)

    def write(folder: Path) -> None:
        cells = (f"{value:.3f}" if task.is_regression else task.labels[int(value)] for value in predicted)
        lines = [f"{index}\t{cell}\n" for index, cell in enumerate(cells)]
        write_text(folder / "predictions.tsv", "index\tprediction\n" + "".join(lines))

    return Evaluation(scores, write, {})


def _score_glue(task: GlueTask, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    return {name: 100.0 * value for name, value in compute_metrics(task.metrics, predictions, targets).items()}
