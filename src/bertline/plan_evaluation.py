"""The evaluation sets of a configuration: the files of a task, and those that documents are compared with."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.identity import fingerprint, stage_versions
from bertline.plan_corpora import digests, expand

Json = dict[str, Any]

# The folder of each GLUE task in the official archives, and its two files.
GLUE_FILES = {
    "cola": ("CoLA", "train.tsv", "dev.tsv"),
    "sst2": ("SST-2", "train.tsv", "dev.tsv"),
    "mrpc": ("MRPC", "train.tsv", "dev.tsv"),
    "stsb": ("STS-B", "train.tsv", "dev.tsv"),
    "qqp": ("QQP", "train.tsv", "dev.tsv"),
    "mnli": ("MNLI", "train.tsv", "dev_matched.tsv"),
    "qnli": ("QNLI", "train.tsv", "dev.tsv"),
    "rte": ("RTE", "train.tsv", "dev.tsv"),
    "wnli": ("WNLI", "train.tsv", "dev.tsv"),
}


def task_data(
    config: Json, run: str, task: str, problems: list[str], downloads: dict[str, Json]
) -> tuple[dict[str, str], Json]:
    """The train and dev file of a task, and what identifies their content.

    `problems` grows by what is not there yet, `downloads` by what comes from the network (path -> source).
    """
    evaluation = config.get("evaluation", {})
    where = f"evaluation.{task}" if task.startswith("squad") else f"evaluation.glue.{task}"
    glue = evaluation.get("glue")
    if task.startswith("squad"):
        given = evaluation.get(task)
    elif isinstance(glue, str):
        folder, *names = GLUE_FILES[task]
        given = {split: f"{glue}/{folder}/{name}" for split, name in zip(("train", "dev"), names, strict=True)}
    else:
        given = (glue or {}).get(task)
    if given is None:
        raise BertlineError(f"configuration: {where}: missing, but runs.{run}.finetune asks for {task}")
    if "url" in given:
        return {split: _member(task, split, given, downloads) for split in ("train", "dev")}, given
    data: dict[str, str] = {}
    content: Json = {}
    for split in ("train", "dev"):
        data[split], content[split] = _file(given[split], f"{where}.{split}", problems, downloads)
    return data, content


def evaluation_sets(config: Json, problems: list[str], downloads: dict[str, Json]) -> Json:
    """Everything under `evaluation` on which a model may be scored: dev files, and GLUE's test files where they lie.

    Returns `sets`, name -> files, and the `fingerprint` of what documents are compared with. Raises BertlineError if
    the configuration has none.
    """
    evaluation = config.get("evaluation", {})
    sets: dict[str, list[str]] = {}
    contents: Json = {}
    for task in ("squad_v1", "squad_v2"):
        if task in evaluation:
            file, contents[task] = _file(evaluation[task]["dev"], f"evaluation.{task}.dev", problems, downloads)
            sets[task] = [file]
    glue = evaluation.get("glue", {})
    for task, (folder, _, _) in GLUE_FILES.items():
        if isinstance(glue, str):
            files = sorted(file for split in ("dev", "test") for file in glob.glob(f"{glue}/{folder}/{split}*.tsv"))
            content: Any = list(digests([Path(file) for file in files]).values())
        else:
            files = [_member(task, "dev", glue[task], downloads)] if task in glue else []
            content = glue.get(task)
        if files:
            sets[f"glue/{task}"], contents[f"glue/{task}"] = files, content
    if isinstance(glue, str) and not any(name.startswith("glue/") for name in sets):
        expand(problems, "evaluation.glue", [f"{glue}/*/dev*.tsv"])
    if not sets and not problems:
        raise BertlineError(
            "configuration: evaluation: missing, but a dataset sets evaluation_overlap; name the sets or leave it out"
        )
    return {"sets": sets, "fingerprint": fingerprint({"sets": contents, "versions": stage_versions("overlap")})}


def _member(task: str, split: str, archive: Json, downloads: dict[str, Json]) -> str:
    """The path of a file out of one of GLUE's archives."""
    folder, train, dev = GLUE_FILES[task]
    name = {"train": train, "dev": dev}[split]
    path = f"resources/evaluation/{folder}/{name}"
    downloads[path] = {**archive, "member": f"{folder}/{name}"}
    return path


def _file(source: str | Json, key: str, problems: list[str], downloads: dict[str, Json]) -> tuple[str, Any]:
    """The path of a file that lies there or is downloaded, and what identifies its content."""
    if isinstance(source, dict):
        path = f"resources/evaluation/{source['url'].rsplit('/', 1)[1]}"
        downloads[path] = source
        return path, source
    return source, list(digests(expand(problems, key, [source])).values())
