"""Timing of fine-tuning steps on random tokens, before there is any data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bertline.finetuning.options import Options
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.ranking.pairs import Pairs
from bertline.finetuning.ranking.texts import Texts
from bertline.finetuning.sequences import Inputs, Sequences
from bertline.finetuning.step import VOTES, Learner, train_step
from bertline.finetuning.train import make_model
from bertline.tasks.registry import description_of
from bertline.tasks.task import Head
from bertline.training.distributed.process_group import join_group
from bertline.training.flops import flops_of_task
from bertline.training.objective import prepare_precision
from bertline.training.trial import SPECIAL_TOKEN_IDS, speed_of_steps, timed


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
    began = time.monotonic()
    head = description_of(recipe["task"], recipe.get("table")).head
    task = random_task(head, settings, recipe["model"]["vocab_size"])
    model = make_model(recipe["model"], task, settings["max_sequence_length"], None)
    learner = Learner(model.to(group.device).train(), task, settings, recipe["seed"], group, options)
    rows = np.arange(settings["batch_size"])

    def step(number: int) -> None:
        train_step(learner, rows, number + 1, settings["learning_rate"], dict.fromkeys(VOTES, 0.0))

    found = timed(step, group, seconds=seconds, began=began)
    lengths = task.train.take(rows).lengths
    tokens, flops = int(lengths.sum()), flops_of_task(model, lengths)
    return found | speed_of_steps(found["step_seconds"], group, sequences=len(rows), tokens=tokens, flops=flops)


def random_task(head: Head, settings: Mapping[str, Any], vocab_size: int) -> PreparedTask:
    """Return a task of one batch of random tokens, in inputs of `max_sequence_length`, with two classes.

    An example of a pairwise ranking is a query with two passages.
    """
    generator = np.random.default_rng(1)
    examples, length = settings["batch_size"], settings["max_sequence_length"]
    pairwise = settings.get("objective") == "pairwise"

    def random_tokens(*shape: int) -> np.ndarray:
        return generator.integers(len(SPECIAL_TOKEN_IDS), vocab_size, shape, dtype=np.int32)

    if pairwise:
        inputs: Inputs = _random_pairs(random_tokens, examples, settings["max_query_length"], length)
    else:
        tokens = random_tokens(examples, length)
        tokens[:, 0], tokens[:, -1] = SPECIAL_TOKEN_IDS["[CLS]"], SPECIAL_TOKEN_IDS["[SEP]"]
        none = np.zeros(examples, dtype=np.int32)
        inputs = Sequences(tokens.reshape(-1), length * np.arange(examples + 1), none)
    shape: Any = {"sequence": examples, "tokens": examples * length, "answer": (examples, 2)}[head]
    return PreparedTask(
        head=head,
        outputs=1 if pairwise else 2,
        primary="",
        train=inputs,
        train_targets=generator.integers(0, 2, shape),
        predicted=(PredictedSet("dev", inputs, lambda outputs: Evaluation({}, lambda folder: None)),),
        baselines={},
        examples={},
        padding=SPECIAL_TOKEN_IDS["[PAD]"],
        vocabulary=vocab_size,
    )


def _random_pairs(random_tokens: Callable[..., np.ndarray], examples: int, max_query: int, length: int) -> Pairs:
    """Return queries with two passages each, in inputs `[CLS] query [SEP] passage [SEP]` of `length` tokens."""
    query, passage = max_query - 2, length - max_query - 1

    def texts(count: int, size: int) -> Texts:
        none = np.empty(0, dtype=np.int64)
        return Texts(random_tokens(count * size), size * np.arange(count + 1), none, none)

    return Pairs(
        queries=texts(examples, query),
        passages=texts(2 * examples, passage),
        query_rows=np.arange(examples),
        passage_rows=np.arange(2 * examples).reshape(-1, 2),
        max_query=query,
        max_passage=passage,
        begin=SPECIAL_TOKEN_IDS["[CLS]"],
        end=SPECIAL_TOKEN_IDS["[SEP]"],
        between=1,
    )
