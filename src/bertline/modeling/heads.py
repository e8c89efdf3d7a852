"""Heads, which all architectures share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.nn import functional as F

from bertline.modeling.activations import ACTIVATIONS
from bertline.modeling.attention import AttentionMask
from bertline.modeling.network_config import NetworkConfig
from bertline.modeling.normalization import LayerNorm
from bertline.modeling.weight_copies import copy_of_weight
from bertline.tasks.task import Head


class Transform(nn.Module):
    """Dense layer, activation, normalisation: [..., H] -> [..., H]. `bias` applies to the first and the last."""

    def __init__(self, hidden_size: int, *, activation: str, epsilon: float, bias: bool) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.normalization = nn.LayerNorm(hidden_size, eps=epsilon, bias=bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.normalization(self.activation(self.dense(hidden)))


class MaskedLanguageHead(Transform):
    """Scores of every vocabulary entry for each masked position; the output matrix is the word embedding."""

    padding_logits: Tensor

    def __init__(self, config: NetworkConfig, *, activation: str, epsilon: float, bias: bool) -> None:
        super().__init__(config.hidden_size, activation=activation, epsilon=epsilon, bias=bias)
        self.normalization = LayerNorm(config.hidden_size, eps=epsilon, bias=bias)
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        # Six padded rows with logit 0 would move the initial loss by 2e-4.
        padding_logits = torch.zeros(config.padded_vocab_size)
        padding_logits[config.vocab_size :] = -torch.inf
        self.register_buffer("padding_logits", padding_logits, persistent=False)

    def score(self, masked: Tensor, word_embeddings: Tensor) -> Tensor:
        """Score hidden states [M, H] with the embedding table [V, H]: logits [M, V], minus infinity for padding."""
        return F.linear(self(masked), word_embeddings, self.bias + self.padding_logits)


class TaskNetwork(nn.Module):
    """An encoder with the head of a fine-tuning task: a linear layer on each sequence or on each token.

    Its outputs are float32 under autocast as well: the 8 bits of bfloat16 would make many scores equal.

    Args:
        encoder: a `BertModel` or a `ModernModel`.
        transform: applied before the linear layer, [..., H] -> [..., H].
        head: "sequence" for outputs per sequence (one output is a regression), "tokens" for outputs per token,
            "answer" for two outputs per token, its scores as the first and the last of an answer.
        outputs: number of outputs of the linear layer.
    """

    def __init__(self, encoder: Any, transform: nn.Module, head: Head, outputs: int) -> None:
        super().__init__()
        self.config: NetworkConfig = encoder.config
        self.kind = head
        self.encoder = encoder
        self.head = transform
        self.classifier = nn.Linear(self.config.hidden_size, outputs)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Compute logits; arguments as in the encoder's `forward`.

        Returns [B, outputs] for "sequence" (packed, [N, outputs]), otherwise [B, S, outputs].
        """
        if self.kind != "sequence":
            return self._score(self.head(self.encoder(input_ids, token_type_ids, attention_mask)))
        words = self.encoder.embeddings.word(input_ids)
        first = self.encoder.encode_first(words, token_type_ids, attention_mask)
        return self._score(self.head(self.encoder.pool(first)))

    def _score(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.classifier(hidden.float())


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, table: Tensor, copy: Tensor | None, ids: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ids)
        ctx.dtype = table.dtype  # type: ignore[attr-defined]
        matrix = table if copy is None else copy
        return F.embedding(ids, table), matrix.view_as(matrix)

    @staticmethod
    def backward(ctx: BackwardCFunction, of_words: Tensor, of_matrix: Tensor) -> tuple[Tensor, None, None]:
        (ids,) = ctx.saved_tensors
        dtype = ctx.dtype  # type: ignore[attr-defined]
        of_words = of_words.reshape(-1, of_words.shape[-1]).to(dtype)
        return of_matrix.to(dtype).index_add(0, ids.flatten(), of_words), None, None


def look_up(table: nn.Embedding, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the embeddings [..., H] of `ids`, int64 [...], and the table [V, H], or its copy, as output matrix.

    A table used twice has two gradients, and the lookup's is as large as the table and nearly all zero. Here its few
    rows are added to the gradient of the output matrix.
    """
    words, matrix = _LookUp.apply(table.weight, copy_of_weight(table), ids)
    return words, matrix
