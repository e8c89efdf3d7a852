"""GLUE's tasks: the columns of their official files and of `nyu-mll/glue`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bertline.tasks.task import TextTask


@dataclass(frozen=True, kw_only=True)
class GlueTask(TextTask):
    """A task of GLUE; its columns are those of the official files, `parquet_columns` those of nyu-mll/glue.

    Attributes:
        parquet_splits: names of the sets in nyu-mll/glue, if different.
    """

    family: str = "glue"
    hub: str = "nyu-mll/glue"
    parquet_splits: Mapping[str, str] = field(default_factory=lambda: {"dev": "validation"})


# Digests of the official development sets. MRPC's was computed from the files whose SHA-256 Hugging Face's loader pins,
# the others from copies of dev.tsv with the numbers of rows and bytes of text that this loader records. QQP and MNLI
# are missing.
_DEV_DIGESTS = {
    "CoLA": "9b83cbf53a0701a5f21f1b89b34fe530e5d6ec2a16841e34b17bf352c641db17",
    "SST-2": "a864544c39d5a61b0a6e68d8449f6f836bf12275f3aad31c9955e89b69b8eeb2",
    "MRPC": "2a7cf3d2a66dc6f116f021a4dacb4afcaff8711dc72c417ffef9acc756de8e77",
    "STS-B": "743a1ad8dc1a1cbebb08c7e1b0ecd14bfb1a63862ea35522963bc3e10202858f",
    "QNLI": "0939a96a0c584957300b9a1ed072bcd2a5325f078fe13941fe1cadb1f40ab91e",
    "RTE": "ea94da10ef906b14ce1c44781529091c3f43861aed654a3442a474fee614a148",
    "WNLI": "ef2e529159df8be73e3cbf1623a1b8a249b83538c79d37f15b42126c06190da8",
}


def _task(title: str, *texts: str, **others: Any) -> GlueTask:
    """Describe a task whose title is its folder in the official archive and the name of its file in a submission."""
    others.setdefault("files", {name: f"{title}/{name}.tsv" for name in ("train", "dev", "test")})
    others.setdefault("submissions", {"test": f"{title}.tsv"})
    others.setdefault("digests", {"dev": _DEV_DIGESTS[title]} if title in _DEV_DIGESTS else {})
    return GlueTask(title=title, texts=texts, **others)


_PAIR = ("sentence1", "sentence2")
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
# Source: https://gluebenchmark.com/tasks for the files and metrics, and https://gluebenchmark.com/faq for the
# submission.
GLUE_TASKS = {
    "cola": _task(
        "CoLA",
        "sentence",
        label="acceptability",
        labels=_BINARY,
        metrics=("matthews", "accuracy"),
        header=("source", "acceptability", "original_judgement", "sentence"),
        parquet_columns=("sentence", "label"),
    ),
    "sst2": _task("SST-2", "sentence", labels=_BINARY),
    "mrpc": _task(
        "MRPC",
        "#1 String",
        "#2 String",
        label="Quality",
        labels=_BINARY,
        metrics=("accuracy", "f1"),
        parquet_columns=(*_PAIR, "label"),
    ),
    "stsb": _task("STS-B", *_PAIR, label="score", metrics=("spearman", "pearson"), parquet_columns=(*_PAIR, "label")),
    # Hugging Face's reader of GLUE also skips the broken rows of the official QQP file.
    "qqp": _task(
        "QQP",
        "question1",
        "question2",
        label="is_duplicate",
        labels=_BINARY,
        metrics=("accuracy", "f1"),
        skips_broken_rows=True,
        parquet_columns=("question1", "question2", "label"),
    ),
    "mnli": _task(
        "MNLI",
        *_PAIR,
        label="gold_label",
        labels=("contradiction", "entailment", "neutral"),
        files={
            "train": "MNLI/train.tsv",
            "dev": "MNLI/dev_matched.tsv",
            "dev_mismatched": "MNLI/dev_mismatched.tsv",
            "test": "MNLI/test_matched.tsv",
            "test_mismatched": "MNLI/test_mismatched.tsv",
            "diagnostic": "diagnostic/diagnostic.tsv",  # a test set with MNLI's classes, outside the archive
        },
        submissions={"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
        parquet_columns=("premise", "hypothesis", "label"),
        parquet_splits={"dev": "validation_matched", "dev_mismatched": "validation_mismatched", "test": "test_matched"},
        numbered_labels=("entailment", "neutral", "contradiction"),
    ),
    "qnli": _task("QNLI", "question", "sentence", labels=_ENTAILMENT, numbered_labels=_ENTAILMENT),
    "rte": _task("RTE", *_PAIR, labels=_ENTAILMENT, numbered_labels=_ENTAILMENT),
    "wnli": _task("WNLI", *_PAIR, labels=_BINARY),
}
