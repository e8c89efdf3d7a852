"""A stack of layers with optional activation checkpointing: only each layer's input is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def run_layers(layers: Iterable[nn.Module], hidden: Tensor, *context: Any, activation_checkpointing: bool) -> Tensor:
    """Pass `hidden` [B, S, H] through `layers`, calling each with it and `context`.

    With `activation_checkpointing` the backward pass recomputes a layer from its input, dropout included: a third more
    computation, and the memory of one layer (Chen et al. 2016, arXiv 1604.06174).
    """
    for layer in layers:
        if activation_checkpointing:
            hidden = cast(Tensor, checkpoint(layer, hidden, *context, use_reentrant=False))
        else:
            hidden = layer(hidden, *context)
    return hidden
