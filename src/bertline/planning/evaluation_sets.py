"""The evaluation sets of a configuration with which documents are compared."""

from __future__ import annotations

import glob
from functools import partial
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json
from bertline.fingerprint import fingerprint, stage_versions
from bertline.planning.corpora import digests, digests_of_one, expand
from bertline.planning.entries import EvaluationSets
from bertline.planning.task_data import task_data
from bertline.tasks.glue import GLUE_TASKS
from bertline.tasks.registry import TASKS, name_of_task

MAX_SETS = 32  # a document's sets are the bits of a number, see `corpus.overlap`


def evaluation_sets(config: Json, problems: list[str], downloads: dict[str, Json]) -> EvaluationSets:
    """Return everything under `evaluation` on which a model may be scored: dev files, and test files that have a name.

    GLUE's test files are those in a folder: of archives and of the Hub, none are downloaded for this. Tables for
    tagging are left out: with one word per line they contain no sentences. So are rankings: their queries are shorter
    than the sequences that are compared.

    Args:
        problems, downloads: missing files are appended to the former, downloads (path -> source) are added to the
            latter. Missing sets are left out.

    Raises BertlineError if the configuration has none, or more than MAX_SETS.
    """
    evaluation = config.get("evaluation", {})
    sets: dict[str, list[str]] = {}
    contents: Json = {}
    for task in _tasks(evaluation, problems):
        digest = partial(digests_of_one, [])
        found = task_data(evaluation, "", task, with_tests=_names_test(evaluation, task), digests=digest)
        name = name_of_task(task)
        files = [file for split, file in found.files.items() if split != "train"]
        absent = [file for file in files if file not in found.downloads and not Path(file).is_file()]
        if absent:
            problems.append(
                f"configuration: evaluation: {absent[0]} does not exist, so no document is compared with {name}; "
                "put it there or change the key"
            )
            continue
        if isinstance(evaluation.get("glue"), str) and task in GLUE_TASKS:
            folder = Path(GLUE_TASKS[task].files["dev"]).parent
            is_parquet = found.files["dev"].endswith(".parquet")
            pattern = f"{task}/test*.parquet" if is_parquet else f"{folder}/test*.tsv"
            tests = sorted(glob.glob(f"{evaluation['glue']}/{pattern}"))
            files += tests
            found.content["tests"] = list(digests(list(map(Path, tests))).values())
        sets[name] = files
        # Of a table every cell is compared, whatever its columns are for.
        contents[name] = {key: value for key, value in found.content.items() if key not in ("train", "table")}
        downloads |= {path: source for path, source in found.downloads.items() if path in files}
    if len(sets) > MAX_SETS:
        raise BertlineError(
            f"configuration: evaluation: {len(sets)} sets are given, allowed are {MAX_SETS} where a dataset sets "
            "evaluation_overlap; join tables, or leave it out"
        )
    if not sets and not problems:
        raise BertlineError(
            "configuration: evaluation: missing, but a dataset sets evaluation_overlap; name the sets or leave it out"
        )
    return {"sets": sets, "fingerprint": fingerprint({"sets": contents, "versions": stage_versions("overlap")})}


def _names_test(evaluation: Json, task: str) -> bool:
    """Return whether the configuration names the test file of a task that is not GLUE's."""
    given = evaluation["tables"][task.removeprefix("table/")] if task.startswith("table/") else evaluation.get(task, {})
    return "test" in given


def _tasks(evaluation: Json, problems: list[str]) -> list[str]:
    """Return the tasks whose data the configuration names; for a folder in GLUE's layout those that it contains."""
    tasks = [name for name, task in TASKS.items() if not task.family and name in evaluation]
    glue = evaluation.get("glue", {})
    if isinstance(glue, str):
        found = [
            task
            for task, described in GLUE_TASKS.items()
            if Path(glue, described.files["dev"]).exists() or glob.glob(f"{glue}/{task}/validation*.parquet")
        ]
        if not found:
            expand(problems, "evaluation.glue", [f"{glue}/*/dev*.tsv"])
        tasks += found
    else:
        tasks += [task for task in GLUE_TASKS if "dataset" in glue or task in glue]
    tables = evaluation.get("tables", {})
    return tasks + [f"table/{name}" for name, table in tables.items() if table["kind"] != "tagging"]
