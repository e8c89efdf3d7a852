"""Floating point operations of a training step, and what a GPU can do at most.

Forward and backward, of real tokens only: padding is no work done, and embeddings are look-ups. With N the encoder's
matrix weights, L layers of width h and V words, a sequence of s tokens of which m are masked costs

    6 N s + 12 L h s^2 + 6 m (h^2 + h V)

(Narayanan et al. 2021, arXiv 2104.04473, appendix, without recomputation; the head on masked positions alone.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bertline.modeling.architectures import PreTrainingNetwork, architecture_of, config_from_dict
from bertline.training.batches import GlobalBatch

# Dense bf16 matrix peaks in TFLOP/s from the makers' data sheets, by a part of the device's name; SXM parts.
PEAKS = {"B200": 2250, "H200": 989, "H100": 989, "A100": 312, "L40S": 362, "A10": 125, "RTX 4090": 165, "V100": 125}


def flops_of(model: PreTrainingNetwork, batch: GlobalBatch) -> float:
    """Of one step on `batch`."""
    lengths = batch.lengths.astype(float)
    return _flops(model, lengths.sum(), (lengths**2).sum(), batch.masked_counts.sum())


def flops_of_a_sample(description: Mapping[str, Any], *, length: float, masked: float) -> float:
    """Of a sample of `length` tokens of which `masked` are masked, in training the network of a description.

    Parameters
    ----------
    description: a model's keys, `vocab_size` among them. No weight is made.
    """
    config = config_from_dict(description)
    with torch.device("meta"):
        model = architecture_of(config).pretraining(config)
    return _flops(model, length, length**2, masked)


def _flops(model: PreTrainingNetwork, tokens: float, squares: float, masked: float) -> float:
    config = model.config
    layers, width = config.num_hidden_layers, config.hidden_size
    matrices = sum(weight.numel() for weight in model.encoder.layers.parameters() if weight.dim() == 2)
    head = width * width + width * config.vocab_size
    return float(6 * matrices * tokens + 12 * layers * width * squares + 6 * head * masked)


def peak_of(device: torch.device) -> float | None:
    """Of `device` in TFLOP/s; None where it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((float(peak) for part, peak in PEAKS.items() if part in name), None)
