"""Measure the speed from text to NVIDIA's layout, on one core, and compare it with NVIDIA's own encoder.

    python bench/export.py FOLDER --nvidia FOLDER      # or: make bench-export NVIDIA=FOLDER

The text is made from FOLDER as for bench/encoding.py. NVIDIA's folder contains two files of its repository
DeepLearningExamples, PyTorch/LanguageModeling/BERT/create_pretraining_data.py and tokenization.py, of commit 2592d5a0
(2021-11-04, the last one before 2022) or another one that writes HDF5. An empty module takes the place of its
file_utils.py, which downloads vocabularies by boto3; six, tqdm, h5py and numpy have to be installed.

Both write samples of 128 and of 512 tokens from the same text and vocabulary, with a dupe factor of 5, 20 and 80
predictions, and gzip. NVIDIA's program tokenizes the text once for each length; it splits it into five times as many
samples and masks each once. Bertline splits it once and masks each sample five times, as `snakemake nvidia` does; its
second row does the same work as NVIDIA's, with `passes: 5` and a dupe factor of 1. All alternate, each in its own
process; times are processor times, without the start of the process, which is given. Then come the statistics of all
files, a row for each folder.
"""

import functools
import itertools
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # read when tokenizers and torch are imported

from encoding import LENGTHS, RECIPE, SHARD, clean, extract, find_inputs, punkt, sentences, shards, take_vocabulary
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.corpus.shards import read_plan, write_shard
from bertline.encoding.card import write_card
from bertline.encoding.encode_shard import encode_shard
from bertline.encoding.shards import read_text_blocks, size_of_shard
from bertline.encoding.statistics import compare_samples
from bertline.encoding.tokenizer import load_tokenizer
from bertline.files import Recipe
from bertline.results import paths
from bertline.results.paths import HELD_OUT
from bertline.training.data.exporting import default_max_predictions, export_samples

COPIES = paths.NVIDIA_COPIES
PROGRAM = "create_pretraining_data.py"
FILES = (PROGRAM, "tokenization.py")
PACKAGES = ("h5py", "numpy", "tokenizers", "torch")


def write_text(folder: Path, work: Path) -> None:
    """Write the shard, tokenizer.json, and both in the form of NVIDIA's inputs: text.txt and vocab.txt."""
    given = find_inputs(folder, work)
    for stage in (extract, clean, punkt, sentences, shards, take_vocabulary):
        stage(given)
    write_shard(work / paths.PLAN, HELD_OUT, work / paths.SHARD.format(shard=HELD_OUT))
    encode_shard(RECIPE, HELD_OUT, work)  # the card needs it
    with (work / "text.txt").open("w", encoding="utf-8") as file:
        file.writelines(f"{block}\n" for block, _ in read_text_blocks(work / SHARD))
    vocabulary = load_tokenizer(work / paths.TOKENIZER).get_vocab()
    (work / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.__getitem__)))


def write_bertlines(work: Path, passes: int, copies: int, output: Path) -> None:
    """Do what the graph's jobs encode_shard, write_dataset_card and export_nvidia do."""
    recipe = Recipe({**RECIPE, "settings": {**RECIPE["settings"], "passes": passes}})
    encode_shard(recipe, "00000", work)
    names = [corpus["name"] for corpus in read_plan(work / paths.PLAN)["corpora"]]
    write_card(recipe, work, {name: [work / f"{name}.counts.json"] for name in names})
    for length in LENGTHS:
        samples = work / paths.SAMPLES.format(length=length, shard="00000")
        export_samples([samples], work / paths.CARD, [output / f"{length}/00000.hdf5"], "nvidia", dupe_factor=copies)


def processor_time(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def of_bertline(work: Path, passes: int, copies: int, output: Path) -> tuple[float, float]:
    """Return seconds of processor time of the work, and of the start of its process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        start = pool.submit(processor_time, resource.RUSAGE_SELF).result()
        pool.submit(write_bertlines, work, passes, copies, output).result()
        return pool.submit(processor_time, resource.RUSAGE_SELF).result() - start, start


def of_nvidia(work: Path, length: int, output: Path) -> tuple[float, float]:
    """Return seconds of processor time of the work, and of the start of its process."""
    (output / str(length)).mkdir(parents=True, exist_ok=True)
    options = {
        "--input_file": work / "text.txt",
        "--vocab_file": work / "vocab.txt",
        "--output_file": output / f"{length}/00000.hdf5",
        "--max_seq_length": length,
        "--max_predictions_per_seq": default_max_predictions(length),
        "--dupe_factor": COPIES,
    }

    def run(*arguments: object) -> float:
        before = processor_time(resource.RUSAGE_CHILDREN)
        command = [sys.executable, str(work / PROGRAM), *map(str, arguments)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            raise BertlineError(f"NVIDIA's program failed: {done.stderr.strip().splitlines()[-1]}")
        return processor_time(resource.RUSAGE_CHILDREN) - before

    start = run("--help")
    return run(*itertools.chain.from_iterable(options.items())) - start, start


def main(folder: Path, *, nvidia: Path, rounds: int = 3) -> None:
    """Run the benchmark.

    Args:
        folder: contains a dump and books/.
        nvidia: contains create_pretraining_data.py and tokenization.py.
        rounds: of all programs; the medians count.
    """
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        for name in FILES:
            if not (nvidia / name).is_file():
                raise BertlineError(f"{nvidia / name} does not exist; name the folder of NVIDIA's two files")
            shutil.copyfile(nvidia / name, work / name)
        (work / "file_utils.py").write_text("cached_path = None\n")
        write_text(folder, work)
        compare(work, rounds)
    finally:
        shutil.rmtree(work)


def compare(work: Path, rounds: int) -> None:
    programs: dict[str, Callable[[Path], tuple[float, float]]] = {
        f"nvidia, {length} tokens": functools.partial(of_nvidia, work, length) for length in LENGTHS
    }
    both, again = f"bertline, both, {COPIES} masks", f"bertline, both, {COPIES} passes"
    programs[both] = functools.partial(of_bertline, work, 1, COPIES)
    programs[again] = functools.partial(of_bertline, work, COPIES, 1)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, run in programs.items():
            spent[name].append(run(work / name.split(",")[0] / name.split(", ")[-1].replace(" ", "-")))
    seconds = {name: [of_work for of_work, _ in times] for name, times in spent.items()}
    theirs = [sum(times) for times in zip(*(seconds[name] for name in list(programs)[: len(LENGTHS)]), strict=True)]
    megabytes = size_of_shard(work / SHARD) / 1e6
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, ", end="")
    print(", ".join(f"{name} {version(name)}" for name in PACKAGES))
    print(f"{megabytes:.1f} MB of text; processor times on one core, medians of {rounds} rounds")
    rows = []
    for name, times in spent.items():
        median = statistics.median(seconds[name])
        ratios = [their / our for their, our in zip(theirs, seconds[name], strict=True)] if "both" in name else []
        start = statistics.median(start for _, start in times)
        rows.append([name, median, start, megabytes / median, statistics.median(ratios) if ratios else None])
    print(tabulate(rows, ["program", "s", "start, s", "MB/s", "times nvidia"], floatfmt=".2f", missingval=""))
    print()
    os.chdir(work)
    print(compare_samples(sorted(Path().glob("*/*/*.hdf5")) + sorted(Path().glob("*/*/*/*.hdf5"))))


if __name__ == "__main__":
    run_command(main, __doc__)
