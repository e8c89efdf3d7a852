"""Scores of tagged spans (chunks in BIO tags), by seqeval with conlleval's definitions; a module of `evaluate`."""

import re
from collections.abc import Sequence
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


def score_tags(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute precision, recall and F1 over all spans, and the fraction of correct tags.

    Args:
        predictions, references: the tags of each sentence's words. A span is correct if its type and both ends are. If
            any tag but O has no prefix of BIO, BIOES, BILOU or BMES, as NOUN, each word that is not O is a span of its
            own. If there is no span to find, or none was found, the scores are 0.

    Raises BertlineError if there is no sentence, or the numbers of tags in a sentence differ.
    """
    if not references:
        raise BertlineError("there is no sentence to score; give a file with at least one")
    if [len(tags) for tags in predictions] != [len(tags) for tags in references]:
        raise BertlineError("predictions and references differ in their numbers of tags; give one for each word")
    predicted, expected = as_bioes(predictions, references)
    precision, recall, f1, _ = precision_recall_fscore_support(expected, predicted, average="micro", zero_division=0)
    accuracy = accuracy_score(expected, predicted)
    return {"precision": float(precision), "recall": float(recall), "f1": float(f1), "accuracy": float(accuracy)}


def as_bioes(*sides: Sequence[Sequence[str]]) -> list[list[list[str]]]:
    """Return the tags of all sides in the scheme that seqeval reads, by the first letter of a tag."""
    found = {tag for side in sides for tags in side for tag in tags} - {OUTSIDE}
    if all(WITH_PREFIX.fullmatch(tag) for tag in found):
        renamed = {tag: OF_OTHERS.get(tag[0], tag[0]) + tag[1:] for tag in found}
    else:
        renamed = {tag: f"B-{tag}" for tag in found}
    return [[[renamed.get(tag, tag) for tag in tags] for tags in side] for side in sides]


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

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return score_tags(predictions, references)
