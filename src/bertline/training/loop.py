"""One phase of pretraining, from its recipe to model.safetensors; it can be stopped at any time and resumed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from bertline.console import progress_below_log
from bertline.files import read_object
from bertline.results import paths
from bertline.training import memory
from bertline.training.distributed.claims import claim_whole_gpu
from bertline.training.distributed.process_group import describe, join_group
from bertline.training.lock import TrainingLock, acquire
from bertline.training.options import Options
from bertline.training.phase import Phase
from bertline.training.profiling import marked, profiled
from bertline.training.started import check_folder
from bertline.training.stop import StopSignal, end_with_saved

logger = logging.getLogger(__name__)


def train(
    recipe: dict[str, Any],
    card_json: Path,
    output: Path,
    *,
    initial_weights: Path | None,
    options: Options,
    stop_signal: StopSignal,
) -> None:
    """Train one phase and write `output`/model.safetensors, metrics.jsonl and, last, recipe.json.

    Every process of the group must call this once; it does not destroy the group. When any process's `stop_signal` is
    set, all save a checkpoint and exit with status 75.

    Args:
        recipe: as `read_recipe` returns it.
        card_json: the dataset's dataset.json.
        output: the phase's folder; checkpoints are in its subfolder checkpoints/.
        initial_weights: the folder that the recipe's `initial_weights` names.

    Raises BertlineError if data, weights or settings do not match, if `output` is the folder of another recipe, or if
    the loss stays non-finite.
    """
    group = join_group(options.threads)
    if not group.is_rank_zero:
        logging.getLogger().setLevel(logging.ERROR)
    logger.info(describe(group))
    _claims = claim_whole_gpu(group, stop_signal)  # held until the end of this function
    lock = TrainingLock(output / paths.CHECKPOINTS) if group.is_rank_zero else None
    phase = None
    try:
        acquire(lock, group, wait=options.when_locked == "wait", stop_signal=stop_signal)
        if group.broadcast(group.is_rank_zero and _is_finished(output, recipe["fingerprint"])):
            logger.info("finished before: %s", output / paths.WEIGHTS)
            return
        if group.is_rank_zero:
            check_folder(output, recipe["fingerprint"])
        phase = Phase(recipe, card_json, output, group, lock, options, stop_signal, initial_weights=initial_weights)
        phase.begin()
        profiling: AbstractContextManager[Callable[[], None] | None] = nullcontext()
        if options.profile and options.profiler == "nsight":
            profiling = marked(options.profile, done=phase.progress.step)
        elif options.profile and group.is_rank_zero:
            profiling = profiled(options.profile, output / paths.PROFILE, done=phase.progress.step)
        shown, total = group.is_rank_zero, phase.total_steps
        bar_of_steps = progress_below_log(done=phase.progress.step, total=total, unit="step", shown=shown)
        with profiling as after_step, bar_of_steps as bar:
            while not phase.is_trained:
                step = phase.progress.step
                phase.train_one_step()
                bar.update(phase.progress.step - bar.n)
                if after_step is not None and phase.progress.step > step:
                    after_step()
                if phase.stop_wanted:
                    phase.save()
                    phase.wait_for_checkpoint()
                    end_with_saved(phase.progress.step)
        phase.publish()
    except memory.ERRORS as error:
        more = "with several GPUs --shard-optimizer, or --fsdp if the optimizer allows it"
        memory.raise_if_memory_ran_out(error, options.micro_batch_tokens_on(group.device.type), more)
        raise
    finally:
        if phase is not None:
            phase.verification.close()
            phase.writer.close()
        if lock is not None:
            lock.release()


def _is_finished(output: Path, fingerprint: str) -> bool:
    """Return whether a phase's outputs are complete. Its checkpoints may be gone since."""
    if not paths.is_finished(output, paths.PHASE_OUTPUTS):
        return False
    return bool(read_object(output / paths.RECIPE).get("fingerprint") == fingerprint)
