"""Resolution of requested predictions and features: a model, files of inputs, and the file to write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json, read_object
from bertline.finetuning.conll import FORM, is_conll_u
from bertline.finetuning.prediction_options import (
    Kind,
    check_answer_options,
    check_columns,
    check_finetuned,
    check_format,
    check_inputs,
    check_inputs_of_features,
    check_named_columns,
    check_ranks,
)
from bertline.fingerprint import fingerprint, stage_versions
from bertline.modeling.huggingface_config import head_of, read_configuration
from bertline.planning.corpora import digests, digests_of_one, expand
from bertline.planning.entries import FinetuningRecipe, PredictionRecipe, last_phase
from bertline.planning.external_weights import external_weights
from bertline.planning.finetunings import key_of_task, versions_in
from bertline.planning.models import check_layers, check_length, read_network
from bertline.planning.patterns import normal_path, run_of_link
from bertline.planning.plan import Plan
from bertline.planning.rankings import versions_of_collections
from bertline.results import paths
from bertline.settings.configuration import defaults_of
from bertline.tasks.registry import RANKING, description_of, texts_of_task
from bertline.tasks.task import Head

# Default files by key of the configuration, which is also the key of the plan's entries.
DEFAULT_OUTPUTS: dict[Kind, str] = {"predict": paths.PREDICTION, "features": paths.FEATURES}
RANKED = ("collection", "queries", "candidates")  # the files of a ranking
# Folders of the graph, in which no output overwrites a result.
FOLDERS = ("results", "resources", "logs", "benchmarks")


def add_predictions(plan: Plan) -> None:
    """Add the configuration's predictions and features to the plan; one whose inputs are absent gets a warning.

    Raises BertlineError for an unknown model, for what the model cannot do, and for an output that is another result
    or an input.
    """
    keys: dict[str, str] = {}
    for kind, default in DEFAULT_OUTPUTS.items():
        for name, given in plan.config[kind].items():
            key, problems = f"{kind}.{name}", list[str]()
            ranked = {part: given[part] for part in RANKED if part in given}
            output = normal_path(given["output"] or (paths.RANKING if ranked else default).format(name=name))
            _check_output(plan, f"{key}.output", Path(output), Path(default).parent)
            model = _model(plan, f"{key}.model", given["model"], problems)
            if ranked:
                files = [Path(file) for part, file in ranked.items() if digests_of_one(problems, f"{key}.{part}", file)]
            else:
                files = list(dict.fromkeys(expand(problems, f"{key}.inputs", given["inputs"])))
            if kind == "features":
                _check_features(plan, key, given, model, files)
            else:
                _check_task(plan, key, given, model, files, Path(output))
            try:
                check_named_columns(kind, given.get("columns", ()), files)
            except BertlineError as error:
                raise BertlineError(f"configuration: {key}.{error}") from None
            options = {
                part: value for part, value in given.items() if part not in ("model", "inputs", "output", *RANKED)
            }
            checksums = digests(files)
            content = {
                **options,
                "inputs": list(checksums.values()),
                "suffixes": [file.suffixes[-2:] for file in files],  # they determine how a file is read
                **({"ranked": list(ranked)} if ranked else {}),
                "model": model.get("content") or model,
                **(_task_of_folder(plan, model) if kind == "predict" else {}),
                "suffix": Path(output).suffix,
                "versions": _versions(plan, kind, given, model, files),
            }
            recipe: PredictionRecipe = {
                "fingerprint": fingerprint(content),
                "kind": kind,
                "model": model,
                "inputs": list(map(str, files)) if files else [*ranked.values(), *given.get("inputs", ())],
                "sha256": checksums,
                "absent": bool(problems),
                "options": options,
            }
            if ranked:
                recipe["ranked"] = ranked
            plan.predictions[output], keys[output] = recipe, key
            plan.warnings += problems
    _check_no_output_is_an_input(plan, keys)


def _check_output(plan: Plan, key: str, output: Path, folder: Path) -> None:
    is_result = output.parts[0] in FOLDERS and output.parent != folder
    if is_result or ".." in output.parts or str(output) in plan.predictions:
        raise BertlineError(
            f"configuration: {key}: {output} is a path of another result; choose a file elsewhere, or in {folder}"
        )


def _check_no_output_is_an_input(plan: Plan, keys: dict[str, str]) -> None:
    """Raise BertlineError for an output that the configuration also reads: it would be replaced, or not be made.

    keys: of the configuration, by output.
    """
    inputs = {normal_path(file): key for key, file in _input_files(plan, keys)}
    glue = plan.config.get("evaluation", {}).get("glue")
    for output, key in keys.items():
        if isinstance(glue, str) and Path(output).is_relative_to(normal_path(glue)):
            inputs[output] = "evaluation.glue"
        if output in inputs:
            raise BertlineError(
                f"configuration: {key}.output: {output} is also an input, of {inputs[output]}; choose another file"
            )


def _input_files(plan: Plan, keys: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the files of corpora, datasets, evaluation sets and predictions, each after a key of the configuration."""
    for section in ("corpora", "datasets", "evaluation"):
        yield from _words(section, plan.config.get(section, {}))
    for corpus in plan.corpora.values():
        key = f"corpora.{corpus['name']}.paths"
        yield from ((key, file) for files in corpus.get("parts", {}).values() for file in files)
        yield from ((key, part["file"]) for part in corpus.get("listing", {}).get("parts", {}).values())
    for output, recipe in plan.predictions.items():
        yield from ((keys[output], file) for file in recipe["inputs"])


def _words(key: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield each text in a part of the configuration after its key. No output is equal to one that is no path."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _words(f"{key}.{name}", part)
    elif isinstance(value, list):
        for part in value:
            yield from _words(key, part)


def _model(plan: Plan, key: str, given: str | Json, problems: list[str]) -> Json:
    """Return what a model's name refers to: a phase, a choice, a fine-tuning, or external weights."""
    runs = Path(paths.RUN).parent
    folder = Path(normal_path(given)) if isinstance(given, str) else Path()
    # The links of a run that is not in the configuration are folders as any other.
    is_other = (
        folder.is_relative_to(runs)
        and run_of_link(plan.config, str(folder)) is None
        and (folder / paths.CONFIG).exists()
    )
    if is_other or not folder.is_relative_to(runs):
        return external_weights(plan, key, given, problems)
    models: dict[str, Json] = {}
    for run, entry in plan.runs.items():
        if key.startswith("features.") and entry["phases"]:
            models[f"{run}/{paths.RUN_EXPORT}"] = {"phase": last_phase(entry)}
        kept = {task: choice for task, choice in entry["kept"].items() if plan.kept[choice]["keep"] != "none"}
        models |= {f"{run}/{task}": {"kept": choice} for task, choice in kept.items()}
    seeds = {f"{run}/{seed}": key for run, entry in plan.runs.items() for seed, key in entry["finetunings"].items()}
    skipped = {f"{run}/{task}" for run, entry in plan.runs.items() for task in entry["skipped"]}
    choices = {f"{run}/{task}" for run, entry in plan.runs.items() for task in entry["kept"]}
    name = str(folder.relative_to(runs))
    if name not in {*models, *choices, *seeds, *skipped}:  # a table may be called "model"
        name = name.removesuffix("/model")
    if name in skipped or str(Path(name).parent) in skipped:
        problems.append(f"configuration: {key}: {given} is of a task whose data is absent; both are left out")
        return {"directory": given}
    for run, entry in plan.runs.items():
        for task, choice in entry["kept"].items():
            if name == f"{run}/{task}" and plan.kept[choice]["keep"] == "none":
                of_task = key_of_task(plan.finetunings[plan.kept[choice]["finetunings"][0]]["task"])
                raise BertlineError(
                    f"configuration: {key}: given {given}, but runs.{run}.finetune.{of_task}.keep is none; write best "
                    "or all there, or name one of the seeds"
                )
    if name not in models and name not in seeds:
        allowed = ", ".join(f"{runs}/{model}" for model in models) or "none yet"
        raise BertlineError(
            f"configuration: {key}: given {given}, allowed are {allowed}, one of their seeds, or a folder"
        )
    return models[name] if name in models else {"finetuning": seeds[name]}


def _task_of_folder(plan: Plan, model: Json) -> Json:
    """Return the digest of the task.json in a user's folder, which a training from its weights does not read."""
    if "directory" not in model or model["directory"] in plan.fetched:
        return {}
    path = Path(model["directory"], paths.FINETUNED_TASK)
    return {"task": list(digests([path]).values())} if path.is_file() else {}


def _versions(plan: Plan, kind: str, given: Json, model: Json, files: list[Path]) -> dict[str, int]:
    """Return the versions of the code that predicts from some files, or that extracts features."""
    if kind != "predict":
        return stage_versions("finetuning")
    versions = versions_in(given["precision"])
    if any(map(is_conll_u, files)) and _word_column(plan, model) != FORM:
        versions |= stage_versions("conll_u")
    if "candidates" in given:
        versions |= versions_of_collections()
    return versions


def _word_column(plan: Plan, model: Json) -> int:
    """Return the column of the words that a tagger was trained with; 0 if it is not known."""
    finetuning = _finetuning_of(plan, model)
    table: object = None
    if finetuning is not None:
        table = finetuning.get("table")
    elif model["directory"] not in plan.fetched:  # whose files may not be here yet
        path = Path(model["directory"], paths.FINETUNED_TASK)
        table = read_object(path).get("table") if path.is_file() else None
    word = table.get("word", 0) if isinstance(table, dict) else 0
    return word if isinstance(word, int) else 0


def _finetuning_of(plan: Plan, model: Json) -> FinetuningRecipe | None:
    """Return the fine-tuning that a model is of, or the first of a choice; None for other models."""
    key = plan.kept[model["kept"]]["finetunings"][0] if "kept" in model else model.get("finetuning")
    return plan.finetunings[key] if key else None


def _check_task(plan: Plan, key: str, given: Json, model: Json, files: list[Path], output: Path) -> None:
    """Raise BertlineError for inputs, an output or options that the model of a prediction does not support."""
    finetuning = _finetuning_of(plan, model)
    try:
        head, task = _head_of(finetuning, model), _task_of(finetuning, model)
    except BertlineError as error:
        raise BertlineError(f"configuration: {key}.model: {error}") from None
    if head is None:
        return
    if "candidates" not in given and task.startswith(RANKING):
        raise BertlineError(
            f"configuration: {key}.inputs: given, but the model ranks passages for queries; give collection, queries "
            "and candidates instead"
        )
    try:
        if "candidates" in given:
            check_ranks(head, task)
            return
        check_answer_options(head, given["n_best"] if given["n_best"] > 1 else None, given["null_threshold"])
        check_format(head, output, given["n_best"])
        check_inputs(head, files)
        if finetuning:
            check_columns(head, given["columns"], texts_of_task(finetuning["task"], finetuning.get("table")))
    except BertlineError as error:
        raise BertlineError(f"configuration: {key}.{error}") from None


def _head_of(finetuning: FinetuningRecipe | None, model: Json) -> Head | None:
    """Return the head of a model; None if it is not here yet. Raises BertlineError for a folder's without one."""
    if finetuning is not None:
        return description_of(finetuning["task"], finetuning.get("table")).head
    folder = Path(model["directory"])
    config = folder / paths.CONFIG
    return check_finetuned(head_of(read_configuration(config), config), folder) if config.is_file() else None


def _task_of(finetuning: FinetuningRecipe | None, model: Json) -> str:
    """Return the task that a model was trained for; empty if it does not say so."""
    if finetuning is not None:
        return finetuning["task"]
    path = Path(model["directory"], paths.FINETUNED_TASK)
    task = read_object(path).get("task") if path.is_file() else None
    return task if isinstance(task, str) else ""


def _check_features(plan: Plan, key: str, features: Json, model: Json, files: list[Path]) -> None:
    """Raise BertlineError for inputs that have no texts, and for what the network of some features does not have."""
    try:
        check_inputs_of_features(files)
    except BertlineError as error:
        raise BertlineError(f"configuration: {key}.{error}") from None
    if "phase" in model:
        network: Json | None = plan.phases[model["phase"]]["model"]
    else:
        finetuning = _finetuning_of(plan, model)
        network = finetuning["model"] if finetuning else model
        if "directory" in network:
            network = read_network(Path(network["directory"], paths.CONFIG))
    if network is None:  # not fetched yet
        return
    check_length(network, features["max_sequence_length"], f"configuration: {key}.max_sequence_length")
    if features["layers"] != defaults_of("features")["layers"]:  # which are those that there are
        check_layers(network, features["layers"], f"configuration: {key}.layers")


def model_folder(model: Json) -> str:
    """Return the folder of the model of a prediction."""
    if "phase" in model:
        return paths.PHASE_EXPORT.format(phase=model["phase"])
    if "kept" in model:
        return paths.KEPT_MODEL.format(kept=model["kept"])
    if "finetuning" in model:
        return paths.FINETUNED_MODEL.format(finetuning=model["finetuning"])
    return str(model["directory"])
