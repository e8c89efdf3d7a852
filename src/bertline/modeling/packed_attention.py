"""Attention within packed sequences on a CPU: custom operators, because PyTorch has no such kernel there.

One runs PyTorch's own attention kernel for each sequence. That kernel has no dropout; for it, another operator computes
the weights by matrix products and draws what to drop from a seed, so that the backward pass draws it again instead
of storing it. Both are opaque to torch.compile and have a registered backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from bertline.modeling.dropout import draw_seed, keep


def attend_one_by_one(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, dropout: float) -> Tensor:
    """Attend within each sequence: [T, A, D] each -> [T, A, D].

    Args:
        cu_seqlens: int32 [N + 1], boundaries of the sequences.
        dropout: probability of dropping an attention weight.
    """
    if dropout:
        return _dropout_attention(query, key, value, cu_seqlens, draw_seed(query.device), dropout)[0]
    return _packed_attention(query, key, value, cu_seqlens)[0]


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


_packed_attention.register_fake(lambda query, *_: _new_results(query))


@torch.library.custom_op("bertline::packed_attention_backward", mutates_args=(), device_types="cpu")
def _packed_attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, context: Tensor, sums: Tensor, cu_seqlens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    results = _new_gradients(query)
    for here in _sequences(cu_seqlens):
        rows = [_as_batch(tensor, here) for tensor in (gradient, query, key, value, context)]
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *rows, sums[None, :, here], dropout_p=0.0, is_causal=False
        )
        for result, part in zip(results, found, strict=True):
            result[here] = part[0].transpose(0, 1)
    return results


_packed_attention_backward.register_fake(lambda gradient, query, *_: _new_gradients(query))


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, cu_seqlens = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens)


def _go_back(ctx: torch.autograd.function.BackwardCFunction, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*_packed_attention_backward(gradient.contiguous(), *ctx.saved_tensors), None)


_packed_attention.register_autograd(_go_back, setup_context=_keep)


@torch.library.custom_op("bertline::packed_dropout_attention", mutates_args=(), device_types="cpu")
def _dropout_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, seed: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    """Attend with dropout, seeded by int64 `seed`: like `_packed_attention`."""
    context, sums = _new_results(query)
    for here, kept in _kept_weights(query, cu_seqlens, seed, dropout):
        queries, keys, values = (tensor[here].transpose(0, 1) for tensor in (query, key, value))  # [A, S, D]
        scores = (queries @ keys.transpose(1, 2)).to(sums.dtype) * query.shape[-1] ** -0.5
        sums[:, here] = scores.logsumexp(-1)
        context[here] = (scores.softmax(-1).mul_(kept).to(query.dtype) @ values).transpose(0, 1)
    return context, sums


_dropout_attention.register_fake(lambda query, *_: _new_results(query))


@torch.library.custom_op("bertline::packed_dropout_attention_backward", mutates_args=(), device_types="cpu")
def _dropout_attention_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    context: Tensor,
    sums: Tensor,
    cu_seqlens: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value. As in FlashAttention's backward, weights are computed again."""
    results = _new_gradients(query)
    scale = query.shape[-1] ** -0.5
    for here, kept in _kept_weights(query, cu_seqlens, seed, dropout):
        given = (tensor[here].transpose(0, 1) for tensor in (gradient, query, key, value, context))
        gradients, queries, keys, values, contexts = given
        weights = ((queries @ keys.transpose(1, 2)).to(sums.dtype) * scale).sub_(sums[:, here, None]).exp_()
        of_values = (weights * kept).to(query.dtype).transpose(1, 2) @ gradients
        # Softmax: the sum over the weights times their gradients equals that over the context times its gradient.
        of_sums = (gradients * contexts).sum(-1, keepdim=True, dtype=sums.dtype)
        of_weights = (gradients @ values.transpose(1, 2)).to(sums.dtype).mul_(kept).sub_(of_sums)
        of_scores = weights.mul_(of_weights).mul_(scale).to(query.dtype)
        found = (of_scores @ keys, of_scores.transpose(1, 2) @ queries, of_values)
        for result, part in zip(results, found, strict=True):
            result[here] = part.transpose(0, 1)
    return results


_dropout_attention_backward.register_fake(lambda gradient, query, *_: _new_gradients(query))


def _keep_with_dropout(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    query, key, value, cu_seqlens, seed, ctx.dropout = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens, seed)


def _go_back_with_dropout(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
    found = _dropout_attention_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.dropout)
    return (*found, None, None, None)


_dropout_attention.register_autograd(_go_back_with_dropout, setup_context=_keep_with_dropout)


def _kept_weights(query: Tensor, cu_seqlens: Tensor, seed: Tensor, dropout: float) -> Iterator[tuple[slice, Tensor]]:
    """Yield each sequence and the factors of its weights, 0 or 1 / (1 - dropout): [A, S, S]."""
    generator = torch.Generator().manual_seed(int(seed))
    for here in _sequences(cu_seqlens):
        length = here.stop - here.start
        yield here, keep([query.shape[1], length, length], dropout, generator)


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


def _new_gradients(query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), query.new_empty(query.shape), query.new_empty(query.shape)
