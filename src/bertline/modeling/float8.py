"""Linear layers whose matrix products are in 8-bit floating point, forward and backward.

Activations and weights are in E4M3 and gradients in E5M2 (Micikevicius et al. 2022, arXiv 2209.05433, section 3). Each
tensor is scaled separately in every pass, so that its largest magnitude becomes the type's maximum: there is no state
for a checkpoint to store. Products are summed in float32 and returned as bfloat16, as under autocast; weights stay
float32.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.nn import functional as F

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # a GPU's 8-bit units need matrix dimensions that are multiples of it
SMALLEST = 1e-12  # lower bound of a tensor's largest magnitude
WANTED_CAPABILITY = (8, 9)  # compute capability: Ada, Hopper


class Float8Linear(nn.Linear):
    """`nn.Linear` with its three products in 8 bits. Both sizes must be multiples of 16."""

    def forward(self, input: Tensor) -> Tensor:
        """Multiply: [..., in_features] of any floating type -> bfloat16 [..., out_features]."""
        rows = input.flatten(0, -2)
        count = len(rows)
        if count % MULTIPLE:  # the weight's gradient is a sum over the rows
            rows = F.pad(rows, (0, 0, 0, -count % MULTIPLE))
        product = _Product.apply(rows, self.weight)[:count]
        if self.bias is not None:
            product = product + self.bias.to(product.dtype)
        return product.unflatten(0, input.shape[:-1])


def compute_in_float8(layers: nn.Module) -> None:
    """Make the linear layers in `layers` compute in 8 bits, except those whose sizes do not allow it.

    Weights keep their names and values.
    """
    for module in layers.modules():
        if type(module) is nn.Linear and not (module.in_features % MULTIPLE or module.out_features % MULTIPLE):
            module.__class__ = Float8Linear


def knows_float8(device: torch.device) -> bool:
    """Return whether the device has 8-bit kernels; the CPU has a slow one."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= WANTED_CAPABILITY


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, weight: Tensor) -> Tensor:
        """Multiply [M, K] and [N, K] -> bfloat16 [M, N]."""
        rows8, weight8 = _scaled(rows, FORWARD), _scaled(weight, FORWARD)
        ctx.save_for_backward(*rows8, *weight8)
        ctx.types = rows.dtype, weight.dtype  # type: ignore[attr-defined]
        # Hopper's fast accumulation rounds at intervals: precise enough for activations, not for gradients.
        return _multiply(*rows8, weight8[0].t(), weight8[1], fast=True)

    @staticmethod
    def backward(ctx: BackwardCFunction, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, rows_scale, weight, weight_scale = ctx.saved_tensors  # type: ignore[misc]
        of_rows_type, of_weight_type = ctx.types  # type: ignore[attr-defined]
        gradient, scale = _scaled(gradient, BACKWARD)
        of_rows = _multiply(gradient, scale, _by_columns(weight), weight_scale)
        of_weight = _multiply(gradient.t().contiguous(), scale, _by_columns(rows), rows_scale)
        return of_rows.to(of_rows_type), of_weight.to(of_weight_type)


def _scaled(tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the tensor in 8 bits and the factor that restores its scale, float32 []. Non-finite values stay so."""
    largest = torch.finfo(dtype).max
    scale = largest / tensor.abs().amax().float().clamp(min=SMALLEST)
    return (tensor.float() * scale).clamp(-largest, largest).to(dtype), scale.reciprocal()


def _multiply(
    first: Tensor, first_scale: Tensor, second: Tensor, second_scale: Tensor, *, fast: bool = False
) -> Tensor:
    """Multiply [M, K], row-major, by [K, N], column-major: bfloat16 [M, N]."""
    # Not torch.nn.functional.scaled_mm: PyTorch 2.11 can neither compile it nor run it on a CPU.
    return torch._scaled_mm(first, second, first_scale, second_scale, out_dtype=torch.bfloat16, use_fast_accum=fast)


def _by_columns(matrix: Tensor) -> Tensor:
    """Return the same matrix in column-major layout."""
    return matrix.t().contiguous().t()
