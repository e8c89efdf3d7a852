"""Prefetching: a thread prepares a rank's next micro-batches while the current one is computed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from bertline.encoding.masking import Masking
from bertline.training.data.batch_size_warmup import BatchSizeWarmup
from bertline.training.data.batches import (
    GlobalBatch,
    Layout,
    MicroBatch,
    assign_to_ranks,
    collate,
    global_batch,
    split,
)
from bertline.training.data.opening import TrainingData

T = TypeVar("T")
PREFETCH = 3


class WorkItem(NamedTuple):
    """One micro-batch, or None if this rank has no part of a global batch."""

    batch: GlobalBatch  # of all ranks
    micro_batch: MicroBatch | None
    micro_batches: int  # of this rank's part of the global batch


class Prefetcher:
    """Iterator over a rank's `WorkItem`s. `waited` is the time that its caller has waited, in seconds."""

    def __init__(
        self,
        data: TrainingData,
        *,
        first_step: int,
        first_position: int,
        batch_size_warmup: BatchSizeWarmup,
        seed: int,
        masking: Masking,
        layout: Layout,
        rank_weights: list[float],
        rank: int,
        device: torch.device,
    ) -> None:
        """Start with global batch `first_step`, counted from 0; batch 0 starts at `first_position` of the order."""
        self.waited = 0.0
        self._data, self._warmup, self._seed, self._masking = data, batch_size_warmup, seed, masking
        self._first_position = first_position
        self._layout, self._rank_weights, self._rank, self._device = layout, rank_weights, rank, device
        self._prefetched = _prefetched(self._items(first_step), device)

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> WorkItem:
        started = time.monotonic()
        item = next(self._prefetched)
        self.waited += time.monotonic() - started
        if item.micro_batch is None:
            return item
        return item._replace(micro_batch=item.micro_batch.to(self._device))

    def close(self) -> None:
        """Stop the thread."""
        self._prefetched.close()

    def _items(self, step: int) -> Iterator[WorkItem]:
        while True:
            batch = global_batch(
                self._data.train.lengths,
                start=self._first_position + self._warmup.position_at(step),
                size=self._warmup.batch_size_at(step),
                seed=self._seed,
                masking=self._masking,
                mask_counts=self._data.train.mask_counts,
                mixture=self._data.mixture,
            )
            mine = batch.take(np.flatnonzero(assign_to_ranks(len(batch.samples), self._rank_weights) == self._rank))
            reader, layout, masking = self._data.train, self._layout, self._masking
            parts = split(mine, reader, layout, masking=masking)
            if not parts:
                yield WorkItem(batch, None, 0)
            for part in parts:
                made = collate(part, reader, layout, masking=masking, padding_id=self._data.padding_id)
                made = made.pinned() if self._device.type == "cuda" else made
                yield WorkItem(batch, made, len(parts))
            step += 1


def _prefetched(items: Iterator[T], device: torch.device) -> Generator[T, None, None]:
    """Yield the infinite `items`, made by one thread, `PREFETCH` of them ahead."""

    def prepare() -> None:
        if device.type == "cuda":
            # A thread starts on GPU 0, where pinning memory would allocate some.
            torch.cuda.set_device(device)

    with ThreadPoolExecutor(1, thread_name_prefix="batches", initializer=prepare) as thread:
        futures: deque[Future[T]] = deque(thread.submit(next, items) for _ in range(PREFETCH))
        try:
            while True:
                item = futures.popleft().result()
                futures.append(thread.submit(next, items))
                yield item
        finally:
            for future in futures:
                future.cancel()
