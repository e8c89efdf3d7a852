"""Entries of a plan: the recipes of phases and fine-tunings, and what belongs to a run, a dataset, a kept model."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from bertline.files import Json


class CorpusText(TypedDict, total=False):
    """What names the text of a corpus: `parts`, `listing` or `wiki`.

    Attributes:
        parts: the files of each part; an empty list if only the part's job finds them.
        listing: the files of a dump, see `corpus.sources.slices_of`.
        wiki: the database name of a dump that the graph downloads.
        sha256: of the files that are not downloaded, by path.
    """

    parts: dict[str, list[str]]
    listing: Json
    wiki: str
    sha256: dict[str, str]


class CorpusEntry(CorpusText):
    """A corpus, in the form of its recipe, see `corpus.sources`.

    Attributes:
        key: the name with a fingerprint.
        settings: with all defaults.
    """

    key: str
    name: str
    settings: Json


class EvaluationSets(TypedDict):
    """The sets with which documents are compared.

    Attributes:
        sets: files by the set's name.
        fingerprint: of their content.
    """

    sets: dict[str, list[str]]
    fingerprint: str


class DatasetEntry(TypedDict):
    """A dataset: one that the graph makes, or a finished one in a given folder.

    Attributes:
        path, static_masks, lengths: of a finished one: its folder, whether its samples are masked, and the sequence
            lengths that it has.
        corpora: keys of the plan's `corpora`; of a finished one, their names.
        settings: of one that the graph makes, as the following.
        shards: names, with that of the held-out one.
        fingerprint_without_lengths: of the samples of any one sequence length, and of the tokenizer.
    """

    name: str
    path: NotRequired[str]
    static_masks: NotRequired[bool]
    lengths: NotRequired[list[int]]
    corpora: NotRequired[list[str]]
    settings: NotRequired[Json]
    shards: NotRequired[list[str]]
    fingerprint_without_lengths: str


class PhaseRecipe(TypedDict):
    """The recipe of a pretraining phase.

    Attributes:
        model: the network's configuration.
        dataset: a fingerprint.
        dataset_without_lengths: its fingerprint without the sequence lengths that it has.
        phase: its name in the run that first has it.
        settings: with all defaults.
        initial_weights: {"phase": fingerprint}, or `directory` and `content` of external weights; None for random ones.
        continues_data_of: the phase after whose samples it begins, if they have the same order.
        data_order: number of the order of samples, if it is not the first one.
    """

    fingerprint: str
    model: Json
    dataset: str
    dataset_without_lengths: str
    seed: int
    phase: str
    settings: Json
    initial_weights: Json | None
    continues_data_of: NotRequired[str]
    data_order: NotRequired[int]


class FinetuningRecipe(TypedDict):
    """The recipe of a fine-tuning of one task with one seed.

    Attributes:
        start: what it starts from, "pretrained" or "random".
        description: of the run, for the model's card; empty if runs with several share it.
        dataset: whose tokenizer it uses; None if `tokenizer` is its file.
        model: the network's configuration, or {"directory": folder} of external weights.
        settings: with all defaults, without `PLANNED_SETTINGS`.
        initial_weights: a phase, with or without a step, or external weights; None for random ones.
        data: the files of the task by their kind.
        sha256: of those that are neither downloaded nor made, by path.
        table: columns and labels of a custom table.
    """

    fingerprint: str
    task: str
    seed: int
    start: str
    description: str
    dataset: str | None
    model: Json
    settings: Json
    initial_weights: Json | None
    data: dict[str, str]
    sha256: dict[str, str]
    table: NotRequired[Json]
    tokenizer: NotRequired[str]


class ChoiceRecipe(TypedDict):
    """A choice among the fine-tunings of a task and a start.

    Attributes:
        keep: which of their models are kept: "best", "all" or "none".
        finetunings: fingerprints.
    """

    fingerprint: str
    keep: str
    finetunings: list[str]


class PredictionRecipe(TypedDict):
    """A file of predictions or features.

    Attributes:
        kind: "predict" or "features".
        model: a phase, a choice, a fine-tuning or external weights, as the only key.
        inputs: files.
        sha256: of all files that are there, by path.
        ranked: the files of a ranking by their kind.
        absent: whether a file is missing.
        options: the other settings.
    """

    fingerprint: str
    kind: str
    model: Json
    inputs: list[str]
    sha256: dict[str, str]
    ranked: NotRequired[dict[str, str]]
    absent: bool
    options: Json


class CollectionRecipe(TypedDict):
    """A tokenized collection of passages.

    Attributes:
        source: its file.
        sha256: of the source by its path, if it is not downloaded.
        tfrecords: whether it is a TFRecord file.
        dataset: the dataset whose tokenizer reads it, by its fingerprint.
        tokenizer: the file of another tokenizer.
    """

    fingerprint: str
    source: str
    sha256: dict[str, str]
    tfrecords: bool
    dataset: NotRequired[str]
    tokenizer: NotRequired[str]


class RunEntry(TypedDict):
    """An entry of `runs:`.

    Attributes:
        dataset: a fingerprint; None for a run that fine-tunes external weights.
        phases: fingerprints by name, in their order; none for a run that only fine-tunes.
        config: the settings.
        finetunings: fingerprints by name, such as glue/cola/seed1.
        kept: fingerprints of choices by the task's name.
        skipped: tasks without data, and a line about each.
    """

    name: str
    fingerprint: str
    dataset: str | None
    phases: dict[str, str]
    config: Json
    finetunings: dict[str, str]
    kept: dict[str, str]
    skipped: dict[str, str]


def last_phase(run: RunEntry) -> str:
    """Return the fingerprint of the last phase of a run that has phases."""
    return list(run["phases"].values())[-1]
