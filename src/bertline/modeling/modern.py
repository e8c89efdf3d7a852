"""The modern network: pre-LN (Xiong et al. 2020, arXiv 2002.04745), rotary positions, GeGLU, no biases, no dropout.

It is ModernBERT (Warner et al. 2024, arXiv 2412.13663) with global attention in every layer: an export loads as
transformers' ModernBertForMaskedLM. It has no token types and scores no sentence pairs.

Shapes in comments: B sequences, S positions, H hidden size, A heads, D = H / A, M masked positions, V vocabulary. A
packed batch is one row of T tokens from N sequences: B = 1 and S = T.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertline.modeling.activations import ACTIVATIONS
from bertline.modeling.attention import AttentionMask, Packed, attend
from bertline.modeling.encoder import Encoder, tokens_at
from bertline.modeling.heads import MaskedLanguageHead, TaskNetwork, Transform, look_up
from bertline.modeling.network_config import ModernConfig
from bertline.modeling.normalization import LayerNorm
from bertline.tasks.task import Head

Rotation = tuple[Tensor, Tensor]  # cosines and sines, float32 [S, D / 2]


def rotation_of(positions: Tensor, size: int, theta: float) -> Rotation:
    """Return each position's rotation (RoPE, Su et al. 2021, arXiv 2104.09864): int64 [S] -> cos and sin [S, D / 2].

    In float32 even under autocast: bfloat16 cannot distinguish positions above 256.
    """
    frequencies = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32, device=positions.device) / size)
    angles = positions[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, rotation: Rotation) -> Tensor:
    """Rotate [B, S, ..., A, D] by its positions' angles; element i is paired with element i + D / 2."""
    between = heads.ndim - 3
    cosine, sine = (part[:, *[None] * between, :] for part in rotation)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(heads.dtype)


def normalization(config: ModernConfig) -> LayerNorm:
    """Make a layer normalisation with a scale and no bias."""
    return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=False)


class Embeddings(nn.Module):
    """Normalised word embeddings; the attention adds positions."""

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.normalization = normalization(config)

    def forward(self, words: Tensor) -> Tensor:
        """Normalise the tokens' word embeddings `words`, [B, S, H]."""
        return self.normalization(words)


class Layer(nn.Module):
    """Self-attention and a gated feed-forward (GeGLU, Shazeer 2020, arXiv 2002.05202), each after a normalisation."""

    def __init__(self, config: ModernConfig, *, first: bool) -> None:
        super().__init__()
        hidden, intermediate = config.hidden_size, config.intermediate_size
        self.heads = config.num_attention_heads
        # The embeddings are already normalised.
        self.attention_normalization = nn.Identity() if first else normalization(config)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.attention_output = nn.Linear(hidden, hidden, bias=False)
        self.feed_forward_normalization = normalization(config)
        self.gated_intermediate = nn.Linear(hidden, 2 * intermediate, bias=False)  # the activated half, then its gate
        self.output = nn.Linear(intermediate, hidden, bias=False)
        self.activation = ACTIVATIONS[config.hidden_activation]

    def forward(
        self, hidden: Tensor, attention_mask: AttentionMask, rotation: Rotation, positions: Tensor | None = None
    ) -> Tensor:
        """Return the layer's output [B, S, H], or [P, H] at flat `positions`, int64 [P]."""
        context = self._attend(self.attention_normalization(hidden), attention_mask, rotation)
        if positions is not None:
            hidden, context = tokens_at(hidden, positions), tokens_at(context, positions)
        hidden = hidden + self.attention_output(context)
        activated, gate = self.gated_intermediate(self.feed_forward_normalization(hidden)).chunk(2, dim=-1)
        return hidden + self.output(self.activation(activated) * gate)

    def _attend(self, hidden: Tensor, attention_mask: AttentionMask, rotation: Rotation) -> Tensor:
        qkv = self.qkv(hidden).unflatten(-1, (3, self.heads, -1))  # [B, S, 3, A, D]
        query, key = rotate(qkv[:, :, :2], rotation).unbind(2)
        return attend(query, key, qkv[:, :, 2], attention_mask, dropout=0.0)


class ModernModel(Encoder):
    """The encoder."""

    def __init__(self, config: ModernConfig) -> None:
        layers = (Layer(config, first=number == 0) for number in range(config.num_hidden_layers))
        super().__init__(config, Embeddings(config), layers)
        self.final_normalization = normalization(config)
        self.head_size, self.theta = config.hidden_size // config.num_attention_heads, config.global_rope_theta

    def encode(
        self, words: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask, positions: Tensor | None = None
    ) -> Tensor:
        if isinstance(attention_mask, Packed):
            in_sequence = attention_mask.positions
        else:
            in_sequence = torch.arange(words.shape[1], device=words.device)
        rotation = rotation_of(in_sequence, self.head_size, self.theta)
        hidden = self.run_layers(self.embeddings(words), attention_mask, rotation, positions=positions)
        return self.final_normalization(hidden)

    def pool(self, first: Tensor) -> Tensor:
        """Return the hidden states of [CLS], [N, H], as they are."""
        return first


class ModernForPreTraining(nn.Module):
    """The encoder with the masked language head."""

    scores_pairs: ClassVar[bool] = False

    def __init__(self, config: ModernConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ModernModel(config)
        self.head = MaskedLanguageHead(config, activation=config.hidden_activation, epsilon=config.norm_eps, bias=False)
        initialize(self, config)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask, masked_positions: Tensor
    ) -> tuple[Tensor, None]:
        """Score the masked positions as `BertForPreTraining.forward` does; None takes the place of pair logits."""
        words, table = look_up(self.encoder.embeddings.word, input_ids)
        hidden = self.encoder.encode(words, token_type_ids, attention_mask, masked_positions)
        return self.head.score(hidden, table), None


def make_task_network(config: ModernConfig, head: Head, outputs: int) -> TaskNetwork:
    """Make the network of a fine-tuning task, with the masked language head's transform before the linear layer."""
    transform = Transform(config.hidden_size, activation=config.hidden_activation, epsilon=config.norm_eps, bias=False)
    network = TaskNetwork(ModernModel(config), transform, head, outputs)
    initialize(network, config)
    return network


def initialize(model: nn.Module, config: ModernConfig) -> None:
    """Draw weights as transformers does for ModernBERT: normal, truncated at `initializer_cutoff_factor` deviations.

    For layers that write into the residual stream, the deviation is divided by sqrt(2 * layers), so that the stream's
    variance does not grow with depth; for a task's output it is 1 / sqrt(hidden_size). Draws from PyTorch's global
    generator: call `torch.manual_seed` before it for reproducible weights.
    """
    narrow, task = config.initializer_range / math.sqrt(2 * config.num_hidden_layers), config.hidden_size**-0.5
    deviations = {"attention_output": narrow, "output": narrow, "dense": narrow, "classifier": task}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            deviation = deviations.get(name.rsplit(".", 1)[-1], config.initializer_range)
            limit = config.initializer_cutoff_factor * deviation
            nn.init.trunc_normal_(module.weight, std=deviation, a=-limit, b=limit)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, Embeddings):
            nn.init.zeros_(module.word.weight[config.vocab_size :])
