"""LAMB, AdamW and Muon over a model's parameters, and their moments by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.training.distributed.fsdp import shard_as
from bertline.training.optimizers.lamb import MOMENTS, Lamb
from bertline.training.optimizers.muon import Muon

logger = logging.getLogger(__name__)

# Weights that hold several matrices on top of each other, and how many. Query, key and value are separate maps that
# share nothing but their input: orthogonalised as one [3H, H] matrix, the size of the query's update would depend on
# the value's gradient, and each of the three would get singular values of about 1 / sqrt(3).
FUSED_MATRICES = {"qkv.weight": 3, "gated_intermediate.weight": 2}


def make_optimizer(
    model: nn.Module,
    settings: Mapping[str, Any],
    *,
    compiled: bool = False,
    owns: Callable[[str], bool] = lambda name: True,
) -> torch.optim.Optimizer:
    """The optimizer that a phase's settings ask for. Biases and normalisations are not decayed.

    With Muon, the settings beside `muon` are those of AdamW, which moves all but the hidden matrices of the layers.
    `compiled` is for LAMB: AdamW is one fused kernel already, and nearly all of Muon's time is in matrix products.
    Parameters that this rank does not own by their name are left to others.
    """
    if compiled and settings["optimizer"] != "lamb":
        logger.info("--compile-optimizer changes nothing for %s, which gains nothing by it", settings["optimizer"])
    owned = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad and owns(name)]
    hidden = []
    if settings["optimizer"] == "muon":
        hidden = [(weight, _matrices_in(name)) for name, weight in owned if _is_hidden_matrix(name, weight)]
    taken = {id(weight) for weight, _ in hidden}
    rest = [(name, weight) for name, weight in owned if id(weight) not in taken]
    groups = [
        {
            "params": [weight for name, weight in rest if _is_decayed(name)],
            "weight_decay": settings["weight_decay"],
        },
        {"params": [weight for name, weight in rest if not _is_decayed(name)], "weight_decay": 0.0},
    ]
    beta1, beta2 = settings["betas"]
    common = {"lr": settings["learning_rate"], "betas": (beta1, beta2), "eps": settings["epsilon"]}
    if settings["optimizer"] == "lamb":
        return Lamb(groups, **common, variant=settings["lamb_variant"], compiled=compiled)
    if settings["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, **common, fused=True)
    if settings["optimizer"] == "muon":
        dtype = torch.bfloat16 if settings["precision"] in ("bf16", "fp8") else torch.float32
        return Muon(hidden, groups, **common, **settings["muon"], dtype=dtype)
    raise BertlineError(f"recipe: optimizer: given '{settings['optimizer']}', allowed are lamb, adamw, muon")


def _is_hidden_matrix(name: str, weight: Tensor) -> bool:
    return ".layers." in f".{name}" and weight.ndim == 2


def _matrices_in(name: str) -> int:
    return next((parts for ending, parts in FUSED_MATRICES.items() if name.endswith(ending)), 1)


def _is_decayed(name: str) -> bool:
    return not name.endswith("bias") and "normalization" not in name


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as tensors named {parameter}.{step | exp_avg | exp_avg_sq | momentum_buffer}."""
    return {
        f"{name}.{key}": value
        for name, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], *, reset_step: bool
) -> None:
    """Restore what `optimizer_tensors` gave, for the parameters that `optimizer` moves.

    With `reset_step` bias correction starts anew. Muon's momentum has no bias correction, and no step.

    Raises BertlineError when a moment is missing or has another shape.
    """
    moved = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for name, weight in model.named_parameters():
        if id(weight) not in moved:
            continue
        has_momentum_alone = isinstance(optimizer, Muon) and optimizer.orthogonalises(weight)
        state = {}
        for moment in ("momentum_buffer",) if has_momentum_alone else MOMENTS:
            tensor = tensors.get(f"{name}.{moment}")
            if tensor is None or tensor.shape != weight.shape:
                raise BertlineError(f"checkpoint: the moment {name}.{moment} is missing or has another shape")
            state[moment] = shard_as(tensor, weight)
        if not has_momentum_alone:
            step = tensors[f"{name}.step"].clone()
            # Fused AdamW wants its step beside the parameter, LAMB reads it on the host.
            if not isinstance(optimizer, Lamb):
                step = step.to(weight.device)
            state = {"step": torch.zeros_like(step) if reset_step else step, **state}
        optimizer.state[weight] = state
