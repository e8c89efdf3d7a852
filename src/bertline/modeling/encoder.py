"""The base of both networks' encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.utils.checkpoint import checkpoint

from bertline.modeling.attention import AttentionMask, Packed
from bertline.modeling.network_config import NetworkConfig


class Encoder(nn.Module):
    """Embeddings and layers. A network's encoder defines `encode`, and `pool` for heads on whole sequences.

    Attributes:
        activation_checkpointing: whether the backward pass of training recomputes a layer from its input, dropout
            included: a third more computation, and the memory of one layer (Chen et al. 2016, arXiv 1604.06174).
        residual_type: type of the hidden states between layers; None for that of the embeddings. In bfloat16 they are
            half the bytes; needs autocast.
        computes_all_tokens: whether the last layer computes all tokens even if few are asked for.
    """

    def __init__(self, config: NetworkConfig, embeddings: nn.Module, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.embeddings: Any = embeddings
        self.layers = nn.ModuleList(layers)
        self.activation_checkpointing = False
        self.residual_type: torch.dtype | None = None
        self.computes_all_tokens = False

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

    def encode(
        self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask, positions: Tensor | None = None
    ) -> Tensor:
        """Run `forward` from the tokens' word embeddings.

        Args:
            words: [B, S, H].
            positions: int64 [P], indices into the flattened batch (row * S + position) of the tokens whose final hidden
                states are needed; None for all. Of the others the last layer needs keys and values only.

        Returns the final hidden states [B, S, H], or [P, H].
        """
        raise NotImplementedError

    def encode_first(self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Run `encode` for the first token of each sequence: [B, S, H] -> [B, H]; packed, [1, T, H] -> [N, H]."""
        return self.encode(words, token_type_ids, attention_mask, first_positions(words, attention_mask))

    def run_layers(self, hidden: Tensor, *context: Any, positions: Tensor | None) -> Tensor:
        """Pass `hidden` [B, S, H] through the layers, which also get `context`; results as those of `encode`."""
        if positions is not None and self.computes_all_tokens:
            return tokens_at(self.run_layers(hidden, *context, positions=None), positions)
        if self.residual_type is not None:
            hidden = hidden.to(self.residual_type)
        for number, layer in enumerate(self.layers, start=1):
            hidden = self.run_layer(layer, hidden, *context, positions if number == len(self.layers) else None)
        return hidden

    def run_layer(self, layer: Callable[..., Tensor], hidden: Tensor, *context: Any) -> Tensor:
        """Pass `hidden` [B, S, H] through a layer, with activation checkpointing if that is asked for."""
        if self.activation_checkpointing and self.training:
            return cast(Tensor, checkpoint(layer, hidden, *context, use_reentrant=False))
        return layer(hidden, *context)


def first_positions(words: Tensor, attention_mask: AttentionMask) -> Tensor:
    """Return the positions of each sequence's first token, indices into the flattened batch: int64 [B]; packed, [N].

    For an empty slot of `Packed.cu_seqlens` it is that of another token; its label is to be ignored.

    Args:
        words: [B, S, H].
    """
    rows, length = words.shape[:2]
    if isinstance(attention_mask, Packed):
        return attention_mask.cu_seqlens[:-1].clamp(max=length - 1).long()
    return torch.arange(0, rows * length, length, device=words.device)


def tokens_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the hidden states at flat `positions`, int64 [P]: [B, S, H] -> [P, H]."""
    selected: Tensor = _Select.apply(hidden.flatten(0, -2), positions)
    return selected


class _Select(torch.autograd.Function):
    """`index_select` of rows. Its own backward adds in the type of the rows: in bfloat16 slowly (pytorch#137425)."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, positions: Tensor) -> Tensor:
        ctx.save_for_backward(positions)
        ctx.count = len(rows)  # type: ignore[attr-defined]
        return rows.index_select(0, positions)

    @staticmethod
    def backward(ctx: BackwardCFunction, gradient: Tensor) -> tuple[Tensor, None]:
        (positions,) = ctx.saved_tensors
        exact = torch.promote_types(gradient.dtype, torch.float32)
        rows = gradient.new_zeros((ctx.count, gradient.shape[1]), dtype=exact)  # type: ignore[attr-defined]
        return rows.index_add_(0, positions, gradient.to(exact)).to(gradient.dtype), None
