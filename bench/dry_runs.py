"""Measure dry runs of the data path, for as many parts as shards.

    python bench/dry_runs.py --numbers 600,2000

The corpus is a data set of the Hugging Face Hub in so many parts; near-duplicates are removed. Nothing is downloaded.
"""

import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

from bertline.command_line import run_command

ROOT = Path(__file__).parents[1]
CORPUS = {"source": "huggingface", "dataset": "some/books", "revision": "0" * 40, "split": "train"}
DATASET = {"corpora": ["hub"], "duplicates": "near", "tokenizer": {"train": "wordpiece", "vocab_size": 30_522}}
PHASE = {"sequence_length": 128, "global_batch_size": 256, "steps": 1000, "learning_rate": 1e-4}


def dry_run(number: int) -> tuple[int, float, float, float]:
    """Return the number of jobs, the seconds, those of the processor, and the peak memory of this and all earlier runs.

    Memory is in MB.
    """
    config = {
        "corpora": {"hub": CORPUS | {"parts": number}},
        "datasets": {"books": DATASET | {"shards": number}},
        "runs": {"books": {"dataset": "books", "model": "bert-base", "phases": {"phase1": PHASE}}},
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.yaml").write_text(yaml.safe_dump(config))
        command: list[Any] = ["snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
        command += ["--profile", ROOT / "profiles/local", "--configfile", f"{folder}/config.yaml"]
        command += ["--dry-run", "--quiet", "rules", "--", "encode"]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        output = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    jobs = next(int(line.split()[-1]) for line in output.stdout.splitlines() if line.startswith("total "))
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return jobs, seconds, used, after.ru_maxrss / 1024


def main(*, numbers: tuple[int, ...] = (600, 2000)) -> None:
    """Run the benchmark.

    Args:
        numbers: of parts and of shards, ascending.
    """
    rows = [[number, *dry_run(number)] for number in numbers]
    heads = ["parts and shards", "jobs", "seconds", "of the processor", "peak MB"]
    print(tabulate(rows, heads, floatfmt=".1f", intfmt=","))


if __name__ == "__main__":
    run_command(main, __doc__)
