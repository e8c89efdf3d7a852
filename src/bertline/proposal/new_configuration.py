"""A configuration for the user's own texts, sized to the texts, to this machine and to a time."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from bertline.console import BertlineError
from bertline.encoding.measure import characters_per_token
from bertline.files import SCHEMA, Json, write_text
from bertline.planning.estimate import record_speed
from bertline.planning.resolve import plan_of_files
from bertline.planning.trials import run_trial
from bertline.proposal.configuration_file import (
    EPOCHS_OF_TABLE,
    SEEDS_OF_TABLE,
    configuration,
    network_of,
    phase_settings,
    summary,
    tokenizer_settings,
)
from bertline.proposal.machine import Machine, use_gpus
from bertline.proposal.sizes import (
    Amount,
    Network,
    default_seconds,
    micro_batch_for,
    precision_for,
    processes_for,
    propose,
    seconds_of,
    vocabulary_size,
)
from bertline.proposal.table import describe_table, divided_into, files_of
from bertline.proposal.text import MIN_DOCUMENTS, OwnText, look_at
from bertline.settings.configuration import load_schema

logger = logging.getLogger(__name__)

MIN_CHARACTERS = 10_000  # of text
SPECIAL_TOKENS_PER_ROW, MAX_TOKENS = 3, 128  # of a row of a table
BUSY = 1.5  # slowdown by other programs from which on it is reported


class NewConfiguration(NamedTuple):
    """A configuration as YAML, and what to report about it.

    Attributes:
        summary: lines about what was found, chosen and guessed, also in the comments of `content`.
        not_read: number of files by suffix that are no texts, and of those that are hidden or special.
        left_out: tables to fine-tune on that are among the texts, which are not read.
        slowdown: by how many times other programs slow training down here, at least 1.
    """

    content: str
    summary: Sequence[str]
    not_read: Mapping[str, int]
    left_out: Sequence[Path]
    slowdown: float


def write_configuration(
    *texts: str,
    output: Path = Path("mine.yaml"),
    time: str | None = None,
    language: str | None = None,
    encoding: str = "utf-8",
    column: str | None = None,
    table: str | None = None,
    gpus: int | None = None,
    force: bool = False,
) -> str:
    """Write the configuration that `make_configuration` makes for this machine, and return what to report about it.

    Args:
        texts: folders and files.
        output: the file to write; its name is that of the run.
        time: from the text to the report, as 15m, 2h or 1d; by default 14m for up to 10 MB of text, more for more.
        language: of the text, its ISO 639 code; by default it is identified.
        encoding: of plain text and CSV; of several with commas between, as utf-8,cp1252,latin-1, the first that fits.
        column: of tables of texts, with the text; by default a usual name, or the longest texts.
        table: to fine-tune on, or two with a comma between: for training, and for scores. They are not read as texts.
        gpus: number to use; by default all.
        force: overwrite `output`, and a divided table of other rows.

    Raises BertlineError, before anything is timed, if there is no text or `output` cannot be written.
    """
    texts = tuple(filter(None, texts))  # `make mine` without TEXT gives an empty one
    if not texts:
        raise BertlineError("there is no text; give a folder or a file, as make mine TEXT=folder")
    if output.is_dir():
        raise BertlineError(f"{output} is a folder; give OUTPUT=name.yaml")
    if output.exists() and not force:
        raise BertlineError(f"{output} exists and is not overwritten; give OUTPUT=another.yaml, or FORCE=yes")
    try:
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise BertlineError(f"{output} cannot be written: {error.strerror}; give OUTPUT=another.yaml") from None
    seconds = seconds_of(time) if time else None
    machine = use_gpus(gpus)
    made = make_configuration(
        texts,
        output,
        machine,
        seconds=seconds,
        language=language,
        encoding=encoding,
        column=column,
        table=files_of(table),
        time_steps=partial(time_steps, machine),
        force=force,
    )
    write_text(output, made.content)
    lines = [*made.summary]
    if made.not_read:
        others = ", ".join(f"{number} {suffix}" for suffix, number in made.not_read.items())
        lines.append(
            f"Not read, because they are no texts by their names, XML but no wiki's dump, hidden or special: {others}"
        )
    if made.left_out:
        lines.append(f"Not among the texts, because they are TABLE: {', '.join(map(str, made.left_out))}")
    if made.slowdown > BUSY:
        lines.append(
            "Other programs use this machine: as long as they do, training takes about "
            f"{made.slowdown:.1f} times as long."
        )
    return "\n".join([*lines, f"{output} is written; read its comments."])


def time_steps(machine: Machine, network: Network, length: int, batch: int, vocab_size: int) -> Json:
    """Time training steps of a network on this machine, and record their speed for the plan and the time left.

    Args:
        length: of the sequences, in tokens.
        batch: tokens of a global batch.

    Returns what `bertline.planning.trials.run_trial` does.
    """
    settings = phase_settings(network, length, max(1, batch // length), precision_for(machine))
    model = {**network_of(network), "vocab_size": vocab_size, "max_position_embeddings": 512}
    recipe = {"fingerprint": "0" * 16, "model": model, "seed": 42, "initial_weights": None, "settings": settings}
    processes = processes_for(network, vocab_size, machine, batch)
    threads = machine.cores if machine.gpus else processes
    options = ["--micro-batch-tokens", str(micro_batch_for(machine) or "auto")]
    timed = run_trial(recipe, processes=processes, threads=threads, options=options)
    if timed["fits"]:
        record_speed(recipe, timed | {"device": f"{timed['device']}, not compiled"})
    return timed


def _check_language(code: str) -> None:
    """Raise BertlineError for what is no code of ISO 639, or not the one by which a language is known here."""
    if not re.fullmatch("[a-z]{2,3}", code):
        raise BertlineError(f"LANGUAGE={code}: give a code of two or three letters, such as de")
    if len(code) == 3:
        from nltk.langnames import iso639short  # takes two seconds, and only such codes need it

        if short := iso639short.get(code):
            raise BertlineError(f"LANGUAGE={code}: give the code of two letters, LANGUAGE={short}")


def _check_amount(found: OwnText, where: str) -> None:
    """Raise BertlineError for too little text, or too few documents that differ."""
    if found.characters < MIN_CHARACTERS:
        raise BertlineError(
            f"{where}: {found.characters:,} characters are too few to learn from ({MIN_CHARACTERS:,} or more are "
            "needed); give more text"
        )
    if found.different < MIN_DOCUMENTS <= len(found.sample):  # `duplicates: exact` leaves one of equal ones
        raise BertlineError(
            f"{where}: the documents are equal but for {found.different}, too few to hold one out; give other texts"
        )


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
    force: bool = False,
) -> NewConfiguration:
    """Look at the texts, time training steps, and choose the sizes.

    Args:
        output: where the configuration is going to be; its name is that of the run.
        seconds: from the text to the report; None for a time in proportion to the text.
        language, encoding, column: of the texts, see `look_at`.
        table: rows to fine-tune on: none, one file, or one for training and one for scores.
        time_steps: (network, sequence length, tokens of a global batch, vocabulary size) -> what
            `bertline.planning.trials.run_trial` returns.
        force: overwrite a divided table of another content.

    Raises BertlineError if a text cannot be read, or if memory, disk or text are too small.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", output.stem).lstrip("_.-") or "mine"
    if language is not None:
        _check_language(language)
    folder = Path("resources/tables", name)  # none of another stage, nor the demo's
    found = look_at(
        texts,
        load_schema(SCHEMA),
        encoding=encoding,
        language=language,
        column=column,
        tables=table,
        divided=divided_into(table[0], folder) if len(table) == 1 else [],
    )
    _check_amount(found, ", ".join(texts))
    described = describe_table(list(table), folder, force=force) if table else None
    vocab_size = vocabulary_size(found.characters, found.alphabet)
    settings, _ = tokenizer_settings(found.language, vocab_size, has_case=found.has_case)
    per_token = characters_per_token(found.sample, **settings)
    tokens, parts = round(found.characters / per_token), sum(corpus.parts for corpus in found.corpora)
    amount = Amount(found.bytes, found.characters, tokens, found.documents, parts)
    slowdown = 1.0

    @cache
    def speed(network: Network, length: int, batch: int) -> float:
        nonlocal slowdown
        logger.info("timing training steps of %s with %d tokens", network.name, length)
        measured = time_steps(network, length, batch, vocab_size)
        if not measured["fits"]:
            raise BertlineError(
                f"the memory is too small for training steps of {network.name} with {length} tokens; end other "
                "programs, or use a machine or a job with more"
            )
        slowdown = max(slowdown, measured["step_seconds"] / measured["busy_seconds"])
        return float(measured["tokens"] / measured["busy_seconds"])

    row = min(MAX_TOKENS, SPECIAL_TOKENS_PER_ROW + described["characters"] / per_token) if described else 0
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
    with tempfile.TemporaryDirectory() as temporary:
        draft = Path(temporary, "draft.yaml")
        draft.write_text(content, encoding="utf-8")
        plan = plan_of_files([draft])
    if plan.problems:
        raise BertlineError(plan.problems[0])
    lines = [*summary(found, chosen, machine), *(described["notes"] if described else ())]
    return NewConfiguration(content, lines, found.not_read, found.left_out, slowdown)
