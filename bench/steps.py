"""Training steps for the benchmarks: the engine's as in a phase, and transformers' on the same batches."""

from __future__ import annotations

import gc
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, distributed, nn

from bertline.encoding.masking import IGNORED, Masking
from bertline.files import read_json
from bertline.modeling.huggingface import config_json_of
from bertline.modeling.huggingface_config import names_of
from bertline.modeling.network_config import config_from_dict
from bertline.training.data.collation import mask_batch
from bertline.training.data.opening import TrainingData
from bertline.training.data.order import data_seed_of
from bertline.training.data.prefetching import work_items
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group, join_group
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.objective import AUTOCAST
from bertline.training.options import Options
from bertline.training.setup import make_learner, prepare_device
from bertline.training.step import Learner, train_step

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests/unit"))
from synthetic_dataset import recipe  # noqa: E402
from synthetic_dataset import write_dataset as write_dataset  # noqa: E402

MODELS = ROOT / "config/models"
WARM_UP_STEPS = 2
Step = Callable[[], None]


def make_recipe(model: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return a recipe for a network; `settings` override those of the tests' recipe, but for its few steps."""
    return {**recipe(**{"steps": 100_000} | settings), "model": dict(model)}


def read_model(name: str) -> dict[str, Any]:
    """Read a network's description from config/models."""
    description: dict[str, Any] = read_json(MODELS / f"{name}.json")
    return description


@contextmanager
def group_of_one(threads: int) -> Iterator[Group]:
    """Join a process group whose only member is this process; leave it at the end."""
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ.update(names)
    group = join_group(threads)
    torch.manual_seed(0)
    try:
        yield group
    finally:
        distributed.destroy_process_group()


@dataclass
class OurStep:
    """Callable that makes one update by the engine, as a phase does."""

    learner: Learner
    numbers: Iterator[int]
    waited: float = 0.0  # seconds for data, in all steps
    real_tokens: int = 0  # of the last step
    computed_tokens: int = 0  # of the last step, padding included

    @property
    def model(self) -> nn.Module:
        """Network."""
        return self.learner.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Optimizer of all its parameters."""
        return self.learner.optimizer

    def __call__(self) -> None:
        number = next(self.numbers)
        result = train_step(self.learner, number + 1, number)
        self.batch = result.batch
        self.waited += result.waited
        self.real_tokens, self.computed_tokens = result.tokens

    def close(self) -> None:
        """Stop prefetching."""
        self.learner.accumulator.close()


def make_our_step(
    recipe: dict[str, Any],
    data: TrainingData,
    group: Group,
    batching: Batching,
    *,
    compiled: bool,
    cuda_graphs: bool = False,
) -> OurStep:
    """Make the network and its optimizer on the group's device; compiled, `batching` gets the shapes of a phase."""
    if compiled:
        batching = fix_shapes_of_phase(batching, data, recipe, group.world_size)
    options = Options(compiled=compiled, cuda_graphs=cuda_graphs)
    prepare_device(recipe["settings"], group, options)
    learner = make_learner(recipe, data, group, options, batching=batching)
    learner.accumulator.seek(0)
    return OurStep(learner, itertools.count())


def batches_of_transformers(
    recipe: dict[str, Any], data: TrainingData, group: Group, batching: Batching, steps: int
) -> list[list[dict[str, Tensor]]]:
    """Return the masked micro-batches of the first global batches under transformers' names."""
    config = config_from_dict({**recipe["model"], "vocab_size": data.vocab_size})
    inputs = names_of(config).INPUTS
    masking = Masking(**recipe["settings"]["masking"])
    items = work_items(
        data,
        batching,
        recipe,
        first_step=0,
        first_position=0,
        rank_weights=[1.0],
        rank=0,
    )
    batches: list[list[dict[str, Tensor]]] = []
    left = 0  # micro-batches of the global batch
    while len(batches) < steps or left:
        item = next(items)
        if not left:
            left = item.micro_batches
            batches.append([])
        left -= 1
        assert item.micro_batch is not None, "a group of one has no idle rank"  # noqa: S101
        rows = item.micro_batch.to(group.device)
        if rows.masked is not None:  # imported, with static masks
            ids, (positions, originals) = rows.input_ids, rows.masked
        else:
            ids, positions, originals = mask_batch(
                rows, seed=data_seed_of(recipe), masking=masking, vocabulary=data.vocabulary
            )
        labels = torch.full_like(ids, IGNORED)
        labels.view(-1)[positions] = originals
        mask = rows.attention_mask
        batch = {
            "input_ids": ids,
            "token_type_ids": rows.token_type_ids,
            "attention_mask": mask.long() if isinstance(mask, Tensor) else torch.ones_like(ids),
        }
        batch = {name: tensor for name, tensor in batch.items() if name in inputs} | {"labels": labels}
        if "token_type_ids" in inputs:
            batch["next_sentence_label"] = rows.pair_labels
        batches[-1].append(batch)
    return batches


def make_transformers_model(
    recipe: dict[str, Any], data: TrainingData, device: torch.device, attention: str = "sdpa"
) -> nn.Module:
    """Make transformers' version of the network: BertForPreTraining or ModernBertForMaskedLM."""
    config = config_from_dict({**recipe["model"], "vocab_size": data.vocab_size})
    content = config_json_of(config, data.train.card["tokenizer"]["special_tokens"])
    theirs = transformers.AutoConfig.for_model(content.pop("model_type"), **content)
    theirs._attn_implementation = attention
    kind = transformers.AutoModelForPreTraining if config.architecture == "bert" else transformers.AutoModelForMaskedLM
    model: nn.Module = kind.from_config(theirs)
    return model.to(device).train()


def make_transformers_step(
    model: nn.Module,
    forward: Callable[..., Any],
    batches: list[list[dict[str, Tensor]]],
    device: torch.device,
    precision: str,
) -> Step:
    """Return a function that makes one update; `forward` is `model`, compiled or not."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    steps, dtype = itertools.count(), AUTOCAST[precision]

    def step() -> None:
        batch = batches[next(steps) % len(batches)]
        for micro_batch in batch:
            with torch.autocast(device.type, dtype, enabled=dtype is not None):
                loss = forward(**micro_batch).loss / len(batch)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_step(step: Step, device: torch.device, *, rounds: int, seconds: float) -> tuple[float, float]:
    """Return the median seconds of a step, and the extra seconds of the first ones, mostly for compilation.

    Args:
        rounds, seconds: stop after so many timed steps or so much time, but time at least two steps.
    """
    warm_up = [_timed(step, device) for _ in range(WARM_UP_STEPS)]
    times: list[float] = []
    while len(times) < 2 or (len(times) < rounds and sum(times) < seconds):
        times.append(_timed(step, device))
    median = statistics.median(times)
    return median, max(0.0, sum(warm_up) - len(warm_up) * median)


def _timed(step: Step, device: torch.device) -> float:
    started = time.perf_counter()
    step()
    synchronize(device)
    return time.perf_counter() - started


def take_turns(steps: Mapping[str, Step], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Return the seconds of each step in each round, after warm-up; the steps alternate within a round."""
    for step in steps.values():
        for _ in range(WARM_UP_STEPS):
            step()
    synchronize(device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            seconds[name].append(_timed(step, device))
    return seconds


def free_memory() -> None:
    """Free the memory of deleted networks and compiled programs."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
