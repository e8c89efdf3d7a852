"""A stack of layers, if asked for with less memory: only each layer's input is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def run_layers(layers: Iterable[nn.Module], hidden: Tensor, *context: Any, activation_checkpointing: bool) -> Tensor:
    """Pass `hidden` [B, S, H] through `layers`, each called with it and `context`.

    With `activation_checkpointing` the backward pass computes a layer again from its input, dropout included: a third
    more work for the memory of one layer (Chen et al. 2016, arXiv 1604.06174).
    """
    for layer in layers:
        if activation_checkpointing:
            hidden = cast(Tensor, checkpoint(layer, hidden, *context, use_reentrant=False))
        else:
            hidden = layer(hidden, *context)
    return hidden
