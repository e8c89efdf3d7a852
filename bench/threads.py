"""Compare how OpenMP's threads wait for each other in training, on cores that are their own and on shared ones.

    python bench/threads.py --threads 2

A process per setting trains random tokens, 8 x 128, with the engine's step, in bf16, or in fp32 on a processor where
that is faster. They take turns, in another order in each round, first undisturbed and then with a busy loop on one
core. A number is the median over rounds of a setting's seconds / those of the same round with nothing set, so that less
is better; or of the seconds with the busy loop / undisturbed.

PyTorch's builds for CPUs have GNU's libgomp: https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html
"""

import itertools
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bertline.command_line import run_command
from bertline.files import read_json

SETTINGS: dict[str, dict[str, str]] = {
    "nothing set": {},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "OMP_PROC_BIND=true": {"OMP_PROC_BIND": "true"},
}
ROWS, LENGTH = 8, 128
ROOT = Path(__file__).parents[1]


def train(shape: str, layers: int | None, threads: int, ends: Connection) -> None:
    """Train as many steps as `ends` asks for, and answer with the mean seconds of one; None ends it."""
    from bertline.training import processor
    from bertline.training.data.shapes import Batching
    from bertline.training.distributed.process_group import join_group
    from bertline.training.options import Options
    from bertline.training.setup import make_learner
    from bertline.training.step import train_step
    from bertline.training.trial import random_data

    sys.path.append(str(ROOT / "tests/unit"))
    from synthetic_dataset import recipe

    model = read_json(ROOT / f"config/models/bert-{shape}.json") | {"vocab_size": 30522}
    model |= {"num_hidden_layers": layers} if layers else {}
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    group = join_group(threads)
    precision = "bf16" if processor.has_fast_bf16() else "fp32"
    given = recipe(precision=precision, sequence_length=LENGTH, global_batch_size=ROWS, optimizer="adamw")
    data = random_data(model["vocab_size"], LENGTH, group)
    learner = make_learner({**given, "model": model}, data, group, Options(), batching=Batching(LENGTH, ROWS))
    learner.accumulator.seek(0)
    numbers = itertools.count()
    while (count := ends.recv()) is not None:
        started = time.perf_counter()
        for number in itertools.islice(numbers, count):
            train_step(learner, number + 1, number)
        ends.send((time.perf_counter() - started) / count)
    learner.accumulator.close()


def start(shape: str, layers: int | None, threads: int, variables: dict[str, str]) -> tuple[Any, Connection]:
    """Start a process of `train` with these variables, which libgomp reads when it is loaded."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    before = dict(os.environ)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
    os.environ.update(variables)
    process = context.Process(target=train, args=(shape, layers, threads, there), daemon=True)
    process.start()
    os.environ.clear()
    os.environ.update(before)
    return process, here


def compare(shape: str, layers: int | None, threads: int, rounds: int, steps: int) -> None:
    """Print the ratios of one shape."""
    started = {name: start(shape, layers, threads, variables) for name, variables in SETTINGS.items()}

    def seconds(name: str, count: int) -> float:
        started[name][1].send(count)
        return float(started[name][1].recv())

    for name in SETTINGS:
        seconds(name, 2)  # warms up
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in SETTINGS} for kind in ("alone", "shared")}
    try:
        for number in range(rounds):
            for kind, sent in (("alone", signal.SIGSTOP), ("shared", signal.SIGCONT)):
                os.kill(busy.pid, sent)
                order = list(SETTINGS)
                random.Random(number).shuffle(order)  # noqa: S311
                for name in order:
                    found[kind][name].append(seconds(name, steps))
    finally:
        busy.kill()
    for process, ends in started.values():
        ends.send(None)
        process.join()
    default = "nothing set"
    print(f"{shape}{f', {layers} layers' if layers else ''}: {1000 * min(found['alone'][default]):.0f} ms a step alone")
    print(f"  {'':24} {'alone':>6} {'shared':>7} {'shared / alone':>15}")
    for name in SETTINGS:
        alone, shared = (ratio(found[kind][name], found[kind][default]) for kind in ("alone", "shared"))
        slower = ratio(found["shared"][name], found["alone"][name])
        print(f"  {name:24} {alone:6.2f} {shared:7.2f} {slower:15.2f}", flush=True)


def ratio(ones: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def main(*, shapes: tuple[str, ...] = ("mini", "base"), threads: int = 2, rounds: int = 15, steps: int = 3) -> None:
    """Run the benchmark.

    Args:
        shapes: of config/models/bert-*.json; of base two layers.
        threads: of a process.
        rounds: the median counts.
        steps: timed together.
    """
    for shape in shapes:
        layers, count = (2, max(1, steps // 3)) if shape == "base" else (None, steps)
        compare(shape, layers, threads, rounds, count)


if __name__ == "__main__":
    run_command(main, __doc__)
