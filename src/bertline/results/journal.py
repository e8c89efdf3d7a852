"""Reading of a training's metrics journal, during and after the training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import read_text

# A few hundred points.
TAIL_BYTES = 65_536
LIMIT = 2**63  # of steps and timestamps, in MLflow and in TensorBoard's events
RECENT_POINTS = 20  # over which the speed is measured from which the time left follows

SHOWN = {
    "train/loss": "loss {:.4f}",
    "train/learning_rate": "learning rate {:.3g}",
    "train/tokens_per_second": "{:,.0f} tokens/s",
    "held_out/mlm_loss": "held-out MLM loss {:.4f}",
    "held_out/mlm_accuracy": "accuracy {:.3f}",
}


def describe_metrics(metrics: Mapping[str, float]) -> str:
    """Describe the most important metrics of a point, as in `loss 2.4983, 13,746 tokens/s`."""
    return ", ".join(text.format(metrics[key]) for key, text in SHOWN.items() if key in metrics)


@dataclass(frozen=True)
class JournalPoint:
    """One line of a metrics journal. `timestamp` is in Unix milliseconds."""

    step: int
    timestamp: int
    metrics: dict[str, float]


def read_journal(path: Path, last_step: int | None = None, *, complete: bool = False) -> list[JournalPoint]:
    """Read the points of a metrics journal in the order written, up to and including `last_step`.

    A last line without its newline is still being written and is skipped, unless the journal should be `complete`; an
    absent journal has no points. Raises BertlineError for any other invalid line, and for a file that is not a journal.
    """
    if not path.exists():
        return []
    text = read_text(path)
    if "\0" in text or (complete and not text.endswith("\n")):
        raise BertlineError(f"{path} is cut off; restore it from a copy, or delete the result to make it again")
    points = [_point(line, f"{path} line {number}") for number, line in enumerate(text.split("\n")[:-1], start=1)]
    return [point for point in points if last_step is None or point.step <= last_step]


def read_last_points(path: Path) -> list[JournalPoint]:
    """Read the last points of a journal that is being written, of at most `TAIL_BYTES`, in the order written.

    An absent journal has no points. Raises BertlineError for an invalid line.
    """
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    complete = lines[1:] if start else lines
    return [_point(line.decode("utf-8", "replace"), f"the end of {path}") for line in complete]


def _point(line: str, where: str) -> JournalPoint:
    try:
        content = json.loads(line)
        metrics = {key: float("nan") if value is None else float(value) for key, value in content["metrics"].items()}
        step, timestamp = int(content["step"]), int(content["timestamp"])
        if not (0 <= step < LIMIT and 0 <= timestamp < LIMIT):
            raise ValueError(f"step {step}, timestamp {timestamp}")
        return JournalPoint(step, timestamp, metrics)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BertlineError(
            f"{where} is not a point of a metrics journal ({error}); delete the line, or the result, to make it again"
        ) from None
