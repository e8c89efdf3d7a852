"""From a step to this rank's part of the gradient of its global batch."""

from __future__ import annotations

import logging
from typing import Any

import torch

from bertline.encoding.hashing import mix_integers
from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.data.batch_size_warmup import batch_ramp_of
from bertline.training.data.batches import GlobalBatch, Layout, MicroBatch, assemble, shortest
from bertline.training.data.load_balancing import measure_shares, parse_shares
from bertline.training.data.opening import TrainingData
from bertline.training.data.prefetching import Stream, Work
from bertline.training.distributed.fsdp import has_sharded_weights
from bertline.training.distributed.gradients import Gradients
from bertline.training.distributed.process_group import Group
from bertline.training.objective import Sums, make_sums, sums_of
from bertline.training.recipe import masking_of

logger = logging.getLogger(__name__)

SUMS = ("mlm_loss", "mlm_right", "masked", "pair_loss", "pair_right")


class Accumulation:
    """Walks through the stream of micro-batches and adds up gradients and statistics in one flat buffer."""

    def __init__(
        self,
        model: PreTrainingNetwork,
        data: TrainingData,
        recipe: dict[str, Any],
        group: Group,
        layout: Layout,
        *,
        first_position: int = 0,
        compiled: bool = False,
        cuda_graphs: bool = False,
        statistics: tuple[str, ...] = (),
    ) -> None:
        """`statistics` are names beside `SUMS` that ride along with the gradients. Call `divide`, then `seek`."""
        self._data, self._recipe, self._group, self._layout = data, recipe, group, layout
        self._settings = recipe["settings"]
        self._masking = masking_of(self._settings)
        self._sums = make_sums(model, precision=self._settings["precision"], compiled=compiled, cuda_graphs=cuda_graphs)
        self._cuda_graphs, self._sharded = cuda_graphs, has_sharded_weights(model)
        self.gradients = Gradients(model, (*SUMS, *statistics), world_size=group.world_size, always_flat=cuda_graphs)
        self._first_position, self._batch_ramp = first_position, batch_ramp_of(self._settings)
        self.shares = [1.0] * group.world_size
        self.waited = 0.0  # seconds for data in the last step
        self.tokens = (0, 0)  # of this rank in the last step: without padding, and with
        self._stream: Stream | None = None

    def divide(self, division: str) -> None:
        """Decide which part of a global batch each rank gets.

        Parameters
        ----------
        division: `equal`, `measured`, `measured-again` (the difference is the caller's), or shares as in "3,1".
        """
        if division in ("measured", "measured-again"):
            self._stream = self._open(0)
            self.shares = measure_shares(self._pass_over, self._group)
            logger.info("measured shares of the ranks: %s", ", ".join(f"{share:g}" for share in self.shares))
        elif division != "equal":
            self.shares = parse_shares(division, self._group.world_size)

    def seek(self, step: int) -> None:
        """Go to global batch number `step`, counted from 0."""
        self.close()
        self._stream = self._open(step)

    def close(self) -> None:
        """Stop reading ahead."""
        if self._stream is not None:
            self._stream.close()

    def _open(self, step: int) -> Stream:
        return Stream(
            self._data,
            first_step=step,
            first_position=self._first_position,
            batch_ramp=self._batch_ramp,
            seed=self._recipe["seed"],
            masking=self._masking,
            layout=self._layout,
            shares=self.shares,
            rank=self._group.rank,
            device=self._group.device,
        )

    def compute(self, step: int, loss_scale: float = 1.0) -> GlobalBatch:
        """Leave this rank's part of the gradient of global batch `step`, where the stream stands, in the buffer.

        Summed over the ranks it is that of the mean over the global batch, times `loss_scale`.
        """
        if self._stream is None:
            raise ValueError("seek first")
        # Dropout as a function of where the batch begins: no generator's state has to be saved.
        position = self._first_position + self._batch_ramp.position_at(step)
        torch.manual_seed(mix_integers(self._recipe["seed"], position, self._group.rank))
        self.gradients.zero()
        self.tokens, before = (0, 0), self._stream.waited
        work = next(self._stream)
        # With sharded weights all ranks compute as many micro-batches as the one with the most.
        idle = self._group.most(work.micro_batches) - work.micro_batches if self._sharded else 0
        self._add(work, loss_scale)
        while not work.ends_step:
            work = next(self._stream)
            self._add(work, loss_scale)
        self.waited = self._stream.waited - before
        for _ in range(idle):
            self._accompany(work.batch)
        return work.batch

    def _add(self, work: Work, loss_scale: float) -> None:
        """The micro-batch's part of the gradient and of the statistics."""
        micro_batch = work.micro_batch
        if micro_batch is None:
            return
        sums = self._forward_and_backward(micro_batch, work.batch, loss_scale)
        for name in SUMS:
            self.gradients.add(name, getattr(sums, name).detach())
        self.tokens = (self.tokens[0] + micro_batch.tokens, self.tokens[1] + micro_batch.input_ids.numel())

    def _accompany(self, batch: GlobalBatch) -> None:
        """Go through the network with the ranks that have more to do, and add nothing to the gradient."""
        micro_batch = assemble(
            shortest(batch), self._data.train, self._layout, masking=self._masking, padding_id=self._data.padding_id
        )
        self._forward_and_backward(micro_batch.to(self._group.device), batch, 0.0)

    def _forward_and_backward(self, micro_batch: MicroBatch, batch: GlobalBatch, loss_scale: float) -> Sums:
        """MLM's loss is that of all masked tokens of the global batch, the pairs' that of all its samples."""
        if self._cuda_graphs:
            # The outputs of the micro-batch before have been added up, and may be written over.
            torch.compiler.cudagraph_mark_step_begin()
        vocabulary = self._data.vocabulary
        sums = sums_of(self._sums, micro_batch, seed=self._recipe["seed"], masking=self._masking, vocabulary=vocabulary)
        loss = sums.mlm_loss / int(batch.masked_counts.sum())
        if self._data.has_pairs:
            loss = loss + sums.pair_loss / len(batch.samples)
        (loss * loss_scale).backward()
        return sums

    def _pass_over(self) -> int:
        """Compute the next micro-batch for nothing. Returns its tokens."""
        if self._stream is None:
            raise ValueError("seek first")
        work = next(self._stream)
        self._add(work, 1.0)
        self.gradients.zero()
        return work.micro_batch.tokens if work.micro_batch else 0
