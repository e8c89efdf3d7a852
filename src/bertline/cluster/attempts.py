"""Counter of a training's successive attempts without progress, stored next to its checkpoints."""

from __future__ import annotations

from pathlib import Path

from bertline.cluster.failures import last_words
from bertline.console import BertlineError
from bertline.files import read_json, write_json
from bertline.results import paths

MAX_ATTEMPTS = 3


def count_attempt(checkpoints: Path, *, restart: bool) -> None:
    """Count one more attempt since the last durable step.

    Args:
        checkpoints: a phase's folder of checkpoints; made if it does not exist.
        restart: whether to reset the count.

    Raises:
        BertlineError: after MAX_ATTEMPTS.
    """
    phase = checkpoints.parent
    step = paths.durable_step(phase)
    path = phase / paths.ATTEMPTS
    before = {} if restart or not path.exists() else read_json(path)
    attempts = before.get("attempts", 0) if before.get("step") == step else 0
    if attempts >= MAX_ATTEMPTS:
        log = phase / paths.TRAINING_LOG
        raise BertlineError(
            f"{attempts} attempts in a row ended without a step beyond {step} (the last: {last_words(log)}); "
            f"see {log}; the same command tries again"
        )
    checkpoints.mkdir(parents=True, exist_ok=True)
    write_json(path, {"step": step, "attempts": attempts + 1})
