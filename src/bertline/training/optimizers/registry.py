"""Registry of the optimizers that a phase's settings can name, and their state in checkpoints.

The trainer uses an optimizer only through its entry in `OPTIMIZERS`. CONTRIBUTING.md describes how to add one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.training.distributed.fsdp import shard_as
from bertline.training.optimizers.adamw import make_adamw, new_adamw_state
from bertline.training.optimizers.factors import SIDES
from bertline.training.optimizers.lamb import Lamb
from bertline.training.optimizers.lion import Lion
from bertline.training.optimizers.muon import Muon
from bertline.training.optimizers.sgd import Sgd
from bertline.training.optimizers.shampoo import Shampoo
from bertline.training.optimizers.soap import Soap

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """An optimizer.

    Attributes:
        make: (named parameters, settings of the phase, compiled=) -> the optimizer. The schema defines types and
            defaults of the settings; the trainer sets `lr` of all parameter groups before each step.
        new_state: (optimizer, weight) -> the weight's state before its first update. It determines names, shapes, types
            and devices of the tensors in checkpoints. A tensor called `step` counts the updates for bias correction.
        is_compilable: whether `compiled` has an effect.
        needs_whole_matrices: whether an update is more than elementwise operations, norms and `map_whole`, so that
            weights cannot be sharded.
        batches_matrices: whether the last bits of an update depend on which other weights the rank updates.
        restarts_bias_correction: whether a phase that carries over moments resets `step` to 0.
    """

    make: Callable[..., torch.optim.Optimizer]
    new_state: Callable[[Any, Tensor], dict[str, Tensor]]
    is_compilable: bool = False
    needs_whole_matrices: bool = False
    batches_matrices: bool = False
    restarts_bias_correction: bool = False


OPTIMIZERS = {
    # NVIDIA's second phase restarts bias correction. With AdamW's warm moments, a restart would shrink the first steps
    # threefold.
    "lamb": Entry(Lamb, Lamb.new_state, is_compilable=True, restarts_bias_correction=True),
    "adamw": Entry(make_adamw, lambda _, weight: new_adamw_state(weight)),
    "muon": Entry(Muon, Muon.new_state, batches_matrices=True),
    "lion": Entry(Lion, Lion.new_state),
    "sgd": Entry(Sgd, Sgd.new_state),
    "soap": Entry(Soap, Soap.new_state, needs_whole_matrices=True),
    "shampoo": Entry(Shampoo, Shampoo.new_state, needs_whole_matrices=True),
}


def make_optimizer(
    model: nn.Module,
    settings: Mapping[str, Any],
    *,
    compiled: bool = False,
    owns: Callable[[str], bool] = lambda name: True,
) -> torch.optim.Optimizer:
    """Make the optimizer of a phase's settings.

    Args:
        compiled: compile its update, if it is compilable.
        owns: whether this rank updates the parameter of this name.
    """
    entry = OPTIMIZERS[settings["optimizer"]]
    if compiled and not entry.is_compilable:
        logger.info("--compile-optimizer changes nothing for %s, which gains nothing by it", settings["optimizer"])
    owned = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad and owns(name)]
    return entry.make(owned, settings, compiled=compiled)


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimizer's state as tensors named {parameter}.{state tensor}."""
    return {
        f"{name}.{key}": value
        for name, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
    }


def has_state(model: nn.Module, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether `tensors` contain state as of `optimizer_tensors`; before the first update there is none."""
    names = {name for name, _ in model.named_parameters()}
    return any(name.rpartition(".")[0] in names for name in tensors)


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    kind: str,
    reset_step: bool = False,
) -> None:
    """Restore the state returned by `optimizer_tensors`, for the parameters that `optimizer` updates.

    Args:
        kind: the optimizer's name in `OPTIMIZERS`.
        reset_step: restart bias correction.

    Raises BertlineError if a tensor is missing or has another shape, or if moments are in a basis that the optimizer's
    state has not.
    """
    new_state = OPTIMIZERS[kind].new_state
    updated = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for name, weight in model.named_parameters():
        if id(weight) not in updated:
            continue
        state = new_state(optimizer, weight)
        for key, new in state.items():
            tensor = tensors.get(f"{name}.{key}")
            if tensor is None or tensor.shape != new.shape:
                raise BertlineError(f"the moment {name}.{key} of {kind} is missing or has another shape")
            if not (reset_step and key == "step"):
                restored = shard_as(tensor, new)
                # Not the tensor itself, which is a part of the checkpoint's file mapped into memory: NFS keeps a file
                # that is in use, and with it the folder.
                state[key] = restored.clone() if restored is tensor else restored
        if lost := sorted({f"{name}.{side}_basis" for side in SIDES if f"{side}_basis" not in state} & tensors.keys()):
            raise BertlineError(f"the moments of {kind} are in the basis {lost[0]}, which largest_side leaves out here")
        optimizer.state[weight] = state
