"""Reduction of a step's gradients over all ranks, together with a few statistics.

Several ranks keep all gradients in one flat buffer, in the parameters' order. It is reduced in buckets of consecutive
parameters, from its end, where the last layers are, to its start. While backward computes the last micro-batch, a
bucket is reduced as soon as its gradients are complete and the buckets before it have started; the others follow at the
end of the step. Buckets and their order never change, so a resumed run adds the same numbers in the same order, and so
do ranks that compute more or fewer micro-batches. (DistributedDataParallel rebuilds its buckets after the first step;
with four ranks, results then differ after a resume.)

A single rank has nothing to reduce and uses the gradients as backward made them: clearing a buffer and adding to it
would be two more passes over them. Sparse gradients, of a table of which a batch looks up few rows, are added to a
dense one that stays; only these rows are scaled and cleared. CUDA graphs write to fixed addresses, so with them a
single rank needs the buffer, too. Gradients of sharded weights are reduced in backward, which leaves only the
statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, distributed, nn

from bertline.training.distributed.fsdp import norms_of_whole, own_part, reduces_in_backward
from bertline.training.norms import norms_of

ALIGNMENT = 64  # elements, so that every gradient starts on a cache line
BUCKET_BYTES = 25 << 20  # at least, as in DistributedDataParallel: smaller messages use less of a network's bandwidth


@dataclass
class _Bucket:
    """A part of the buffer, reduced at once.

    Attributes:
        tensor: the part.
        parameters: number of those whose gradients it contains.
        missing: number of those whose gradients are not complete.
        work: its reduction, once started.
    """

    tensor: Tensor
    parameters: int
    missing: int = 0
    work: distributed.Work | None = field(default=None, repr=False)


@dataclass
class _Table:
    """A table's dense gradient.

    Attributes:
        gradient: zero but for `rows`.
        rows: int64 [N], those that the batch looked up, some several times.
    """

    gradient: Tensor
    rows: Tensor

    def clear(self) -> None:
        self.gradient.index_fill_(0, self.rows, 0.0)

    def scale(self, factor: float) -> None:
        self.gradient.index_copy_(0, self.rows, self.gradient.index_select(0, self.rows).mul_(factor))


class Gradients:
    """Gradients of a model and statistics of a step."""

    def __init__(
        self,
        model: nn.Module,
        statistics: Sequence[str],
        *,
        world_size: int,
        always_flat: bool = False,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Allocate the buffer, for a single rank only with `always_flat`."""
        self._world_size = world_size
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._names = tuple(statistics)
        device = self._parameters[0].device
        self._flat: Tensor | None = None
        self._buckets: list[_Bucket] = []
        self._tables: dict[Tensor, _Table] = {}
        self._started, self._is_last = 0, False
        if reduces_in_backward(model) or (world_size == 1 and not always_flat):
            self.statistics = torch.zeros(len(self._names), dtype=torch.float32, device=device)
            return
        # The statistics are complete only after backward: they are in the bucket that is reduced last.
        first = _aligned(len(self._names))
        starts, size = [], first
        for parameter in self._parameters:
            starts.append(size)
            size += _aligned(parameter.numel())
        self._buffer = torch.zeros(size, dtype=torch.float32, device=device)
        self._flat, self.statistics = self._buffer[first:], self._buffer[: len(self._names)]
        for parameter, start in zip(self._parameters, starts, strict=True):
            parameter.grad = self._buffer[start : start + parameter.numel()].view_as(parameter)
        if world_size > 1:
            self._divide(starts, bucket_bytes)

    def _divide(self, starts: Sequence[int], bucket_bytes: int) -> None:
        """Make the buckets, the last parameters' first, and watch their gradients."""
        end, inside = len(self._buffer), 0
        for number in reversed(range(len(starts))):
            begin = starts[number] if number else 0
            inside += 1
            self._parameters[number].register_post_accumulate_grad_hook(self._watch(len(self._buckets)))
            if number == 0 or 4 * (end - begin) >= bucket_bytes:
                self._buckets.append(_Bucket(self._buffer[begin:end], inside))
                end, inside = begin, 0

    def _watch(self, number: int) -> Callable[[Tensor], None]:
        def completed(_: Tensor) -> None:
            if self._is_last:
                self._buckets[number].missing -= 1
                self._start_complete()

        return completed

    def _start_complete(self) -> None:
        """Start the reduction of complete buckets in their order; the one with the statistics waits for `reduce`."""
        while self._started < len(self._buckets) - 1 and not self._buckets[self._started].missing:
            self._start_next()

    def _start_next(self) -> None:
        bucket = self._buckets[self._started]
        bucket.work = distributed.all_reduce(bucket.tensor, async_op=True)
        self._started += 1

    def begin_last(self) -> None:
        """Reduce each bucket when the next backward pass, the last of the step, has completed it."""
        self._is_last = True
        for bucket in self._buckets:
            bucket.missing = bucket.parameters

    def zero(self) -> None:
        """Set gradients and statistics to zero."""
        if self._flat is not None:
            self._buffer.zero_()
            return
        self.statistics.zero_()
        for table in self._tables.values():
            table.clear()
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Add `values` to this rank's statistics, by name."""
        for name, value in values.items():
            self.statistics[self._names.index(name)] += value

    def reduce(self) -> dict[str, float]:
        """Sum gradients and statistics over all ranks; return the statistics."""
        if self._world_size > 1 and self._flat is None:
            distributed.all_reduce(self.statistics)
        while self._started < len(self._buckets):
            self._start_next()
        for bucket in self._buckets:
            if bucket.work is not None:
                bucket.work.wait()
            bucket.work = None
        self._started, self._is_last = 0, False
        if self._flat is None:
            self._make_dense()
        return dict(zip(self._names, self.statistics.tolist(), strict=True))

    def _make_dense(self) -> None:
        """Replace sparse gradients, which PyTorch's fused AdamW does not take, with dense ones."""
        for parameter in self._parameters:
            sparse = parameter.grad
            if sparse is not None and sparse.is_sparse:
                rows, table = sparse._indices()[0], self._tables.get(parameter)
                gradient = torch.zeros_like(parameter) if table is None else table.gradient
                # In the order of the tokens, as the embedding's dense gradient is summed.
                parameter.grad = gradient.index_add_(0, rows, sparse._values())
                self._tables[parameter] = _Table(gradient, rows)

    def clip(self, max_norm: float, scale: float = 1.0) -> float:
        """Divide the gradients by `scale`, then clip them to the global norm `max_norm`.

        Returns the norm before clipping, non-finite if a gradient is.
        """
        norms = torch.linalg.vector_norm(norms_of(self.tensors()))
        norm = float(norms_of_whole(norms, like=self._parameters[0])) / scale
        factor = min(1.0, max_norm / norm) / scale if norm > 0 else 1.0 / scale
        if factor != 1.0:
            torch._foreach_mul_(self.tensors(with_tables=False), factor)
            for table in self._tables.values():
                table.scale(factor)
        return norm

    def tensors(self, *, with_tables: bool = True) -> list[Tensor]:
        """Return this rank's gradients: all in one tensor, or one tensor per parameter."""
        if self._flat is not None:
            return [self._flat]
        chosen = [parameter for parameter in self._parameters if with_tables or parameter not in self._tables]
        return [own_part(parameter.grad) for parameter in chosen if parameter.grad is not None]


def _aligned(elements: int) -> int:
    return -(-elements // ALIGNMENT) * ALIGNMENT
