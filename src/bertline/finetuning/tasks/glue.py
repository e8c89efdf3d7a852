"""GLUE's tasks: the columns of their official files and of `nyu-mll/glue`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bertline.finetuning.tasks.task import TextTask


@dataclass(frozen=True, kw_only=True)
class GlueTask(TextTask):
    """A task of GLUE; its columns are those of the official files.

    Attributes:
        columns: those of a labelled file without a header.
        skips_broken_rows: whether the official file has rows that lack columns.
        parquet_texts, parquet_classes: columns and order of the classes in nyu-mll/glue, if different.
        parquet_splits: names of the sets there, if different.
    """

    prepare: str = "bertline.finetuning.text_task:prepare_glue"
    family: str = "glue"
    columns: tuple[str, ...] = ()
    skips_broken_rows: bool = False
    parquet_texts: tuple[str, ...] = ()
    parquet_classes: tuple[str, ...] = ()
    parquet_splits: Mapping[str, str] = field(default_factory=lambda: {"dev": "validation"})


def _files(folder: str) -> dict[str, str]:
    return {name: f"{folder}/{name}.tsv" for name in ("train", "dev", "test")}


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
# Source: https://gluebenchmark.com/tasks for the files and metrics, and https://gluebenchmark.com/faq for the
# submission.
GLUE_TASKS = {
    "cola": GlueTask(
        title="CoLA",
        files=_files("CoLA"),
        texts=("sentence",),
        label="acceptability",
        labels=_BINARY,
        metrics=("matthews", "accuracy"),
        submissions={"test": "CoLA.tsv"},
        columns=("source", "acceptability", "original_judgement", "sentence"),
    ),
    "sst2": GlueTask(
        title="SST-2", files=_files("SST-2"), texts=("sentence",), labels=_BINARY, submissions={"test": "SST-2.tsv"}
    ),
    "mrpc": GlueTask(
        title="MRPC",
        files=_files("MRPC"),
        texts=("#1 String", "#2 String"),
        label="Quality",
        labels=_BINARY,
        metrics=("accuracy", "f1"),
        submissions={"test": "MRPC.tsv"},
        parquet_texts=_PAIR,
    ),
    "stsb": GlueTask(
        title="STS-B",
        files=_files("STS-B"),
        texts=_PAIR,
        label="score",
        metrics=("spearman", "pearson"),
        submissions={"test": "STS-B.tsv"},
    ),
    # Hugging Face's reader of GLUE also skips the broken rows of the official QQP file.
    "qqp": GlueTask(
        title="QQP",
        files=_files("QQP"),
        texts=("question1", "question2"),
        label="is_duplicate",
        labels=_BINARY,
        metrics=("accuracy", "f1"),
        submissions={"test": "QQP.tsv"},
        skips_broken_rows=True,
    ),
    "mnli": GlueTask(
        title="MNLI",
        files={
            "train": "MNLI/train.tsv",
            "dev": "MNLI/dev_matched.tsv",
            "dev_mismatched": "MNLI/dev_mismatched.tsv",
            "test": "MNLI/test_matched.tsv",
            "test_mismatched": "MNLI/test_mismatched.tsv",
            "diagnostic": "diagnostic/diagnostic.tsv",  # a test set with MNLI's classes, outside the archive
        },
        texts=_PAIR,
        label="gold_label",
        labels=("contradiction", "entailment", "neutral"),
        submissions={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
        parquet_texts=("premise", "hypothesis"),
        parquet_classes=("entailment", "neutral", "contradiction"),
        parquet_splits={"dev": "validation_matched", "dev_mismatched": "validation_mismatched", "test": "test_matched"},
    ),
    "qnli": GlueTask(
        title="QNLI",
        files=_files("QNLI"),
        texts=("question", "sentence"),
        labels=_ENTAILMENT,
        submissions={"test": "QNLI.tsv"},
        parquet_classes=_ENTAILMENT,
    ),
    "rte": GlueTask(
        title="RTE",
        files=_files("RTE"),
        texts=_PAIR,
        labels=_ENTAILMENT,
        submissions={"test": "RTE.tsv"},
        parquet_classes=_ENTAILMENT,
    ),
    "wnli": GlueTask(title="WNLI", files=_files("WNLI"), texts=_PAIR, labels=_BINARY, submissions={"test": "WNLI.tsv"}),
}
