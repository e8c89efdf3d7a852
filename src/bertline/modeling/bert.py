"""BERT as published (post-LN, Devlin et al. 2018, arXiv 1810.04805), in plain PyTorch.

Shapes in comments: B sequences, S positions, H hidden size, A heads, M masked positions, V vocabulary. A packed batch
is one row of T tokens from N sequences: B = 1 and S = T.
"""

from __future__ import annotations

import math
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertline.modeling.activations import ACTIVATIONS
from bertline.modeling.attention import AttentionMask, Packed, attend
from bertline.modeling.dropout import Dropout
from bertline.modeling.encoder import Encoder, first_positions, tokens_at
from bertline.modeling.heads import MaskedLanguageHead, TaskNetwork, look_up
from bertline.modeling.network_config import BertConfig
from bertline.modeling.normalization import LayerNorm
from bertline.tasks.task import Head


class Embeddings(nn.Module):
    """Normalised sum of word, position and token type embeddings."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.has_token_types = config.has_token_types and config.type_vocab_size > 1
        self.token_type = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.normalization = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Embed tokens, given their word embeddings `words`, [B, S, H]. A network of one token type ignores the ids."""
        if not self.has_token_types:
            token_type_ids = torch.zeros_like(token_type_ids)
        if isinstance(attention_mask, Packed):
            positions = self.position(attention_mask.positions)
        else:
            positions = self.position.weight[: words.shape[1]]
        hidden = words + self.token_type(token_type_ids) + positions
        return self.dropout(self.normalization(hidden))


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by dropout, the residual sum and normalisation (post-LN)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.heads = config.num_attention_heads
        self.attention_dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.attention_normalization = LayerNorm(hidden, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(hidden, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, hidden)
        self.output_normalization = LayerNorm(hidden, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, attention_mask: AttentionMask, positions: Tensor | None = None) -> Tensor:
        """Return the layer's output [B, S, H], or [P, H] at flat `positions`, int64 [P]."""
        query, key, value = self.qkv(hidden).unflatten(-1, (3, self.heads, -1)).unbind(2)  # each [B, S, A, H/A]
        context = self._attend(query, key, value, attention_mask)
        if positions is not None:
            hidden, context = tokens_at(hidden, positions), tokens_at(context, positions)
        return self._transform(hidden, context)

    def first(self, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Compute the layer for the first token of each row, whose query alone attends: [B, S, H] -> [B, 1, H]."""
        first, size = hidden[:, :1], hidden.shape[-1]
        query_weight, weight = self.qkv.weight.split((size, 2 * size))
        query_bias, bias = self.qkv.bias.split((size, 2 * size))
        query = F.linear(first, query_weight, query_bias).unflatten(-1, (self.heads, -1))
        key, value = F.linear(hidden, weight, bias).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return self._transform(first, self._attend(query, key, value, attention_mask))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: AttentionMask) -> Tensor:
        return attend(query, key, value, attention_mask, dropout=self.attention_dropout if self.training else 0.0)

    def _transform(self, hidden: Tensor, context: Tensor) -> Tensor:
        hidden = self.attention_normalization(hidden + self.dropout(self.attention_output(context)))
        transformed = self.output(self.activation(self.intermediate(hidden)))
        return self.output_normalization(hidden + self.dropout(transformed))


class BertModel(Encoder):
    """The encoder. `with_pooler` adds the dense layer on [CLS] that sequence-level heads use."""

    def __init__(self, config: BertConfig, *, with_pooler: bool = True) -> None:
        super().__init__(config, Embeddings(config), (Layer(config) for _ in range(config.num_hidden_layers)))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if with_pooler else None

    def encode(
        self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask, positions: Tensor | None = None
    ) -> Tensor:
        hidden = self.embeddings(words, token_type_ids, attention_mask)
        return self.run_layers(hidden, attention_mask, positions=positions)

    def encode_first(self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask) -> Tensor:
        if isinstance(attention_mask, Packed):
            return super().encode_first(words, token_type_ids, attention_mask)
        hidden = self.embeddings(words, token_type_ids, attention_mask)
        for layer in self.layers[:-1]:
            hidden = self.run_layer(layer, hidden, attention_mask)
        return self.run_layer(cast(Layer, self.layers[-1]).first, hidden, attention_mask)[:, 0]

    def pool(self, first: Tensor) -> Tensor:
        """Pass the hidden states of [CLS] through the pooler: [N, H] -> [N, H]."""
        if self.pooler is None:
            raise ValueError("this encoder was made without a pooler")
        return torch.tanh(self.pooler(first))


class BertForPreTraining(nn.Module):
    """The encoder with the masked language head and the sentence pair head."""

    scores_pairs: ClassVar[bool] = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = BertModel(config)
        self.masked_language_head = MaskedLanguageHead(
            config, activation=config.hidden_act, epsilon=config.layer_norm_eps, bias=True
        )
        self.pair_head = nn.Linear(config.hidden_size, 2)
        initialize(self, config)

    def leave_out_pairs(self) -> None:
        """Freeze the pooler and the pair head, which only sentence pairs train."""
        for part in (self.encoder.pooler, self.pair_head):
            if part is not None:
                part.requires_grad_(False)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask, masked_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Score the masked positions and the pairs; other arguments as in `Encoder.forward`.

        Args:
            masked_positions: int64 [M], indices into the flattened batch (row * S + position).

        Returns logits [M, V] (V padded to a multiple of 64, minus infinity for padding) and [B, 2] (1 = random next).
        """
        words, table = look_up(self.encoder.embeddings.word, input_ids)
        first = first_positions(words, attention_mask)
        hidden = self.encoder.encode(words, token_type_ids, attention_mask, torch.cat((masked_positions, first)))
        masked, first = hidden.split((len(masked_positions), len(first)))
        return self.masked_language_head.score(masked, table), self.pair_head(self.encoder.pool(first))


def make_task_network(config: BertConfig, head: Head, outputs: int) -> TaskNetwork:
    """Make the network of a fine-tuning task, with dropout before the linear layer except for answers, as published."""
    dropout = nn.Identity() if head == "answer" else Dropout(config.hidden_dropout_prob)
    network = TaskNetwork(BertModel(config, with_pooler=head == "sequence"), dropout, head, outputs)
    initialize(network, config)
    return network


def initialize(model: nn.Module, config: BertConfig) -> None:
    """Draw weights from a normal distribution of deviation `initializer_range`; biases are 0, normalisation scales 1.

    Draws from PyTorch's global generator: call `torch.manual_seed` before it for reproducible weights.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=config.initializer_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, Embeddings):
            nn.init.zeros_(module.word.weight[config.vocab_size :])
            if config.position_initialization == "sinusoidal":
                module.position.weight.data.copy_(sinusoids(*module.position.weight.shape) * config.initializer_range)


def sinusoids(positions: int, width: int, waves: int = 8) -> Tensor:
    """Return sines and cosines of few short wavelengths, float32 [positions, width], mean square 1 as of normal values.

    Learned positions that start from them distinguish neighbouring words from the first step; from random positions, a
    small network at length 128 takes minutes to learn this. The idea is that of Vaswani et al. (2017, section 3.5),
    but their wavelengths run to 60,000 tokens, and a small network first relies on words a few tokens away. Here,
    `waves` wavelengths in geometric progression from 3 to 50 tokens fill the first `2 * waves` of the `width` numbers;
    the others are 0.
    """
    waves = min(waves, width // 2)
    wavelengths = torch.logspace(math.log10(3), math.log10(50), waves)
    angles = torch.arange(positions)[:, None] * (2 * math.pi / wavelengths)
    table = torch.zeros(positions, width)
    table[:, 0 : 2 * waves : 2] = angles.sin()
    table[:, 1 : 2 * waves : 2] = angles.cos()
    return table * math.sqrt(width / waves)
