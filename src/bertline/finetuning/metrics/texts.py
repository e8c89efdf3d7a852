"""Metrics for classes and for numbers, including GLUE's, as fractions; a module of `evaluate`.

The config is a task of the registry, or names of `METRICS` joined by plus signs. Degenerate inputs have defined
values: with constant predictions or references, the Matthews, Pearson and Spearman correlations are 0, and so is F1
without a true positive. An empty input is an error.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import datasets
import evaluate
import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertline.console import BertlineError
from bertline.tasks.registry import TASKS
from bertline.tasks.task import METRICS_OF_NUMBERS, TextTask


def _correlation(function: Callable, references: np.ndarray, predictions: np.ndarray) -> float:
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    value = float(function(predictions, references).statistic)
    return value if np.isfinite(value) else 0.0


# Functions of references and predictions.
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy_score,
    "f1": partial(f1_score, labels=[1], average="micro", zero_division=0.0),
    "f1_macro": partial(f1_score, average="macro", zero_division=0.0),
    "matthews": matthews_corrcoef,
    "pearson": partial(_correlation, pearsonr),
    "spearman": partial(_correlation, spearmanr),
}


def compute_metrics(
    names: Sequence[str], predictions: Sequence | np.ndarray, references: Sequence | np.ndarray
) -> dict[str, float]:
    """Compute the named metrics over N predictions and references.

    Args:
        names: keys of METRICS. f1 is that of class 1, f1_macro the mean over the classes that occur; pearson and
            spearman are for numbers, the others for class indices.
        predictions, references: [N], N > 0.

    Raises BertlineError if there is nothing to score, the lengths differ, or a prediction is not a finite number.
    """
    predicted, expected = np.asarray(predictions), np.asarray(references)
    if predicted.shape != expected.shape or predicted.ndim != 1:
        raise BertlineError(
            f"{len(predicted)} predictions do not fit {len(expected)} references; give one prediction for each example"
        )
    if len(expected) == 0:
        raise BertlineError("there is no example to score; give a file with at least one")
    if not np.isfinite(predicted).all():
        raise BertlineError("a prediction is not a finite number; the training diverged, lower its learning rate")
    with warnings.catch_warnings():
        # "A single label was found" and "nearly constant": the values are those defined above, or the best available.
        warnings.simplefilter("ignore")
        return {name: float(METRICS[name](expected, predicted)) for name in names}


class TextMetrics(evaluate.Metric):
    """Scores of predicted classes or numbers, as fractions."""

    def _info(self) -> evaluate.MetricInfo:
        task = TASKS.get(self.config_name)
        self.metrics = task.metrics if isinstance(task, TextTask) else tuple(self.config_name.split("+"))
        for name in self.metrics:
            if name not in METRICS:
                allowed = [*(name for name, task in TASKS.items() if isinstance(task, TextTask)), *METRICS]
                raise ValueError(f"config_name: given {name!r}, allowed are {', '.join(allowed)}")
        # float32 is the type of a network's outputs, and that of the Hub's metric `glue`.
        kind = datasets.Value("float32" if set(self.metrics) <= set(METRICS_OF_NUMBERS) else "int64")
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions and references: a class index or a number for each example",
            features=datasets.Features({"predictions": kind, "references": kind}),
            format="numpy",
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return compute_metrics(self.metrics, predictions, references)
