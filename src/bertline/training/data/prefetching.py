"""The stream of a rank's work: micro-batches, made by a thread while the ones before are computed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from bertline.encoding.masking import Masking
from bertline.training.data.batch_size_warmup import BatchRamp
from bertline.training.data.batches import GlobalBatch, Layout, MicroBatch, assemble, cut, deal, global_batch
from bertline.training.data.opening import TrainingData

T = TypeVar("T")
AHEAD = 3


class Work(NamedTuple):
    """One micro-batch, or none where this rank has no part of a global batch."""

    batch: GlobalBatch  # of all ranks
    micro_batch: MicroBatch | None
    micro_batches: int  # of this rank's part of the global batch
    ends_step: bool


class Stream:
    """An iterator over `Work` from a step on. `waited` counts the seconds that it kept its reader waiting."""

    def __init__(
        self,
        data: TrainingData,
        *,
        first_step: int,
        first_position: int,
        batch_ramp: BatchRamp,
        seed: int,
        masking: Masking,
        layout: Layout,
        shares: list[float],
        rank: int,
        device: torch.device,
    ) -> None:
        """Begin with global batch `first_step`, counted from 0; batch 0 begins at `first_position` of the order."""
        self.waited = 0.0
        self._data, self._ramp, self._seed, self._masking = data, batch_ramp, seed, masking
        self._first_position = first_position
        self._layout, self._shares, self._rank, self._device = layout, shares, rank, device
        self._ahead = _ahead(self._work(first_step), device)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Work:
        begun = time.monotonic()
        work = next(self._ahead)
        self.waited += time.monotonic() - begun
        if work.micro_batch is None:
            return work
        return work._replace(micro_batch=work.micro_batch.to(self._device))

    def close(self) -> None:
        """Stop the thread."""
        self._ahead.close()

    def _work(self, step: int) -> Iterator[Work]:
        while True:
            batch = global_batch(
                self._data.train.lengths,
                start=self._first_position + self._ramp.position_at(step),
                size=self._ramp.batch_size_at(step),
                seed=self._seed,
                masking=self._masking,
                mask_counts=self._data.train.mask_counts,
                mixture=self._data.mixture,
            )
            mine = batch.take(np.flatnonzero(deal(len(batch.samples), self._shares) == self._rank))
            reader, layout, masking = self._data.train, self._layout, self._masking
            parts = cut(mine, reader, layout, masking=masking)
            if not parts:
                yield Work(batch, None, 0, ends_step=True)
            for number, part in enumerate(parts, start=1):
                made = assemble(part, reader, layout, masking=masking, padding_id=self._data.padding_id)
                made = made.pinned() if self._device.type == "cuda" else made
                yield Work(batch, made, len(parts), ends_step=number == len(parts))
            step += 1


def _ahead(items: Iterator[T], device: torch.device) -> Generator[T, None, None]:
    """The endless `items`, made by one thread, `AHEAD` of them before they are asked for."""

    def prepare() -> None:
        if device.type == "cuda":
            # A thread begins at GPU 0, where pinning memory must not take any.
            torch.cuda.set_device(device)

    with ThreadPoolExecutor(1, thread_name_prefix="batches", initializer=prepare) as thread:
        futures: deque[Future[T]] = deque(thread.submit(next, items) for _ in range(AHEAD))
        try:
            while True:
                item = futures.popleft().result()
                futures.append(thread.submit(next, items))
                yield item
        finally:
            for future in futures:
                future.cancel()
