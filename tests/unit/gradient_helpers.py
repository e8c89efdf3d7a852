"""The gradient of a rank alone, ahead of the reduction and the update of `train_step`."""

from __future__ import annotations

from bertline.training.data.batches import GlobalBatch
from bertline.training.gradient_accumulator import GradientAccumulator


def accumulate(accumulator: GradientAccumulator, step: int, loss_scale: float = 1.0) -> GlobalBatch:
    """Leave this rank's part of the gradient of global batch `step` in the buffer; returns the batch."""
    batch = accumulator.start_step(step)
    for micro_batch in accumulator.micro_batches():
        statistics = accumulator.forward(micro_batch)
        (accumulator.mean_loss(statistics, batch) * loss_scale).backward()
        accumulator.gradients.add(statistics._asdict())
    return batch
