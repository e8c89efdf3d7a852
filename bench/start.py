"""Measure how long compilation takes when a training starts: a program of the whole network, and programs by layer.

    python bench/start.py
    python bench/start.py --models bert-base --tokens 512

Each case is a process of its own with an empty cache. The first forward and backward pass is timed, less the second
one. Seconds of PyTorch are the processor time of that process. The others are mostly those of the C++ compiler, or on a
GPU of Triton's processes; they do not depend on the number of layers.
"""

import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import torch
from speeds import describe_machine
from steps import read_model
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.modeling.architectures import architecture_of
from bertline.modeling.network_config import config_from_dict
from bertline.training.objective import make_loss_fn, prepare_network

VOCABULARY, LENGTH, MASKED_EVERY = 30522, 128, 7


def start_of(model: str, tokens: int, by_layer: bool, cache: str) -> tuple[float, float]:
    """Return the additional seconds of the first pass, and those of this process's processor time."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = config_from_dict({**read_model(model), "vocab_size": VOCABULARY})
    with device:
        network = architecture_of(config).pretraining(config).train()
        ids = torch.zeros((tokens // LENGTH, LENGTH), dtype=torch.int64)
        mask = torch.ones_like(ids, dtype=torch.bool)
        positions = torch.arange(0, tokens, MASKED_EVERY)
        labels, pair_labels = torch.zeros_like(positions), ids[:, 0]
    prepare_network(network, "bf16", device)
    loss_fn = make_loss_fn(network, precision="bf16", compiled=True, by_layer=by_layer)
    clocks = time.perf_counter, time.process_time
    passes = []
    for _ in range(2):
        started = [clock() for clock in clocks]
        found = loss_fn(ids, torch.zeros_like(ids), mask, positions, labels, pair_labels)
        (found.mlm_loss + found.pair_loss).backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        passes.append([clock() - start for clock, start in zip(clocks, started, strict=True)])
    (first, first_own), (second, second_own) = passes
    return first - second, first_own - second_own


def main(*, models: tuple[str, ...] = ("bert-base", "bert-large", "modern-base"), tokens: int = 256) -> None:
    """Print a table.

    Args:
        models: of config/models.
        tokens: of a micro-batch, in rows of 128.
    """
    spawn = multiprocessing.get_context("spawn")
    rows = []
    for model in models:
        found = []
        for by_layer in (False, True):
            with (
                tempfile.TemporaryDirectory() as cache,
                ProcessPoolExecutor(1, mp_context=spawn) as process,
            ):
                found.append(process.submit(start_of, model, tokens, by_layer, cache).result())
        (whole, whole_own), (layers, layers_own) = found
        rows.append([model, whole, whole_own, layers, layers_own, layers / whole, layers_own / whole_own])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(describe_machine(device, 1))
    headers = ["network", "whole, s", "of PyTorch", "by layer, s", "of PyTorch", "share", "of PyTorch"]
    print(tabulate(rows, headers=headers, floatfmt=("", ".1f", ".1f", ".1f", ".1f", ".2f", ".2f")))


if __name__ == "__main__":
    run_command(main, __doc__)
