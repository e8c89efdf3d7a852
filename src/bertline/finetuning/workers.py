"""Trainings that do not synchronise their gradients: each in one process, and the best on the dev set counts."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bertline.encoding.hashing import mix_integers
from bertline.finetuning.loop import Trained, predict
from bertline.finetuning.step import Learner
from bertline.training.contract import STOPPED
from bertline.training.distributed.process_group import Group
from bertline.training.stop import StopSignal

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


def best_worker(
    fit: Callable[[int, Group, Path], tuple[Learner, Trained]],
    workers: int,
    seed: int,
    group: Group,
    folder: Path,
    stop_signal: StopSignal | None,
) -> tuple[tuple[Learner, Trained] | None, list[float]]:
    """Train all workers, divided among the ranks; the number of ranks does not affect the result.

    Returns the first one with the best main score on the dev set, on the rank that trained it, None on the others; and
    the scores of all.

    Args:
        fit: trains a model with a seed, on a group of one process, with checkpoints below a folder.
        seed: worker 0's; the others' are derived from it.
        stop_signal: ends the wait for the other ranks with status 75.
    """
    alone = replace(group, rank=0, world_size=1)
    scores = [-math.inf] * workers
    best: tuple[Learner, Trained] | None = None
    highest = -math.inf
    for worker in range(group.rank, workers, group.world_size):
        # 63 bits of the hash; a seed may have 64, but with another shift the workers would be others.
        own_seed = seed if worker == 0 else mix_integers(seed, worker) >> 1
        learner, trained = fit(own_seed, alone, folder / f"worker-{worker}")
        task = learner.task
        outputs = predict(learner.model, task.dev.inputs, task.padding, learner.settings["precision"])
        scores[worker] = round(task.dev.evaluate(outputs).scores[task.primary], 4)
        logger.info("worker %d of %d: %s %.2f", worker + 1, workers, task.primary, scores[worker])
        if scores[worker] > highest:
            best, highest = (learner, trained), scores[worker]
    meet(group, "trained", stop_signal)
    everyone = group.gather(scores).max(dim=0).values.tolist()
    winner = everyone.index(max(everyone))
    return best if winner % group.world_size == group.rank else None, [round(score, 4) for score in everyone]


def meet(group: Group, place: str, stop_signal: StopSignal | None) -> None:
    """Wait until every rank has called this with the same `place`, for however long that takes; once for each `place`.

    A collective alone times out if the ranks' trainings end at different times. Raises SystemExit with status 75 when
    this rank's `stop_signal` is set while it waits.
    """
    if group.store is None:
        return
    keys = [f"bertline/{place}/{rank}" for rank in range(group.world_size)]
    group.store.set(keys[group.rank], "1")
    while not group.store.check(keys):
        if stop_signal is not None and stop_signal.received:
            logger.info("asked to stop while waiting for the other processes; run the same command to resume")
            raise SystemExit(STOPPED)
        time.sleep(RETRY_SECONDS)
