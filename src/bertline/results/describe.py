"""Descriptions of recipes in words, for MLflow and for the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertline.files import SCHEMA, Json
from bertline.settings.configuration import definition, load_schema
from bertline.tasks.registry import TASKS

SCORE_TITLES = {
    "f1": "F1",
    "exact_match": "exact match",
    "accuracy": "accuracy",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "mrr": "MRR",
    "mrr_10": "MRR@10",
    "map": "MAP",
    "ndcg_10": "NDCG@10",
    "r_precision": "R-precision",
    "recall_10": "recall@10",
    "recall_100": "recall@100",
    "recall_1000": "recall@1000",
}

CHOSEN_ON_DEV = (
    "The settings of a grid, the end of early stopping, the threshold of SQuAD 2 and the model that is kept are chosen "
    "on these same sets: expect lower scores on new data."
)

_TEST = "_test"  # ends the names of scores of a test set
_PRECISIONS = {"fp32": "32-bit floats", "bf16": "bfloat16"}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested settings to dotted keys; values other than text become JSON."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return flat


def task_title(group: str) -> str:
    """Return a task's title: `glue/cola` is CoLA; a custom table keeps its name."""
    task = TASKS.get(group.removeprefix("glue/"))
    return task.title if task else group


def score_title(score: str) -> str:
    """Return a score's title."""
    if is_of_test_set(score):
        return f"{score_title(score.removesuffix(_TEST))}, test set"
    return SCORE_TITLES.get(score, score.replace("_", " "))


def number(value: float) -> str:
    """Format a number: thousands separated, no trailing zeros, exponents without padding."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    if abs(value) < 1e-3:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.6g}"


def number_of_examples(metrics: Mapping[str, Any], score: str) -> int | None:
    """Return the number of examples, or of a ranking's judged queries, of which a score of a metrics.json is."""
    examples = metrics.get("examples", {})
    return examples.get(_set_of(score), examples.get("dev_judged_queries", examples.get("dev_queries")))


def number_in_train(metrics: Mapping[str, Any], score: str) -> int | None:
    """Return how many of the examples of which a score of a metrics.json is have the texts of a training example."""
    count: int | None = metrics.get("examples", {}).get(f"{_set_of(score)}_in_train")
    return count


def network_tag(model: Mapping[str, Any]) -> str:
    """Return the Hub's tag of a network, from its configuration."""
    return _network_title(model).lower()


def is_official(group: str, score: str, metrics: Mapping[str, Any]) -> bool | None:
    """Return whether a score of a metrics.json is of the task's official development set; None if that is not known."""
    task = TASKS.get(group.removeprefix("glue/"))
    return task.is_official(_set_of(score), metrics.get("digests", {})) if task else None


def is_of_test_set(score: str) -> bool:
    """Return whether a score is of the labelled test file of a tagging table."""
    return score.endswith(_TEST)


def _set_of(score: str) -> str:
    if is_of_test_set(score):
        return "test"
    return "dev_mismatched" if score.endswith("_mismatched") else "dev"  # MNLI has two


def counted(count: float, thing: str) -> str:
    """Format a number and a noun: 1 layer, 2 layers."""
    return f"{number(count)} {thing}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Format a time in a suitable unit: `42 s`, `5.2 min`, `1,234.5 h`."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


# Filters by the names that the templates use.
FILTERS = {
    "number": number,
    "duration": duration,
    "task": task_title,
    "score": score_title,
    "examples": number_of_examples,
}


def describe_network(model: Mapping[str, Any]) -> str:
    """Describe a network in a sentence, from its configuration."""
    return (
        f"{_network_title(model)} with {counted(model['num_hidden_layers'], 'layer')}, "
        f"{number(model['hidden_size'])} wide, {counted(model['num_attention_heads'], 'head')}, "
        f"vocabulary of {number(model['vocab_size'])}."
    )


def describe_phase(recipe: Mapping[str, Any], phases: Mapping[str, str]) -> str:
    """Describe a pretraining phase's recipe; `phases` contains the names of phases by fingerprint."""
    settings = recipe["settings"]
    masking = settings["masking"]
    limit = masking.get("max_predictions")
    sentences = [
        f"{counted(settings['steps'], 'step')} of {counted(settings['global_batch_size'], 'sequence')} "
        f"of at most {number(settings['sequence_length'])} tokens"
        f"{_batch_size_warmup(settings.get('batch_size_warmup'))}.",
        f"{_title('phase', 'optimizer', settings['optimizer'])}"
        f"{'' if settings.get('kfac') is None else ' on gradients preconditioned by K-FAC'}, "
        f"{_learning_rate(settings)}, {_schedule(settings)}, "
        f"weight decay {number(settings['weight_decay'])}.",
        f"{number(100 * masking['probability'])}% of the {_masked(masking)}"
        + (f", at most {number(limit)}." if limit else "."),
        f"{_precision(settings)}, seed {recipe['seed']}.",
        _start(recipe.get("initial_weights"), phases),
    ]
    return " ".join(sentences)


def describe_finetuning(recipe: Mapping[str, Any], phases: Mapping[str, str], seeds: Sequence[int] = ()) -> str:
    """Describe a fine-tuning's recipe; `phases` as above, {} if not known; `seeds` if it was run with several."""
    settings = recipe["settings"]
    drawn = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {recipe['seed']}"
    return " ".join(
        [
            f"{counted(settings['epochs'], 'epoch')} in batches of {number(settings['batch_size'])}, "
            f"{_learning_rate(settings)}, warm-up over {_span(settings['warmup'])}, "
            f"at most {number(settings['max_sequence_length'])} tokens.",
            f"{_precision(settings)}, {drawn}.",
            _start(recipe.get("initial_weights"), phases),
        ]
    )


def weights_in_card(recipe: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a recipe's initial weights as a card, which others read, describes them.

    Where a folder is on this machine is private, and tells others nothing: its name and the digest of its content are
    there instead. A model of the Hub has its id and revision.
    """
    initial = dict(recipe.get("initial_weights") or {})
    if "directory" in initial and "hub" not in initial:
        key = "name" if "name" in initial else "directory"
        digest = f" (digest {initial['content']})" if "content" in initial else ""
        initial[key] = Path(initial[key]).name + digest
    return initial or None


def describe_dataset(card: Mapping[str, Any]) -> str:
    """Describe an encoded dataset, from its dataset.json."""
    corpora = ", ".join(f"{corpus['name']} ({counted(corpus['documents'], 'document')})" for corpus in card["corpora"])
    lengths = ", ".join(
        f"{counted(content['samples'], 'training sample')} of at most {length} tokens"
        for length, content in by_length(card)
    )
    return (
        f"{corpora}. {counted(card['sentences'], 'sentence')}; "
        f"{counted(card['held_out_documents'], 'document')} held out. "
        f"Vocabulary of {number(card['tokenizer']['vocab_size'])}. {lengths}."
    )


def settings_of_data(card: Mapping[str, Any]) -> dict[str, str]:
    """Return what a dataset was made with, from its dataset.json, flat: its settings, its corpora's, the lengths."""
    flat = flatten(card.get("settings", {}), "dataset.")
    for corpus in card["corpora"]:
        flat |= flatten(corpus.get("settings", {}), f"corpora.{corpus['name']}.")
    return flat | flatten({"sequence_lengths": sorted(map(int, card["sequence_lengths"]))})


def by_length(entry: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the sections of a card, or of a corpus there, by sequence length, shortest first."""
    return sorted(entry.get("sequence_lengths", {}).items(), key=lambda section: int(section[0]))


def _masked(masking: Mapping[str, Any]) -> str:
    whole = " as whole words" if masking.get("whole_word") else ""
    return f"tokens masked{whole}" + (", all by [MASK]" if masking.get("mask_only") else "")


def _batch_size_warmup(warmup: Mapping[str, Any] | None) -> str:
    return f", at first of {number(warmup['from'])}, growing over {_span(warmup['steps'])}" if warmup else ""


def _span(value: float) -> str:
    """Format a share of the steps or a number of steps."""
    return f"{number(100 * value)}% of the steps" if 0 < value < 1 else counted(value, "step")


def _learning_rate(settings: Mapping[str, Any]) -> str:
    scaling = {"linear": "linearly", "sqrt": "by the square root"}.get(settings.get("learning_rate_scaling", "none"))
    scaled = f", scaled {scaling} from batches of {number(settings['base_batch_size'])}" if scaling else ""
    return f"learning rate {number(settings['learning_rate'])}{scaled}"


def _schedule(settings: Mapping[str, Any]) -> str:
    name = settings["schedule"]
    details = {
        "polynomial": f" of power {number(settings.get('power', 1))}",
        "wsd": f" over the last {_span(settings.get('decay', 0))}",
    }
    return f"warm-up over {_span(settings['warmup'])}, {_title('phase', 'schedule', name)}{details.get(name, '')}"


def _network_title(model: Mapping[str, Any]) -> str:
    return _title("network", "architecture", model.get("architecture", "bert"))


def _title(entry: str, key: str, choice: str) -> str:
    """Return the title of a setting's choice in the configuration's schema; of an unknown one, its name."""
    return str(definition(_schema(), entry)["properties"][key]["titles"].get(choice, choice))


@cache
def _schema() -> Json:
    return load_schema(SCHEMA)


def _precision(settings: Mapping[str, Any]) -> str:
    return _PRECISIONS.get(settings["precision"], settings["precision"])


def _start(initial_weights: Mapping[str, Any] | None, phases: Mapping[str, str]) -> str:
    if not initial_weights:
        return "Starts from random weights."
    if "directory" in initial_weights:
        name = initial_weights.get("name")
        return f"Starts from the weights {name or 'in ' + initial_weights['directory']}."
    fingerprint = initial_weights["phase"]
    step = f" at step {number(initial_weights['step'])}" if "step" in initial_weights else ""
    unnamed = f"another run (phase {fingerprint})" if phases else f"the pretraining phase {fingerprint}"
    return f"Starts from the weights of {phases.get(fingerprint, unnamed)}{step}."
