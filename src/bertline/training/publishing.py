"""Outputs of a finished phase, and its export."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import read_object, write_atomically, write_json
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import config_from_dict
from bertline.modeling.weights import load_tensors
from bertline.results import paths
from bertline.training.checkpoints import checkpoint_at, load_checkpoint
from bertline.training.given_files import check_tokenizer
from bertline.training.progress import Best

logger = logging.getLogger(__name__)


def published_weights(checkpoints: Path, fingerprint: str, last: int, best: Best | None) -> tuple[Path, int, int]:
    """Return the file of the weights to publish, their step, and the number of global batches skipped before it.

    Args:
        last: the last step, whose weights are published unless there is a `best`.

    Raises BertlineError if the step has no complete checkpoint.
    """
    step = last if best is None or best.step is None else best.step
    found = checkpoint_at(checkpoints, fingerprint, step)
    if found is None:
        raise BertlineError(
            f"{checkpoints}: the checkpoint of step {step}, which is to be published, was removed or damaged "
            "meanwhile; run again to train from the one before"
        )
    if best is not None and best.step is not None:
        logger.info("step %d of %d is published: its held-out MLM loss is the lowest, %.4f", step, last, best.mlm_loss)
    return found[0] / paths.WEIGHTS, step, found[1]["skipped"]


def publish_phase(output: Path, weights: Path, journal: Path, recipe: Mapping[str, Any]) -> None:
    """Copy model.safetensors and metrics.jsonl and, last, write recipe.json: if it exists, the phase is finished."""
    for name, source in ((paths.WEIGHTS, weights), (paths.JOURNAL, journal)):
        with write_atomically(output / name) as path:
            shutil.copyfile(source, path)
    write_json(output / paths.RECIPE, recipe)


def export_phase(phase: Path, tokenizer: Path, output: Path, *, step: int | None = None) -> None:
    """Write a finished phase as a Hugging Face directory.

    Args:
        phase: the phase's folder.
        tokenizer: the dataset's tokenizer.json.
        output: the directory to write.
        step: of a checkpoint to write instead of the published weights.

    Raises BertlineError if the phase is not finished, and for the tokenizer of another dataset.
    """
    recipe = read_object(phase / paths.RECIPE, "fingerprint", "model")
    check_tokenizer(recipe, tokenizer)
    if step is None:
        weights = load_tensors(phase / paths.WEIGHTS)
    else:
        found = checkpoint_at(phase / paths.CHECKPOINTS, recipe["fingerprint"], step)
        if found is None:
            raise BertlineError(
                f"{phase / paths.CHECKPOINTS} has no complete checkpoint of step {step}; name another step"
            )
        weights, _ = load_checkpoint(found[0])
    export_huggingface(config_from_dict(recipe["model"]), weights, tokenizer, output)
