"""The head of a fine-tuned network in Hugging Face's layout, and the names of its classes, from its config.json."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import read_config_json
from bertline.modeling.network_config import NetworkConfig
from bertline.tasks.task import Head

# Ends of the names of transformers' classes without the head of a task, such as BertForPreTraining and BertModel.
PRETRAINED = ("ForPreTraining", "ForMaskedLM", "Model")


def head_of(config: NetworkConfig, path: Path) -> Head | None:
    """Return the head that the config.json `path` of a network names; None of a pretrained one.

    Raises BertlineError for a class of transformers with another head, or of another network.
    """
    given = read_config_json(path).get("architectures") or []
    if not isinstance(given, list):
        raise BertlineError(f"{path}: architectures is not a list; get it again")
    heads = {name: head for head, (name, _) in architecture_of(config).huggingface.TASKS.items()}
    made = str(next(iter(given), ""))
    if made and made not in heads and not made.endswith(PRETRAINED):
        raise BertlineError(
            f"{path}: its architecture is {made}, whose head cannot be read; allowed are {', '.join(heads)} and "
            "pretrained networks"
        )
    return heads.get(made)


def labels_of(path: Path, head: Head | None, outputs: int) -> tuple[str, ...]:
    """Return the names of a head's classes, LABEL_0 and so on by default; none of a regression and of answers."""
    if head in (None, "answer") or (head == "sequence" and outputs == 1):
        return ()
    names = read_config_json(path).get("id2label") or {}
    if not isinstance(names, dict):
        raise BertlineError(f"{path}: id2label is not an object; get it again")
    return tuple(str(names.get(str(index), f"LABEL_{index}")) for index in range(outputs))


def check_head(path: Path, outputs: int) -> None:
    """Raise BertlineError if a config.json describes another head for sequences than the one that is computed."""
    given = read_config_json(path)
    read = {
        "classifier_pooling": "cls",  # of ModernBERT
        "problem_type": "regression" if outputs == 1 else "single_label_classification",
    }
    for key, value in read.items():
        if given.get(key) not in (None, value):
            raise BertlineError(
                f"{path}: {key} is {given[key]!r}, only {value!r} can be read with {outputs} outputs; "
                "choose another model"
            )
