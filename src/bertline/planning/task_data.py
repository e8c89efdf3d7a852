"""The locations of a fine-tuning task's files: on disk, or to be downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json
from bertline.finetuning.conll import read_sentences
from bertline.finetuning.examples import check_metrics, labels_of
from bertline.finetuning.tables import read_columns
from bertline.fingerprint import fingerprint
from bertline.results import paths
from bertline.tasks.glue import GLUE_TASKS, GlueTask
from bertline.tasks.registry import RANKING, TASKS

Digests = Callable[[str, str], list[str]]  # of the file of a key; empty if it is absent

HUB = "https://huggingface.co/datasets"


@dataclass
class TaskData:
    """A task's files by set, the identification of their content, the description of a table, and the downloads."""

    files: dict[str, str] = field(default_factory=dict)
    content: Json = field(default_factory=dict)
    table: Json | None = None
    downloads: dict[str, Json] = field(default_factory=dict)


def task_data(evaluation: Json, run: str, task: str, *, with_tests: bool, digests: Digests) -> TaskData:
    """Return the data of a registered task, of `table/{name}` or of `ranking/{name}`.

    Args:
        evaluation: that part of the configuration.
        run: the run's name, for messages.
        with_tests: whether the test sets are predicted, too.

    Raises BertlineError if the configuration does not name the data.
    """
    if task in GLUE_TASKS:
        return _glue_data(evaluation.get("glue"), run, task, with_tests, digests)
    if task.startswith(RANKING):
        return _ranking_data(evaluation.get("ranking", {}), run, task, with_tests, digests)
    name = task.removeprefix("table/")
    where = f"evaluation.{task}" if task in TASKS else f"evaluation.tables.{name}"
    given = evaluation.get(task) if task in TASKS else evaluation.get("tables", {}).get(name)
    if given is None:
        raise _missing(where, run, task)
    if "url" in given:
        return _archive(given, TASKS[task].files_of(with_tests=with_tests), with_tests)
    return _named_files(given, where, with_tests, digests)


def unreadable_columns(data: TaskData) -> Iterator[str]:
    """Yield what is wrong with the header and the first row, or sentence, of each file of a custom table on disk."""
    if data.table is None or data.table["kind"] == "ranking":
        return
    for name, file in data.files.items():
        if file not in data.downloads and Path(file).exists():
            try:
                _read_first(data.table, Path(file), labelled=name != "test")
            except BertlineError as error:
                yield str(error)


def _read_first(table: Json, path: Path, *, labelled: bool) -> None:
    if table["kind"] == "tagging":
        next(read_sentences(path, word=table["word"], tag=table["tag"], tagged=labelled))
    else:
        next(read_columns(path, [*table["texts"], *([table["label"]] if labelled else [])]), None)


def _missing(where: str, run: str, task: str) -> BertlineError:
    archive = TASKS[task].archive if task in TASKS else ""
    hint = f"; name its files, or its archive: {{url: {archive}}}" if archive else "; name its files"
    return BertlineError(f"configuration: {where}: missing, but runs.{run}.finetune asks for {task}{hint}")


def _named_files(given: Json, where: str, with_tests: bool, digests: Digests) -> TaskData:
    data = TaskData()
    for name in _sets_of(given, where, with_tests):
        _add_file(data, where, name, given[name], digests)
    if "kind" in given:
        try:
            _check_table(given)
        except BertlineError as error:
            raise BertlineError(f"configuration: {where}.{error}") from None
        data.table = {key: value for key, value in given.items() if key not in ("train", "dev", "test")}
        data.content["table"] = data.table
    return data


def _check_table(table: Json) -> None:
    """Raise BertlineError, beginning with the key, for a description of a table that contradicts itself."""
    kind, labels, texts = table["kind"], labels_of(table), table.get("texts", [])
    if kind == "tagging":
        if table["tag"] == table["word"]:
            raise BertlineError(
                f"tag: given {table['tag']}, which is also the column of the word; name that of the tags"
            )
        return
    if kind == "regression" and labels:
        raise BertlineError(f"labels: given {', '.join(labels)}, but kind regression has numbers; leave it out")
    if len(set(texts)) < len(texts):
        raise BertlineError(f"texts: given '{texts[0]}' twice; name two columns, or this one once")
    if table["label"] in texts:
        raise BertlineError(f"label: given '{table['label']}', which is also one of texts; name another column")
    check_metrics(kind, table.get("metrics", ()), labels)


def _ranking_data(rankings: Json, run: str, task: str, with_tests: bool, digests: Digests) -> TaskData:
    """Return the files of a ranking by set and kind, such as `dev_queries`."""
    name = task.removeprefix(RANKING)
    where = f"evaluation.ranking.{name}"
    if name not in rankings:
        raise _missing(where, run, task)
    given = rankings[name]
    data = TaskData(table={"kind": "ranking", "relevance_level": given["relevance_level"], "metric": given["metric"]})
    data.content["table"] = data.table
    files = {"collection": given["collection"]}
    for part in _sets_of(given, where, with_tests):
        files |= {f"{part}_{kind}": source for kind, source in given[part].items()}
    for kind, source in files.items():
        _add_file(data, where, kind, source, digests)
    return data


def _sets_of(given: Json, where: str, with_tests: bool) -> list[str]:
    if with_tests and "test" not in given:
        raise BertlineError(f"configuration: {where}.test: missing, but predict_test asks for it")
    return ["train", "dev", *(["test"] if with_tests else [])]


def _add_file(data: TaskData, where: str, name: str, source: str | Json, digests: Digests) -> None:
    """Add a file on disk, or one to download to a folder of its own: several URLs may end with one name."""
    if isinstance(source, str):
        data.files[name], data.content[name] = source, digests(f"{where}.{name.replace('_', '.')}", source)
    else:
        folder = where.removeprefix("evaluation.").replace(".", "/", 1)
        data.files[name] = _downloaded(source, f"{folder}/{name}/{source['url'].rsplit('/', 1)[1]}")
        data.downloads[data.files[name]] = source
        data.content[name] = [source["sha256"]] if "sha256" in source else source  # as of a file on disk


def _content_of(source: Json) -> Json:
    """Return what identifies the content of a download: its SHA-256, so that a mirror changes nothing, or its URL."""
    return {"sha256": source["sha256"]} if "sha256" in source else source


def _downloaded(source: Json, file: str) -> str:
    """Return the path of a file that is downloaded; another source, such as a changed URL, has another path."""
    return paths.EVALUATION_FILE.format(fingerprint=fingerprint(source), file=file)


def _archive(given: Json, files: dict[str, str], with_tests: bool) -> TaskData:
    """Return members of an archive that is to be downloaded."""
    data = TaskData(content={**_content_of(given), "tests": with_tests})
    for name, member in files.items():
        data.files[name] = _downloaded(given, member)
        data.downloads[data.files[name]] = {**given, "member": member}
    return data


def _glue_data(glue: Json | str | None, run: str, name: str, with_tests: bool, digests: Digests) -> TaskData:
    task = GLUE_TASKS[name]
    official = task.files_of(with_tests=with_tests)
    if isinstance(glue, str):
        # In the layout of the official archives or, if those files are absent, of nyu-mll/glue.
        parquet = _parquet_files(name, task, with_tests)
        is_parquet = not Path(glue, official["train"]).exists() and Path(glue, parquet["train"]).exists()
        files = {part: f"{glue}/{path}" for part, path in (parquet if is_parquet else official).items()}
        return TaskData(files, {part: digests("evaluation.glue", path) for part, path in files.items()})
    if glue is not None and "dataset" in glue:
        data = TaskData(content={**glue, "tests": with_tests})
        for part, member in _parquet_files(name, task, with_tests).items():
            data.files[part] = _downloaded(glue, member)
            data.downloads[data.files[part]] = {"url": f"{HUB}/{glue['dataset']}/resolve/{glue['revision']}/{member}"}
        return data
    if glue is None or name not in glue:
        raise _missing(f"evaluation.glue.{name}", run, name)
    data = _archive(glue[name], {part: file for part, file in official.items() if part != "diagnostic"}, with_tests)
    if "diagnostic" in official:
        if "diagnostic" not in glue:
            raise _missing("evaluation.glue.diagnostic", run, f"{name} with predict_test")
        source = glue["diagnostic"]
        data.content["diagnostic"] = _content_of(source)
        data.files["diagnostic"] = _downloaded(source, official["diagnostic"])
        data.downloads[data.files["diagnostic"]] = source
    return data


def _parquet_files(name: str, task: GlueTask, with_tests: bool) -> dict[str, str]:
    """Return the files of a task in nyu-mll/glue: {task}/{split}-00000-of-00001.parquet."""
    return {
        part: "ax/test-00000-of-00001.parquet"
        if part == "diagnostic"
        else f"{name}/{task.parquet_splits.get(part, part)}-00000-of-00001.parquet"
        for part in task.files_of(with_tests=with_tests)
    }
