"""From a configuration to the list of everything it asks for, each under its fingerprint.

The graph looks its paths and settings up here; nothing in this module runs a stage or touches the network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bertline.configuration import definition, fill_defaults, load, strip_defaults
from bertline.console import BertlineError
from bertline.evaluation_data import evaluation_data
from bertline.files import read_json
from bertline.identity import canonical_json, fingerprint, stage_versions
from bertline.plan_corpora import digests, digests_of_one, expand, resolve_corpus
from bertline.plan_evaluation import evaluation_sets
from bertline.plan_models import check_length, resolve_model
from bertline.plan_tasks import grid_points, key_of_task, tasks_of
from bertline.plan_weights import foreign_tokenizer, foreign_weights, without_directory
from bertline.training.settings import check_packing, check_static_masks, check_together, check_used

Json = dict[str, Any]

# What stands in results/runs/{run}/ beside the phases.
TAKEN_NAMES = ("dataset", "export", "squad_v1", "squad_v2", "glue", "table", "model-card.md", "record.json")


@dataclass
class Plan:
    """Everything a configuration asks for. Keys are names with fingerprints, or fingerprints."""

    config: Json
    schema: Json
    models: Path
    problems: list[str] = field(default_factory=list)  # inputs that are not there yet: a dry run goes on without
    warnings: list[str] = field(default_factory=list)  # what a real run goes on without, too
    corpora: dict[str, Json] = field(default_factory=dict)
    corpus_of_name: dict[str, str] = field(default_factory=dict)
    evaluation: Json | None = None  # the sets that documents are compared with, if a dataset asks for it
    datasets: dict[str, Json] = field(default_factory=dict)
    phases: dict[str, Json] = field(default_factory=dict)
    finetunings: dict[str, Json] = field(default_factory=dict)
    downloads: dict[str, Json] = field(default_factory=dict)  # evaluation data, by path
    runs: dict[str, Json] = field(default_factory=dict)

    @property
    def trained_runs(self) -> dict[str, Json]:
        """The runs that pretrain a model; the others fine-tune weights from elsewhere."""
        return {name: run for name, run in self.runs.items() if run["phases"]}

    @property
    def left_out(self) -> dict[tuple[str, str], str]:
        """The tasks that are left out because their data is not there: run and task -> a line that says so."""
        return {(name, task): line for name, run in self.runs.items() for task, line in run["left_out"].items()}

    def dataset_folder(self, dataset: str) -> str:
        """Where the dataset lies: in results/, or where someone else's finished one was named."""
        return self.datasets[dataset].get("path", f"results/datasets/{dataset}")

    def write_links(self, *, existing_only: bool) -> None:
        """Point the names a person uses, results/runs/{run}/... and results/report/latest, at the fingerprints."""
        links = [(Path("results/report/latest"), Path("results/report", report_fingerprint(self)))]
        for name, run in self.runs.items():
            links += [(Path("results/runs", name, link), Path(target)) for link, target in _links_of_run(self, run)]
        for link, target in links:
            if target.exists() or not existing_only:
                _link(link, target)


def make_plan(config: Json, schema_path: Path | str, models: Path | str) -> Plan:
    """Resolve a configuration. Raises BertlineError naming the first key that is wrong.

    Parameters
    ----------
    config: the configuration as read from its file.
    schema_path: config/config.schema.yaml.
    models: the folder of model descriptions, config/models.
    """
    filled, schema = load(config, schema_path)
    plan = Plan(filled, schema, Path(models))
    for name in filled["corpora"]:
        key, resolved = resolve_corpus(filled, schema, name, plan.problems)
        plan.corpora[key] = resolved
        plan.corpus_of_name[name] = key
    overlaps = {dataset.get("evaluation_overlap", "ignore") for dataset in filled["datasets"].values()}
    if overlaps - {"ignore"}:
        plan.evaluation = evaluation_sets(filled, plan.warnings, plan.downloads)
    named_datasets = {name: _add_dataset(plan, name, dataset) for name, dataset in filled["datasets"].items()}
    for name in _in_order_of_dependence(filled["runs"]):
        _add_run(plan, name, filled["runs"][name], named_datasets)
    plan.warnings += plan.left_out.values()
    # Documents that hold a task's text are dropped: without its files this would be another dataset.
    if "drop" in overlaps or (plan.evaluation and not plan.evaluation["sets"]):
        plan.problems += plan.warnings
        plan.warnings = []
    return plan


def _add_dataset(plan: Plan, name: str, dataset: Json) -> str:
    if "path" in dataset:
        card = Path(dataset["path"]) / "dataset.json"
        if not card.exists():
            raise BertlineError(f"configuration: datasets.{name}.path: {card} does not exist; name a finished dataset")
        content = read_json(card)
        key = content["fingerprint"]
        plan.datasets[key] = {"name": name, "path": dataset["path"], "static_masks": content.get("static_masks", False)}
        return key
    for corpus in dataset["corpora"]:
        if corpus not in plan.corpus_of_name:
            raise BertlineError(
                f"configuration: datasets.{name}.corpora: given '{corpus}', "
                f"allowed are the names under corpora: {', '.join(plan.corpus_of_name) or 'there are none'}"
            )
    corpora = [plan.corpus_of_name[corpus] for corpus in dataset["corpora"]]
    semantic = strip_defaults(dataset, definition(plan.schema, "built_dataset"), plan.schema)
    if "file" in dataset["tokenizer"]:
        vocabulary = expand(plan.problems, f"datasets.{name}.tokenizer.file", [dataset["tokenizer"]["file"]])
        semantic["tokenizer"]["file"] = list(digests(vocabulary).values())
    stages = ["shards", "tokenizer", "samples"]
    if "duplicates" in semantic:
        stages.append("signatures")
    # That documents are reported alters no sample; that they are dropped does, and so do the sets.
    if semantic.pop("evaluation_overlap", None) == "drop":
        semantic["evaluation_overlap"] = plan.evaluation and plan.evaluation["fingerprint"]
    key = fingerprint(
        {
            "dataset": semantic,
            "corpora": corpora,
            "sequence_lengths": sorted(plan.config["sequence_lengths"]),
            "versions": stage_versions(*stages),
        }
    )
    shards = [f"{index:05d}" for index in range(dataset["shards"])]
    plan.datasets[key] = {"name": name, "settings": dataset, "corpora": corpora, "shards": [*shards, "held_out"]}
    return key


def _add_run(plan: Plan, name: str, run: Json, named_datasets: dict[str, str]) -> None:
    where = f"configuration: runs.{name}"
    if "pretrained" in run:
        _add_foreign_run(plan, name, run)
        return
    if run["dataset"] not in named_datasets:
        allowed = ", ".join(named_datasets)
        raise BertlineError(
            f"{where}.dataset: given '{run['dataset']}', allowed are the names under datasets: {allowed}"
        )
    dataset = named_datasets[run["dataset"]]
    model = resolve_model(plan.schema, plan.models, where, run["model"])
    phases: dict[str, str] = {}
    for phase, settings in run["phases"].items():
        if phase in TAKEN_NAMES:
            raise BertlineError(
                f"{where}.phases: a phase cannot be called '{phase}': another link of the run is; rename it"
            )
        _check_phase(plan, f"{where}.phases.{phase}", model, settings, plan.datasets[dataset])
        _check_corpus_weights(plan, f"{where}.phases.{phase}.corpus_weights", dataset, settings)
        phases[phase] = _add_phase(plan, where, run, dataset, model, phase, settings, list(phases.values()))
    plan.runs[name] = {"name": name, "dataset": dataset, "phases": phases, "config": run}
    start = _Start(
        initial={"phase": list(phases.values())[-1]},
        # Random weights still depend on the dataset: its tokenizer reads the task's text.
        random={"model": model, "dataset": dataset},
        model=model,
        network=model,
    )
    _add_tasks(plan, name, start)


@dataclass(frozen=True)
class _Start:
    """What the fine-tunings of a run start from. `random` is what random weights depend on."""

    initial: Json
    random: Json
    model: Json
    network: Json  # the model's description, empty while its directory is not there
    tokenizer: str | None = None  # its file, where it is not the dataset's


def _add_foreign_run(plan: Plan, name: str, run: Json) -> None:
    key = f"runs.{name}.pretrained"
    initial = foreign_weights(plan.problems, key, run["pretrained"])
    start = _Start(
        initial=initial,
        random={"model": without_directory(initial)},
        model={"directory": initial["directory"]},
        network=read_json(config) if (config := Path(initial["directory"], "config.json")).is_file() else {},
        tokenizer=foreign_tokenizer(plan.problems, key, run["pretrained"]),
    )
    plan.runs[name] = {"name": name, "dataset": None, "phases": {}, "config": run}
    _add_tasks(plan, name, start)


def _add_tasks(plan: Plan, name: str, start: _Start) -> None:
    run = plan.runs[name]
    run |= {"finetunings": {}, "left_out": {}}
    for task, settings in tasks_of(run["config"]["finetune"]):
        _add_finetunings(plan, run, start, task, settings)
    # Not the description: other words for the same run are no other run.
    identity = {part: run[part] for part in ("dataset", "phases", "finetunings")}
    if run["left_out"]:
        identity["left_out"] = list(run["left_out"])
    run["fingerprint"] = fingerprint({"run": name, "experiment": plan.config["experiment"], **identity})


def _check_phase(plan: Plan, where: str, model: Json, settings: Json, dataset: Json) -> None:
    encoded = plan.config["sequence_lengths"]
    if settings["sequence_length"] not in encoded:
        raise BertlineError(
            f"{where}.sequence_length: given {settings['sequence_length']}, allowed are "
            f"sequence_lengths: {', '.join(map(str, encoded))}"
        )
    check_length(model, settings["sequence_length"], f"{where}.sequence_length")
    chosen = strip_defaults(settings, definition(plan.schema, "phase"), plan.schema)
    check_used(chosen, settings, definition(plan.schema, "phase"), where)
    if dataset.get("static_masks"):
        check_static_masks(chosen, where)
    check_together(settings, where)
    check_packing(settings, model, where)


def _check_corpus_weights(plan: Plan, where: str, dataset: str, settings: Json) -> None:
    corpora = plan.datasets[dataset].get("settings", {}).get("corpora")
    if corpora is None:  # a finished dataset: its card is asked when training begins
        return
    weights = settings["corpus_weights"]
    for corpus in weights:
        if corpus not in corpora:
            raise BertlineError(f"{where}: given '{corpus}', allowed are the dataset's corpora: {', '.join(corpora)}")
    if all(weights.get(corpus, 1) in (0, {"tokens": 0}) for corpus in corpora):
        raise BertlineError(f"{where}: given 0 for every corpus, which leaves nothing to train on; raise one of them")


def _add_phase(
    plan: Plan, where: str, run: Json, dataset: str, model: Json, phase: str, settings: Json, before: list[str]
) -> str:
    initial: Json | None = {"phase": before[-1]} if before else None
    given = settings.get("initial_weights")
    if given and "directory" in given:
        key = f"{where.removeprefix('configuration: ')}.phases.{phase}.initial_weights.directory"
        initial = foreign_weights(plan.problems, key, given["directory"])
    elif given:
        initial = {"phase": _phase_of_another_run(plan, where, phase, given)}
    semantic = strip_defaults(settings, definition(plan.schema, "phase"), plan.schema)
    semantic.pop("initial_weights", None)
    identity: Json = {
        "settings": semantic,
        "model": model,
        "dataset": dataset,
        "seed": run["seed"],
        "phase": phase,
        "initial_weights": without_directory(initial) if initial else None,
        "versions": stage_versions("pretraining"),
    }
    if initial is None or "directory" in initial or settings["carry_over"] == "weights":
        identity["settings"].pop("carry_over", None)
    key = fingerprint(identity)
    filled = {name: value for name, value in settings.items() if name != "initial_weights"}
    plan.phases[key] = {
        "fingerprint": key,
        "dataset": dataset,
        "model": model,
        "seed": run["seed"],
        "phase": phase,
        "settings": filled,
        "initial_weights": initial,
    }
    return key


def _phase_of_another_run(plan: Plan, where: str, phase: str, given: Json) -> str:
    other = plan.runs.get(given["run"], {}).get("phases", {}).get(given["phase"])
    if other is None:
        runs = [name for name in plan.config["runs"] if not where.endswith(f": runs.{name}")]
        allowed = [f"{name} {phase}" for name in runs for phase in plan.config["runs"][name]["phases"]]
        raise BertlineError(
            f"{where}.phases.{phase}.initial_weights: given {given['run']} {given['phase']}, allowed are the phases of "
            f"other runs: {', '.join(allowed) or 'there are none'}; the phases of one run follow each other"
        )
    return str(other)


def _add_finetunings(plan: Plan, run: Json, start: _Start, task: str, settings: Json) -> None:
    is_squad = task.startswith("squad")
    key = f"configuration: runs.{run['name']}.finetune.{key_of_task(task)}"
    check_length(start.network, settings["max_sequence_length"], f"{key}.max_sequence_length")
    if is_squad and settings["max_query_length"] + 4 > settings["max_sequence_length"]:
        raise BertlineError(
            f"{key}.max_query_length: given {settings['max_query_length']}, which leaves no room for a context in "
            f"max_sequence_length {settings['max_sequence_length']}; lower the first or raise the second"
        )
    absent: list[str] = []
    data = evaluation_data(
        plan.config.get("evaluation", {}),
        run["name"],
        task,
        with_tests=settings.get("predict_test", False),
        digests=partial(digests_of_one, absent),
    )
    name = task if is_squad or "/" in task else f"glue/{task}"
    if absent:
        # A week of pretraining does not wait for it.
        where = key.removeprefix("configuration: ")
        more = f" (and {len(absent) - 1} more)" if absent[1:] else ""
        run["left_out"][name] = f"{where} is left out: {absent[0].removeprefix('configuration: ')}{more}"
        return
    plan.downloads |= data.downloads
    schema_part = definition(plan.schema, "squad" if is_squad else "classification")
    common = {key: value for key, value in settings.items() if key not in ("seeds", "random_weights", "grid")}
    starts: list[tuple[str, str, Json]] = [
        (f"{name}{place}", "pretrained", common | point) for place, point in grid_points(settings.get("grid", {}))
    ]
    for rate in settings["random_weights"]:
        starts.append((f"{name}/random-weights-{rate:g}", "random", common | {"learning_rate": rate}))
    for place, begins, chosen in starts:
        for seed in range(1, settings["seeds"] + 1):
            key = fingerprint(
                {
                    "task": task,
                    "seed": seed,
                    "settings": strip_defaults(chosen, schema_part, plan.schema),
                    "initial_weights": without_directory(start.initial) if begins == "pretrained" else start.random,
                    "data": data.content,
                    "versions": stage_versions("finetuning"),
                }
            )
            filled = fill_defaults(chosen, schema_part, plan.schema)
            plan.finetunings[key] = {
                "fingerprint": key,
                "task": task,
                "seed": seed,
                "start": begins,
                "dataset": run["dataset"],
                "model": start.model,
                "settings": {
                    name: value for name, value in filled.items() if name not in ("seeds", "random_weights", "grid")
                },
                "initial_weights": start.initial if begins == "pretrained" else None,
                "data": data.files,
                **({} if data.table is None else {"table": data.table}),
                **({} if start.tokenizer is None else {"tokenizer": start.tokenizer}),
            }
            run["finetunings"][f"{place}/seed{seed}"] = key


def record(plan: Plan, name: str) -> Json:
    """What a run consists of: its names and the fingerprints and folders behind them."""
    run = plan.runs[name]
    return {
        "run": name,
        "fingerprint": run["fingerprint"],
        "experiment": plan.config["experiment"],
        "description": run["config"]["description"],
        "config": run["config"],
        "dataset": run["dataset"] and {"fingerprint": run["dataset"], "path": plan.dataset_folder(run["dataset"])},
        "phases": [
            {"name": phase, "fingerprint": key, "path": f"results/phases/{key}"} for phase, key in run["phases"].items()
        ],
        "finetunings": [
            {
                "name": finetuning,
                "fingerprint": key,
                "path": f"results/finetunings/{key}",
                "learning_rate": plan.finetunings[key]["settings"]["learning_rate"],
                **{part: plan.finetunings[key][part] for part in ("task", "seed", "start")},
            }
            for finetuning, key in run["finetunings"].items()
        ],
        **({"left_out": list(run["left_out"].values())} if run["left_out"] else {}),
    }


def report_fingerprint(plan: Plan) -> str:
    """The name of the report over all runs of the plan."""
    return fingerprint([run["fingerprint"] for run in plan.runs.values()])


def without_defaults(plan: Plan, part: str, settings: Json) -> Json:
    """Settings of a part of the schema (`wikimedia`, `files`, ...) without those that equal their defaults."""
    return strip_defaults(settings, definition(plan.schema, part), plan.schema)


def recipe_json(entry: Json) -> str:
    """A phase's or a fine-tuning's entry as the one sorted-JSON parameter that its rule passes on."""
    return canonical_json(entry)


def _links_of_run(plan: Plan, run: Json) -> Iterator[tuple[str, str]]:
    for name, key in run["finetunings"].items():
        yield name, f"results/finetunings/{key}"
    if run["phases"]:
        yield "dataset", plan.dataset_folder(run["dataset"])
        for phase, key in run["phases"].items():
            yield phase, f"results/phases/{key}"
        yield "export", f"results/phases/{list(run['phases'].values())[-1]}/huggingface"
        yield "model-card.md", f"results/report/{report_fingerprint(plan)}/model-cards/{run['name']}.md"
    yield "record.json", f"results/runs/{run['name']}/record-{run['fingerprint']}.json"


def _link(link: Path, target: Path) -> None:
    """Make `link` a relative symbolic link to `target`, replacing another link but never a real file."""
    relative = Path(os.path.relpath(target, link.parent))
    if link.is_symlink() and link.readlink() == relative:
        return
    if link.exists() and not link.is_symlink():
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(relative)
    temporary.replace(link)


def _in_order_of_dependence(runs: Json) -> list[str]:
    """Runs so that one whose weights another starts from comes first."""
    ordered: list[str] = []

    def visit(name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            raise BertlineError(f"configuration: runs: {' -> '.join([*chain, name])} start from each other")
        if name in ordered or name not in runs:
            return
        for phase in runs[name].get("phases", {}).values():
            other = phase.get("initial_weights", {}).get("run")
            if other is not None and other != name:
                visit(other, (*chain, name))
        ordered.append(name)

    for name in runs:
        visit(name, ())
    return ordered
