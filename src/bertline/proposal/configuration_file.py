"""The file of a proposed configuration: YAML with a short reason next to each line."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from bertline.corpus.documents import tidy
from bertline.files import Json
from bertline.planning.corpora import LOCAL_FILES_PER_PART
from bertline.proposal.machine import VISIBLE, Machine
from bertline.proposal.sizes import (
    COMPILED_GAIN,
    EPOCHS,
    HELD_OUT_SHARE,
    MASKED,
    REFERENCE,
    TOKENS_PER_PARAMETER,
    Network,
    Proposal,
)
from bertline.proposal.text import OwnText
from bertline.results.describe import counted

# Languages that are written without spaces between words, or without marks at the ends of sentences.
NO_SPACES = {"zh", "cmn", "wuu", "yue", "ja", "my", "km", "th", "lo", "bo", "dz"}
NO_SENTENCE_MARKS = {"th", "lo", "bo", "dz"}
OTHER_FULL_STOPS = {"am", "ti"}
SENTENCEX = {"ko"}  # there Punkt takes ends of verbs for abbreviations
WIDTH = 64  # of a line before its comment
SEEDS_OF_TABLE, EPOCHS_OF_TABLE = 3, 3


def rounded_duration(seconds: float) -> str:
    """Return a time in words, rounded; from two of a unit on, in that unit."""
    for unit, size in (("days", 86400), ("hours", 3600)):
        if seconds >= 1.95 * size:
            return f"{seconds / size:.{0 if seconds >= 9.5 * size else 1}f} {unit}"
    return counted(round(seconds / 60), "minute") if seconds >= 55 else f"{max(1, round(seconds / 10))}0 seconds"


def sentence_settings(language: str) -> tuple[Json, str]:
    """Return the settings that split the sentences of a language, and the reason."""
    if language in NO_SENTENCE_MARKS:
        return {"sentences": "unicode"}, "few ends are marked: better use a program for the language, and `lines`"
    if language in NO_SPACES:
        return {"sentences": "unicode"}, "by the marks of all scripts: there are no spaces to split at"
    if language in OTHER_FULL_STOPS:
        return {"sentences": "unicode"}, "by the marks of all scripts: Punkt does not support ።"
    if language in SENTENCEX:
        settings = {"sentences": "sentencex", "sentence_language": language}
        return settings, "rules for the language: Punkt mistakes ends of verbs for abbreviations"
    return {"sentences": "punkt"}, "learns the abbreviations of your text"


def tokenizer_settings(language: str, vocab_size: int, *, has_case: bool) -> tuple[Json, str]:
    """Return the settings of a language's tokenizer, and the reason."""
    kind = "unigram" if language in NO_SPACES else "wordpiece"
    why = "needs no spaces between words" if kind == "unigram" else "BERT's"
    return {"train": kind, "vocab_size": vocab_size, "lowercase": has_case, "strip_accents": False}, why


def command(path: str, proposal: Proposal, machine: Machine) -> str:
    """Return the command that runs a configuration as proposed, on the machine that it was sized to."""
    micro = "auto" if proposal.micro_batch_tokens is None else proposal.micro_batch_tokens
    options = [
        f"pretrain_phase:processes_per_node={proposal.processes}",
        f"pretrain_phase:micro_batch_tokens={micro}",
        *(["\"pretrain_phase:trainer_options='--compile'\""] if proposal.compiled else []),
    ]
    hidden = [f"{VISIBLE}="] if os.environ.get(VISIBLE) == "" else []  # a training takes any GPU that it sees
    # A container's share of a processor's time, of which Snakemake takes no account.
    limit = [f"--cores={machine.cores}"] if machine.cores < len(os.sched_getaffinity(0)) else []
    snakemake = ["snakemake --profile profiles/local", *limit, f"--configfile={shlex.quote(path)}", "--set-resources"]
    return " ".join([*hidden, *snakemake, *options])


OF_EACH_PHASE = ("sequence_length", "global_batch_size", "steps", "learning_rate", "warmup")
REASONS_OF_NETWORK = {
    "hidden_size": "a larger one is slower, and learns more from more text",
    "num_hidden_layers": "the same",
    "num_attention_heads": "each of size 64",
    "intermediate_size": "4 times hidden_size, as in BERT",
    "hidden_dropout_prob": "the masks change in every epoch",
    "attention_probs_dropout_prob": "the same",
    "initializer_range": "larger in a narrow network",
    "position_initialization": "a small network learns faster from sines",
}
REASONS_OF_PHASE = {
    "optimizer": "muon needs fewer steps in small networks, adamw is BERT's",
    "schedule": "down to 0 at the last step",
    "betas": "RoBERTa's",
    "carry_over": "from the phase before; the optimizer starts anew",
    "sequence_length": "tokens; short ones first teach attention, longer ones follow",
    "steps": "twice as many take twice as long, and give a better model",
    "learning_rate": "at its peak",
    "warmup": "steps",
    "packing": "no padding",
    "precision": "the fast one on this hardware",
    "masking": "share of the tokens to predict",
}


def network_of(network: Network) -> Json:
    """Return the keys of a network in a configuration."""
    small = network.hidden <= REFERENCE.hidden
    return {
        **network.shape,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **({"initializer_range": 0.04, "position_initialization": "sinusoidal"} if small else {}),
    }


def phase_settings(network: Network, length: int, sequences: int, precision: str) -> Json:
    """Return the settings of a phase in a configuration, for a number of steps that is still to be set."""
    return {
        "sequence_length": length,
        "global_batch_size": sequences,
        "steps": 1000,
        "optimizer": network.optimizer,
        "learning_rate": network.learning_rate,
        "schedule": "linear",
        "warmup": 0,
        "betas": [0.9, 0.98],
        "packing": True,
        "precision": precision,
        "masking": {"probability": MASKED},
        "carry_over": "weights",
    }


def summary(text: OwnText, proposal: Proposal, machine: Machine) -> list[str]:
    """Return lines about what was found, and what fits the machine and the time."""
    amount = f"{text.characters:,} characters" if text.language in NO_SPACES else f"{text.words:,} words"
    about = "about " if any(corpus.is_extrapolated for corpus in text.corpora) else ""
    found = f"{text.bytes / 1e6:,.1f} MB, {about}{text.documents:,} documents, about {amount}"
    training = rounded_duration(sum(phase.seconds for phase in proposal.phases))
    lines = [
        f"A BERT for your own text. Found: {found}, language {text.language} ({text.share:.0%} of a sample).",
        f"Sized to {machine.device}: about {rounded_duration(proposal.seconds)}, including {training} of training.",
    ]
    lines += [
        f"The {len(corpus.files):,} small files of '{corpus.name}' are read in {corpus.parts} parts of up to "
        f"{LOCAL_FILES_PER_PART:,} files, each by jobs of its own: packed into a .tar.gz or .zip they take less time."
        for corpus in text.corpora
        if corpus.is_of_tiny_files
    ]
    if proposal.compiled and not machine.gpus:
        lines.append(
            f"The training is compiled, and taken to be {COMPILED_GAIN:g} times as fast as the timed steps; the time "
            "of `make plan` is that of steps that are not compiled."
        )
    if proposal.seconds > 1.2 * proposal.wanted_seconds:
        lines.append(
            f"The given time, {rounded_duration(proposal.wanted_seconds)}, is too short: everything but the training "
            f"takes {rounded_duration(proposal.other_seconds)}."
        )
    if proposal.held_out > 2 * HELD_OUT_SHARE:
        lines.append(
            f"As the documents are few, {proposal.held_out:.0%} of them are held out for the loss, and not trained on; "
            "divide the text into more files to hold out less."
        )
    return lines


def configuration(
    name: str, path: str, text: OwnText, proposal: Proposal, machine: Machine, table: Json | None = None
) -> str:
    """Return the content of the file.

    Args:
        name: of the dataset and the run.
        path: of the file, for the command.
        table: a table to fine-tune on: its `name` and `settings`.
    """
    lines = _Lines()
    for line in summary(text, proposal, machine):
        lines.comment(line)
    plan = "python workflow/scripts/plan.py --configfile " if path.split() != [path] else "make plan CONFIG="
    shown = f"`{plan}{shlex.quote(path)}` then shows what will run"
    lines.comment(f"The {proposal.limit} limits the training. Change any value; {shown}. Run it:")
    lines.comment(f"    {command(path, proposal, machine)}")
    lines.add(0, "", "")
    lines.add(0, "experiment", name, why="in MLflow")
    lines.add(0, "corpora:")
    for corpus in text.corpora:
        _corpus(lines, corpus.name, dict(corpus.settings), corpus.reasons, text)
    _dataset(lines, name, text, proposal)
    lines.add(0, "sequence_lengths", [phase.sequence_length for phase in proposal.phases], why="those of the phases")
    if table:
        lines.add(0, "evaluation:")
        lines.add(1, "tables:")
        lines.add(2, f"{_yaml(table['name'])}:")
        for key, value in table["settings"].items():
            lines.add(3, key, value, why=table["reasons"].get(key, ""))
    _run(lines, name, text, proposal, table)
    return lines.text()


def _corpus(lines: _Lines, name: str, settings: Json, reasons: dict[str, str], text: OwnText) -> None:
    lines.add(1, f"{_yaml(name)}:")
    reasons = dict(reasons)
    if "sentences" not in settings:
        more, reason = sentence_settings(text.language)
        settings |= more
        reasons["sentences"] = reason
    usual = {"source": "how they are read", "paths": "** is any folder", "encoding": "as given"}
    for key, value in settings.items():
        lines.add(2, key, value, why={**usual, **reasons}.get(key, ""))
    if text.others:
        seen = ", ".join(
            f"{language} {share:.0%}" for language, share in list(text.others.items())[:3] if share >= 0.01
        )
        if seen:
            kept = _yaml({"keep": text.language})
            lines.add(2, f"# language_identification: {kept}", why=f"drops other languages: {seen}")


def _dataset(lines: _Lines, name: str, text: OwnText, proposal: Proposal) -> None:
    lines.add(0, "datasets:")
    lines.add(1, f"{_yaml(name)}:")
    lines.add(2, "corpora", [corpus.name for corpus in text.corpora], why="those above")
    lines.add(2, "shards", proposal.shards, why="files of samples; more only for hundreds of megabytes")
    lines.add(2, "held_out", proposal.held_out, why="share of the documents kept for the held-out loss")
    lines.add(2, "duplicates", "exact", why="`near` also drops documents that nearly repeat another")
    settings, why = tokenizer_settings(text.language, proposal.vocab_size, has_case=text.has_case)
    lines.add(2, "tokenizer:")
    lines.add(3, "train", settings["train"], why=why)
    lines.add(3, "vocab_size", settings["vocab_size"], why="grows with the fourth root of the text; 30522 is BERT's")
    lines.add(
        3, "lowercase", settings["lowercase"], why="false keeps capitals" if text.has_case else "the script has none"
    )
    lines.add(3, "strip_accents", settings["strip_accents"], why="false: letters keep their marks")
    lines.add(2, "pair_objective", "none", why="only masked words: sentence pairs did not help RoBERTa")


def _run(lines: _Lines, name: str, text: OwnText, proposal: Proposal, table: Json | None) -> None:
    network = proposal.network
    lines.add(0, "runs:")
    lines.add(1, f"{_yaml(name)}:")
    lines.add(2, "description", f"{network.name} on {text.bytes / 1e6:,.1f} MB of custom text.", why="for the report")
    lines.add(2, "dataset", name, why="above")
    lines.add(
        2,
        "model:",
        why=f"{network.name}: {proposal.tokens / network.weights:,.1f} tokens for each weight of its layers; "
        f"the aim is {TOKENS_PER_PARAMETER}",
    )
    model = network_of(network)
    for key, value in model.items():
        lines.add(3, key, value, why=REASONS_OF_NETWORK[key])
    lines.add(2, "phases:", why=f"the text is read about {proposal.epochs:.2g} times, at most {EPOCHS} times")
    for number, phase in enumerate(proposal.phases, 1):
        anchor = " &phase" if number == 1 else ""
        lines.add(3, f"phase{number}:{anchor}", why=f"about {rounded_duration(phase.seconds)}")
        settings = phase_settings(network, phase.sequence_length, phase.sequences, proposal.precision)
        settings |= {"steps": phase.steps, "learning_rate": phase.learning_rate, "warmup": phase.warmup}
        whys = {**REASONS_OF_PHASE, "global_batch_size": f"sequences, as {proposal.batch:,} tokens a step"}
        if number > 1:
            lines.add(4, "<<: *phase", why="the other settings are those of phase1")
            settings = {key: settings[key] for key in OF_EACH_PHASE}
        for key, value in settings.items():
            lines.add(4, key, value, why=whys[key])
    if table:
        rate = network.fine_tuning_rate
        tuning = {
            "seeds": SEEDS_OF_TABLE,
            "epochs": EPOCHS_OF_TABLE,
            "batch_size": 16,
            "learning_rate": rate,
            "random_weights": [rate],
            "precision": proposal.precision,
            "max_sequence_length": proposal.phases[-1].sequence_length,
        }
        lines.add(2, "finetune:")
        lines.add(3, "tables:")
        lines.add(
            4, f"{_yaml(table['name'])}:", why="random_weights: the same network without pretraining, for comparison"
        )
        for key, value in tuning.items():
            lines.add(5, key, value)
    lines.add(2, "model_card:")
    lines.add(3, "language", [text.language], why="for the Hub")
    lines.add(3, "# license: cc-by-4.0", why="set it before `make publish`")


class _Lines:
    """Lines of YAML."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def comment(self, text: str) -> None:
        self._lines.append(f"# {' '.join(text.splitlines())}")

    def add(self, level: int, key: str, value: Any = None, *, why: str = "") -> None:
        content = "  " * level + (key if value is None else f"{key}: {_yaml(value)}" if key else "")
        # A reason may quote a file, such as the names of columns.
        self._lines.append(f"{content.ljust(WIDTH - 1)} # {tidy(why)}" if why else content)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _yaml(value: Any) -> str:
    """Return a value in YAML's flow style. JSON is a part of YAML, but 1e-05 is text there."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return f"{value:.1e}" if "e" in short else short if "." in short else f"{short}.0"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and value.isascii() and value.replace("-", "").replace("_", "").isalpha():
        plain = value.lower() not in ("no", "yes", "on", "off", "y", "n", "true", "false", "null")
        return value if plain else json.dumps(value)
    text = json.dumps(value, ensure_ascii=False)
    # YAML refuses some control characters, and reads others as the end of a line.
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)
