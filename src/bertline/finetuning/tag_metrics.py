"""Scores of tagged spans (chunks in BIO tags), computed by seqeval with conlleval's definitions, as fractions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from bertline.console import BertlineError


def score_tags(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute precision, recall and F1 over all spans, and the fraction of correct tags.

    Args:
        predictions, references: the tags of each sentence's words. A span is correct if its type and both ends are. If
            there is no span to find, or none was found, the scores are 0.

    Raises BertlineError if there is no sentence, or the numbers of tags in a sentence differ.
    """
    from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

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
