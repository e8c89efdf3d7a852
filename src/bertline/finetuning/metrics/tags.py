"""Scores of tagged spans (chunks in BIO tags), by seqeval with conlleval's definitions; a module of `evaluate`."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import datasets
import evaluate
from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

from bertline.console import BertlineError

OUTSIDE = "O"
# BIO, BIOES, BILOU and BMES; the type may be absent.
WITH_PREFIX = re.compile(r"[BIESLUM](-.*)?", re.DOTALL)
# seqeval has the prefixes of BIOES only.
OF_OTHERS = {"L": "E", "U": "S", "M": "I"}


def score_tags(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], labels: Iterable[str] | None = None
) -> dict[str, float]:
    """Compute precision, recall and F1 over all spans, and the fraction of correct tags.

    Args:
        predictions, references: the tags of each sentence's words. A span is correct if its type and both ends are. If
            there is no span to find, or none was found, the scores are 0.
        labels: all tags of the task, by default those of the references. If any of them but O has no prefix of BIO,
            BIOES, BILOU or BMES, as NOUN, each word that is not O is a span of its own.

    Raises BertlineError if there is no sentence, or the numbers of tags in a sentence differ.
    """
    if not references:
        raise BertlineError("there is no sentence to score; give a file with at least one")
    if [len(tags) for tags in predictions] != [len(tags) for tags in references]:
        raise BertlineError("predictions and references differ in their numbers of tags; give one for each word")
    known = set(chain.from_iterable(references)) if labels is None else set(labels)
    with_prefixes = all(WITH_PREFIX.fullmatch(tag) for tag in known - {OUTSIDE})
    predicted, expected = (as_bioes(side, with_prefixes=with_prefixes) for side in (predictions, references))
    precision, recall, f1, _ = precision_recall_fscore_support(expected, predicted, average="micro", zero_division=0)
    accuracy = accuracy_score(expected, predicted)
    return {"precision": float(precision), "recall": float(recall), "f1": float(f1), "accuracy": float(accuracy)}


def as_bioes(sentences: Sequence[Sequence[str]], *, with_prefixes: bool) -> list[list[str]]:
    """Return the tags in the scheme that seqeval reads: by their first letter, or each as a span of one word."""

    def renamed(tag: str) -> str:
        if tag == OUTSIDE:
            return tag
        if with_prefixes and WITH_PREFIX.fullmatch(tag):
            return OF_OTHERS.get(tag[0], tag[0]) + tag[1:]
        return f"S-{tag}"

    return [[renamed(tag) for tag in tags] for tags in sentences]


class TagMetrics(evaluate.Metric):
    """Precision, recall and F1 of the tagged spans, and the accuracy of the tags, as fractions."""

    def _info(self) -> evaluate.MetricInfo:
        tags = [datasets.Value("string")]
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions and references: the tags of each sentence's words, such as B-PER, I-PER, O",
            features=datasets.Features({"predictions": tags, "references": tags}),
        )

    def _compute(self, predictions: Any, references: Any, labels: Any = None) -> dict[str, float]:
        return score_tags(predictions, references, labels)
