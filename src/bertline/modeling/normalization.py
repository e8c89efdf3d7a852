"""Layer normalisation that keeps bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` whose result for bfloat16 is bfloat16, under autocast as well; mean and variance are in float32.

    On a GPU, autocast makes PyTorch's return float32, twice the bytes for it and for residual sums after it. On a CPU
    PyTorch's sums the gradients of scale and bias in bfloat16: for 2,000 rows they are wrong by 5 to 10 percent.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise the last dimension: [..., H] -> [..., H]."""
        if input.dtype != torch.bfloat16:
            return super().forward(input)
        if input.is_cpu:
            return super().forward(input.float()).to(input.dtype)
        # A GPU's kernel sums in float32, and takes only parameters of its input's type.
        weight, bias = (None if given is None else given.to(input.dtype) for given in (self.weight, self.bias))
        with torch.autocast(input.device.type, enabled=False):
            return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)
