"""Floating point operations of a training step, and the peak performance of GPUs.

Counts forward and backward pass over real tokens: neither padding nor embedding look-ups. With N matrix weights in the
encoder, n of them after the last layer's attention, L layers of width h and V words, a sequence of s tokens, m of them
masked, costs

    6 (N - n) s + 6 n m + 12 L h s^2 + 6 m (h^2 + h V)

(Narayanan et al. 2021, arXiv 2104.04473, appendix, without recomputation; the head, and the last layer after its
attention, on masked positions only. A first token whose state is also needed is not counted.)
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import distributed, nn

from bertline.modeling.architectures import PreTrainingNetwork, architecture_of
from bertline.modeling.encoder import Encoder
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.network_config import NetworkConfig, config_from_dict
from bertline.training.data.batches import GlobalBatch

# Dense bf16 matrix peaks in TFLOP/s from NVIDIA's data sheets, half of those with sparsity (V100, T4: fp16; GeForce:
# fp32 accumulation), by words of the device's name; the first match counts. Names of SXM parts do not contain "SXM".
PEAKS = {
    "GB200": 2500,
    "B200": 2250,
    "GH200": 989,
    "H200 NVL": 835,
    "H200": 989,
    "H100 PCIe": 756,
    "H100 NVL": 835,
    "H100": 989,
    "A100": 312,
    "A40": 150,
    "A30": 165,
    "A10G": 70,
    "A10": 125,
    "L40S": 362,
    "L40": 181,
    "L4": 121,
    "RTX 4090$": 165,
    "RTX 3090$": 71,
    "V100-PCIE": 112,
    "V100S": 130,
    "V100": 125,
    "T4": 65,
}


def flops_of(model: PreTrainingNetwork, batch: GlobalBatch) -> float:
    """Return the operations of one step on `batch`."""
    lengths = batch.lengths.astype(float)
    vocab_size = model.config.vocab_size
    return _flops(model.encoder, vocab_size, lengths.sum(), (lengths**2).sum(), batch.masked_counts.sum())


def flops_of_task(network: TaskNetwork, lengths: np.ndarray) -> float:
    """Return the operations of a fine-tuning step on sequences of these lengths, int [N], without those of the head."""
    numbers = lengths.astype(float)
    needed = len(numbers) if network.kind == "sequence" else numbers.sum()
    return _flops_of_encoder(network.encoder, numbers.sum(), (numbers**2).sum(), needed)


def flops_of_a_sample(description: Mapping[str, Any], *, length: float, masked: float) -> float:
    """Return the operations of training on a sample of `length` tokens, `masked` of them masked.

    Args:
        description: a model's keys, including `vocab_size`. No weights are allocated.
    """
    config = config_from_dict(description)
    encoder = _encoder_without_weights(replace(config, vocab_size=1))
    return _flops(encoder, config.vocab_size, length, length**2, masked)


@functools.cache  # a large one takes 0.1 s, and `make mine` counts for each network, length and vocabulary
def _encoder_without_weights(config: NetworkConfig) -> Encoder:
    with torch.device("meta"):
        return architecture_of(config).pretraining(config).encoder


def _flops(encoder: Encoder, vocab_size: int, tokens: float, squares: float, masked: float) -> float:
    width = encoder.config.hidden_size
    head = width * width + width * vocab_size
    return _flops_of_encoder(encoder, tokens, squares, masked) + 6.0 * head * masked


def _flops_of_encoder(encoder: Encoder, tokens: float, squares: float, needed: float) -> float:
    """Return the operations of layers, the last of which computes `needed` tokens after its attention."""
    config, last = encoder.config, cast(Any, encoder.layers[-1])
    partial = _elements_of_matrices(last) - _elements_of_matrices(last.qkv)
    whole = _elements_of_matrices(encoder.layers) - partial
    attention = 12 * config.num_hidden_layers * config.hidden_size * squares
    return float(6 * whole * tokens + 6 * partial * needed + attention)


def _elements_of_matrices(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters() if weight.dim() == 2)


def peak_of_all(device: torch.device) -> float | None:
    """Return the peak of all ranks together in TFLOP/s; None if one is unknown. All ranks must call it."""
    peak = peak_of_name(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    peaks = torch.tensor(math.nan if peak is None else peak, device=device)
    distributed.all_reduce(peaks)
    return None if peaks.isnan() else float(peaks)


def peak_of_name(name: str) -> float | None:
    """Return the peak in TFLOP/s of the GPU with this name; None for an unknown GPU or a slice of one (MIG)."""
    if " MIG " in name:
        return None
    return next((float(peak) for words, peak in PEAKS.items() if re.search(rf"\b{words}\b", name)), None)
