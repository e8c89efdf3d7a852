"""Precision, recall and F1 of tagged spans, by seqeval, for `evaluate.load`."""

from typing import Any

import datasets
import evaluate

from bertline.finetuning.tag_metrics import score_tags


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
