"""A configuration for the user's own texts, sized to the texts, to this machine and to a time."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bertline.console import BertlineError
from bertline.encoding.measure import characters_per_token
from bertline.files import SCHEMA, Json
from bertline.planning.resolve import plan_of_files
from bertline.proposal.configuration_file import (
    EPOCHS_OF_TABLE,
    SEEDS_OF_TABLE,
    configuration,
    summary,
    tokenizer_settings,
)
from bertline.proposal.machine import Machine
from bertline.proposal.sizes import Amount, Network, default_seconds, propose, vocabulary_size
from bertline.proposal.table import describe_table
from bertline.proposal.text import MIN_DOCUMENTS, look_at
from bertline.settings.configuration import load_schema

logger = logging.getLogger(__name__)

MIN_CHARACTERS = 10_000  # of text
SPECIAL_TOKENS, MAX_TOKENS = 3, 128  # of a row of a table


class NewConfiguration(NamedTuple):
    """A configuration as YAML, and what to report about it.

    Attributes:
        summary: lines about what was found and chosen, also in the comments of `content`.
        not_read: number of files by suffix whose names are not those of texts.
        slowdown: by how many times other programs slow training down here, at least 1.
    """

    content: str
    summary: Sequence[str]
    not_read: Mapping[str, int]
    slowdown: float


def make_configuration(
    texts: Sequence[str],
    output: Path,
    machine: Machine,
    *,
    seconds: float | None,
    language: str | None,
    encoding: str,
    column: str | None,
    table: Sequence[str],
    time_steps: Callable[[Network, int, int, int], Json],
) -> NewConfiguration:
    """Look at the texts, time training steps, and choose the sizes.

    Args:
        output: where the configuration is going to be; its name is that of the run.
        seconds: from the text to the report; None for a time in proportion to the text.
        language, encoding, column: of the texts, see `look_at`.
        table: rows to fine-tune on: none, one file, or one for training and one for scores.
        time_steps: (network, sequence length, tokens of a global batch, vocabulary size) -> what
            `bertline.training.trial.time_steps` returns.

    Raises BertlineError if a text cannot be read, or if memory, disk or text are too small.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", output.stem).lstrip("_.-") or "mine"
    if language is not None and not re.fullmatch("[a-z]{2,3}", language):
        raise BertlineError(f"LANGUAGE={language}: give a code of two or three letters, such as de")
    found = look_at(texts, load_schema(SCHEMA), encoding=encoding, language=language, column=column)
    if found.characters < MIN_CHARACTERS:
        raise BertlineError(
            f"{', '.join(texts)}: {found.characters:,} characters are too few to learn from ({MIN_CHARACTERS:,} or "
            "more are needed); give more text"
        )
    if found.different < MIN_DOCUMENTS <= len(found.sample):  # `duplicates: exact` leaves one of equal ones
        raise BertlineError(
            f"{', '.join(texts)}: the documents are equal but for {found.different}, too few to hold one out; "
            "give other texts"
        )
    described = describe_table(list(table), Path("resources") / name) if table else None
    vocab_size = vocabulary_size(found.characters, found.alphabet)
    settings, _ = tokenizer_settings(found.language, vocab_size, has_case=found.has_case)
    per_token = characters_per_token(found.sample, **settings)
    amount = Amount(found.bytes, found.characters, round(found.characters / per_token), found.documents)
    slowdown = 1.0

    @cache
    def speed(network: Network, length: int, batch: int) -> float:
        nonlocal slowdown
        logger.info("timing training steps of %s with %d tokens", network.name, length)
        measured = time_steps(network, length, batch, vocab_size)
        slowdown = max(slowdown, measured["step_seconds"] / measured["busy_seconds"])
        return float(measured["tokens"] / measured["busy_seconds"])

    row = min(MAX_TOKENS, SPECIAL_TOKENS + described["characters"] / per_token) if described else 0
    rows = described["rows"] if described else 0
    chosen = propose(
        amount,
        vocab_size,
        machine,
        seconds=seconds or default_seconds(found.bytes),
        speed=speed,
        # Of this network, and of one with random weights.
        fine_tuned_tokens=2 * SEEDS_OF_TABLE * EPOCHS_OF_TABLE * rows * row,
    )
    content = configuration(name, str(output), found, chosen, machine, described)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "draft.yaml")
        draft.write_text(content, encoding="utf-8")
        plan = plan_of_files([draft])
    if plan.problems:
        raise BertlineError(plan.problems[0])
    return NewConfiguration(content, summary(found, chosen, machine), found.not_read, slowdown)
