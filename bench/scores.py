"""Make the table of scores on real text and tasks: a BERT-mini from a sample of English, fine-tuned on all tasks.

    python bench/scores.py path/to/test-data folder

The test data are the real files of `make e2e`. For some tasks they contain only a part, from which a complete task is
made in `folder`: the first 10,000 rows of SST-2's training set under their official name; 1,500 dev rows of QNLI, 1,000
pairs of MNLI and 2,000 of Quora, four fifths of them for training; the three articles of SQuAD v2.0, two of them for
training. Then the workflow runs in `folder` with config/mini.yaml as `snakemake finetune`: two phases of pretraining,
every task with three seeds, and the same network without pretraining. A repeated call resumes. The table is printed at
the end, as after the demo.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

sys.path.extend(str(Path(__file__).parents[1] / "tests" / room) for room in ("", "e2e", "workflow"))

from real_input import DUMP, LATIN_1_BOOKS, make_mirror
from snakemake_runs import copy_workflow

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.reporting.terminal import summary

WHOLE = ("CoLA", "MRPC", "RTE", "STS-B", "WNLI")
TASK = {"seeds": 3, "learning_rate": 3.0e-4, "random_weights": [3.0e-4], "max_sequence_length": 128}
SQUAD = {**TASK, "doc_stride": 32, "epochs": 2}
TASKS: dict[str, Any] = {
    "squad_v1": SQUAD,
    "squad_v2": SQUAD,
    "glue": {
        **{task: TASK for task in ("cola", "sst2", "wnli")},
        **{task: {**TASK, "epochs": 4} for task in ("mrpc", "stsb", "rte", "qnli")},
    },
    "tables": {task: {**TASK, "epochs": 4} for task in ("mnli_1000", "quora_2000")},
}


def write_parts(rows: pd.DataFrame, folder: Path, **layout: Any) -> dict[str, str]:
    """Write train.* with four fifths of the rows and dev.* with every fifth; return the paths of both."""
    folder.mkdir(parents=True)
    suffix = "tsv" if layout else "csv"
    paths = {name: folder / f"{name}.{suffix}" for name in ("train", "dev")}
    rows[rows.index % 5 != 0].to_csv(paths["train"], index=False, **layout)
    rows[rows.index % 5 == 0].to_csv(paths["dev"], index=False, **layout)
    return {name: str(path) for name, path in paths.items()}


def prepare_evaluation(data: Path, folder: Path) -> dict[str, Any]:
    """Write the evaluation data to `folder`. Returns the configuration's `evaluation:`."""
    tab: dict[str, Any] = {"sep": "\t", "quoting": csv.QUOTE_NONE}
    text: dict[str, Any] = {"dtype": str, "na_filter": False}
    glue = folder / "glue"
    for task in WHOLE:
        shutil.copytree(data / "glue" / task, glue / task)
    (glue / "SST-2").mkdir()
    shutil.copy(data / "glue/SST-2/train-first10000.tsv", glue / "SST-2/train.tsv")
    shutil.copy(data / "glue/SST-2/dev.tsv", glue / "SST-2")
    write_parts(pd.read_csv(data / "glue/QNLI/dev-first1500.tsv", **text, **tab), glue / "QNLI", **tab)
    names = ["label", "premise", "hypothesis"]
    mnli = pd.read_csv(data / "glue/MNLI/mnli_matched-1000.txt", names=names, **text, **tab)
    quora = pd.read_csv(data / "glue/QQP/quora-pairs-first2000.tsv", sep="\t", **text)
    squad = json.loads((data / "squad/dev-v2.0-slice.json").read_text())
    for name, articles in (("train", squad["data"][:2]), ("dev", squad["data"][2:])):
        (folder / f"squad-v2.0-{name}.json").write_text(json.dumps({**squad, "data": articles}))
    classes = {"kind": "classification"}
    return {
        "glue": str(glue),
        "squad_v1": {
            "train": str(data / "squad/train-v1.1-slice.json"),
            "dev": str(data / "squad/dev-v1.1.json"),
        },
        "squad_v2": {name: str(folder / f"squad-v2.0-{name}.json") for name in ("train", "dev")},
        "tables": {
            "mnli_1000": {**classes, **write_parts(mnli, folder / "mnli"), "texts": names[1:], "label": names[0]},
            "quora_2000": {
                **classes,
                **write_parts(quora, folder / "quora"),
                "texts": ["sentence1", "sentence2"],
                "label": "is_duplicate",
            },
        },
    }


def configuration(data: Path, folder: Path) -> dict[str, Any]:
    """Return config/mini.yaml with the sample of English and all tasks."""
    config = yaml.safe_load((folder / "config/mini.yaml").read_text())
    books = {str(path): path.name in LATIN_1_BOOKS for path in sorted((data / "books").glob("*.txt"))}
    config["mirrors"] = [str(folder / "mirror")]
    config["corpora"] = {
        "english": {"source": "wikimedia", "language": "en", "dump": DUMP},
        "books": {"source": "files", "paths": [path for path, latin_1 in books.items() if not latin_1]},
        "latin_1_books": {
            "source": "files",
            "encoding": "latin-1",
            "paths": [path for path, latin_1 in books.items() if latin_1],
        },
    }
    config["datasets"]["small"]["corpora"] = list(config["corpora"])
    config["evaluation"] = prepare_evaluation(data, folder / "evaluation")
    config["runs"]["mini"]["finetune"] = TASKS
    return config


def main(data: Path, folder: Path) -> None:
    """Run the benchmark.

    Args:
        data: the folder with wiki/, books/, glue/ and squad/.
        folder: for all files; the report is in its results/report.
    """
    data, folder = data.absolute(), folder.absolute()
    if not (folder / "scores.yaml").exists():
        if folder.exists():
            raise BertlineError(f"{folder} is not from an earlier call, or from one that failed; give a new folder")
        folder.mkdir(parents=True)
        copy_workflow(folder)
        make_mirror(data, folder / "mirror")
        content = yaml.safe_dump(configuration(data, folder), sort_keys=False)
        (folder / "scores.yaml").write_text(content)
    placement = ["micro_batch_tokens=1024", "evaluate_every=200", "trainer_options='--compile'", "processes_per_node=2"]
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--configfile", "scores.yaml"]
    command += ["--set-resources", *(f"pretrain_phase:{resource}" for resource in placement), "--"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for target in ("pretrain", "finetune", "report"):
        subprocess.run([*command, target], cwd=folder, env=environment, check=True)  # noqa: S603
    # Paths in a record are relative to this folder.
    os.chdir(folder)
    print(summary([Path("results/runs/mini/record.json")], report=Path("results/report/latest/index.html")))


if __name__ == "__main__":
    run_command(main, __doc__)
