"""LAMB, AdamW and Muon over a model's parameters, and their moments by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.training.muon import Muon

MOMENTS = ("exp_avg", "exp_avg_sq")
# Weights that hold several matrices on top of each other, and how many. Query, key and value are separate maps that
# share nothing but their input: orthogonalised as one [3H, H] matrix, the size of the query's update would depend on
# the value's gradient, and each of the three would get singular values of about 1 / sqrt(3).
FUSED_MATRICES = {"qkv.weight": 3, "gated_intermediate.weight": 2}


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2019, arXiv 1904.00962).

    Both moments are corrected for bias, gradients are averaged into the first one, epsilon stands outside the root,
    decay is added to the update, and the update is scaled by the trust ratio |weight| / |update|, with norms over each
    tensor. Clipping the gradient to its global norm comes before, in the loop.

    Two variants differ in the tensors that have a trust ratio:

    - nvidia: those with weight decay, as in NVIDIA's BERT runs (apex FusedLAMB with use_nvlamb false).
    - paper: all, Algorithm 2 with phi(z) = z. Its one lambda for all layers is here that of each parameter group.

    Under both the ratio is 1 where weight or update is zero: as Algorithm 2 is written, a bias that starts from zero
    would stay there for ever.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        variant: Literal["nvidia", "paper"] = "nvidia",
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.variant = variant

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise ValueError("LAMB takes no closure")
        for group in self.param_groups:
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients = [weight.grad for weight in weights]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }
        states = [self.state[weight] for weight in weights]
        for state in states:
            state["step"] += 1
        step = int(states[0]["step"])
        beta1, beta2 = group["betas"]
        first, second = ([state[moment] for state in states] for moment in MOMENTS)
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)

        divisors = torch._foreach_sqrt(second)
        torch._foreach_div_(divisors, (1 - beta2**step) ** 0.5)
        torch._foreach_add_(divisors, group["eps"])
        updates = torch._foreach_div(first, divisors)
        torch._foreach_div_(updates, 1 - beta1**step)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        if group["weight_decay"] or self.variant == "paper":
            weight_norms = torch.stack(torch._foreach_norm(weights))
            update_norms = torch.stack(torch._foreach_norm(updates))
            both = (weight_norms > 0) & (update_norms > 0)
            ratios = torch.where(both, weight_norms / update_norms, 1.0)
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])


def make_optimizer(model: nn.Module, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer that a phase's settings ask for. Biases and normalisations are not decayed.

    With Muon, the settings beside `muon` are those of AdamW, which moves all but the hidden matrices of the layers.
    """
    hidden = []
    if settings["optimizer"] == "muon":
        hidden = [
            (weight, _matrices_in(name)) for name, weight in model.named_parameters() if _is_hidden_matrix(name, weight)
        ]
    taken = {id(weight) for weight, _ in hidden}
    rest = [(name, weight) for name, weight in model.named_parameters() if id(weight) not in taken]
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
        return Lamb(groups, **common, variant=settings["lamb_variant"])
    if settings["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, **common, fused=True)
    if settings["optimizer"] == "muon":
        dtype = torch.bfloat16 if settings["precision"] == "bf16" else torch.float32
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
    """Restore what `optimizer_tensors` gave. With `reset_step` bias correction starts anew.

    Muon's momentum has no bias correction, and no step.

    Raises BertlineError when a moment is missing or has another shape.
    """
    for name, weight in model.named_parameters():
        has_momentum_alone = isinstance(optimizer, Muon) and optimizer.orthogonalises(weight)
        state = {}
        for moment in ("momentum_buffer",) if has_momentum_alone else MOMENTS:
            tensor = tensors.get(f"{name}.{moment}")
            if tensor is None or tensor.shape != weight.shape:
                raise BertlineError(f"checkpoint: the moment {name}.{moment} is missing or has another shape")
            state[moment] = tensor.to(weight)
        if not has_momentum_alone:
            step = tensors[f"{name}.step"].clone()
            # Fused AdamW wants its step beside the parameter, LAMB reads it on the host.
            if not isinstance(optimizer, Lamb):
                step = step.to(weight.device)
            state = {"step": torch.zeros_like(step) if reset_step else step, **state}
        optimizer.state[weight] = state
