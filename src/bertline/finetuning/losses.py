"""Losses of the heads, as sums: divided by the number of a whole batch's terms, they can be added over parts of it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bertline.encoding.masking import IGNORED
from bertline.finetuning.batches import pad_values
from bertline.finetuning.prepared import PreparedTask
from bertline.tasks.task import Head


def targets_of(task: PreparedTask, rows: np.ndarray) -> Tensor:
    """Return the targets of examples `rows`; for tokens, int64 [B, S], IGNORED for padding."""
    if task.head == "tokens":
        return torch.from_numpy(pad_values(task.train_targets, task.train, rows, IGNORED)[0])
    targets = np.asarray(task.train_targets[rows])
    return torch.from_numpy(targets if targets.dtype == np.float32 else targets.astype(np.int64, copy=False))


def number_of_terms(task: PreparedTask, rows: np.ndarray) -> int:
    """Return the number of terms in the loss of examples `rows`: of labelled tokens (at least 1), or of examples."""
    if task.head == "tokens":
        return max(1, int((targets_of(task, rows) != IGNORED).sum()))
    return len(rows)


def loss_of(head: Head, outputs: Tensor, targets: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Compute the sum of the losses of a batch for classes, scores, tokens' classes, or first and last tokens.

    Padding is excluded from the answers, so the loss of an input does not depend on the others in its batch. With one
    output for each input of an example, it is the softmax cross-entropy over them: for two, RankNet's loss of a pair
    (Burges et al. 2005).
    """
    outputs = outputs.float()
    if head == "answer":
        if attention_mask is not None:
            outputs = outputs.masked_fill(~attention_mask[:, :, None], -torch.inf)
        first, last = (F.cross_entropy(outputs[:, :, k], targets[:, k], reduction="sum") for k in (0, 1))
        return (first + last) / 2
    if targets.is_floating_point():
        return F.mse_loss(outputs[:, 0], targets, reduction="sum")
    logits = outputs.reshape(targets.numel(), -1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")
