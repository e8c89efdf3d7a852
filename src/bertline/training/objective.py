"""The pretraining objective on one micro-batch: masked language model and sentence pairs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertline.training.batches import MicroBatch
from bertline.training.masking import Vocabulary, mask_tokens


class Losses(NamedTuple):
    """Sums over a micro-batch, in nats; the logits are for accuracies."""

    mlm: Tensor  # scalar, over the masked positions
    pair: Tensor  # scalar, over the rows
    mlm_logits: Tensor  # [M, V]
    mlm_labels: Tensor  # int64 [M]
    pair_logits: Tensor  # [B, 2]


def losses_of(model: nn.Module, batch: MicroBatch, *, seed: int, vocabulary: Vocabulary, precision: str) -> Losses:
    """Mask `batch` and run the model on it; with precision bf16 under autocast, the losses in fp32."""
    input_ids, positions, labels = mask_tokens(
        batch.input_ids, batch.masked_counts, batch.samples, batch.epochs, seed=seed, vocabulary=vocabulary
    )
    with torch.autocast(input_ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
        mlm_logits, pair_logits = model(input_ids, batch.token_type_ids, batch.attention_mask, positions)
    if pair_logits is None:  # a network that scores no pairs: what is reported of them is not looked at
        pair_logits = mlm_logits.new_zeros(len(batch.pair_labels), 2)
    return Losses(
        F.cross_entropy(mlm_logits.float(), labels, reduction="sum"),
        F.cross_entropy(pair_logits.float(), batch.pair_labels, reduction="sum"),
        mlm_logits,
        labels,
        pair_logits,
    )
