"""Metrics for classes and for numbers, including GLUE's, computed by scikit-learn and scipy, as fractions.

Degenerate inputs have defined values: with constant predictions or references, the Matthews, Pearson and Spearman
correlations are 0, and so is F1 without a true positive. An empty input is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from bertline.console import BertlineError


def _accuracy(predictions: np.ndarray, references: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(references, predictions))


def _f1(predictions: np.ndarray, references: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(references, predictions, labels=[1], average="micro", zero_division=0.0))


def _f1_macro(predictions: np.ndarray, references: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(references, predictions, average="macro", zero_division=0.0))


def _matthews(predictions: np.ndarray, references: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a single label was found": 0, as defined above
        return float(matthews_corrcoef(references, predictions))


def _pearson(predictions: np.ndarray, references: np.ndarray) -> float:
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, references)


def _spearman(predictions: np.ndarray, references: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, references)


def _correlation(function: Callable, predictions: np.ndarray, references: np.ndarray) -> float:
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "nearly constant": the value is still the best available
        value = float(function(predictions, references).statistic)
    return value if np.isfinite(value) else 0.0


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "f1_macro": _f1_macro,
    "matthews": _matthews,
    "pearson": _pearson,
    "spearman": _spearman,
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
    return {name: METRICS[name](predicted, expected) for name in names}
