"""Trainings that do not synchronise their gradients: each in one process, and the best on the dev set counts."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bertline.encoding.hashing import mix_integers
from bertline.finetuning.loop import Trained, predict
from bertline.finetuning.step import Learner
from bertline.training.distributed.process_group import Group

logger = logging.getLogger(__name__)


def best_worker(
    fit: Callable[[int, Group, Path], tuple[Learner, Trained]], workers: int, seed: int, group: Group, folder: Path
) -> tuple[tuple[Learner, Trained] | None, list[float]]:
    """Train all workers, divided among the ranks; the number of ranks does not affect the result.

    Returns the first one with the best main score on the dev set, on the rank that trained it, None on the others; and
    the scores of all.

    Args:
        fit: trains a model with a seed, on a group of one process, with checkpoints below a folder.
        seed: worker 0's; the others' are derived from it.
    """
    alone = replace(group, rank=0, world_size=1)
    scores = [-math.inf] * workers
    best: tuple[Learner, Trained] | None = None
    highest = -math.inf
    for worker in range(group.rank, workers, group.world_size):
        own_seed = seed if worker == 0 else mix_integers(seed, worker) >> 1  # below 2 ** 63, PyTorch's limit for seeds
        learner, trained = fit(own_seed, alone, folder / f"worker-{worker}")
        task = learner.task
        outputs = predict(learner.model, task.dev.inputs, task.padding, learner.settings["precision"])
        scores[worker] = round(task.dev.evaluate(outputs).scores[task.primary], 4)
        logger.info("worker %d of %d: %s %.2f", worker + 1, workers, task.primary, scores[worker])
        if scores[worker] > highest:
            best, highest = (learner, trained), scores[worker]
    everyone = group.gather(scores).max(dim=0).values.tolist()
    winner = everyone.index(max(everyone))
    return best if winner % group.world_size == group.rank else None, [round(score, 4) for score in everyone]
