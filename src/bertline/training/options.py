"""Trainer options, which change how a phase is computed but not its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token
from cyclopts.types import NonNegativeInt, PositiveInt

MICRO_BATCH_TOKENS = 32768


def _tokens_or_auto(_: Any, given: Sequence[Token]) -> int | None:
    """Parse a number of tokens; return None for auto."""
    text = given[0].value
    if text != "auto" and not text.isdecimal():
        raise ValueError(f"given '{text}', allowed are a number of tokens and auto")
    return None if text == "auto" else int(text)


def _steps(_: Any, given: Sequence[Token]) -> tuple[int, ...]:
    """Parse steps with commas between; none is empty."""
    text = given[0].value
    if text and not all(part.isdecimal() for part in text.split(",")):
        raise ValueError(f"given '{text}', allowed are steps with commas between")
    return tuple(map(int, text.split(","))) if text else ()


def _first_and_last(_: Any, given: Sequence[Token]) -> tuple[int, int]:
    """Parse START:STOP, two steps."""
    first, _, last = given[0].value.partition(":")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise ValueError(f"given '{given[0].value}', allowed are two steps from 1, such as 7:11")
    return int(first), int(last)


@dataclass(frozen=True)
class Options:
    """Types, defaults and help of the trainer's options."""

    threads: PositiveInt = 1
    """Of this node, divided among its processes."""
    keep_threads: bool = True
    """Resume with as many threads as before, for the same bits; --no-keep-threads: with as many as given."""
    micro_batch_tokens: Annotated[int | None, Parameter(converter=_tokens_or_auto)] = MICRO_BATCH_TOKENS
    """Computed at once by a process, as full rows, at least one; auto: what fits a GPU's memory, or the fastest."""
    compiled: Annotated[bool, Parameter(name="--compile")] = False
    """Compile the network with torch.compile: takes a minute at the start, and every step is faster."""
    cuda_graphs: bool = False
    """Experimental, never run on a GPU yet: record the compiled program once and replay it."""
    compiled_optimizer: Annotated[bool, Parameter(name="--compile-optimizer")] = False
    """Compile LAMB's step; the others gain nothing by it."""
    sharded_optimizer: Annotated[bool, Parameter(name="--shard-optimizer")] = False
    """Each process updates a part of the parameters and keeps their moments, instead of all of them."""
    fsdp: bool = False
    """Experimental, never run on GPUs yet: each process keeps a part of weights, gradients and moments (FSDP2)."""
    kfac_share: float = 1.0
    """Of the processes that precondition a layer's gradient with K-FAC: less memory and more communication below 1."""
    activation_checkpointing: bool = False
    """Compute layers again in the backward pass: less memory for a third more work."""
    deterministic: bool = False
    """Only kernels that give the same bits in every run: on a GPU slower, on a CPU without effect."""
    load_balancing: str = "equal"
    """Of a batch among the ranks: equal; measured, for unlike GPUs; measured-again, after a resume; 3,1,1: weights."""
    log_every: PositiveInt = 10
    """Steps between points of the journal."""
    evaluate_every: NonNegativeInt = 200
    """Steps; 0: only first and last."""
    checkpoint_every: NonNegativeInt = 0
    """Steps; 0: only by the clock."""
    checkpoint_every_minutes: float = 15.0
    """Minutes, by the clock."""
    keep_checkpoints: PositiveInt = 2
    """Number of the newest."""
    keep_every: NonNegativeInt = 0
    """Keep the checkpoints of multiples of this many steps, and write one of step 0."""
    keep_steps: Annotated[tuple[int, ...], Parameter(converter=_steps, n_tokens=1)] = ()
    """Write checkpoints of these steps and keep them: 0,1000,4000."""
    keep_best: bool = False
    """Keep the checkpoint with the lowest held-out MLM loss, too."""
    profile: Annotated[tuple[int, int] | None, Parameter(converter=_first_and_last, n_tokens=1)] = None
    """Write where the time of steps START:STOP goes, both included, to checkpoints/profile/."""
    profiler: Literal["torch", "nsight"] = "torch"
    """nsight: only mark the steps of --profile, for nsys and ncu."""
    when_locked: Literal["wait", "stop"] = "wait"
    """What to do while another trainer works on this phase."""
