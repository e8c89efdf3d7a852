"""Options of a training, which change how it is computed but not its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token
from cyclopts.types import NonNegativeFloat, NonNegativeInt, PositiveInt

# By the type of the device. Few tokens fit a CPU's caches.
MICRO_BATCH_TOKENS = {"cuda": 32768, "cpu": 2048}
MAX_SHARING = 16  # trainings on a GPU at once; it has as many locks


def _tokens_or_auto(_: Any, given: Sequence[Token]) -> int | Literal["auto"] | None:
    """Parse a number of tokens, which is positive, or auto; an empty text is the default."""
    text = given[0].value
    if text == "auto":
        return "auto"
    if text and not (text.isdecimal() and int(text)):
        raise ValueError(f"given '{text}', allowed are a number of tokens from 1 on, and auto")
    return int(text) if text else None


def _steps(_: Any, given: Sequence[Token]) -> tuple[int, ...]:
    """Parse steps separated by commas; an empty text gives no steps."""
    text = given[0].value
    if text and not all(part.isdecimal() for part in text.split(",")):
        raise ValueError(f"given '{text}', allowed are steps separated by commas")
    return tuple(map(int, text.split(","))) if text else ()


def _first_and_last(_: Any, given: Sequence[Token]) -> tuple[int, int]:
    """Parse START:STOP, two steps."""
    first, _, last = given[0].value.partition(":")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ValueError(f"given '{given[0].value}', allowed are two steps from 1, such as 7:11")
    return int(first), int(last)


@dataclass(frozen=True)
class CommonOptions:
    """Types, defaults and help of the options that pretraining and fine-tuning share."""

    keep_threads: bool = True
    """Resume with as many threads as before, for the same bits; --no-keep-threads: with the number of --threads."""
    load_balancing: str = "equal"
    """Parts of a batch: equal; measured, by the devices' speeds; measured-again, after a resume; 3,1,1: weights."""
    activation_checkpointing: bool = False
    """Compute layers again in the backward pass: less memory for a third more work."""
    checkpoint_every_minutes: NonNegativeFloat = 15.0
    """Minutes between checkpoints."""


@dataclass(frozen=True)
class Options(CommonOptions):
    """Types, defaults and help of the options of pretraining."""

    threads: PositiveInt = 1
    """Threads of this node, divided among its processes."""
    micro_batch_tokens: Annotated[int | Literal["auto"] | None, Parameter(converter=_tokens_or_auto)] = None
    """Tokens that a process computes at once, at least one full row (default: 32768 on a GPU, 2048 on a CPU).

    auto: what fits a GPU's memory, or the fastest.
    """
    compiled: Annotated[bool, Parameter(name="--compile")] = False
    """Compile the network with torch.compile: it takes a minute at the start and makes every step faster."""
    cuda_graphs: bool = False
    """Record the compiled program once and replay it; on a GPU only. Experimental: never run on one yet."""
    compiled_optimizer: Annotated[bool, Parameter(name="--compile-optimizer")] = False
    """Compile LAMB's step; other optimizers do not gain from it."""
    sharded_optimizer: Annotated[bool, Parameter(name="--shard-optimizer")] = False
    """Let each process update a part of the parameters and keep only their moments."""
    fsdp: bool = False
    """Let each process keep a part of weights, gradients and moments (FSDP2). Experimental: never run on GPUs yet."""
    kfac_share: float = 1.0
    """Share of the processes that precondition a layer's gradient with K-FAC; below 1 less memory, more traffic."""
    deterministic: bool = False
    """Use only kernels that give the same bits in every run: slower on a GPU, without effect on a CPU."""
    log_every: PositiveInt = 10
    """Steps between points of the journal."""
    evaluate_every: NonNegativeInt = 200
    """Steps between evaluations; 0: only the first and the last step."""
    checkpoint_every: NonNegativeInt = 0
    """Steps between checkpoints; 0: only by time."""
    keep_checkpoints: PositiveInt = 2
    """Number of the newest checkpoints to keep."""
    keep_every: NonNegativeInt = 0
    """Keep the checkpoints whose step is a multiple of this number, or 0, and write these, too."""
    keep_steps: Annotated[tuple[int, ...], Parameter(converter=_steps, n_tokens=1)] = ()
    """Write and keep checkpoints of these steps, such as 0,1000,4000."""
    keep_best: bool = False
    """Also keep the checkpoint with the lowest held-out MLM loss."""
    profile: Annotated[tuple[int, int] | None, Parameter(converter=_first_and_last, n_tokens=1)] = None
    """Write a profile of steps START:STOP, such as 7:11, both included, to checkpoints/profile/."""
    profiler: Literal["torch", "nsight"] = "torch"
    """nsight: only mark the steps of --profile, for nsys and ncu."""
    when_locked: Literal["wait", "stop"] = "wait"
    """What to do while another trainer works on this phase."""

    def saves(self, step: int) -> bool:
        """Return whether a checkpoint of `step` is to be written, whatever the time."""
        return step in self.keep_steps or any(
            every and step % every == 0 for every in (self.checkpoint_every, self.keep_every)
        )

    def micro_batch_tokens_on(self, device_type: str) -> int | Literal["auto"]:
        """Return the tokens that a process computes at once on a type of device, cuda or cpu."""
        return self.micro_batch_tokens or MICRO_BATCH_TOKENS[device_type]
