"""Scores of tagged spans (chunks in BIO tags), by seqeval with conlleval's definitions; a module of `evaluate`."""

import warnings
from collections.abc import Sequence
from typing import Any

import datasets
import evaluate
from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

from bertline.console import BertlineError


def score_tags(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute precision, recall and F1 over all spans, and the fraction of correct tags.

    Args:
        predictions, references: the tags of each sentence's words. A span is correct if its type and both ends are. If
            there is no span to find, or none was found, the scores are 0.

    Raises BertlineError if there is no sentence, or the numbers of tags in a sentence differ.
    """
    if not references:
        raise BertlineError("there is no sentence to score; give a file with at least one")
    if [len(tags) for tags in predictions] != [len(tags) for tags in references]:
        raise BertlineError("predictions and references differ in their numbers of tags; give one for each word")
    predicted, expected = [list(tags) for tags in predictions], [list(tags) for tags in references]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "not a tag": plain tags such as NOUN are spans of their own
        precision, recall, f1, _ = precision_recall_fscore_support(
            expected, predicted, average="micro", zero_division=0
        )
        accuracy = accuracy_score(expected, predicted)
    return {"precision": float(precision), "recall": float(recall), "f1": float(f1), "accuracy": float(accuracy)}


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
