"""The last layer at the positions whose states are needed: the same states and gradients, for fewer operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bertline.modeling.architectures import architecture_of
from bertline.modeling.attention import AttentionMask, Packed
from bertline.modeling.encoder import Encoder
from bertline.modeling.network_config import BertConfig, ModernConfig, NetworkConfig, RobertaConfig
from bertline.tasks.task import Head
from bertline.training.flops import flops_of_a_sample, flops_of_task

SHAPE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NETWORKS: dict[str, NetworkConfig] = {
    "bert": BertConfig(**SHAPE, **NO_DROPOUT),
    "roberta": RobertaConfig(**SHAPE, **NO_DROPOUT),
    "modern": ModernConfig(**SHAPE),
}
LENGTHS = torch.tensor([9, 3, 1, 7])
PLACES = torch.cat([torch.arange(length) for length in LENGTHS])
MASKS: dict[str, AttentionMask] = {
    "whole rows": None,
    "padded rows": torch.arange(9) < LENGTHS[:, None],
    "packed": Packed(F.pad(LENGTHS.cumsum(0), (1, 0)).int(), PLACES, 9),
}
FIRST = {"whole rows": [0, 9, 18, 27], "padded rows": [0, 9, 18, 27], "packed": [0, 9, 12, 13]}


def batch_of(kind: str) -> tuple[Tensor, AttentionMask, Tensor]:
    """Return ids, mask, and positions of real tokens, one of them twice."""
    rows = (1, 20) if kind == "packed" else (4, 9)
    positions = [0, 2, 8, 9, 12, 19, 0] if kind == "packed" else [0, 2, 8, 9, 18, 27, 33, 0]
    return torch.randint(128, rows), MASKS[kind], torch.tensor(positions)


def encoder_of(config: NetworkConfig) -> Encoder:
    torch.manual_seed(0)
    encoder: Encoder = architecture_of(config).pretraining(config).encoder
    return encoder


def states(encoder: Encoder, ids: Tensor, mask: AttentionMask, positions: Tensor | None) -> Tensor:
    return encoder.encode(encoder.embeddings.word(ids), ids % 2, mask, positions)


def first_states(encoder: Encoder, ids: Tensor, mask: AttentionMask) -> Tensor:
    return encoder.encode_first(encoder.embeddings.word(ids), ids % 2, mask)


def gradients(encoder: Encoder, hidden: Tensor, weights: Tensor) -> list[Tensor | None]:
    """Return the gradients of the sum of `hidden` times `weights` for all parameters but the pooler's."""
    parameters = [weight for name, weight in encoder.named_parameters() if "pooler" not in name]
    return list(torch.autograd.grad((hidden * weights).sum(), parameters, allow_unused=True))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("autocast", [True, False])
def test_states_at_positions_are_those_of_all_tokens_there(network: str, kind: str, autocast: bool) -> None:
    encoder, (ids, mask, positions) = encoder_of(NETWORKS[network]), batch_of(kind)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole, found = (states(encoder, ids, mask, given) for given in (None, positions))
    assert whole.shape == (*ids.shape, 32)
    torch.testing.assert_close(found, whole.flatten(0, 1)[positions], atol=3e-2 if autocast else 1e-5, rtol=0)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("activation_checkpointing", [True, False])
def test_gradients_are_those_through_all_tokens(network: str, kind: str, activation_checkpointing: bool) -> None:
    encoder, (ids, mask, positions) = encoder_of(NETWORKS[network]).double(), batch_of(kind)
    weights = torch.randn(len(positions), 32).double()
    whole = gradients(encoder, states(encoder, ids, mask, None).flatten(0, 1)[positions], weights)
    encoder.activation_checkpointing = activation_checkpointing
    torch.testing.assert_close(gradients(encoder, states(encoder, ids, mask, positions), weights), whole)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("autocast", [True, False])
def test_first_tokens_computed_separately_have_the_same_states(network: str, kind: str, autocast: bool) -> None:
    """A head on whole sequences reads nothing else of the last layer."""
    encoder, (ids, mask, _) = encoder_of(NETWORKS[network]).eval(), batch_of(kind)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        expected = states(encoder, ids, mask, None).flatten(0, 1)[FIRST[kind]]
        found = first_states(encoder, ids, mask)
    torch.testing.assert_close(found, expected, atol=3e-2 if autocast else 1e-5, rtol=0)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("activation_checkpointing", [True, False])
def test_gradients_through_first_tokens_are_those_through_all(
    network: str, kind: str, activation_checkpointing: bool
) -> None:
    encoder, (ids, mask, _) = encoder_of(NETWORKS[network]).double(), batch_of(kind)
    weights = torch.randn(4, 32).double()
    whole = gradients(encoder, states(encoder, ids, mask, None).flatten(0, 1)[FIRST[kind]], weights)
    encoder.activation_checkpointing = activation_checkpointing
    torch.testing.assert_close(gradients(encoder, first_states(encoder, ids, mask), weights), whole)


@pytest.mark.parametrize("kind", MASKS)
def test_attention_at_positions_has_dropout_in_training_only(kind: str) -> None:
    config = replace(NETWORKS["bert"], num_hidden_layers=1, attention_probs_dropout_prob=0.5)
    encoder, (ids, mask, positions) = encoder_of(config), batch_of(kind)
    for compute in (lambda: states(encoder, ids, mask, positions), lambda: first_states(encoder, ids, mask)):
        encoder.train()
        assert not torch.equal(compute(), compute())
        encoder.eval()
        assert torch.equal(compute(), compute())


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("masked", [1, 5])
def test_the_counted_operations_are_those_that_pytorch_computes(network: str, masked: int) -> None:
    config, length = NETWORKS[network], 16
    model = architecture_of(config).pretraining(config)
    ids, positions = torch.randint(128, (1, length)), torch.arange(1, 1 + masked)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # which has no entry for others
        words, pairs = model(ids, torch.zeros_like(ids), None, positions)
        loss = words[:, : config.vocab_size].square().sum()
        (loss if pairs is None else loss + pairs.square().sum()).backward()
    counted = counter.get_total_flops()
    if network == "bert":
        # What flops.py leaves out: the first token in the last layer, the pooler and the pair head.
        counted -= 6 * (32 * 32 + 2 * 32 * 48 + 32 * 32 + 2 * 32)
    description = {"architecture": network, **SHAPE}
    assert counted == flops_of_a_sample(description, length=length, masked=masked)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_head_on_tokens_computes_the_whole_last_layer(network: str) -> None:
    model = architecture_of(NETWORKS[network]).task_network(NETWORKS[network], "answer", 2)
    ids = torch.randint(128, (2, 16))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids, torch.zeros_like(ids), None).square().sum().backward()
    dense = 32 * 32 if network == "modern" else 0  # of its head
    counted = counter.get_total_flops() - 6 * 32 * (dense + 2 * 32)
    assert counted == flops_of_task(model, np.array([16, 16]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head", ["sequence", "tokens", "answer"])
@pytest.mark.parametrize("network", NETWORKS)
def test_the_outputs_of_a_head_are_float32_in_every_precision(network: str, head: Head, dtype: torch.dtype) -> None:
    """In bfloat16, 1,000 scores would have few values."""
    torch.manual_seed(0)
    model = architecture_of(NETWORKS[network]).task_network(NETWORKS[network], head, 2)
    ids = torch.randint(128, (1000, 9))
    with torch.autocast("cpu", dtype):
        outputs = model(ids, torch.zeros_like(ids), None)
    assert outputs.dtype == torch.float32
    assert len(outputs.flatten(end_dim=-2)[:1000, 0].unique()) > 900
    outputs.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()
