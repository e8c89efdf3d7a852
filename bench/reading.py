"""Measure how training reads samples: memory and time to open, speed from the page cache and from slow storage.

    python bench/reading.py FOLDER --million 20

A synthetic dataset is written to FOLDER and removed at the end. Several processes open it at once, as the ranks of a
machine do, and report the memory that this takes: their own, and with a fair share (PSS) of what they have in common.
One thread then makes micro-batches of 256 samples, all of them in the page cache. Last, the dataset is mounted
by bindfs, which waits before each read, and micro-batches are made with and without reading ahead; without bindfs, a C
compiler and the permission to mount, that part is left out. The last line is JSON.
"""

import json
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from steps import make_recipe, read_model
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.encoding import dataset
from bertline.encoding.dataset import open_dataset
from bertline.encoding.layout import LAYOUT_VERSION, write_samples
from bertline.files import write_json
from bertline.training.data.opening import TrainingData
from bertline.training.data.prefetching import READ_AHEAD, work_items
from bertline.training.data.shapes import Batching

LENGTH, VOCAB_SIZE, ROWS = 128, 30522, 256
SAMPLES_OF_FILE = 50_000
# Waits before every read that bindfs makes for its clients.
SLOW_READS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
ssize_t pread64(int file, void *buffer, size_t size, off64_t offset) {
    ssize_t (*read)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    long microseconds = atol(getenv("DELAY"));
    struct timespec wait = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&wait, 0);
    return read(file, buffer, size, offset);
}
"""


def write_dataset(folder: Path, samples: int) -> None:
    """Write a dataset of random words: samples of 64 to 128 tokens, one corpus, half of them random pairs."""
    random = np.random.default_rng(1)
    words = random.integers(1000, VOCAB_SIZE, 1 << 20).astype(np.uint16)
    entries = []
    for number in range(-(-samples // SAMPLES_OF_FILE)):
        lengths = random.integers(LENGTH // 2, LENGTH + 1, SAMPLES_OF_FILE)
        tokens = int(lengths.sum())
        name = f"seq{LENGTH}/{number:05d}.h5"
        counts = dict.fromkeys(
            ("sentences", "text_tokens", "unknown_tokens", "unplaced_tokens", "seed", "samples_without_partner"), 0
        )
        write_samples(
            folder / name,
            {
                "input_ids": (words[: min(len(words), tokens - done)] for done in range(0, tokens, len(words))),
                "sample_offsets": [np.cumsum([0, *lengths])],
                "second_segment_start": [lengths // 2],
                "next_sentence_labels": [np.arange(SAMPLES_OF_FILE) % 2],
                "document_index": [np.zeros(SAMPLES_OF_FILE)],
                "corpus_index": [np.zeros(SAMPLES_OF_FILE)],
            },
            samples=SAMPLES_OF_FILE,
            tokens=tokens,
            attributes={
                **counts,
                **{"fingerprint": "0" * 16, "shard": f"{number:05d}", "sequence_length": LENGTH},
                **{"pair_objective": "next_sentence", "tokenizer_sha256": "0" * 64, "vocab_size": VOCAB_SIZE},
                **{"cls_id": 101, "sep_id": 102, "documents": 1, "documents_of_corpora": [1]},
                "samples_with_random_next": SAMPLES_OF_FILE // 2,
            },
        )
        entries.append({"file": name, "samples": SAMPLES_OF_FILE, "tokens": tokens, "sha256": "0" * 64})
    tokenizer = {"file": "tokenizer.json", "sha256": "0" * 64, "vocab_size": VOCAB_SIZE, "continuation_bitmap": ""}
    card = {
        **{"layout_version": LAYOUT_VERSION, "fingerprint": "0" * 16, "settings": {}, "corpora": [{"name": "made up"}]},
        "tokenizer": tokenizer | {"special_tokens": {"[PAD]": 0}},
        "sequence_lengths": {str(LENGTH): {"train": entries, "held_out": []}},
    }
    write_json(folder / "dataset.json", card)


def measure(card: Path, batches: int, seed: int, read_ahead: bool, ready: Any, results: Any) -> None:
    """Open the dataset, make micro-batches, and put seconds, rates and memory into `results`."""
    torch.set_num_threads(1)
    if not read_ahead:
        dataset.BATCHES_TO_READ_AHEAD = 0
    before = memory()
    ready.wait()
    began, used = time.perf_counter(), time.process_time()
    reader = open_dataset(card, LENGTH, "train")
    opened = {"open": time.perf_counter() - began, "open_processor": time.process_time() - used}
    ready.wait()
    after = memory()
    ready.wait()
    fields: dict[str, Any] = dict.fromkeys(TrainingData.__dataclass_fields__)
    data = TrainingData(**fields | {"train": reader, "held_out": reader})
    recipe = make_recipe(read_model("bert-base"), global_batch_size=32 * ROWS, sequence_length=LENGTH)
    items = work_items(
        data,
        Batching(LENGTH, ROWS),
        recipe | {"seed": seed},
        first_step=0,
        first_position=0,
        rank_weights=[1.0],
        rank=0,
    )
    for _ in range(2 * READ_AHEAD):  # the first ones are not read ahead
        next(items)
    started, used = time.perf_counter(), time.thread_time()
    for _ in range(batches):
        next(items)
    rates = {
        "rate": batches * ROWS / (time.perf_counter() - started),
        "rate_processor": batches * ROWS / (time.thread_time() - used),
    }
    results.put(opened | rates | {name: after[name] - before[name] for name in after})


def memory() -> dict[str, float]:
    """Return what of this process's memory is its own, and its share of all, in MB."""
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    kilobytes = {line[0]: int(line[1]) for line in lines}
    return {"anonymous": kilobytes["Anonymous:"] / 1000, "pss": kilobytes["Pss:"] / 1000}


def run(card: Path, *, processes: int = 1, batches: int, seed: int = 1, read_ahead: bool = True) -> dict[str, float]:
    """Measure in new processes; return the means."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(processes), context.Queue()
    given = [(card, batches, seed + rank, read_ahead, ready, results) for rank in range(processes)]
    started = [context.Process(target=measure, args=each) for each in given]
    for process in started:
        process.start()
    found = [results.get() for _ in started]
    for process in started:
        process.join()
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


@contextmanager
def slow_view(folder: Path, milliseconds: float) -> Iterator[Path | None]:
    """Mount a view of `folder` in which every read takes so much longer; None where that is not possible."""
    with tempfile.TemporaryDirectory() as made:
        view, library = Path(made) / "view", Path(made) / "slow.so"
        view.mkdir()
        (Path(made) / "slow.c").write_text(SLOW_READS)
        compile_it: list[str | Path] = ["cc", "-O1", "-shared", "-fPIC", "-o", library, Path(made) / "slow.c", "-ldl"]
        mount: list[str | Path] = ["bindfs", "--multithreaded", "-o", "ro", folder, view]
        slow = os.environ | {"LD_PRELOAD": str(library), "DELAY": str(round(1000 * milliseconds))}
        if not all(map(shutil.which, ("cc", "bindfs"))) or not succeeds(compile_it) or not succeeds(mount, env=slow):
            yield None
            return
        try:
            yield view
        finally:
            succeeds(["umount", "--lazy", view])


def succeeds(command: list[str | Path], **options: Any) -> bool:
    return subprocess.run(command, check=False, **options).returncode == 0  # noqa: S603


def main(
    folder: Path, *, million: float = 20, processes: int = 2, milliseconds: float = 1.0, batches: int = 400
) -> None:
    """Run the benchmark.

    Args:
        folder: for the synthetic dataset, 200 MB per million samples.
        million: samples, in millions.
        processes: that open the dataset at the same time.
        milliseconds: that each read of slow storage takes longer.
        batches: of 256 samples to read from the page cache, and a fifth of them from slow storage.
    """
    samples = round(million * 1e6)
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        write_dataset(work, samples)
        card = work / "dataset.json"
        opened = run(card, processes=processes, batches=batches)
        warm = max(run(card, batches=batches)["rate_processor"] for _ in range(3))
        rows = [["from the page cache, one thread, a second of processor time", warm]]
        figures = {"samples": samples, "processes": processes, **opened, "warm": warm}
        for read_ahead in (False, True):
            with slow_view(work, milliseconds) as view:
                if view is not None:
                    rate = run(view / "dataset.json", batches=batches // 5, read_ahead=read_ahead)["rate"]
                    name = "read ahead" if read_ahead else "one page after the other"
                    rows.append([f"{milliseconds:g} ms a read, {name}", rate])
                    figures[f"slow_{read_ahead=}"] = rate
    finally:
        shutil.rmtree(work)
    seconds = f"{opened['open']:.1f} s, {opened['open_processor']:.1f} s of processor time"
    print(f"{samples:,} samples, opened by {processes} processes in {seconds}; MB of each:")
    print(
        tabulate([[opened["anonymous"], opened["pss"]]], ["its own", "with its share of pages (PSS)"], floatfmt=".0f")
    )
    print(tabulate(rows, ["micro-batches of 256 samples", "samples/s"], floatfmt=",.0f"))
    print(json.dumps(figures))


if __name__ == "__main__":
    run_command(main, __doc__)
