"""Evaluation on held-out text: always 15 percent masked, always the same positions, so that runs are comparable.

Statically masked held-out samples keep their own masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import distributed, nn

from bertline.encoding.masking import HELD_OUT_MASKING, HELD_OUT_SEED, held_out_samples
from bertline.training.data.batches import evaluation_batch, of_rank
from bertline.training.data.collation import collate, idle_micro_batch
from bertline.training.data.opening import TrainingData
from bertline.training.data.prefetching import READ_AHEAD
from bertline.training.data.shapes import Batching
from bertline.training.data.splitting import split
from bertline.training.distributed.fsdp import passes_in_lockstep
from bertline.training.distributed.process_group import Group
from bertline.training.objective import LossStatistics, compute_loss, make_loss_fn


class Interrupted(Exception):
    """The end of an evaluation without a result, because a rank was asked to stop."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: TrainingData,
    group: Group,
    *,
    batching: Batching,
    precision: str,
    stop_is_seen: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Measure loss and accuracy on the held-out samples, divided among the ranks; the result is the same on all.

    Returns held_out/mlm_loss in nats per masked token, held_out/mlm_accuracy and held_out/pair_accuracy as fractions;
    an empty dict without held-out text, no pair accuracy for a dataset without pairs. Raises Interrupted on all ranks
    if on one of them `stop_is_seen`, which is called between two micro-batches, returned True.
    """
    reader = data.held_out
    batch = evaluation_batch(held_out_samples(len(reader)), reader.lengths, HELD_OUT_MASKING, reader.mask_counts)
    # Not compiled: compilation would take longer than it saves.
    loss_fn = make_loss_fn(model, precision=precision, compiled=False)
    batching = replace(batching, shapes=())
    totals = torch.zeros(len(LossStatistics._fields), dtype=torch.float64, device=group.device)
    interrupted = False
    model.eval()
    parts = split(of_rank(batch, group.rank, [1.0] * group.world_size), batching)
    for number in range(passes_in_lockstep(model, len(parts), group)):
        if number and (interrupted := stop_is_seen()):
            break
        for later in parts[number + READ_AHEAD : number + READ_AHEAD + 1]:
            reader.read_ahead(later.batch.samples)
        is_idle = number >= len(parts)
        made = idle_micro_batch(batch, reader, batching) if is_idle else collate(parts[number], reader, batching)
        made = made.to(group.device)
        found = compute_loss(loss_fn, made, seed=HELD_OUT_SEED, masking=HELD_OUT_MASKING, vocabulary=data.vocabulary)
        totals += torch.stack(found).double()
    model.train()
    if group.all_reduce_max(int(interrupted)):
        raise Interrupted
    distributed.all_reduce(totals)
    mlm_loss, mlm_correct, masked, _, pairs_correct = totals.tolist()
    if not masked:
        return {}
    metrics = {"held_out/mlm_loss": mlm_loss / masked, "held_out/mlm_accuracy": mlm_correct / masked}
    return metrics | ({"held_out/pair_accuracy": pairs_correct / len(batch.samples)} if data.has_pairs else {})
