"""Kernels alone, at the shapes of a layer: attention by each of PyTorch's ways, and matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
from steps import synchronize
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bertline.modeling.attention import Packed, attend
from gpu_parts.context import Context, Result

HEADS, HEAD = 16, 64  # of BERT-large
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
# Input and output sizes of BERT-large's linear layers.
PRODUCTS = ((1024, 3072), (1024, 1024), (1024, 4096), (4096, 1024))
REPEATS = 20


def run(context: Context) -> Iterator[Result]:
    """Yield the milliseconds of attention, forward and backward, by backend; then the TFLOP/s of matrix products.

    The three products of a linear layer are its result and the gradients of its input and of its weight.
    """
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    tokens = 256 if context.tiny else 32768
    for length in (128, 512) if not context.tiny else (32,):
        for dropout in (0.0, 0.1):
            for masked in (False, True):
                for name, backend in BACKENDS.items():
                    case = f"rows of {length}, dropout {dropout}, {'masked' if masked else 'full'}, {name}"
                    yield {"case": case, **_of_rows(backend, tokens // length, length, masked, dropout, device)}
            if not (context.tiny and dropout):  # a CPU's own operator draws for every sequence
                yield {"case": f"packed, to {length}, dropout {dropout}", **_packed(tokens, length, dropout, device)}
    for inner, outer in PRODUCTS if not context.tiny else ((64, 64),):
        yield {"case": f"products of {tokens} x {inner} x {outer}", **_products(tokens, inner, outer, device)}


def _of_rows(backend: SDPBackend, rows: int, length: int, masked: bool, dropout: float, device: torch.device) -> Result:
    qkv = torch.randn(rows, length, 3, HEADS, HEAD, device=device, dtype=torch.bfloat16, requires_grad=True)
    mask = None
    if masked:
        lengths = torch.randint(length // 2, length + 1, (rows, 1), device=device)
        mask = (torch.arange(length, device=device) < lengths)[:, None, None]

    def compute() -> None:
        query, key, value = (heads.transpose(1, 2) for heads in qkv.unbind(2))
        with sdpa_kernel(backend):
            found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        torch.autograd.grad(found.sum(), qkv)

    try:
        return _times(compute, device)
    except RuntimeError:
        return {"kernel": "there is none"}


def _packed(tokens: int, longest: int, dropout: float, device: torch.device) -> Result:
    """Sequences of half the length and of the whole length in turns."""
    lengths = [longest // 2, longest] * (2 * tokens // (3 * longest))
    lengths.append(tokens - sum(lengths))
    starts = torch.tensor([0, *lengths]).cumsum(0).int().to(device)
    positions = torch.cat([torch.arange(length) for length in lengths]).to(device)
    packed = Packed(starts, positions, max(lengths))
    qkv = torch.randn(1, tokens, 3, HEADS, HEAD, device=device, dtype=torch.bfloat16, requires_grad=True)

    def compute() -> None:
        query, key, value = qkv.unbind(2)
        torch.autograd.grad(attend(query, key, value, packed, dropout=dropout).sum(), qkv)

    return _times(compute, device)


def _times(compute: Callable[[], object], device: torch.device) -> Result:
    """Return the milliseconds of a call, those during which the host is busy with it, and those of the first call."""
    started = time.perf_counter()
    compute()
    synchronize(device)
    first = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(REPEATS):
        compute()
    host = time.perf_counter() - started
    synchronize(device)
    whole = time.perf_counter() - started
    per_call = 1000 / REPEATS
    return {
        "milliseconds": round(per_call * whole, 3),
        "host_milliseconds": round(per_call * host, 3),
        "first_milliseconds": round(1000 * first, 1),
    }


def _products(tokens: int, inner: int, outer: int, device: torch.device) -> Result:
    """Return the TFLOP/s of a linear layer's three products."""

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, device=device, dtype=torch.bfloat16)

    hidden, weight, gradient = matrix(tokens, inner), matrix(outer, inner), matrix(tokens, outer)
    calls: dict[str, Callable[[], Tensor]] = {
        "forward": lambda: hidden @ weight.t(),
        "of_input": lambda: gradient @ weight,
        "of_weight": lambda: gradient.t() @ hidden,
    }
    flops = 2 * tokens * inner * outer
    return {name: float(f"{flops / _times(call, device)['milliseconds'] / 1e9:.4g}") for name, call in calls.items()}
