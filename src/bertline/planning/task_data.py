"""The locations of a fine-tuning task's files: on disk, or to be downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.results import paths

Json = dict[str, Any]
Digests = Callable[[str, str], list[str]]  # of the file of a key; empty if it is absent

# The folder of each GLUE task in the official archives, and its files by set; test sets are predicted on request.
GLUE_FILES = {
    "cola": ("CoLA", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "sst2": ("SST-2", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "mrpc": ("MRPC", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "stsb": ("STS-B", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "qqp": ("QQP", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "mnli": (
        "MNLI",
        {
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
    ),
    "qnli": ("QNLI", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "rte": ("RTE", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
    "wnli": ("WNLI", {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}),
}
# A test set with MNLI's classes, which is a separate file.
DIAGNOSTIC = "diagnostic/diagnostic.tsv"
# The files of nyu-mll/glue: {task}/{split}-00000-of-00001.parquet.
PARQUET_SPLITS = {"dev": "validation"}
PARQUET_SPLITS_OF_MNLI = {
    "dev": "validation_matched",
    "dev_mismatched": "validation_mismatched",
    "test": "test_matched",
}
HUB = "https://huggingface.co/datasets"


@dataclass
class TaskData:
    """A task's files by set, the identification of their content, the description of a table, and the downloads."""

    files: dict[str, str] = field(default_factory=dict)
    content: Json = field(default_factory=dict)
    table: Json | None = None
    downloads: dict[str, Json] = field(default_factory=dict)


def task_data(evaluation: Json, run: str, task: str, *, with_tests: bool, digests: Digests) -> TaskData:
    """Return the data of `squad_v1`, `squad_v2`, a GLUE task, or `table/{name}`.

    Args:
        evaluation: that part of the configuration.
        run: the run's name, for messages.
        with_tests: whether the test sets are predicted, too.

    Raises BertlineError if the configuration does not name the data.
    """
    family, _, name = task.rpartition("/")
    if task.startswith("squad") or family == "table":
        where = f"evaluation.tables.{name}" if family else f"evaluation.{task}"
        given = evaluation.get("tables", {}).get(name) if family else evaluation.get(task)
        if given is None:
            raise _missing(where, run, task)
        return _named_files(given, where, with_tests, digests)
    glue = evaluation.get("glue")
    if isinstance(glue, str):
        return _glue_folder(glue, task, with_tests, digests)
    if glue is not None and "dataset" in glue:
        return _glue_of_hub(glue, task, with_tests)
    if task not in (glue or {}):
        raise _missing(f"evaluation.glue.{task}", run, task)
    return _glue_archive(glue or {}, run, task, with_tests)


def _missing(where: str, run: str, task: str) -> BertlineError:
    return BertlineError(f"configuration: {where}: missing, but runs.{run}.finetune asks for {task}")


def _named_files(given: Json, where: str, with_tests: bool, digests: Digests) -> TaskData:
    data = TaskData()
    if with_tests and "test" not in given:
        raise BertlineError(f"configuration: {where}.test: missing, but predict_test asks for it")
    for name in ("train", "dev", *(("test",) if with_tests else ())):
        source = given[name]
        if isinstance(source, dict):
            # Several tables may have a train.csv, and a table's two URLs may end with the same name.
            folder = where.removeprefix("evaluation.").replace(".", "/", 1) + f"/{name}/" if "kind" in given else ""
            path = paths.EVALUATION_FILE.format(file=folder + source["url"].rsplit("/", 1)[1])
            data.downloads[path] = source
            data.files[name], data.content[name] = path, source
        else:
            data.files[name], data.content[name] = source, digests(f"{where}.{name}", source)
    if "kind" in given:
        data.table = {key: value for key, value in given.items() if key not in ("train", "dev", "test")}
        data.content["table"] = data.table
    return data


def _glue_folder(folder: str, task: str, with_tests: bool, digests: Digests) -> TaskData:
    """Return files in the layout of the official archives or, if those are absent, of nyu-mll/glue."""
    official, parquet = _official_paths(task, with_tests), _parquet_paths(task, with_tests)
    chosen = official
    if not Path(folder, official["train"]).exists() and Path(folder, parquet["train"]).exists():
        chosen = parquet
    files = {name: f"{folder}/{path}" for name, path in chosen.items()}
    return TaskData(files, {name: digests("evaluation.glue", path) for name, path in files.items()})


def _glue_of_hub(glue: Json, task: str, with_tests: bool) -> TaskData:
    data = TaskData(content={**glue, "tests": with_tests})
    for name, member in _parquet_paths(task, with_tests).items():
        data.files[name] = paths.EVALUATION_FILE.format(file=f"glue-{glue['revision']}/{member}")
        data.downloads[data.files[name]] = {"url": f"{HUB}/{glue['dataset']}/resolve/{glue['revision']}/{member}"}
    return data


def _glue_archive(glue: Json, run: str, task: str, with_tests: bool) -> TaskData:
    data = TaskData(content={**glue[task], "tests": with_tests})
    for name, member in _official_paths(task, with_tests).items():
        data.files[name] = paths.EVALUATION_FILE.format(file=member)
        if name != "diagnostic":
            data.downloads[data.files[name]] = {**glue[task], "member": member}
        elif name in glue:
            data.downloads[data.files[name]] = data.content[name] = glue[name]
        else:
            raise _missing("evaluation.glue.diagnostic", run, f"{task} with predict_test")
    return data


def _official_paths(task: str, with_tests: bool) -> dict[str, str]:
    folder, names = GLUE_FILES[task]
    paths = {name: f"{folder}/{file}" for name, file in names.items() if with_tests or not name.startswith("test")}
    return paths | ({"diagnostic": DIAGNOSTIC} if with_tests and task == "mnli" else {})


def _parquet_paths(task: str, with_tests: bool) -> dict[str, str]:
    splits = PARQUET_SPLITS_OF_MNLI if task == "mnli" else PARQUET_SPLITS
    return {
        name: "ax/test-00000-of-00001.parquet"
        if name == "diagnostic"
        else f"{task}/{splits.get(name, name)}-00000-of-00001.parquet"
        for name in _official_paths(task, with_tests)
    }
