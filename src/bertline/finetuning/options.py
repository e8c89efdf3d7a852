"""Options of a fine-tuning, which change how it is computed but not its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveInt
from cyclopts.validators import Number

from bertline.training.options import MAX_SHARING, MICRO_BATCH_TOKENS, CommonOptions


@dataclass(frozen=True)
class Options(CommonOptions):
    """Types, defaults and help of the options of fine-tuning."""

    threads: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    """Threads of this node, divided among its processes (default: all)."""
    micro_batch_tokens: PositiveInt = MICRO_BATCH_TOKENS["cuda"]
    """Tokens, with padding, that a process computes at once, at least one input; larger batches are accumulated."""
    checkpoint_every_minutes: NonNegativeFloat = 10.0
    """Minutes between checkpoints."""
    fine_tunings_per_gpu: Annotated[
        int,
        Parameter(
            validator=Number(gte=1, lte=MAX_SHARING),
            help=f"Number of fine-tunings of one process that may use a GPU at once, at most {MAX_SHARING}.",
        ),
    ] = 1
