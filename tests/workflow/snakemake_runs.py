"""A copy of the workflow in a folder of its own, and snakemake run in it as a person would.

Runs start at once, because a fork server has already imported snakemake and what the Snakefile imports.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from fork_server import forking_with

ROOT = Path(__file__).parents[2]
CONTEXT = forking_with(
    *("pytest", "snakemake.cli", "snakemake.report.html_reporter", "smart_open", "snakemake_logger_plugin_bertline"),
    *(
        "bertline.planning.resolve",
        "bertline.planning.inputs",
        "bertline.planning.requested",
        "bertline.planning.recipes",
    ),
    *("bertline.planning.targets", "bertline.cluster.schedulers", "bertline.corpus.sources"),
)
PHASE = {
    "global_batch_size": 8,
    "steps": 4,
    "learning_rate": 1.0e-3,
    "optimizer": "adamw",
    "precision": "fp32",
    "masking": {"probability": 0.15},
}
TASK = {"epochs": 0.05, "precision": "fp32", "max_sequence_length": 64}
# A small dump and a book, a very small model, one task.
SMALL_CONFIG: dict[str, Any] = {
    "mirrors": ["resources/sample/mirror"],
    "corpora": {
        "wikipedia": {"source": "wikimedia", "language": "sample", "dump": "20260101", "sentences": "unicode"},
        "book": {"source": "files", "paths": ["resources/sample/books/book-001.txt"]},
    },
    "datasets": {
        "small": {
            "corpora": ["wikipedia", "book"],
            "shards": 2,
            "held_out": 0.05,
            "tokenizer": {"train": "wordpiece", "vocab_size": 400},
        }
    },
    "evaluation": {"glue": "resources/sample/glue"},
    "runs": {
        "first": {
            "dataset": "small",
            "model": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
            "phases": {
                "phase1": {**PHASE, "sequence_length": 128},
                "phase2": {**PHASE, "sequence_length": 512, "steps": 2},
            },
            "finetune": {"glue": {"cola": TASK}},
        }
    },
}


def book_config(**corpus: Any) -> dict[str, Any]:
    """Return a configuration of one short text file, text.txt, and one phase; keyword arguments are of the corpus."""
    return {
        "sequence_lengths": [128],
        "corpora": {"book": {"source": "files", "paths": ["text.txt"], **corpus}},
        "datasets": {"small": {**SMALL_CONFIG["datasets"]["small"], "corpora": ["book"], "shards": 1}},
        "runs": {
            "first": {
                "dataset": "small",
                "model": SMALL_CONFIG["runs"]["first"]["model"],
                "phases": {"phase1": {**PHASE, "sequence_length": 128}},
            }
        },
    }


def copy_workflow(folder: Path) -> Path:
    """Copy what snakemake needs of the project into `folder`, which is made if need be."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "Snakefile", folder)
    for part in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def write_external_weights(folder: Path) -> None:
    """Write a very small BERT as transformers does, with a vocabulary of letters."""
    import transformers

    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *".,?", *(f"##{letter}" for letter in letters)]
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))


def environment() -> dict[str, str]:
    """Return this one, with the programs beside this Python, and all that Snakemake prints, also of a dry run."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NO_COLOR": "1", "VERBOSE": "1"}


def start_snakemake(folder: Path, *arguments: str, output: str | None) -> BaseProcess:
    """Start snakemake in `folder`; both of its streams go to the file `output`, or to the terminal."""
    process = CONTEXT.Process(target=_call_snakemake, args=(folder, arguments, environment(), output))
    process.start()
    return process


def run_snakemake(folder: Path, *arguments: str, check: bool = True, live: bool = False) -> subprocess.CompletedProcess:
    """Run snakemake in `folder`; its output, both streams together, is in `.stdout`, or on the terminal if `live`."""
    with tempfile.NamedTemporaryFile("r") as output:
        process = start_snakemake(folder, *arguments, output=None if live else output.name)
        process.join()
        finished = subprocess.CompletedProcess(["snakemake", *arguments], process.exitcode or 0, output.read())
    if check and finished.returncode != 0:
        pytest.fail(f"snakemake {' '.join(arguments)} failed:\n{finished.stdout[-6000:]}")
    return finished


def _call_snakemake(folder: Path, arguments: tuple[str, ...], environment: dict[str, str], output: str | None) -> None:
    """Do in this process what `python -m snakemake` does in a new one."""
    from snakemake.cli import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if output is not None:
        with open(output, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    sys.argv = ["snakemake", *arguments]
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out


def jobs_of(output: str) -> dict[str, int]:
    """The job counts that a dry run prints."""
    table = output.split("count", 1)[1]
    return {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, flags=re.MULTILINE)}
