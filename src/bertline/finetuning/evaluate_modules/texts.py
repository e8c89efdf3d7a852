"""Accuracy, F1, Matthews, Pearson and Spearman for `evaluate.load`; the config is a GLUE task or a metric's name."""

from typing import Any

import datasets
import evaluate

from bertline.finetuning.glue import GLUE_TASKS
from bertline.finetuning.glue_metrics import METRICS, compute_metrics

NUMBERS = ("stsb", "pearson", "spearman")


class TextMetrics(evaluate.Metric):
    """Scores of predicted classes or numbers, as fractions."""

    def _info(self) -> evaluate.MetricInfo:
        allowed = [*GLUE_TASKS, *METRICS]
        if self.config_name not in allowed:
            raise ValueError(f"config_name {self.config_name!r} is none of {', '.join(allowed)}")
        kind = datasets.Value("float64" if self.config_name in NUMBERS else "int64")
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions and references: a class index or a number for each example",
            features=datasets.Features({"predictions": kind, "references": kind}),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        known = GLUE_TASKS.get(self.config_name)
        return compute_metrics(known.metrics if known else (self.config_name,), predictions, references)
