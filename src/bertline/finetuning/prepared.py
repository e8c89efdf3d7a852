"""A task prepared for the training loop: inputs, targets, and functions that score and write predictions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer, special_token_ids
from bertline.finetuning.sequences import Inputs
from bertline.tasks.registry import TASKS, description_of
from bertline.tasks.task import Head


@dataclass(frozen=True)
class Evaluation:
    """Result of a predicted set.

    Attributes:
        scores: in percent, by name; none for a test set.
        write_predictions: writes them to a folder.
        details: other figures, by name.
    """

    scores: dict[str, float]
    write_predictions: Callable[[Path], None]
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PredictedSet:
    """Inputs to predict after training: a dev set or a test set.

    Attributes:
        name: "dev", "test" or another of the task's files.
        inputs: the N inputs.
        evaluate: takes the network's outputs in the order of the inputs: float32 [N, outputs] for the head "sequence",
            otherwise [tokens, outputs].
        digest: of the examples of a labelled set (`digest_of_examples`); empty if it is not known.
    """

    name: str
    inputs: Inputs
    evaluate: Callable[[np.ndarray], Evaluation]
    digest: str = ""


@dataclass(frozen=True)
class PreparedTask:
    """A task ready for training.

    Attributes:
        head: "sequence" for outputs per input, "tokens" for outputs per token, "answer" for a start and an end logit
            per token.
        outputs: number of outputs per input or per token.
        primary: name of the main score.
        train: the training inputs.
        train_targets: int64 [N] classes or float32 [N] numbers for "sequence"; int64 [T] classes of the tokens for
            "tokens"; int64 [N, 2] first and last token for "answer". Classes may be of a smaller integer type. If an
            example is several inputs, their outputs together are its logits, and the class is the number of the right
            one.
        predicted: the dev set first, then every other set.
        baselines: the primary score, in percent, of baselines without a network.
        examples: counts, by name.
        labels: the classes in the order of their ids; none for a regression and for answers.
        padding: id of [PAD]; `prepare_task` sets it.
        vocabulary: number of entries of the tokenizer; `prepare_task` sets it.
    """

    head: Head
    outputs: int
    primary: str
    train: Inputs
    train_targets: np.ndarray
    predicted: tuple[PredictedSet, ...]
    baselines: dict[str, float]
    examples: dict[str, int]
    labels: tuple[str, ...] = ()
    padding: int = -1
    vocabulary: int = -1

    @property
    def dev(self) -> PredictedSet:
        """The dev set, whose scores are the task's main ones."""
        return self.predicted[0]


def prepare_task(
    task: str,
    data: Mapping[str, str],
    settings: Mapping[str, Any],
    tokenizer_path: Path | str,
    table: Mapping[str, Any] | None = None,
) -> PreparedTask:
    """Read and tokenize a task's files.

    Args:
        data: the files by set: train, dev and, for predictions only, test sets.
        settings: of the recipe; the seed too, for a task that draws examples.
        table: the description of a custom table or a ranking, as in the configuration; None for a registered task.

    Raises BertlineError for an unknown task or a bad file.
    """
    if table is None and task not in TASKS:
        raise BertlineError(f"unknown task '{task}', allowed are {', '.join(TASKS)}")
    module, function = description_of(task, table).prepare.split(":")
    described = TASKS[task] if table is None else table
    tokenizer = read_tokenizer(tokenizer_path)
    prepared: PreparedTask = getattr(importlib.import_module(module), function)(described, data, settings, tokenizer)
    return replace(prepared, padding=special_token_ids(tokenizer)["[PAD]"], vocabulary=tokenizer.get_vocab_size())
