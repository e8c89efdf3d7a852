"""Resolution of a configuration into a plan: fingerprints and settings of everything that it requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bertline.console import BertlineError
from bertline.corpus.sampling import groups_of
from bertline.encoding.tokenizer_config import check_case, settings_for
from bertline.files import CHECKOUT, SCHEMA, Json, one_line_damage, read_object
from bertline.fingerprint import fingerprint, stage_versions
from bertline.planning.corpora import digests_of_one, resolve_corpus
from bertline.planning.entries import DatasetEntry, RunEntry
from bertline.planning.evaluation_sets import evaluation_sets
from bertline.planning.external_weights import external_tokenizer, external_weights, without_directory
from bertline.planning.finetunings import Start, add_finetunings, tasks_of
from bertline.planning.models import read_network, resolve_model
from bertline.planning.patterns import normal_path, run_of_link
from bertline.planning.phases import add_phase
from bertline.planning.plan import Plan
from bertline.planning.predictions import add_predictions
from bertline.planning.remaining import finetunings_left
from bertline.planning.shard_count import check_number_of_shards, number_of_shards
from bertline.results import paths
from bertline.settings.configuration import check_allowed, definition, load, strip_defaults
from bertline.settings.overrides import read_configuration
from bertline.tasks.registry import TASKS

# A run's `pretrained`: another run's final model or phase, or a checkpoint of a phase.
OF_ANOTHER_RUN = re.compile(r"results/runs/([^/]+)/([^/@]+)(?:@step-(\d+))?")
# Entries of results/runs/{run}/ other than the phases.
RESERVED_NAMES = {
    *("dataset", "corpora", "export", "report", "submission", "table", "ranking", "model-card.md", paths.RUN_RECORD),
    *(task.family or name for name, task in TASKS.items()),
}


class RunReference(NamedTuple):
    """Another run's final model or phase, or a checkpoint of a phase, from which a run starts."""

    run: str
    phase: str  # RUN_EXPORT for the final model
    step: int | None  # of the checkpoint


def plan_of_files(configfiles: Sequence[Path | str], settings: Iterable[str] = ()) -> Plan:
    """Resolve a configuration in the folder of its results. Raises BertlineError.

    Args:
        configfiles: a later one is merged over the earlier ones.
        settings: PATH=VALUE on the command line, which replace those of the files.
    """
    return make_plan(read_configuration(configfiles, SCHEMA, settings), SCHEMA, CHECKOUT / "config/models")


def make_plan(config: Json, schema_path: Path | str, models: Path | str) -> Plan:
    """Resolve a configuration. Raises BertlineError naming the first invalid key.

    Args:
        config: the configuration as read from its file.
        schema_path: config/config.schema.yaml.
        models: the folder of model descriptions, config/models.
    """
    filled, schema = load(config, schema_path)
    plan = Plan(filled, schema, Path(models))
    for name in filled["corpora"]:
        corpus = resolve_corpus(filled, schema, name, plan.problems, plan.downloads)
        key = corpus["key"]
        plan.corpora[key] = corpus
        plan.corpus_of_name[name] = key
    overlaps = {dataset.get("evaluation_overlap", "ignore") for dataset in filled["datasets"].values()}
    if overlaps - {"ignore"}:
        plan.evaluation = evaluation_sets(filled, plan.warnings, plan.downloads)
    named_datasets = {name: _add_dataset(plan, name, dataset) for name, dataset in filled["datasets"].items()}
    for name in _in_order_of_dependence(filled["runs"]):
        _add_run(plan, name, filled["runs"][name], named_datasets)
    plan.warnings += plan.skipped.values()
    # Documents that contain a task's text are dropped: without the task's files the dataset would be another one.
    if "drop" in overlaps or (plan.evaluation and not plan.evaluation["sets"]):
        plan.problems += plan.warnings
        plan.warnings = []
    add_predictions(plan)
    plan.problems += _lost_checkpoints(plan)
    return plan


def _add_dataset(plan: Plan, name: str, dataset: Json) -> str:
    """Add a dataset to the plan; return its fingerprint."""
    if "path" in dataset:
        key, entry = _finished_dataset(plan, name, dataset["path"])
        plan.datasets.setdefault(key, entry)  # if the configuration makes the same one, the graph does
        return key
    _check_dataset(plan, name, dataset)
    corpora = [plan.corpus_of_name[corpus] for corpus in dataset["corpora"]]
    of_corpora = [plan.corpora[corpus] for corpus in corpora]
    if not isinstance(dataset["shards"], int):  # the same dataset as with the number
        dataset = {**dataset, "shards": number_of_shards(name, dataset, of_corpora)}
    if not plan.problems:  # all files are there
        check_number_of_shards(name, dataset["shards"], of_corpora)
    semantic = _semantic(plan, name, dataset)
    identifying = {"dataset": semantic, "corpora": corpora, "versions": _versions(semantic, dataset["tokenizer"])}
    key = fingerprint({**identifying, "sequence_lengths": sorted(plan.config["sequence_lengths"])})
    plan.datasets[key] = {
        "name": name,
        "settings": dataset,
        "corpora": corpora,
        "shards": [*(f"{index:05d}" for index in range(dataset["shards"])), paths.HELD_OUT],
        "fingerprint_without_lengths": fingerprint(identifying),
    }
    return key


def _finished_dataset(plan: Plan, name: str, path: str) -> tuple[str, DatasetEntry]:
    """Return the fingerprint and the entry of a finished dataset. Raises BertlineError for a folder without one."""
    card = Path(path, paths.CARD)
    if not card.exists():
        raise BertlineError(f"configuration: datasets.{name}.path: {card} does not exist; name a finished dataset")
    if run := run_of_link(plan.config, path):
        raise BertlineError(
            f"configuration: datasets.{name}.path: given {path}, a link of this configuration, which "
            f"follows it; name the folder that it leads to, or the dataset of {run}"
        )
    content = read_object(card, "fingerprint", "sequence_lengths", "corpora")
    with one_line_damage(card):
        key = str(content["fingerprint"])
        return key, {
            "name": name,
            "path": normal_path(path),
            "static_masks": bool(content.get("static_masks", False)),
            "lengths": [int(length) for length in content["sequence_lengths"]],
            "corpora": [str(corpus["name"]) for corpus in content["corpora"]],
            "fingerprint_without_lengths": str(content.get("fingerprint_without_lengths", key)),
        }


def _check_dataset(plan: Plan, name: str, dataset: Json) -> None:
    """Raise BertlineError for settings of a dataset that contradict each other."""
    for corpus in dataset["corpora"]:
        check_allowed(f"configuration: datasets.{name}.corpora", corpus, plan.corpus_of_name, "the names under corpora")
    for sampled in groups_of(dataset.get("sample", {}), dataset["corpora"]):
        for corpus in sampled[0]:
            check_allowed(f"configuration: datasets.{name}.sample", corpus, dataset["corpora"], "the dataset's corpora")
    if dataset["passes"] > 1 and (dataset["pair_objective"], dataset["short_sequence_probability"]) == ("none", 0):
        raise BertlineError(
            f"configuration: datasets.{name}.passes: given {dataset['passes']}, but with pair_objective: none and "
            "short_sequence_probability: 0 all passes make the same samples; leave it out"
        )


def _semantic(plan: Plan, name: str, dataset: Json) -> Json:
    """Return the settings that determine a dataset's content, without defaults, a file by its digest."""
    semantic = strip_defaults(dataset, definition(plan.schema, "built_dataset"), plan.schema)
    if "file" in dataset["tokenizer"]:
        for setting in ("lowercase", "strip_accents"):
            if dataset["tokenizer"]["file"].endswith(".json") and setting in semantic["tokenizer"]:
                raise BertlineError(
                    f"configuration: datasets.{name}.tokenizer.{setting}: given "
                    f"{semantic['tokenizer'][setting]}, but a tokenizer.json contains this setting; leave it out"
                )
        key = f"datasets.{name}.tokenizer.file"
        _check_vocabulary(f"configuration: {key}", dataset["tokenizer"])
        semantic["tokenizer"]["file"] = digests_of_one(plan.problems, key, dataset["tokenizer"]["file"])
    # Reporting overlapping documents changes no sample; dropping them does, and so do the sets.
    if semantic.pop("evaluation_overlap", None) == "drop":
        semantic["evaluation_overlap"] = plan.evaluation and plan.evaluation["fingerprint"]
    return semantic


def _check_vocabulary(where: str, tokenizer: Json) -> None:
    """Raise BertlineError for a vocab.txt of another case than the settings of a `tokenizer`, or than text has."""
    path, lowercase = Path(tokenizer["file"]), tokenizer["lowercase"]
    if path.suffix != ".json" and path.is_file():
        try:
            settings_for(path, lowercase=lowercase, strip_accents=tokenizer.get("strip_accents"))
            if lowercase:
                check_case(path)
        except BertlineError as error:
            raise BertlineError(f"{where}: {error}") from None


def _versions(semantic: Json, tokenizer: Json) -> dict[str, int]:
    """Return the versions of the stages that make a dataset of these settings, without defaults, and this tokenizer."""
    stages = ["shards", "tokenizer", "samples"]
    if tokenizer.get("train", "wordpiece") != "wordpiece" or tokenizer.get("file", "").endswith(".json"):
        stages.append("spaces")
    if "duplicates" in semantic:
        stages.append("signatures")
    if semantic.get("pair_objective") == "sentence_order":
        stages.append("sentence_order")
    if semantic.get("sample"):
        stages.append("sample")
    return stage_versions(*stages)


def _add_run(plan: Plan, name: str, run: Json, named_datasets: dict[str, str]) -> None:
    where = f"configuration: runs.{name}"
    if "pretrained" in run:
        if reference := _run_reference(plan.config, run):
            _add_run_of_another(plan, name, run, reference)
        else:
            _add_external_run(plan, name, run)
        return
    check_allowed(f"{where}.dataset", run["dataset"], named_datasets, "the names under datasets")
    dataset = named_datasets[run["dataset"]]
    model = resolve_model(plan.schema, plan.models, where, run["model"])
    phases: dict[str, str] = {}
    for phase, settings in run["phases"].items():
        if phase in RESERVED_NAMES:
            raise BertlineError(
                f"{where}.phases: a phase cannot be called '{phase}': another link of the run is; rename it"
            )
        before = list(phases.values())[-1:]
        phases[phase] = add_phase(plan, where, run, dataset, model, phase, settings, before)
    last = list(phases.values())[-1]
    start = Start(
        initial={"phase": last},
        # Random weights still depend on the dataset: its tokenizer reads the task's text.
        random={"model": model, "dataset": plan.datasets[dataset]["fingerprint_without_lengths"]},
        model=model,
        network=model,
    )
    _add_entry(plan, name, run, dataset, phases, start)


def _add_external_run(plan: Plan, name: str, run: Json) -> None:
    key = f"runs.{name}.pretrained"
    if isinstance(run["pretrained"], str) and (other := run_of_link(plan.config, run["pretrained"])):
        raise BertlineError(
            f"configuration: {key}: given {run['pretrained']}, a link of this configuration; allowed are "
            f"results/runs/{other}/{paths.RUN_EXPORT}, its phases, and folders elsewhere"
        )
    initial = external_weights(plan, key, run["pretrained"])
    start = Start(
        initial=initial,
        random={"model": without_directory(initial)},
        model={"directory": initial["directory"]},
        network=read_network(Path(initial["directory"], paths.CONFIG)),
        tokenizer=external_tokenizer(plan, key, initial["directory"]),
    )
    _add_entry(plan, name, run, None, {}, start)


def _add_run_of_another(plan: Plan, name: str, run: Json, reference: RunReference) -> None:
    """Add a run that fine-tunes the final model, a phase or a checkpoint of another run."""
    key = f"configuration: runs.{name}.pretrained"
    other, phase, step = reference
    trained, described = plan.trained_runs, plan.config["runs"]
    check_allowed(
        key, other, [run for run in described if "phases" in described[run]], "the runs that pretrain a model"
    )
    if phase == paths.RUN_EXPORT:
        phase = list(trained[other]["phases"])[-1]
    check_allowed(key, phase, trained[other]["phases"], f"the phases of {other}")
    fingerprint_of_phase = trained[other]["phases"][phase]
    if step is not None:
        plan.keep_checkpoint(fingerprint_of_phase, step, key)
    entry = plan.phases[fingerprint_of_phase]
    dataset = trained[other]["dataset"]
    start = Start(
        initial={"phase": fingerprint_of_phase, **({} if step is None else {"step": step})},
        random={"model": entry["model"], "dataset": entry["dataset_without_lengths"]},
        model=entry["model"],
        network=entry["model"],
    )
    _add_entry(plan, name, run, dataset, {}, start)


def _lost_checkpoints(plan: Plan) -> list[str]:
    """Return a message for each run with a fine-tuning to make from a checkpoint that its phase no longer has."""
    starts = [
        (name, key, initial)
        for name, run in plan.runs.items()
        for key in run["finetunings"].values()
        if "step" in (initial := plan.finetunings[key]["initial_weights"] or {})
    ]
    left = finetunings_left(plan) if starts else set()
    problems = {
        name: plan.keep_checkpoint(initial["phase"], initial["step"], f"configuration: runs.{name}.pretrained")
        for name, key, initial in starts
        if key in left
    }
    return [problem for problem in problems.values() if problem]


def _run_reference(config: Json, run: Json) -> RunReference | None:
    """Return where in another run a run starts; None for external weights.

    The links of a run that is no longer in the configuration are folders as any other.
    """
    given = run.get("pretrained")
    found = OF_ANOTHER_RUN.fullmatch(normal_path(given)) if isinstance(given, str) else None
    if found is None:
        return None
    other, phase, step = found.groups()
    if step is None and other not in config["runs"]:
        return None
    return RunReference(other, phase, None if step is None else int(step))


def _add_entry(plan: Plan, name: str, config: Json, dataset: str | None, phases: dict[str, str], start: Start) -> None:
    """Add the entry of a run to the plan, and the fine-tunings of its tasks."""
    run: RunEntry = {
        "name": name,
        "fingerprint": "",
        "dataset": dataset,
        "phases": phases,
        "config": config,
        "finetunings": {},
        "kept": {},
        "skipped": {},
    }
    plan.runs[name] = run
    for task, settings in tasks_of(config["finetune"]):
        add_finetunings(plan, run, start, task, settings)
    # Without the description, which does not change the run.
    identifying = {"run": name, "experiment": plan.config["experiment"], "dataset": dataset, "phases": phases}
    identifying["finetunings"] = run["finetunings"]
    if run["skipped"]:
        identifying["skipped"] = list(run["skipped"])
    run["fingerprint"] = fingerprint(identifying)


def _in_order_of_dependence(runs: Json) -> list[str]:
    """Return the runs in an order in which each follows those whose weights it starts from."""
    ordered: list[str] = []

    def visit(name: str, chain: tuple[str, ...]) -> None:
        if name in chain:
            raise BertlineError(f"configuration: runs: {' -> '.join([*chain, name])} start from each other")
        if name in ordered or name not in runs:
            return
        others = [phase.get("initial_weights", {}).get("run") for phase in runs[name].get("phases", {}).values()]
        if reference := _run_reference({"runs": runs}, runs[name]):
            others.append(reference.run)
        for other in others:
            if other is not None and other != name:
                visit(other, (*chain, name))
        ordered.append(name)

    for name in runs:
        visit(name, ())
    return ordered
