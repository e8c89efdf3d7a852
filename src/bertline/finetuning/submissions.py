"""Files of predictions, and those for GLUE's and SuperGLUE's servers."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bertline.console import BertlineError
from bertline.files import Recipe, read_object, write_atomically, write_text
from bertline.results import paths
from bertline.results.kept import score_in
from bertline.tasks.glue import GLUE_TASKS
from bertline.tasks.task import TextTask

logger = logging.getLogger(__name__)

SCORES_OF_STSB = (0.0, 5.0)


def submission_cells(task: TextTask, outputs: np.ndarray) -> list[str]:
    """Return the predictions of a test set, float32 [N, outputs], as a server expects them."""
    if task.is_regression:
        return [f"{value:.3f}" for value in np.clip(outputs[:, 0], *SCORES_OF_STSB)]
    return [task.labels[index] for index in outputs.argmax(axis=1)]


def write_submission_file(path: Path, task: TextTask, outputs: np.ndarray) -> None:
    """Write a test set's predictions, float32 [N, outputs], in GLUE's format (.tsv) or SuperGLUE's (.jsonl)."""
    cells = submission_cells(task, outputs)
    if path.suffix == ".jsonl":
        lines = [json.dumps({"idx": index, "label": cell}) + "\n" for index, cell in enumerate(cells)]
        write_text(path, "".join(lines))
    else:
        write_predictions(path, cells)


def write_predictions(path: Path, cells: Sequence[str]) -> None:
    """Write one prediction per example, in order, under the header `index<TAB>prediction`.

    White space within a prediction becomes one blank.
    """
    lines = [f"{index}\t{' '.join(cell.split())}\n" for index, cell in enumerate(cells)]
    write_text(path, "index\tprediction\n" + "".join(lines))


def choose_submissions(finetunings: Iterable[str]) -> list[Path]:
    """Return the submission files of each task's fine-tuning with the best dev score, the first in case of a tie.

    Args:
        finetunings: fingerprints of the finished fine-tunings with predict_test, of all seeds and settings.

    Raises BertlineError if a fine-tuning has no predictions of the test sets.
    """
    best: dict[str, tuple[float, list[Path]]] = {}
    for finetuning in finetunings:
        folder = Path(paths.FINETUNING.format(finetuning=finetuning))
        task, score = str(read_object(folder / paths.SCORES, "task")["task"]), score_in(folder / paths.SCORES)
        files = sorted(folder.glob("submission/*.tsv"))
        if not files:
            raise BertlineError(f"{folder} has no predictions of test sets; set predict_test and run it again")
        if task not in best or score > best[task][0]:
            best[task] = (score, files)
    for task, (score, files) in best.items():
        logger.info("%s: %s, %.2f on dev", task, files[0].parents[1], score)
    present = {path.name for _, files in best.values() for path in files}
    absent = [name for task in GLUE_TASKS.values() for name in task.submissions.values() if name not in present]
    if absent:
        logger.warning("the server requires every file, and these are missing: %s", ", ".join(absent))
    return [path for _, files in best.values() for path in files]


def zip_submission(recipe: Recipe, *, output: Path) -> None:
    """Pack the files of `choose_submissions`, flat and sorted by name, into a zip whose bytes depend only on them.

    Args:
        recipe: of the submission: `finetunings`, the fingerprints.
        output: the zip to write.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(choose_submissions(recipe["finetunings"]), key=lambda path: path.name):
            # Without a date: an explicit ZipInfo has 1980 and none of the file's attributes.
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    with write_atomically(output) as temporary:
        temporary.write_bytes(buffer.getvalue())
