"""Files and options of predictions and features that a model supports, by its head; without PyTorch, for the plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cyclopts.validators import Number

from bertline.console import BertlineError
from bertline.files import SCHEMA
from bertline.finetuning.conll import SUFFIXES as CONLL_SUFFIXES
from bertline.finetuning.tables import SUFFIXES as TABLE_SUFFIXES
from bertline.results import paths
from bertline.settings.configuration import defaults_of, definition, load_schema
from bertline.tasks.registry import RANKING, name_of_task
from bertline.tasks.task import Head

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
QUESTION_COLUMNS = ("id", "question", "context")
INPUTS: dict[Head, tuple[str, ...]] = {
    "sequence": TABLE_SUFFIXES,
    "tokens": (*TABLE_SUFFIXES, *CONLL_SUFFIXES),
    "answer": (*TABLE_SUFFIXES, ".json"),
}
OUTPUTS: dict[Head, tuple[str, ...]] = {
    "sequence": (".jsonl", ".tsv"),
    "tokens": (".jsonl", ".conll"),
    "answer": (".jsonl", ".tsv", ".json"),
}
FEATURE_INPUTS = (".txt", *TABLE_SUFFIXES)
Kind = Literal["predict", "features"]


def range_of(kind: str, setting: str) -> Number:
    """Return a validator with the range of a setting that config/config.schema.yaml defines under `kind`."""
    allowed = definition(load_schema(SCHEMA), kind)["properties"][setting]
    return Number(gte=allowed["minimum"], lte=allowed["maximum"])


@dataclass(frozen=True)
class GivenTexts:
    """The texts of a command line: one text or two, or a question and its context; None for those not given."""

    text: str | None
    text_pair: str | None
    question: str | None
    context: str | None


def check_given(texts: GivenTexts, inputs: Sequence[Path] | None, output: Path | None, columns: Sequence[str]) -> None:
    """Raise BertlineError unless a command line names either texts, or files of `inputs` and an `output`."""
    asks = texts.question is not None or texts.context is not None
    if (
        sum([texts.text is not None, asks, inputs is not None]) != 1
        or (texts.question is None) != (texts.context is None)
        or (inputs is None) != (output is None)
    ):
        raise BertlineError("give --text, or --question and --context, or --inputs and --output")
    if texts.text_pair is not None and texts.text is None:
        raise BertlineError("--text-pair is the second text of --text; leave it out")
    if columns and inputs is None:
        raise BertlineError("--columns are those of --inputs; leave them out")
    for name, value in asdict(texts).items():
        try:
            (value or "").encode()
        except UnicodeEncodeError:
            raise BertlineError(f"--{name.replace('_', '-')} is not UTF-8; convert it") from None


def check_inputs(head: Head, inputs: Sequence[Path]) -> None:
    """Raise BertlineError, beginning with the option, for a file from which a model does not predict, by its name."""
    _check_suffixes(inputs, INPUTS[head], "allowed for this model are")


def check_inputs_of_features(inputs: Sequence[Path]) -> None:
    """Raise BertlineError, beginning with the option, for a file that has no texts, by its name."""
    _check_suffixes(inputs, FEATURE_INPUTS, "allowed are")


def _check_suffixes(inputs: Sequence[Path], allowed: Sequence[str], wording: str) -> None:
    for path in inputs:
        if path.suffix.lower() not in allowed:
            raise BertlineError(f"inputs: given '{path}', {wording} {', '.join(allowed)}; convert the file")


def check_named_columns(kind: Kind, columns: Sequence[str], inputs: Sequence[Path]) -> None:
    """Raise BertlineError, beginning with the option, for names of columns if no input has any."""
    is_default = not columns if kind == "predict" else list(columns) == defaults_of("features")["columns"]
    suffixes = {path.suffix.lower() for path in inputs}
    if suffixes and not is_default and suffixes.isdisjoint(TABLE_SUFFIXES):
        raise BertlineError(
            f"columns: given {', '.join(columns)}, but {', '.join(sorted(suffixes))} files have no named columns; "
            "leave it out"
        )


def check_format(head: Head, output: Path, count: int) -> None:
    """Raise BertlineError, beginning with the option, for an output that a model does not write, by its name.

    count: of answers per question.
    """
    allowed = OUTPUTS[head]
    if output.suffix.lower() not in allowed:
        raise BertlineError(f"output: given '{output}', allowed for this model are {', '.join(allowed)}")
    if count > 1 and output.suffix.lower() != ".jsonl":
        raise BertlineError(f"n_best: given {count}, but {output} has one answer per question; write a .jsonl")


def check_answer_options(head: Head, count: int | None, null_threshold: float | None) -> None:
    """Raise BertlineError for options that were given, and are not None, if the model answers no questions.

    The threshold has to be finite, as in a configuration.
    """
    for name, given in (("n_best", count), ("null_threshold", null_threshold)):
        if given is not None and head != "answer":
            raise BertlineError(f"{name}: given {given}, but the model answers no questions; leave it out")
    if null_threshold is not None and not math.isfinite(null_threshold):
        raise BertlineError(f"null_threshold: given {null_threshold}, allowed is a finite number")


def check_finetuned(head: Head | None, folder: Path) -> Head:
    """Return the head of the model in a folder. Raises BertlineError if it is a pretrained one, which has none."""
    if head is None:
        raise BertlineError(
            f"{folder} is a pretrained model: {paths.CONFIG} names none with the head of a task; name the folder of a "
            "fine-tuned one, such as results/runs/demo/glue/cola/model"
        )
    return head


def check_ranks(head: Head, task: str) -> None:
    """Raise BertlineError, beginning with the option, for a model that does not rank passages.

    task: that it was trained for; empty if it does not say so, as models of other programs.
    """
    if head == "sequence" and (not task or task.startswith(RANKING)):
        return
    trained = f"it was trained for {name_of_task(task)} and" if task else "it"
    raise BertlineError(f"model: {trained} does not rank passages; name a model of a ranking")


def check_columns(head: Head, columns: Sequence[str], texts: Sequence[str]) -> None:
    """Raise BertlineError, beginning with the option, for another number of columns than a model reads.

    texts: those of the task that a model with a head on the whole input was trained for.
    """
    names = {"answer": QUESTION_COLUMNS, "tokens": ("the text",), "sequence": texts}[head]
    if columns and len(columns) != len(names):
        *others, last = names
        wanted = f"{', '.join(others)} and {last}" if others else last
        raise BertlineError(f"columns: given {', '.join(columns)}; this model needs {len(names)}, of {wanted}")
