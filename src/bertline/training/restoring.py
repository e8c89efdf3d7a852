"""Restoration of a network, its optimizer and K-FAC from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.training.checkpoints import load_checkpoint
from bertline.training.distributed.fsdp import load_weights
from bertline.training.optimizers.kfac import Kfac
from bertline.training.optimizers.registry import has_state, load_optimizer_tensors


def restore_tensors(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    kind: str,
    may_lack_moments: bool,
    kfac: Kfac | None = None,
) -> dict[str, Tensor]:
    """Load a checkpoint's weights and moments; return all tensors of its second file.

    Args:
        path: the checkpoint.
        kind: the optimizer's name in `OPTIMIZERS`.
        may_lack_moments: start without any if the checkpoint has none, as before the first update.

    Raises BertlineError if they are of another model.
    """
    weights, tensors = load_checkpoint(path)
    expected = model.state_dict()
    if weights.keys() != expected.keys() or any(weights[key].shape != expected[key].shape for key in weights):
        raise BertlineError(f"the checkpoint {path} is of another model; move it away and run again")
    load_weights(model, weights)
    try:
        if may_lack_moments and not has_state(model, tensors):
            optimizer.state.clear()
        else:
            load_optimizer_tensors(optimizer, model, tensors, kind=kind)
        if kfac is not None:
            kfac.load(tensors)
    except BertlineError as error:
        raise BertlineError(f"the checkpoint {path}: {error}; move it away and run again") from None
    return tensors
