"""The base of both networks' encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertline.modeling.attention import AttentionMask
from bertline.modeling.network_config import NetworkConfig


class Encoder(nn.Module):
    """Embeddings and layers. A network's encoder defines `encode`, and `pool` for heads on whole sequences.

    Attributes:
        activation_checkpointing: whether the backward pass of training recomputes a layer from its input, dropout
            included: a third more computation, and the memory of one layer (Chen et al. 2016, arXiv 1604.06174).
        residual_type: type of the hidden states between layers; None for that of the embeddings. In bfloat16 they are
            half the bytes; needs autocast.
    """

    def __init__(self, config: NetworkConfig, embeddings: nn.Module, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embeddings: Any = embeddings
        self.layers = nn.ModuleList(layers)
        self.activation_checkpointing = False
        self.residual_type: torch.dtype | None = None

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Encode a batch.

        Args:
            input_ids: int64 [B, S].
            token_type_ids: int64 [B, S], 0 for the first segment and 1 for the second; the modern network ignores them.
            attention_mask: bool [B, S], True for tokens and False for padding; None when nothing is padded, which is
                faster; or `Packed`, for a packed batch ([1, T]).

        Returns the final hidden states [B, S, H].
        """
        return self.encode(self.embeddings.word(input_ids), token_type_ids, attention_mask)

    def encode(self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Run `forward` from the tokens' word embeddings, [B, S, H]."""
        raise NotImplementedError

    def encode_first(self, words: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Run `encode`; a network may leave out all but the first token of each sequence."""
        return self.encode(words, token_type_ids, attention_mask)

    def run_layers(self, hidden: Tensor, *context: Any) -> Tensor:
        """Pass `hidden` [B, S, H] through the layers, calling each with it and `context`."""
        if self.residual_type is not None:
            hidden = hidden.to(self.residual_type)
        for layer in self.layers:
            hidden = self.run_layer(layer, hidden, *context)
        return hidden

    def run_layer(self, layer: Callable[..., Tensor], hidden: Tensor, *context: Any) -> Tensor:
        """Pass `hidden` [B, S, H] through a layer, with activation checkpointing if that is asked for."""
        if self.activation_checkpointing and self.training:
            return cast(Tensor, checkpoint(layer, hidden, *context, use_reentrant=False))
        return layer(hidden, *context)
