"""Resolution and checks of a run's pretraining phases, named by fingerprints."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.encoding.tokenizer import take_tokenizer
from bertline.files import Json, read_object
from bertline.fingerprint import fingerprint, stage_versions
from bertline.modeling.network_config import check_same_network
from bertline.modeling.vocabulary import ADVICE, check_vocabulary
from bertline.planning.entries import DatasetEntry, PhaseRecipe
from bertline.planning.external_weights import external_weights, without_directory
from bertline.planning.models import check_length, read_network
from bertline.planning.patterns import run_of_link
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.settings.configuration import check_allowed, definition, strip_defaults
from bertline.training.recipe import check_together, check_used


def add_phase(
    plan: Plan, where: str, run: Json, dataset: str, model: Json, phase: str, settings: Json, before: list[str]
) -> str:
    """Add a phase of a run to the plan and return its fingerprint.

    Args:
        where: the key of the run, for messages.
        before: the fingerprint of the run's previous phase, if there is one.

    Raises BertlineError for settings that are incompatible with each other, the model or the dataset.
    """
    weights = settings["corpus_weights"]
    settings = {**settings, "corpus_weights": {name: weight for name, weight in weights.items() if weight != 1}}
    semantic = strip_defaults(settings, definition(plan.schema, "phase"), plan.schema)
    _check_phase(plan, f"{where}.phases.{phase}", model, settings, semantic, plan.datasets[dataset])
    _check_corpus_weights(plan, f"{where}.phases.{phase}.corpus_weights", dataset, weights)
    initial: Json | None = {"phase": before[-1]} if before else None
    given = settings.get("initial_weights")
    if given and "run" in given:
        initial = {"phase": _phase_of_another_run(plan, where, phase, given)}
    elif given:
        key = f"{where.removeprefix('configuration: ')}.phases.{phase}.initial_weights"
        key, source = (f"{key}.directory", given["directory"]) if "directory" in given else (key, given)
        if isinstance(source, str) and (other := run_of_link(plan.config, source)):
            last = list(plan.config["runs"][other].get("phases", {}))[-1:]
            todo = f"write {{run: {other}, phase: {last[0]}}}" if last else f"name the weights that {other} starts from"
            raise BertlineError(f"configuration: {key}: given {source}, a link of this configuration; {todo}")
        initial = external_weights(plan, key, source)
    _check_initial(plan, f"{where}.phases.{phase}", dataset, model, settings, initial)
    if settings["schedule_steps"] == settings["steps"]:  # as by default
        settings["schedule_steps"] = None
        semantic.pop("schedule_steps", None)
    semantic.pop("initial_weights", None)
    if initial is None or "directory" in initial:  # only a phase has something to carry over
        semantic.pop("carry_over", None)
    recipe: PhaseRecipe = {
        "fingerprint": "",
        "model": model,
        "dataset": dataset,
        "dataset_without_lengths": plan.datasets[dataset]["fingerprint_without_lengths"],
        "seed": run["seed"],
        "phase": phase,
        "settings": {name: value for name, value in settings.items() if name != "initial_weights"},
        "initial_weights": initial,
    }
    _place_in_data(plan, f"{where}.phases.{phase}", recipe)
    identifying = {
        # The samples of a length do not depend on the other lengths of a dataset.
        **{name: value for name, value in recipe.items() if name not in ("fingerprint", "dataset")},
        "settings": semantic,
        "initial_weights": without_directory(initial) if initial else None,
        "versions": stage_versions("pretraining", *(["lamb"] if settings["optimizer"] == "lamb" else [])),
    }
    recipe["fingerprint"] = key = fingerprint(identifying)
    plan.phases[key] = recipe
    return key


def phases_with_same_samples(plan: Plan, phase: PhaseRecipe) -> list[str]:
    """Return the fingerprints of the earlier phases that used the same samples with the same seed, last first."""
    found, initial = [], phase["initial_weights"]
    while initial and "phase" in initial:
        earlier = plan.phases[initial["phase"]]
        same_length = earlier["settings"]["sequence_length"] == phase["settings"]["sequence_length"]
        same_data = all(earlier[name] == phase[name] for name in ("dataset_without_lengths", "seed"))
        if same_length and same_data:
            found.append(str(initial["phase"]))
        initial = earlier["initial_weights"]
    return found


def _place_in_data(plan: Plan, where: str, phase: PhaseRecipe) -> None:
    """Set where a phase begins in the order of samples, in its recipe.

    The order, and with it the masks, follow from the dataset, the sequence length, the seed and the weights of the
    corpora: a phase continues where the last one with the same order ended. With other weights it would see samples
    again with the masks that they had before, so it gets another order, by number.
    """
    earlier, weights = phases_with_same_samples(plan, phase), phase["settings"]["corpus_weights"]
    same = next((key for key in earlier if plan.phases[key]["settings"]["corpus_weights"] == weights), None)
    if same and "data_order" in plan.phases[same]:
        phase["data_order"] = plan.phases[same]["data_order"]
    elif earlier and not same:
        phase["data_order"] = len(earlier)
    initial = phase["initial_weights"]
    if phase["settings"]["carry_over"] == "everything" and initial and "phase" in initial:
        if same != initial["phase"]:
            raise BertlineError(
                f"{where}.carry_over: given everything, but dataset, sequence length, seed or corpus_weights are not "
                "those of the phase before; set carry_over: weights+moments"
            )
    elif same:
        phase["continues_data_of"] = same


def _phase_of_another_run(plan: Plan, where: str, phase: str, given: Json) -> str:
    other = plan.runs.get(given["run"])
    if other is None or given["phase"] not in other["phases"]:
        runs = [name for name in plan.config["runs"] if not where.endswith(f": runs.{name}")]
        allowed = [f"{name} {one}" for name in runs for one in plan.config["runs"][name].get("phases", ())]
        raise BertlineError(
            f"{where}.phases.{phase}.initial_weights: given {given['run']} {given['phase']}, allowed are the phases of "
            f"other runs: {', '.join(allowed) or 'there are none'}; the phases of one run follow each other"
        )
    return other["phases"][given["phase"]]


def _check_initial(plan: Plan, where: str, dataset: str, model: Json, settings: Json, initial: Json | None) -> None:
    """Raise BertlineError for weights, or for moments of another phase's optimizer, that this phase cannot take."""
    if initial is None:
        return
    where_of_weights = f"{where}.initial_weights"
    if "directory" in initial:
        weights = Path(initial["directory"])
        if (network := read_network(weights / paths.CONFIG)) is not None:
            check_same_network(network, model, where_of_weights)
            _check_tokenizer(where_of_weights, plan.datasets[dataset], network["vocab_size"], weights)
        return
    earlier = plan.phases[initial["phase"]]
    if settings["carry_over"] != "weights":
        _check_moments(where, earlier["settings"], settings)
    check_same_network(earlier["model"], model, where_of_weights)
    if earlier["dataset"] != dataset:
        _check_same_tokenizer(plan, where_of_weights, earlier["dataset"], dataset)


def _check_same_tokenizer(plan: Plan, where: str, before: str, dataset: str) -> None:
    """Raise BertlineError if the tokenizers of two datasets, by their fingerprints, are known to differ."""
    theirs, ours = (_known_of_tokenizer(plan, key, where) for key in (before, dataset))
    if any(theirs[key] != ours[key] for key in theirs.keys() & ours.keys()):
        raise BertlineError(
            f"{where}: the phase's dataset {plan.datasets[before]['name']} and {plan.datasets[dataset]['name']} have "
            "different tokenizers; choose other weights, or give both datasets the same"
        )


def _known_of_tokenizer(plan: Plan, key: str, where: str) -> Json:
    """Return what is known of a dataset's tokenizer before it is made: equal tokenizers have the same of each key."""
    known: Json = {}
    card = Path(plan.dataset_file(key, paths.CARD))
    if card.exists() and (made := read_object(card).get("tokenizer")):
        known["sha256"] = made["sha256"]
    given = plan.datasets[key].get("settings", {}).get("tokenizer", {})
    if "train" in given:
        strips = given["lowercase"] if given["strip_accents"] is None else given["strip_accents"]
        known["trained"] = [given["train"], given["lowercase"], strips]
    elif Path(file := given.get("file", "")).is_file():
        try:
            tokenizer = take_tokenizer(file, lowercase=given["lowercase"], strip_accents=given["strip_accents"])
        except BertlineError as error:
            raise BertlineError(f"{where}: {error}") from None
        known["taken"] = tokenizer.to_str()
    return known


def _check_tokenizer(where: str, dataset: DatasetEntry, rows: int, weights: Path) -> None:
    """Raise BertlineError if the dataset's tokenizer, where it is a file that exists, is not that of the weights."""
    given = dataset.get("settings", {}).get("tokenizer", {})
    if Path(file := given.get("file", "")).is_file():
        try:
            tokenizer = take_tokenizer(file, lowercase=given["lowercase"], strip_accents=given["strip_accents"])
            check_vocabulary(tokenizer, file, rows, weights, advice=ADVICE)
        except BertlineError as error:
            raise BertlineError(f"{where}: {error}") from None


def _check_moments(where: str, before: Json, settings: Json) -> None:
    """Raise BertlineError for moments of the phase before that this phase's optimizer cannot use."""
    theirs, ours = before["optimizer"], settings["optimizer"]
    if theirs != ours:
        raise BertlineError(
            f"{where}.carry_over: given {settings['carry_over']}, but the optimizer is {ours}, and that of the phase "
            f"before, {theirs}, has other moments; set carry_over: weights"
        )
    their_side, side = (one.get(ours, {}).get("largest_side", 0) for one in (before, settings))
    # A smaller one only leaves out factors of Shampoo, but bases that SOAP's moments are in.
    if side > their_side or (ours == "soap" and side != their_side):
        raise BertlineError(
            f"{where}.{ours}.largest_side: given {side}, but {their_side} in the phase before, whose moments are taken "
            f"over; set {their_side}, or carry_over: weights"
        )


def _check_phase(plan: Plan, where: str, model: Json, settings: Json, chosen: Json, dataset: DatasetEntry) -> None:
    encoded = dataset["lengths"] if "lengths" in dataset else plan.config["sequence_lengths"]
    of_what = "the lengths of the finished dataset" if "lengths" in dataset else "sequence_lengths"
    check_allowed(f"{where}.sequence_length", settings["sequence_length"], encoded, of_what)
    check_length(model, settings["sequence_length"], f"{where}.sequence_length")
    # A vocabulary may become smaller than asked for, if the text has too few words, but not larger.
    asked = dataset.get("settings", {}).get("tokenizer", {}).get("vocab_size")
    if asked is not None and model.get("vocab_size", asked) > asked:
        raise BertlineError(
            f"{where}: the model's vocab_size is {model['vocab_size']}, and the tokenizer has at most {asked} "
            "entries; leave out the first: weights are padded anyway"
        )
    check_used(chosen, settings, definition(plan.schema, "phase"), where)
    if dataset.get("static_masks") and "masking" in chosen:
        raise BertlineError(
            f"{where}.masking: given {chosen['masking']}, but the dataset's samples were masked before and keep their "
            "masks; leave it out"
        )
    check_together(settings, model, where)


def _check_corpus_weights(plan: Plan, where: str, dataset: str, weights: Json) -> None:
    entry = plan.datasets[dataset]
    corpora = entry["settings"]["corpora"] if "settings" in entry else entry["corpora"]
    for corpus in weights:
        check_allowed(where, corpus, corpora, "the dataset's corpora")
    if corpora and all(weights.get(corpus, 1) in (0, {"tokens": 0}) for corpus in corpora):
        raise BertlineError(f"{where}: given 0 for every corpus, which leaves nothing to train on; raise one of them")
