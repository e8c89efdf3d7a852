"""Scores by the modules in `metrics`, loaded offline with Hugging Face's `evaluate`.

`evaluate` copies a module into a cache before it imports it, by default below the user's home. Here the cache is a
folder of this process, so that concurrent jobs share no file.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

MODULES = Path(__file__).parent / "metrics"


def compute_scores(
    module: str, config: str | None, predictions: Sequence[Any] | np.ndarray, references: Sequence[Any] | np.ndarray
) -> dict[str, float]:
    """Compute the scores of `predictions`, in the form that the metric's module documents.

    Args:
        module: the name of a file in `metrics`.
        config: its config, such as v2 for `squad`; None if it has only one.

    Raises BertlineError for predictions that cannot be scored.
    """
    return load_metric(module, config).compute(predictions=predictions, references=references)


@cache
def load_metric(module: str, config: str | None = None) -> Any:
    """Load a metric module of the package as an `evaluate.Metric`; for the arguments see `compute_scores`."""
    evaluate, folder = _import_evaluate()
    path = str(MODULES / f"{module}.py")
    return evaluate.load(path, config, cache_dir=folder.name, keep_in_memory=True)


@cache
def _import_evaluate() -> tuple[Any, tempfile.TemporaryDirectory[str]]:
    """Import `evaluate`, which then uses a temporary folder as its cache; return both.

    Its evaluators, which scores do not need, import all pipelines of transformers, and scipy, if they can: 3 of 4 s.
    """
    hidden = [name for name in ("transformers", "scipy") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # importing them raises ImportError
    try:
        import evaluate
    finally:
        for name in hidden:
            del sys.modules[name]
    folder = tempfile.TemporaryDirectory(prefix="bertline-metrics-")
    evaluate.config.HF_EVALUATE_OFFLINE = True
    evaluate.config.HF_MODULES_CACHE = folder.name
    return evaluate, folder
