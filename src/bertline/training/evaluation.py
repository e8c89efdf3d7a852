"""Evaluation on held-out text: always 15 percent masked, always the same positions, so that runs compare.

Held-out samples that were masked before are asked for their own masks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import distributed, nn

from bertline.encoding.masking import HELD_OUT_MASKING, HELD_OUT_SEED, held_out_samples
from bertline.training.data.batches import Layout, assemble, cut, deal, evaluation_batch, shortest
from bertline.training.data.opening import TrainingData
from bertline.training.distributed.fsdp import has_sharded_weights
from bertline.training.distributed.process_group import Group
from bertline.training.objective import make_sums, sums_of


@torch.no_grad()
def evaluate(model: nn.Module, data: TrainingData, group: Group, *, layout: Layout, precision: str) -> dict[str, float]:
    """Loss and accuracy on the held-out samples, shared among the ranks; the same numbers on every rank.

    Returns held_out/mlm_loss in nats per masked token, held_out/mlm_accuracy and held_out/pair_accuracy as shares;
    nothing where no text was held out, no pair accuracy where the dataset has no pairs.
    """
    reader = data.held_out
    batch = evaluation_batch(held_out_samples(len(reader)), reader.lengths, HELD_OUT_MASKING, reader.mask_counts)
    mine = batch.take(np.flatnonzero(deal(len(batch.samples), [1.0] * group.world_size) == group.rank))
    # Not compiled: another program would take longer to make than it saves.
    sums = make_sums(model, precision=precision, compiled=False)
    layout = replace(layout, fixed=False)
    totals = torch.zeros(5, dtype=torch.float64, device=group.device)
    model.eval()
    parts = cut(mine, reader, layout, masking=HELD_OUT_MASKING)
    idle = group.most(len(parts)) - len(parts) if has_sharded_weights(model) else 0
    for number, part in enumerate([*parts, *[shortest(batch)] * idle]):
        rows = assemble(part, reader, layout, masking=HELD_OUT_MASKING, padding_id=data.padding_id).to(group.device)
        found = sums_of(sums, rows, seed=HELD_OUT_SEED, masking=HELD_OUT_MASKING, vocabulary=data.vocabulary)
        if number < len(parts):
            totals += torch.stack(found).double()
    model.train()
    distributed.all_reduce(totals)
    mlm_loss, mlm_right, masked, _, pairs_right = totals.tolist()
    if not masked:
        return {}
    metrics = {"held_out/mlm_loss": mlm_loss / masked, "held_out/mlm_accuracy": mlm_right / masked}
    return metrics | ({"held_out/pair_accuracy": pairs_right / len(batch.samples)} if data.has_pairs else {})
