"""Packed attention, whichever way it is computed, is attention within each sequence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from bertline.modeling.attention import Packed, attend, attend_in_rows, flash_attention_supports


def heads(tokens: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(tokens, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def packed_of(lengths: list[int], *, room: int, longest: int) -> Packed:
    """With room for more sequences than there are."""
    starts = torch.tensor([0, *lengths, *[0] * room]).cumsum(0).int()
    return Packed(starts, torch.cat([torch.arange(length) for length in lengths]), longest)


def one_by_one(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    parts = zip(*(tensor.split(lengths) for tensor in (query, key, value)), strict=True)
    found = [F.scaled_dot_product_attention(*(part.transpose(0, 1) for part in three)) for three in parts]
    return torch.cat([part.transpose(0, 1) for part in found])


@pytest.mark.parametrize(("lengths", "room"), [([5, 1, 12, 6], 0), ([3, 12], 4), ([7], 2)])
def test_both_ways_are_attention_within_each_sequence(lengths, room):
    given = heads(sum(lengths))
    packed = packed_of(lengths, room=room, longest=12)
    weights = torch.randn(sum(lengths), 2, 8, dtype=torch.float64)
    expected = one_by_one(*given, lengths)
    gradients = torch.autograd.grad((expected * weights).sum(), given)
    ways = {
        "in rows": attend_in_rows(*given, packed, 0.0),
        "here": attend(*(tensor[None] for tensor in given), packed, dropout=0.0)[0].view_as(expected),
    }
    for context in ways.values():
        torch.testing.assert_close(context, expected)
        for found, wanted in zip(torch.autograd.grad((context * weights).sum(), given), gradients, strict=True):
            torch.testing.assert_close(found, wanted)


def test_rows_keep_their_shapes_so_that_they_can_be_compiled():
    """What is traced for one batch serves another with the same numbers of tokens and places for sequences."""
    traced = torch.compile(attend_in_rows, backend="eager", fullgraph=True, dynamic=False)
    first, second = packed_of([5, 1, 12, 6], room=0, longest=12), packed_of([12, 12], room=2, longest=12)
    with torch.no_grad():
        given = heads(24)
        traced(*given, first, 0.0)
        with torch.compiler.set_stance("fail_on_recompile"):
            torch.testing.assert_close(traced(*given, second, 0.0), one_by_one(*given, [12, 12]))


def test_the_kernel_for_packed_sequences_needs_half_precision_and_ampere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=9))
    for dtype, size in ((torch.bfloat16, 64), (torch.float16, 256)):
        assert flash_attention_supports(torch.empty(3, 2, size, dtype=dtype))
    for dtype, size in ((torch.float32, 64), (torch.bfloat16, 36), (torch.bfloat16, 264)):
        assert not flash_attention_supports(torch.empty(3, 2, size, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=7))
    assert not flash_attention_supports(torch.empty(3, 2, 64, dtype=torch.float16))
