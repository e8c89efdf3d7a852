"""Description of a fine-tuning task: its files, its settings, and the function that prepares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Head = Literal["sequence", "tokens", "answer"]

METRICS_OF_NUMBERS = ("pearson", "spearman")
METRICS_OF_CLASSES = ("accuracy", "f1", "f1_macro", "matthews")
# Settings of every task that the plan expands to several fine-tunings.
PLANNED_SETTINGS = ("seeds", "random_weights", "grid", "keep")
LABELLED_SETS = ("train", "dev", "dev_mismatched")  # the others are test sets, predicted on request


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task as planning and reports see it.

    Attributes:
        title: its name in reports.
        prepare: the function that reads and tokenizes its files, as module:function, imported when a job starts; it
            chooses the metric.
        head: kind of its network's outputs, see `bertline.finetuning.prepared.PreparedTask`.
        settings: the definition of its settings in the configuration's schema.
        files: the members of its official archive, by set.
        archive: address of that archive, for messages; empty if there is none.
        family: the key above its own under `evaluation` and `finetune`; empty if there is none.
        hub: id of its data set on the Hugging Face Hub; empty if it is not known.
        digests: of the examples of its official development sets (`digest_of_examples`), by set, as far as known.
    """

    title: str
    prepare: str
    head: Head = "sequence"
    settings: str = "classification"
    files: Mapping[str, str] = field(default_factory=dict)
    archive: str = ""
    family: str = ""
    hub: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)

    def is_official(self, name: str, digests: Mapping[str, str]) -> bool | None:
        """Return whether the set `name` is the official one; None if that is not known.

        Args:
            digests: of the sets that were used, by name.
        """
        if name not in self.digests or name not in digests:
            return None
        return self.digests[name] == digests[name]

    def files_of(self, *, with_tests: bool) -> dict[str, str]:
        """Return `files`, without the test sets unless `with_tests` is set."""
        return {name: path for name, path in self.files.items() if with_tests or name in LABELLED_SETS}


@dataclass(frozen=True, kw_only=True)
class TextTask(Task):
    """A task on one text or two, with a head on the whole input.

    Attributes:
        texts: columns of the one or two texts.
        label: column of the label.
        labels: the classes in the order of their ids; none for a regression.
        metrics: the scores, the main one first.
        header: columns of labelled files without a header.
        skips_broken_rows: whether labelled files have rows that lack columns: they are skipped and counted.
        parquet_columns: columns of the texts and of the label in Parquet files, if different.
        numbered_labels: the classes in the order of their numbers in files with numbers, if those differ.
        submissions: names of the files with predictions of the test sets, by set: .tsv in the format of GLUE's server,
            .jsonl in SuperGLUE's. Without a name, they are written like those of the dev set.
    """

    prepare: str = "bertline.finetuning.text_task:prepare_text_task"
    texts: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    header: tuple[str, ...] = ()
    skips_broken_rows: bool = False
    parquet_columns: tuple[str, ...] = ()
    numbered_labels: tuple[str, ...] = ()
    submissions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_regression(self) -> bool:
        return not self.labels
