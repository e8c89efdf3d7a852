"""Self-attention over sequences in padded rows, or concatenated ("packed") without padding.

Packed attention uses `torch.nn.attention.varlen` on CUDA, and padded rows for types and GPUs that it does not support.
The CPU has no such kernel; there, one custom operator runs PyTorch's own attention kernel for each sequence. It is
opaque to torch.compile and has a registered backward.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from bertline.modeling.dropout import drop

# Requirements of FlashAttention 2: the GPU's major compute capability and the largest head size.
AMPERE, LARGEST_HEAD = 8, 256


class Packed(NamedTuple):
    """Boundaries of the sequences in a batch of one row of T tokens.

    cu_seqlens: int32 [N + 1], ascending from 0 to T. A repeated T marks an empty slot, so that N can stay fixed.
    positions: int64 [T], the position of each token in its sequence.
    longest: an upper bound of the sequences' lengths.
    """

    cu_seqlens: Tensor
    positions: Tensor
    longest: int


# Which tokens may be attended to: bool [B, S], True for tokens and False for padding; None where nothing is padded.
AttentionMask = Tensor | Packed | None


def attend(query: Tensor, key: Tensor, value: Tensor, attention_mask: AttentionMask, *, dropout: float) -> Tensor:
    """Compute scaled dot-product attention of every token to all tokens of its sequence.

    Args:
        query, key, value: [B, S, A, D]; packed, [1, T, A, D].
        dropout: probability of dropping an attention weight. Must be 0 for packed sequences.

    Returns [B, S, A x D].
    """
    if isinstance(attention_mask, Packed):
        if dropout:
            raise ValueError("packed sequences have no attention dropout")
        context = _attend_packed(query[0], key[0], value[0], attention_mask)[None]
    else:
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
        if dropout and query.device.type == "cpu":
            context = _attend_with_dropout(query, key, value, mask, dropout)
        else:
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        context = context.transpose(1, 2)
    return context.flatten(2)


def _attend_with_dropout(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Attend as PyTorch does on a CPU, whose fast kernels lack dropout, but with `drop`'s random numbers."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    # Under autocast the softmax is in float32; cast its weights back.
    return drop(scores.softmax(-1).to(value.dtype), dropout) @ value


def _attend_packed(query: Tensor, key: Tensor, value: Tensor, packed: Packed) -> Tensor:
    if query.device.type != "cuda":
        return _packed_attention(query, key, value, packed.cu_seqlens)[0]
    if not varlen_knows(query):
        return attend_in_rows(query, key, value, packed)
    from torch.nn.attention.varlen import varlen_attn

    cu_seqlens, longest = packed.cu_seqlens, packed.longest
    return cast(Tensor, varlen_attn(query, key, value, cu_seqlens, cu_seqlens, longest, longest))


def varlen_knows(query: Tensor) -> bool:
    """Return whether a kernel exists: FlashAttention 2 needs half precision, head sizes divisible by 8, and Ampere."""
    size = query.shape[-1]
    if query.dtype not in (torch.bfloat16, torch.float16) or size % 8 or size > LARGEST_HEAD:
        return False
    # Not get_device_capability: torch.compile treats these properties as constants.
    return torch.cuda.get_device_properties(query.device).major >= AMPERE


def attend_in_rows(query: Tensor, key: Tensor, value: Tensor, packed: Packed) -> Tensor:
    """Compute packed attention by padding every sequence to the longest: [T, A, D] each -> [T, A, D].

    Works for any type and device; shapes depend only on those of the arguments. It takes the memory that packing saves
    elsewhere.
    """
    tokens, cu_seqlens = len(query), packed.cu_seqlens.long()
    columns = torch.arange(packed.longest, device=query.device)
    places = cu_seqlens[:-1, None] + columns  # [N, longest]
    # Attention over nothing would be NaN: rows without a sequence attend to one token; their results are not used.
    mask = (places < cu_seqlens[1:, None]) | (columns == 0)
    places = places.clamp(max=tokens - 1)
    query, key, value = (tensor[places].transpose(1, 2) for tensor in (query, key, value))  # [N, A, longest, D]
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :]).transpose(1, 2)
    sequence = torch.searchsorted(cu_seqlens, torch.arange(tokens, device=query.device), right=True) - 1
    return context.flatten(0, 1)[sequence * packed.longest + packed.positions]


@torch.library.custom_op("bertline::packed_attention", mutates_args=(), device_types="cpu")
def _packed_attention(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, Tensor]:
    """Attend: [T, A, D] each -> context [T, A, D] and the softmaxes' log-sum-exp, float32 (or float64) [A, T]."""
    context, sums = _new_results(query)
    for here in _sequences(cu_seqlens):
        rows = [_as_batch(tensor, here) for tensor in (query, key, value)]
        found, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*rows)
        context[here] = found[0].transpose(0, 1)
        sums[:, here] = logsumexp[0]
    return context, sums


@_packed_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, Tensor]:
    return _new_results(query)


@torch.library.custom_op("bertline::packed_attention_backward", mutates_args=(), device_types="cpu")
def _packed_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, context: Tensor, sums: Tensor, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    results = (query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape))
    for here in _sequences(cu_seqlens):
        rows = [_as_batch(tensor, here) for tensor in (gradient, query, key, value, context)]
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *rows, sums[None, :, here], dropout_p=0.0, is_causal=False
        )
        for result, part in zip(results, found, strict=True):
            result[here] = part[0].transpose(0, 1)
    return results


@_packed_attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, context: Tensor, sums: Tensor, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, cu_seqlens = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens)


def _go_back(ctx: torch.autograd.function.BackwardCFunction, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*_packed_attention_backward(gradient.contiguous(), *ctx.saved_tensors), None)


_packed_attention.register_autograd(_go_back, setup_context=_keep)


def _sequences(cu_seqlens: Tensor) -> list[slice]:
    bounds = cu_seqlens.tolist()
    return [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]


def _as_batch(tensor: Tensor, here: slice) -> Tensor:
    """Return the tokens of one sequence as [1, A, S, D]."""
    return tensor[here].transpose(0, 1)[None]


def _new_results(query: Tensor) -> tuple[Tensor, Tensor]:
    """Return uninitialised results of packed attention, for `query` [T, A, D]."""
    tokens, heads, _ = query.shape
    sum_type = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty(query.shape), query.new_empty((heads, tokens), dtype=sum_type)
