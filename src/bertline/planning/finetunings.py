"""Resolution of a run's fine-tunings: every task, point of its grid, start and seed, named by fingerprints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer, separators_in_pair
from bertline.files import Json
from bertline.fingerprint import fingerprint, stage_versions
from bertline.planning.corpora import digests_of_one
from bertline.planning.entries import FinetuningRecipe, RunEntry
from bertline.planning.external_weights import without_directory
from bertline.planning.models import check_length
from bertline.planning.plan import Plan
from bertline.planning.rankings import TOKENIZED, add_ranking
from bertline.planning.task_data import TaskData, task_data, unreadable_columns
from bertline.settings.configuration import definition, fill_defaults, strip_defaults
from bertline.tasks.lengths import FEWEST_SPECIAL_TOKENS, check_lengths
from bertline.tasks.registry import RANKING, TASKS, name_of_task, settings_of_task
from bertline.tasks.task import PLANNED_SETTINGS
from bertline.training.recipe import check_used, missing_base_batch_size


@dataclass(frozen=True)
class Start:
    """The initial weights of a run's fine-tunings. `random` contains what random weights depend on."""

    initial: Json
    random: Json
    model: Json
    network: Json | None  # the model's configuration, None while its directory is missing
    tokenizer: str | None = None  # its file, if it is not the dataset's


def add_finetunings(plan: Plan, run: RunEntry, start: Start, task: str, settings: Json) -> None:
    """Add the fine-tunings of a task to the plan and to its run; a task whose data is absent is skipped.

    Raises BertlineError for incompatible settings, and if the configuration names no data.
    """
    name, where = name_of_task(task), f"runs.{run['name']}.finetune.{key_of_task(task)}"
    _check_settings(plan, f"configuration: {where}", run, start, task, settings)
    absent: list[str] = []
    data = task_data(
        plan.config.get("evaluation", {}),
        run["name"],
        task,
        with_tests=settings.get("predict_test", False),
        digests=partial(digests_of_one, absent),
    )
    if "negatives" in _chosen(plan, task, settings) and "train_qrels" not in data.files:
        raise BertlineError(
            f"configuration: {where}.negatives: given {settings['negatives']}, but only with train.qrels are negatives "
            "drawn; leave it out"
        )
    absent += unreadable_columns(data)
    if absent:
        # Missing task data should not block a week of pretraining.
        more = f" (and {len(absent) - 1} more)" if absent[1:] else ""
        run["skipped"][name] = f"{where} is left out: {absent[0].removeprefix('configuration: ')}{more}"
        return
    plan.downloads |= data.downloads
    if task.startswith(RANKING):
        add_ranking(plan, run, start.tokenizer, data)
    choices: dict[str, list[str]] = {}
    for place, begins, chosen in _starts(name, settings):
        for seed in range(1, settings["seeds"] + 1):
            recipe = _recipe(plan, run, start, task, data, chosen, begins=begins, seed=seed)
            key = recipe["fingerprint"]
            if key in plan.finetunings and plan.finetunings[key]["description"] != recipe["description"]:
                recipe["description"] = ""  # each is of one run, and the card of all that share it
            plan.finetunings[key] = recipe
            run["finetunings"][f"{place}/seed{seed}"] = key
            choices.setdefault(name if begins == "pretrained" else f"{name}/random-weights", []).append(key)
    for place, finetunings in choices.items():
        key = fingerprint({"keep": settings["keep"], "finetunings": finetunings})
        run["kept"][place] = key
        plan.kept[key] = {"fingerprint": key, "keep": settings["keep"], "finetunings": finetunings}


def _check_settings(plan: Plan, where: str, run: RunEntry, start: Start, task: str, settings: Json) -> None:
    if start.network is not None:
        check_length(start.network, settings["max_sequence_length"], f"{where}.max_sequence_length")
    if "max_query_length" in settings:
        check_lengths(task, settings, _special_tokens(_tokenizer_of(plan, run, start)), f"{where}.")
    allowed = definition(plan.schema, settings_of_task(task))
    filled_in = fill_defaults(settings, allowed, plan.schema)
    chosen = _chosen(plan, task, settings)
    check_used(chosen, filled_in, allowed, where)
    if problem := missing_base_batch_size(filled_in):
        raise BertlineError(f"{where}.{problem}")
    _check_grid(where, chosen, settings["grid"], settings["random_weights"])


def _tokenizer_of(plan: Plan, run: RunEntry, start: Start) -> str | None:
    """Return the file, or folder, of the tokenizer that a run is given; None for one that is trained."""
    if start.tokenizer is not None or run["dataset"] is None:
        return start.tokenizer
    dataset = plan.config.get("datasets", {}).get(plan.datasets[run["dataset"]]["name"], {})
    return dataset.get("tokenizer", {}).get("file")


def _special_tokens(tokenizer: str | None) -> int:
    """Return the number of special tokens of two texts.

    It is that of BERT's template for a trained tokenizer and a vocab.txt, and, since it is the fewest, for one that
    cannot be read yet: the job checks again.
    """
    if tokenizer is None or tokenizer.endswith(".txt") or not Path(tokenizer).exists():
        return FEWEST_SPECIAL_TOKENS
    try:
        return 2 + separators_in_pair(read_tokenizer(tokenizer))
    except BertlineError:  # which the job reports
        return FEWEST_SPECIAL_TOKENS


def _chosen(plan: Plan, task: str, settings: Json) -> Json:
    """Return the settings that differ from their defaults."""
    return strip_defaults(settings, definition(plan.schema, settings_of_task(task)), plan.schema)


def _check_grid(where: str, chosen: Json, grid: Json, random_weights: list[float]) -> None:
    """Raise BertlineError for a setting that the grid replaces everywhere, or for values whose names are the same."""
    for key in grid:
        if key in chosen and (key == "learning_rate" or not random_weights):
            raise BertlineError(f"{where}.{key}: given {chosen[key]}, but grid.{key} replaces it; leave one out")
    for key, values in [*((f"grid.{key}", values) for key, values in grid.items()), ("random_weights", random_weights)]:
        named: dict[str, float] = {}
        for value in values:
            if named.setdefault(f"{value:g}", value) != value:
                raise BertlineError(
                    f"{where}.{key}: given {named[f'{value:g}']} and {value}, whose results would both be named "
                    f"{value:g}; leave one out"
                )


def _starts(name: str, settings: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield a name, what training begins from and its settings, for each point of the grid and each random start."""
    common = {key: value for key, value in settings.items() if key not in PLANNED_SETTINGS}
    for place, point in grid_points(settings.get("grid", {})):
        yield f"{name}{place}", "pretrained", common | point
    for rate in settings["random_weights"]:
        yield f"{name}/random-weights-{rate:g}", "random", common | {"learning_rate": rate}


def _recipe(
    plan: Plan, run: RunEntry, start: Start, task: str, data: TaskData, chosen: Json, *, begins: str, seed: int
) -> FinetuningRecipe:
    """Return the recipe of a fine-tuning with the settings `chosen`."""
    allowed, pretrained = definition(plan.schema, settings_of_task(task)), begins == "pretrained"
    filled_in = fill_defaults(chosen, allowed, plan.schema)
    drawn = ["negatives"] if filled_in.get("negatives", 1) > 1 else []
    identifying = {
        "task": task,
        "seed": seed,
        "settings": strip_defaults(chosen, allowed, plan.schema),
        "initial_weights": without_directory(start.initial) if pretrained else start.random,
        "data": data.content,
        "versions": versions_in(filled_in["precision"]) | stage_versions(*drawn),
    }
    recipe: FinetuningRecipe = {
        "fingerprint": fingerprint(identifying),
        "task": task,
        "seed": seed,
        "start": begins,
        "description": run["config"]["description"],  # for the model's card; not in the fingerprint
        "dataset": run["dataset"],
        "model": start.model,
        "settings": {name: value for name, value in filled_in.items() if name not in PLANNED_SETTINGS},
        "initial_weights": start.initial if pretrained else None,
        "data": data.files,
        "sha256": {
            file: data.content[kind][0]
            for kind, file in data.files.items()
            if kind not in TOKENIZED and file not in plan.downloads
        },
    }
    if data.table is not None:
        recipe["table"] = data.table
    if start.tokenizer is not None:
        recipe["tokenizer"] = start.tokenizer
    return recipe


def versions_in(precision: str) -> dict[str, int]:
    """Return the versions of fine-tunings, and of predictions, that are computed in `precision`."""
    return stage_versions("finetuning", *(["half_precision"] if precision in ("bf16", "fp16") else []))


def tasks_of(finetune: Json) -> Iterator[tuple[str, Json]]:
    """Yield every task with its settings: those of no family first, then GLUE's, custom tables and rankings."""
    for name, task in TASKS.items():
        if not task.family and name in finetune:
            yield name, finetune[name]
    yield from finetune.get("glue", {}).items()
    for name, settings in finetune.get("tables", {}).items():
        yield f"table/{name}", settings
    for name, settings in finetune.get("ranking", {}).items():
        yield f"{RANKING}{name}", settings


def key_of_task(task: str) -> str:
    """Return the key of a task under `finetune`."""
    if task.startswith("table/"):
        return f"tables.{task.removeprefix('table/')}"
    return name_of_task(task).replace("/", ".")


def grid_points(grid: Json) -> Iterator[tuple[str, Json]]:
    """Yield every combination of a grid's values with its suffix for names; without a grid, a single empty one."""
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        yield "".join(f"/{key}-{value:g}" for key, value in point.items()), point
