"""Evaluation on held-out text: always 15 percent masked, always the same positions, so that runs compare."""

from __future__ import annotations

import torch
from torch import distributed, nn

from bertline.training.batches import evaluation_batch, micro_batches
from bertline.training.data import TrainingData
from bertline.training.group import Group
from bertline.training.masking import HELD_OUT_MASKING, HELD_OUT_SEED, held_out_samples
from bertline.training.objective import losses_of


@torch.no_grad()
def evaluate(
    model: nn.Module, data: TrainingData, group: Group, *, micro_batch_size: int, precision: str
) -> dict[str, float]:
    """Loss and accuracy on the held-out samples, shared among the ranks; the same numbers on every rank.

    Returns held_out/mlm_loss in nats per masked token, held_out/mlm_accuracy and held_out/pair_accuracy as shares;
    nothing where no text was held out, no pair accuracy where the dataset has no pairs.
    """
    reader = data.held_out
    batch = evaluation_batch(held_out_samples(len(reader)), reader.lengths, HELD_OUT_MASKING)
    totals = torch.zeros(5, dtype=torch.float64, device=group.device)
    model.eval()
    for rows in micro_batches(
        batch,
        reader,
        rank=group.rank,
        world_size=group.world_size,
        micro_batch_size=micro_batch_size,
        padding_id=data.padding_id,
    ):
        here = rows.to(group.device)
        losses = losses_of(model, here, seed=HELD_OUT_SEED, vocabulary=data.vocabulary, precision=precision)
        totals += torch.stack(
            [
                losses.mlm.double(),
                (losses.mlm_logits.argmax(1) == losses.mlm_labels).sum(),
                torch.tensor(len(losses.mlm_labels), device=group.device),
                (losses.pair_logits.argmax(1) == here.pair_labels).sum(),
                torch.tensor(len(here.pair_labels), device=group.device),
            ]
        )
    model.train()
    distributed.all_reduce(totals)
    mlm_loss, mlm_right, masked, pairs_right, pairs = totals.tolist()
    if not masked:
        return {}
    metrics = {"held_out/mlm_loss": mlm_loss / masked, "held_out/mlm_accuracy": mlm_right / masked}
    return metrics | ({"held_out/pair_accuracy": pairs_right / pairs} if data.has_pairs else {})
