"""Timing of training steps of a recipe on random tokens, before there is any data."""

from __future__ import annotations

import mmap
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertline.console import BertlineError
from bertline.encoding.dataset import SampleReader
from bertline.encoding.layout import SampleFile
from bertline.encoding.masking import Vocabulary
from bertline.encoding.tokenizer import SPECIAL_TOKENS, id_type
from bertline.files import Json, write_json
from bertline.results import paths
from bertline.training import memory
from bertline.training.contract import is_rank_zero
from bertline.training.data.opening import TrainingData
from bertline.training.distributed.process_group import Group, join_group
from bertline.training.flops import flops_of, peak_of_all
from bertline.training.options import Options
from bertline.training.setup import make_learner, prepare_device
from bertline.training.step import train_step

SAMPLES = 4096
WARM_UP_STEPS = 2  # after the first, which compiles
SPECIAL_TOKEN_IDS = {token: index for index, token in enumerate(SPECIAL_TOKENS)}


def time_steps(recipe: dict[str, Any], *, seconds: float, options: Options) -> Json:
    """Train with the real step for some seconds and return its speed, see `timed`.

    Data, gradients, optimizer and assignment to ranks are those of a phase; only the tokens are random, and all
    samples are full. Every process of the group must call this.

    Args:
        recipe: as `read_recipe` returns it; the network needs its `vocab_size`.
        seconds: of the timed steps, after the first ones; at least two steps are timed.

    Raises torch.OutOfMemoryError.
    """
    if "vocab_size" not in recipe["model"]:
        raise BertlineError("the recipe's model has no 'vocab_size', which its network needs; add it")
    group = join_group(options.threads)
    recipe = {**recipe, "settings": {**recipe["settings"], "batch_size_warmup": None}}  # steps of the full size
    settings = recipe["settings"]
    prepare_device(settings, group, options)
    data = random_data(recipe["model"]["vocab_size"], settings["sequence_length"], group)
    began = time.monotonic()
    learner = make_learner(recipe, data, group, options)
    learner.accumulator.seek(0)
    batches = []

    def step(number: int) -> None:
        batches.append(train_step(learner, number + 1, number).batch)

    found = timed(step, group, seconds=seconds, began=began)
    learner.accumulator.close()
    return found | speed_of_steps(
        found["step_seconds"],
        group,
        sequences=settings["global_batch_size"],
        tokens=settings["global_batch_size"] * settings["sequence_length"],
        flops=flops_of(learner.model, batches[-1]),
    )


def write_speed(output: Path, measure: Callable[[], Json]) -> None:
    """Write what `measure` returns, as rank 0. If a rank's memory is too small, it writes `{"fits": false}` instead.

    Raises BertlineError for the latter.
    """
    try:
        speed = measure()
    except memory.ERRORS as error:
        if (whose := memory.which_memory_ran_out(error)) is None:
            raise
        write_json(output, {"fits": False})
        raise BertlineError(f"the {whose}'s memory is too small for this; compute less at once") from None
    if is_rank_zero():
        write_json(output, {"fits": True, **speed})


def timed(step: Callable[[int], None], group: Group, *, seconds: float, began: float) -> Json:
    """Time `step`, which takes the number of the step, counted from 0; the same on every rank.

    Args:
        began: when the network began to be made, by time.monotonic().

    Returns `step_seconds` (mean); `busy_seconds`, what a step takes on CPUs that do nothing else: the processor time of
    the busiest rank; `start_seconds` until the end of the first step, which compiles; `device`; `processes`; and
    `memory_bytes`, the largest peak of a process.
    """
    step(0)
    _wait(group)
    start_seconds = time.monotonic() - began
    for number in range(1, 1 + WARM_UP_STEPS):
        step(number)
    _wait(group)
    began, used, number = time.monotonic(), time.process_time(), WARM_UP_STEPS
    # Rank 0 decides how long: all ranks take the same steps.
    while number < WARM_UP_STEPS + 2 or group.broadcast(time.monotonic() - began < seconds):
        number += 1
        step(number)
    _wait(group)
    step_seconds = (time.monotonic() - began) / (number - WARM_UP_STEPS)
    used_seconds = (time.process_time() - used) / (number - WARM_UP_STEPS) / torch.get_num_threads()
    return {
        "step_seconds": step_seconds,
        "busy_seconds": step_seconds if group.device.type == "cuda" else float(group.gather([used_seconds]).max()),
        "start_seconds": start_seconds,
        "device": group.device_name,
        "processes": group.world_size,
        "memory_bytes": _peak(group),
    }


def speed_of_steps(step_seconds: float, group: Group, *, sequences: int, tokens: int, flops: float) -> Json:
    """Return what a step of so many sequences and tokens of the global batch amounts to in a second.

    `model_flops_utilization` is None where the peak of a processor is not known. All ranks must call this.
    """
    peak, tflops = peak_of_all(group.device), flops / step_seconds / 1e12
    return {
        "sequences": sequences,
        "tokens": tokens,
        "sequences_per_second": sequences / step_seconds,
        "tokens_per_second": tokens / step_seconds,
        "tflops_per_second": tflops,
        "model_flops_utilization": tflops / peak if peak else None,
    }


def random_data(vocab_size: int, sequence_length: int, group: Group) -> TrainingData:
    """Return a dataset in memory: full samples of random tokens, without pairs."""
    tokens = np.random.default_rng(1).integers(len(SPECIAL_TOKEN_IDS), vocab_size, (SAMPLES, sequence_length))
    tokens[:, 0], tokens[:, -1] = SPECIAL_TOKEN_IDS["[CLS]"], SPECIAL_TOKEN_IDS["[SEP]"]
    none = np.zeros(SAMPLES, dtype=np.uint16)
    file = SampleFile(
        path=Path("random tokens"),
        attributes={},
        input_ids=tokens.reshape(-1).astype(id_type(vocab_size)),
        sample_offsets=sequence_length * np.arange(SAMPLES + 1),
        second_segment_start=none,
        next_sentence_labels=none.astype(np.uint8),
        document_index=none,
        corpus_index=none.astype(np.uint8),
        digests={},
        memory=mmap.mmap(-1, mmap.PAGESIZE),
    )
    card = {"tokenizer": {"vocab_size": vocab_size, "special_tokens": SPECIAL_TOKEN_IDS}}
    reader = SampleReader([file], sequence_length, card)
    is_special = (torch.arange(vocab_size) < len(SPECIAL_TOKEN_IDS)).to(group.device)
    vocabulary = Vocabulary(
        SPECIAL_TOKEN_IDS["[MASK]"],
        is_special,
        torch.zeros_like(is_special),
        torch.arange(len(SPECIAL_TOKEN_IDS), vocab_size).to(group.device),
    )
    return TrainingData(
        train=reader,
        mixture=None,
        held_out=reader,
        vocabulary=vocabulary,
        vocab_size=vocab_size,
        has_pairs=False,
        tokenizer_json=Path(paths.TOKENIZER),
        tokenizer_sha256="",
        digest="",
    )


def _wait(group: Group) -> None:
    if group.device.type == "cuda":
        torch.cuda.synchronize()
    group.barrier()


def _peak(group: Group) -> int:
    if group.device.type == "cuda":
        return group.all_reduce_max(torch.cuda.max_memory_reserved())
    return group.all_reduce_max(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
