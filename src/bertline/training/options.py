"""Trainer options, which change how a phase is computed but not its result."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from typing import Any


def _option(default: Any, text: str, **how: Any) -> Any:
    """Declare a command line option: `--name`, or `flag`; the rest is passed to `ArgumentParser.add_argument`."""
    return field(default=default, metadata={"help": text, **how})


def _tokens_or_auto(text: str) -> int | None:
    """Parse a number of tokens; return None for auto."""
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"given '{text}', allowed are a number of tokens and auto")
    return None if text == "auto" else int(text)


@dataclass(frozen=True)
class Options:
    """Types, defaults and help of the trainer's options."""

    threads: int = _option(1, "of this node, divided among its processes")
    micro_batch_tokens: int | None = _option(
        16384,
        "computed at once by a process, as many full rows as fit, at least one; auto: as many as fit into a GPU's "
        "memory, or the fastest number on a CPU",
        type=_tokens_or_auto,
        metavar="TOKENS|auto",
    )
    compiled: bool = _option(
        False,
        "compile the network with torch.compile: takes a minute at the start, and every step is faster",
        flag="--compile",
    )
    cuda_graphs: bool = _option(False, "record the compiled program once and replay it; a GPU only")
    compiled_optimizer: bool = _option(
        False, "compile LAMB's step; the others gain nothing by it", flag="--compile-optimizer"
    )
    sharded_optimizer: bool = _option(
        False,
        "each process updates a part of the parameters and keeps their moments, instead of all of them",
        flag="--shard-optimizer",
    )
    fsdp: bool = _option(
        False, "each process keeps a part of weights, gradients and moments (FSDP2): for what does not fit otherwise"
    )
    activation_checkpointing: bool = _option(
        False, "compute layers again in the backward pass: less memory for a third more work"
    )
    deterministic: bool = _option(
        False, "only kernels that give the same bits in every run: on a GPU slower, on a CPU without effect"
    )
    load_balancing: str = _option(
        "equal",
        "of a batch among the ranks: equal; measured, for unlike GPUs; or a weight for each, as in 3,1,1. A resumed "
        "phase keeps what it measured, unless given measured-again or other weights",
    )
    log_every: int = _option(10, "a point of the journal", metavar="STEPS")
    evaluate_every: int = _option(200, "0: only first and last", metavar="STEPS")
    checkpoint_every: int = _option(0, "0: only by the clock", metavar="STEPS")
    checkpoint_every_minutes: float = _option(15.0, "by the clock", metavar="MINUTES")
    keep_checkpoints: int = _option(2, "of the newest", metavar="NUMBER")
    keep_every: int = _option(0, "keep the checkpoints of multiples of it", metavar="STEPS")
    keep_best: bool = _option(False, "keep the checkpoint with the lowest held-out MLM loss, too")
    profile: bool = _option(False, "write where the time of steps 7 to 11 goes to checkpoints/profile/")
    when_locked: str = _option("wait", "what to do while another trainer works on this phase", choices=("wait", "stop"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options to a command line."""
    for option in fields(Options):
        how: dict[str, Any] = dict(option.metadata)
        flag = how.pop("flag", "--" + option.name.replace("_", "-"))
        if option.default is False:
            parser.add_argument(flag, dest=option.name, action="store_true", **how)
        else:
            how.setdefault("type", type(option.default))
            parser.add_argument(flag, dest=option.name, default=option.default, **how)


def given_options(given: argparse.Namespace) -> Options:
    """Return the options of a parsed command line."""
    return Options(**{option.name: getattr(given, option.name) for option in fields(Options)})
