"""Self-attention over sequences in padded rows, or concatenated ("packed") without padding.

Packed attention uses FlashAttention 2 on CUDA, and padded rows for types and GPUs that it does not support. On a CPU it
uses the operators of `packed_attention`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bertline.modeling.dropout import drop
from bertline.modeling.packed_attention import attend_one_by_one

# Requirements of FlashAttention 2: the GPU's major compute capability and the largest head size.
AMPERE, MAX_HEAD = 8, 256
WITHOUT_PREPARATION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Packed(NamedTuple):
    """Boundaries of the sequences in a batch of one row of T tokens.

    Attributes:
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
        dropout: probability of dropping an attention weight.

    Returns [B, S, A x D].
    """
    if isinstance(attention_mask, Packed):
        context = _attend_packed(query[0], key[0], value[0], attention_mask, dropout)[None]
    else:
        context = _attend_rows(query, key, value, attention_mask, dropout)
    return context.flatten(2)


def _attend_rows(query: Tensor, key: Tensor, value: Tensor, inside: Tensor | None, dropout: float) -> Tensor:
    """Attend within rows: [B, S, A, D] each and bool [B, S] or None -> [B, S, A, D]."""
    mask = None if inside is None else inside[:, None, None, :]
    query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
    if dropout and query.device.type == "cpu":
        context = _attend_with_dropout(query, key, value, mask, dropout)
    else:
        # cuDNN's kernels, PyTorch's first choice on Hopper, take 0.1 s to prepare for every new shape.
        every_shape = query.is_cuda and not torch.compiler.is_compiling()
        with sdpa_kernel(WITHOUT_PREPARATION) if every_shape else nullcontext():
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return context.transpose(1, 2)


def _attend_with_dropout(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Attend as PyTorch does on a CPU, whose fast kernels lack dropout, but with `drop`'s random numbers."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        # Not masked_fill of the scores, which takes as long as the products, and again in backward.
        scores = scores + scores.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
    # Under autocast the softmax is in float32; cast its weights back.
    return drop(scores.softmax(-1).to(value.dtype), dropout) @ value


def _attend_packed(query: Tensor, key: Tensor, value: Tensor, packed: Packed, dropout: float) -> Tensor:
    if query.device.type != "cuda":
        return attend_one_by_one(query, key, value, packed.cu_seqlens, dropout)
    if not flash_attention_supports(query):
        return attend_in_rows(query, key, value, packed, dropout)
    # Not torch.nn.attention's `varlen_attn` above it, which has no dropout and keeps the host busy 3 times as long.
    given = (query, key, value, packed.cu_seqlens, packed.cu_seqlens, packed.longest, packed.longest, dropout)
    found = torch.ops.aten._flash_attention_forward(*given, is_causal=False, return_debug_mask=False)
    return cast(Tensor, found[0])


def flash_attention_supports(query: Tensor) -> bool:
    """Return whether a kernel exists: FlashAttention 2 needs half precision, head sizes divisible by 8, and Ampere."""
    size = query.shape[-1]
    if query.dtype not in (torch.bfloat16, torch.float16) or size % 8 or size > MAX_HEAD:
        return False
    # Not get_device_capability: torch.compile treats these properties as constants.
    return torch.cuda.get_device_properties(query.device).major >= AMPERE


def attend_in_rows(query: Tensor, key: Tensor, value: Tensor, packed: Packed, dropout: float) -> Tensor:
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
    context = _attend_rows(query[places], key[places], value[places], mask, dropout)  # [N, longest, A, D]
    sequence = torch.searchsorted(cu_seqlens, torch.arange(tokens, device=query.device), right=True) - 1
    return context.flatten(0, 1)[sequence * packed.longest + packed.positions]
