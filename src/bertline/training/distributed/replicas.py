"""Comparison of the ranks' replicas of weights and moments, which every rank updates by itself.

All ranks get the same gradient and compute the same update, but processors with different instruction sets round it
differently, and the replicas would stay different. A resumed training starts from rank 0's on all
ranks. So the replicas are made equal whenever a checkpoint is written: training ends with the same bits whether it
stops there or continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, distributed

from bertline.splitmix import GOLDEN
from bertline.training.distributed.process_group import Group

# Elements: a CPU's cache holds the checksum's numbers, which makes it three times as fast (1.5 ns an element on one
# thread, 0.5 s for BERT-base with its moments), and a full GPU needs little memory.
CHUNK = 1 << 16
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
ODD = GOLDEN - (1 << 64)


@torch.no_grad()
def make_equal(tensors: Mapping[str, Tensor], group: Group) -> list[int]:
    """Copy rank 0's `tensors` to all ranks if any rank's differ; all ranks must call it, with the same names.

    Returns the ranks whose tensors differed, the same list on every rank.
    """
    here = _checksum(tensors.values(), group.device)
    of_ranks = [torch.empty_like(here) for _ in range(group.world_size)]
    distributed.all_gather(of_ranks, here)
    different = [rank for rank, other in enumerate(of_ranks) if not torch.equal(other, of_ranks[0])]
    for tensor in tensors.values() if different else ():
        sent = tensor.to(group.device).contiguous()  # LAMB's step is in host memory, from which NCCL cannot send
        distributed.broadcast(sent, src=0)
        tensor.copy_(sent)
    return different


def _checksum(tensors: Iterable[Tensor], device: torch.device) -> Tensor:
    """Return a checksum of the bits of all `tensors` and their order: int64 [1].

    Each element x counts as x (x + c) modulo 2^64: sums alone would miss two errors that cancel each other out.
    """
    total = torch.zeros(1, dtype=torch.int64, device=device)
    for tensor in tensors:
        bits = tensor.detach().reshape(-1).view(BITS[tensor.element_size()])
        for chunk in bits.split(CHUNK):
            wide = chunk.long()
            total = total * ODD + (wide * (wide + ODD)).sum().to(device)
    return total
