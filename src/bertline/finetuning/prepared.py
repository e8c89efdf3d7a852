"""What the training loop needs of a task: inputs, targets, and how predictions are scored and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bertline.finetuning.sequences import Sequences, SpecialTokens

Head = Literal["sequence", "tokens", "answer"]
IGNORED = -100  # the target of a token that is not scored


@dataclass(frozen=True)
class Evaluation:
    """Scores in percent (none of a test set), what writes the predictions into a folder, and other figures to keep."""

    scores: dict[str, float]
    write_predictions: Callable[[Path], None]
    details: dict[str, float]


@dataclass(frozen=True)
class PredictedSet:
    """Inputs that are predicted after the training: a dev set or a test set.

    evaluate: takes the network's outputs in the order of the inputs: float32 [N, outputs] of the head "sequence",
    otherwise [tokens, outputs].
    """

    name: str
    inputs: Sequences
    evaluate: Callable[[np.ndarray], Evaluation]


@dataclass(frozen=True)
class PreparedTask:
    """A task ready for the loop.

    head: "sequence" for outputs of a whole input, "tokens" for those of each token, "answer" for a start and an end
    logit of each token. outputs: how many.
    train_targets: int64 [N] classes or float32 [N] numbers, of "sequence"; int64 [T] classes of the tokens, of
    "tokens"; int64 [N, 2] first and last token, of "answer".
    predicted: the dev set first, and every other set.
    baselines: the primary score, in percent, of answers that need no network. examples: counts, by name.
    """

    head: Head
    outputs: int
    primary: str
    train: Sequences
    train_targets: np.ndarray
    predicted: tuple[PredictedSet, ...]
    baselines: dict[str, float]
    examples: dict[str, int]
    special: SpecialTokens
    vocabulary: int

    @property
    def dev(self) -> PredictedSet:
        """The set whose scores the task is known by."""
        return self.predicted[0]
