"""A rank's micro-batches, prepared by a thread while earlier ones are computed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import torch

from bertline.encoding.dataset import SampleReader
from bertline.encoding.masking import Masking
from bertline.training.data.batch_size_warmup import batch_size_warmup_of
from bertline.training.data.batches import GlobalBatch, global_batch, of_rank
from bertline.training.data.collation import MicroBatch, collate
from bertline.training.data.opening import TrainingData
from bertline.training.data.order import data_seed_of
from bertline.training.data.shapes import Batching
from bertline.training.data.splitting import Part, split

PREFETCH = 3
# The samples of this many further micro-batches are requested from slow storage at once.
READ_AHEAD = 4


class Planned(NamedTuple):
    """The samples of one micro-batch, or None if this rank has no part of a global batch."""

    batch: GlobalBatch  # of all ranks
    part: Part | None
    micro_batches: int  # of this rank's part of the global batch


class WorkItem(NamedTuple):
    """One micro-batch, or None if this rank has no part of a global batch."""

    batch: GlobalBatch  # of all ranks
    micro_batch: MicroBatch | None
    micro_batches: int  # of this rank's part of the global batch


def work_items(
    data: TrainingData,
    batching: Batching,
    recipe: Mapping[str, Any],
    *,
    first_step: int,
    first_position: int,
    rank_weights: list[float],
    rank: int,
) -> Iterator[WorkItem]:
    """Yield a rank's work without end, in host memory, from global batch `first_step` on.

    Args:
        first_position: of global batch 0 in the order of samples.
    """
    reader, masking = data.train, Masking(**recipe["settings"]["masking"])
    warmup = batch_size_warmup_of(recipe["settings"])

    def planned() -> Iterator[Planned]:
        for step in itertools.count(first_step):
            batch = global_batch(
                reader.lengths,
                start=first_position + warmup.position_at(step),
                size=warmup.batch_size_at(step),
                seed=data_seed_of(recipe),
                masking=masking,
                mask_counts=reader.mask_counts,
                mixture=data.mixture,
            )
            parts = split(of_rank(batch, rank, rank_weights), batching)
            if not parts:
                yield Planned(batch, None, 0)
            for part in parts:
                yield Planned(batch, part, len(parts))

    for batch, part, micro_batches in read_ahead(planned(), reader):
        made = None if part is None else collate(part, reader, batching)
        yield WorkItem(batch, made, micro_batches)


def read_ahead(planned: Iterator[Planned], reader: SampleReader) -> Iterator[Planned]:
    """Yield the infinite `planned`, each after the `READ_AHEAD` next ones were requested from storage."""
    coming: deque[Planned] = deque()
    for one in planned:
        if one.part is not None:
            reader.read_ahead(one.part.batch.samples)
        coming.append(one)
        if len(coming) > READ_AHEAD:
            yield coming.popleft()


def prefetch(items: Iterator[WorkItem], device: torch.device) -> Generator[WorkItem, None, None]:
    """Yield the infinite `items`, made by one thread, `PREFETCH` of them ahead, for a GPU in pinned memory."""
    on_gpu = device.type == "cuda"
    # A thread starts on GPU 0, where pinning memory would allocate some.
    prepare = partial(torch.cuda.set_device, device) if on_gpu else None

    def make() -> WorkItem:
        item = next(items)
        return item._replace(micro_batch=item.micro_batch.pinned()) if on_gpu and item.micro_batch else item

    with ThreadPoolExecutor(1, thread_name_prefix="batches", initializer=prepare) as thread:
        futures: deque[Future[WorkItem]] = deque(thread.submit(make) for _ in range(PREFETCH))
        try:
            while True:
                item = futures.popleft().result()
                futures.append(thread.submit(make))
                yield item
        finally:
            for future in futures:
                future.cancel()
