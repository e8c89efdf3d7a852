"""Scores by the modules in `metrics`, which are metrics of Hugging Face's `evaluate`.

`evaluate.load` copies a module into a cache below the user's home before it imports it. Here the module is imported
where it is, so that concurrent jobs share no file.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from bertline.finetuning import metrics

TRANSFORMERS = "transformers"


def compute_scores(
    module: str,
    config: str | None,
    predictions: Sequence[Any] | np.ndarray,
    references: Sequence[Any] | np.ndarray,
    **options: Any,
) -> dict[str, float]:
    """Compute the scores of `predictions`, in the form that the metric's module documents.

    Args:
        module: the name of a file in `metrics`.
        config: its config, such as v2 for `squad`; None if it has only one.
        options: other arguments of the metric, such as the labels for `tags`.

    Raises BertlineError for predictions that cannot be scored.
    """
    return load_metric(module, config).compute(predictions=predictions, references=references, **options)


@cache
def load_metric(module: str, config: str | None = None) -> Any:
    """Load a metric module of the package as an `evaluate.Metric`; for the arguments see `compute_scores`."""
    with _without_transformers():
        import evaluate  # takes seconds

    metric = evaluate.loading.import_main_class(f"{metrics.__name__}.{module}")
    # `evaluate` creates a folder even for scores that it computes in memory.
    with tempfile.TemporaryDirectory(prefix="bertline-metrics-") as folder:
        return metric(config, cache_dir=folder, keep_in_memory=True)


@contextmanager
def _without_transformers() -> Iterator[None]:
    """Let imports of transformers fail, which take seconds: only the evaluators of `evaluate` use it."""
    loaded = {TRANSFORMERS: sys.modules[TRANSFORMERS]} if TRANSFORMERS in sys.modules else {}
    sys.modules[TRANSFORMERS] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[TRANSFORMERS]
        sys.modules.update(loaded)
