"""GLUE's tasks: the columns of their official files and of `nyu-mll/glue`, and the submission format."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertline.console import BertlineError
from bertline.files import read_json, write_atomically, write_text
from bertline.finetuning.tables import Examples, TextTask, read_examples

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GlueTask(TextTask):
    """A task of GLUE; its columns are those of the official files.

    columns: of a labelled file without a header. skips_broken_rows: whether the official file has rows that lack
    columns. parquet_texts, parquet_classes: columns and order of the classes in nyu-mll/glue, if different.
    submissions: the test sets' file names in a submission, by the set's name.
    """

    submissions: Mapping[str, str]
    columns: tuple[str, ...] = ()
    skips_broken_rows: bool = False
    parquet_texts: tuple[str, ...] = ()
    parquet_classes: tuple[str, ...] = ()


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
# Source: https://gluebenchmark.com/tasks for the files and metrics, and https://gluebenchmark.com/faq for the
# submission. The field after the metrics is the main score in reports.
GLUE_TASKS = {
    "cola": GlueTask(
        ("sentence",),
        "acceptability",
        _BINARY,
        ("matthews", "accuracy"),
        "matthews",
        {"test": "CoLA.tsv"},
        columns=("source", "acceptability", "original_judgement", "sentence"),
    ),
    "sst2": GlueTask(("sentence",), "label", _BINARY, ("accuracy",), "accuracy", {"test": "SST-2.tsv"}),
    "mrpc": GlueTask(
        ("#1 String", "#2 String"),
        "Quality",
        _BINARY,
        ("accuracy", "f1"),
        "accuracy",
        {"test": "MRPC.tsv"},
        parquet_texts=_PAIR,
    ),
    "stsb": GlueTask(_PAIR, "score", (), ("pearson", "spearman"), "spearman", {"test": "STS-B.tsv"}),
    # Hugging Face's reader of GLUE also skips the broken rows of the official QQP file.
    "qqp": GlueTask(
        ("question1", "question2"),
        "is_duplicate",
        _BINARY,
        ("accuracy", "f1"),
        "accuracy",
        {"test": "QQP.tsv"},
        skips_broken_rows=True,
    ),
    "mnli": GlueTask(
        _PAIR,
        "gold_label",
        ("contradiction", "entailment", "neutral"),
        ("accuracy",),
        "accuracy",
        {"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
        parquet_texts=("premise", "hypothesis"),
        parquet_classes=("entailment", "neutral", "contradiction"),
    ),
    "qnli": GlueTask(
        ("question", "sentence"),
        "label",
        _ENTAILMENT,
        ("accuracy",),
        "accuracy",
        {"test": "QNLI.tsv"},
        parquet_classes=_ENTAILMENT,
    ),
    "rte": GlueTask(
        _PAIR, "label", _ENTAILMENT, ("accuracy",), "accuracy", {"test": "RTE.tsv"}, parquet_classes=_ENTAILMENT
    ),
    "wnli": GlueTask(_PAIR, "label", _BINARY, ("accuracy",), "accuracy", {"test": "WNLI.tsv"}),
}
SCORES_OF_STSB = (0.0, 5.0)


def read_glue(path: Path | str, task: GlueTask, *, labelled: bool = True) -> Examples:
    """Read a task's file: the official one (tab-separated, without quoting), or Parquet as in `nyu-mll/glue`.

    Set `labelled` to False for a test file. Raises BertlineError as `read_examples` does.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        columns = TextTask(task.parquet_texts or task.texts, "label", task.labels, task.metrics, task.primary)
        return read_examples(path, columns, labelled=labelled, classes=task.parquet_classes)
    return read_examples(
        path,
        task,
        labelled=labelled,
        header=task.columns if labelled else (),
        # A skipped test row would shift all predictions after it.
        skips_broken_rows=task.skips_broken_rows and labelled,
    )


def write_submission_file(path: Path, task: TextTask, outputs: np.ndarray) -> None:
    """Write a test set's predictions, float32 [N, outputs], in the GLUE server's format."""
    if task.is_regression:
        cells = [f"{value:.3f}" for value in np.clip(outputs[:, 0], *SCORES_OF_STSB)]
    else:
        cells = [task.labels[index] for index in outputs.argmax(axis=1)]
    write_predictions(path, cells)


def write_predictions(path: Path, cells: Sequence[str]) -> None:
    """Write one prediction per example, in order, under the header `index<TAB>prediction`."""
    lines = [f"{index}\t{cell}\n" for index, cell in enumerate(cells)]
    write_text(path, "index\tprediction\n" + "".join(lines))


def choose_submissions(finetunings: Sequence[Path]) -> list[Path]:
    """Return the submission files of each task's fine-tuning with the best dev score, the first in case of a tie.

    Args:
        finetunings: folders of finished fine-tunings with predictions of the test sets, for all seeds and settings.

    Raises BertlineError if a folder is not one of these.
    """
    best: dict[str, tuple[float, list[Path]]] = {}
    for folder in finetunings:
        result = read_json(folder / "metrics.json")
        files = sorted(folder.glob("submission/*.tsv"))
        if not files:
            raise BertlineError(f"{folder} has no predictions of test sets; set predict_test and run it again")
        score = result["scores"][result["primary"]]
        if result["task"] not in best or score > best[result["task"]][0]:
            best[result["task"]] = (score, files)
    for task, (score, files) in best.items():
        logger.info("%s: %s, %.2f on dev", task, files[0].parents[1], score)
    present = {path.name for _, files in best.values() for path in files}
    absent = [name for task in GLUE_TASKS.values() for name in task.submissions.values() if name not in present]
    if absent:
        logger.warning("the server requires every file, and these are missing: %s", ", ".join(absent))
    return [path for _, files in best.values() for path in files]


def zip_submission(files: Sequence[Path], output: Path | str) -> None:
    """Pack files, flat and sorted by name, into a zip whose bytes depend only on them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files, key=lambda path: path.name):
            # Without a date: an explicit ZipInfo has 1980 and none of the file's attributes.
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    with write_atomically(output) as temporary:
        temporary.write_bytes(buffer.getvalue())
