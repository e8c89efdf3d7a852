"""Timing of fine-tuning steps on random tokens, before there is any data."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertline.finetuning.options import Options
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.sequences import Sequences
from bertline.finetuning.step import VOTES, Learner, train_step
from bertline.finetuning.train import make_model
from bertline.tasks.registry import description_of
from bertline.tasks.task import Head
from bertline.training.distributed.process_group import join_group
from bertline.training.flops import flops_of_task
from bertline.training.objective import prepare_precision
from bertline.training.trial import SPECIAL_TOKENS, speed_of_steps, timed


def time_steps(recipe: Mapping[str, Any], *, seconds: float, options: Options) -> dict[str, Any]:
    """Fine-tune with the real step for some seconds and return its speed, see `bertline.training.trial.timed`.

    The weights and the tokens are random, and all inputs are full. Every process of the group must call this.

    Args:
        recipe: of a fine-tuning; its network needs its `vocab_size`.
        seconds: of the timed steps, after the first ones.

    Raises torch.OutOfMemoryError.
    """
    group = join_group(options.threads or 1)
    settings = recipe["settings"]
    prepare_precision(settings["precision"], group.device)
    size, length = settings["batch_size"], settings["max_sequence_length"]
    began = time.monotonic()
    head = description_of(recipe["task"], recipe.get("table")).head
    task = random_task(head, size, length, recipe["model"]["vocab_size"])
    model = make_model(recipe["model"], task, length, None)
    learner = Learner(model.to(group.device).train(), task, settings, recipe["seed"], group, options)
    rows = np.arange(size)

    def step(number: int) -> None:
        train_step(learner, rows, number + 1, settings["learning_rate"], dict.fromkeys(VOTES, 0.0))

    found = timed(step, group, seconds=seconds, began=began)
    flops = flops_of_task(model, task.train.lengths)
    return found | speed_of_steps(found["step_seconds"], group, sequences=size, tokens=size * length, flops=flops)


def random_task(head: Head, examples: int, length: int, vocab_size: int) -> PreparedTask:
    """Return a task of so many inputs of random tokens, all of `length`, with two classes."""
    generator = np.random.default_rng(1)
    tokens = generator.integers(len(SPECIAL_TOKENS), vocab_size, (examples, length), dtype=np.int32)
    tokens[:, 0], tokens[:, -1] = SPECIAL_TOKENS["[CLS]"], SPECIAL_TOKENS["[SEP]"]
    none = np.zeros(examples, dtype=np.int32)
    inputs = Sequences(tokens.reshape(-1), length * np.arange(examples + 1), none)
    shape: Any = {"sequence": examples, "tokens": examples * length, "answer": (examples, 2)}[head]
    return PreparedTask(
        head=head,
        outputs=2,
        primary="",
        train=inputs,
        train_targets=generator.integers(0, 2, shape),
        predicted=(PredictedSet("dev", inputs, lambda outputs: Evaluation({}, lambda folder: None)),),
        baselines={},
        examples={},
        padding=SPECIAL_TOKENS["[PAD]"],
        vocabulary=vocab_size,
    )
