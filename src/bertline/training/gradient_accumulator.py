"""Micro-batches of a rank and the sum of their gradients."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.encoding.hashing import mix_integers
from bertline.encoding.masking import Masking
from bertline.modeling.architectures import PreTrainingNetwork
from bertline.modeling.weight_copies import WeightCopies
from bertline.training.data.batch_size_warmup import batch_size_warmup_of
from bertline.training.data.batches import GlobalBatch
from bertline.training.data.collation import MicroBatch, idle_micro_batch
from bertline.training.data.load_balancing import measure_rank_weights, rank_weights_of
from bertline.training.data.opening import TrainingData
from bertline.training.data.order import data_seed_of
from bertline.training.data.prefetching import WorkItem, prefetch, work_items
from bertline.training.data.shapes import Batching
from bertline.training.distributed.fsdp import passes_in_lockstep, reduces_in_backward
from bertline.training.distributed.gradients import Gradients
from bertline.training.distributed.process_group import Group
from bertline.training.objective import AUTOCAST, LossStatistics, compute_loss, make_loss_fn


class GradientAccumulator:
    """Iterator of a rank's micro-batches of each global batch, with one buffer for their gradients and statistics."""

    def __init__(
        self,
        model: PreTrainingNetwork,
        data: TrainingData,
        recipe: dict[str, Any],
        group: Group,
        batching: Batching,
        *,
        first_position: int = 0,
        compiled: bool = False,
        cuda_graphs: bool = False,
        votes: tuple[str, ...] = (),
    ) -> None:
        """Make the loss function and the gradient buffer; call `balance_load` (optional) and `seek` next.

        Args:
            first_position: of global batch 0 in the order of samples.
            votes: names of numbers that are summed over the ranks with the gradients, in addition to `LossStatistics`.
        """
        self._data, self._recipe, self._group, self._batching = data, recipe, group, batching
        settings = recipe["settings"]
        self._masking = Masking(**settings["masking"])
        # A CPU runs a program of the whole network 5 to 20 percent faster than one of each layer.
        on_cpu = group.device.type == "cpu" and not reduces_in_backward(model)
        self._loss_fn = make_loss_fn(
            model,
            precision=settings["precision"],
            compiled=compiled,
            by_layer=compiled and not (on_cpu or cuda_graphs),
            cuda_graphs=cuda_graphs,
        )
        self._model, self._cuda_graphs = model, cuda_graphs
        # FSDP gathers the weights for every micro-batch.
        self._copies = WeightCopies(model, None if reduces_in_backward(model) else AUTOCAST[settings["precision"]])
        names = (*LossStatistics._fields, *votes)
        self.gradients = Gradients(model, names, world_size=group.world_size, always_flat=cuda_graphs)
        self._first_position, self._batch_size_warmup = first_position, batch_size_warmup_of(settings)
        self.rank_weights = [1.0] * group.world_size
        self.waited = 0.0  # seconds for data in the last step
        self.tokens = (0, 0)  # of this rank in the last step: without padding, and with
        self._items: Generator[WorkItem, None, None] | None = None
        self._first: WorkItem | None = None

    def balance_load(self, load_balancing: str, before: Mapping[str, Any] | None = None) -> None:
        """Set the part of a global batch that each rank computes; for the arguments, see `rank_weights_of`."""
        self.rank_weights = rank_weights_of(load_balancing, self._group.world_size, before, self._measure_rank_weights)

    def _measure_rank_weights(self) -> list[float]:
        self.seek(self._batch_size_warmup.steps)  # a smaller global batch may leave ranks without a micro-batch
        # One micro-batch again and again: others may have other shapes, and the first of a shape is compiled.
        item = self._next()
        return measure_rank_weights(lambda: self._compute(item), self._group)

    def seek(self, step: int) -> None:
        """Move to global batch number `step`, counted from 0."""
        self.close()
        items = work_items(
            self._data,
            self._batching,
            self._recipe,
            first_step=step,
            first_position=self._first_position,
            rank_weights=self.rank_weights,
            rank=self._group.rank,
        )
        self._items = prefetch(items, self._group.device)

    def close(self) -> None:
        """Stop prefetching."""
        if self._items is not None:
            self._items.close()

    def position_at(self, step: int) -> int:
        """Return the position of global batch `step` in the order of samples."""
        return self._first_position + self._batch_size_warmup.position_at(step)

    def start_step(self, step: int) -> GlobalBatch:
        """Zero the gradients, seed dropout and return global batch `step`, which must be the next one."""
        # Seeded by the batch's position, so that no generator state has to be saved.
        torch.manual_seed(mix_integers(data_seed_of(self._recipe), self.position_at(step), self._group.rank))
        self.gradients.zero()
        self._copies.update()
        self.tokens, self.waited = (0, 0), 0.0
        self._first = self._next()
        return self._first.batch

    def micro_batches(self) -> Iterator[MicroBatch]:
        """Yield this rank's micro-batches of the global batch that `start_step` returned, on its device.

        Where the ranks compute in lockstep, those with fewer append micro-batches without labels.
        """
        item = self._first
        if item is None:
            raise ValueError("start_step first")
        passes = passes_in_lockstep(self._model, item.micro_batches, self._group)
        for number in range(item.micro_batches):
            item = item if number == 0 else self._next()
            if number == item.micro_batches - 1:
                self.gradients.begin_last()
            if item.micro_batch is not None:
                yield self._counted(item.micro_batch)
        for _ in range(item.micro_batches, passes):
            idle = idle_micro_batch(item.batch, self._data.train, self._batching)
            yield self._counted(idle.to(self._group.device))

    def _next(self) -> WorkItem:
        if self._items is None:
            raise ValueError("seek first")
        started = time.monotonic()
        item = next(self._items)
        self.waited += time.monotonic() - started
        return item if item.micro_batch is None else item._replace(micro_batch=item.micro_batch.to(self._group.device))

    def _counted(self, micro_batch: MicroBatch) -> MicroBatch:
        self.tokens = (self.tokens[0] + micro_batch.tokens, self.tokens[1] + micro_batch.input_ids.numel())
        return micro_batch

    def forward(self, micro_batch: MicroBatch) -> LossStatistics:
        """Mask a micro-batch and compute its losses."""
        if self._cuda_graphs:
            # The outputs of the previous micro-batch have been accumulated and may be overwritten.
            torch.compiler.cudagraph_mark_step_begin()
        seed, vocabulary = data_seed_of(self._recipe), self._data.vocabulary
        return compute_loss(self._loss_fn, micro_batch, seed=seed, masking=self._masking, vocabulary=vocabulary)

    def mean_loss(self, statistics: LossStatistics, batch: GlobalBatch) -> Tensor:
        """Return the sum of a micro-batch's losses, each divided by the global batch's count of masked tokens or pairs.

        Summed over micro-batches and ranks, its gradient is that of the mean over the global batch.
        """
        loss = statistics.mlm_loss / int(batch.masked_counts.sum())
        return loss + statistics.pair_loss / len(batch.samples) if self._data.has_pairs else loss

    def _compute(self, item: WorkItem) -> int:
        """Compute a micro-batch to measure its time, and discard the gradients. Returns its tokens."""
        if item.micro_batch is None:
            return 0
        self._copies.update()
        self.mean_loss(self.forward(item.micro_batch), item.batch).backward()
        self.gradients.zero()
        return item.micro_batch.tokens
