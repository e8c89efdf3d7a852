"""A phase in training: its state, its checkpoints, its resumption and its end."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.files import write_atomically
from bertline.results import paths
from bertline.training.checkpoints import (
    CheckpointWriter,
    Retention,
    agree_on_checkpoint,
    clean_up,
    gather_with_rank_zero,
)
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.verification import verify_in_background
from bertline.training.distributed.process_group import Group
from bertline.training.distributed.replicas import make_equal
from bertline.training.distributed.stop_request import StopRequest
from bertline.training.evaluation import Interrupted, evaluate
from bertline.training.given_files import check_dataset, check_samples, digest_of_samples
from bertline.training.journal import Journal, log_point
from bertline.training.lock import TrainingLock
from bertline.training.meter import Meter
from bertline.training.optimizers.registry import optimizer_tensors
from bertline.training.options import Options
from bertline.training.progress import Best, Progress
from bertline.training.publishing import publish_phase, published_weights
from bertline.training.reproducibility import report_lost_reproducibility, reproducibility_of
from bertline.training.setup import make_learner, prepare_device, restore_learner
from bertline.training.started import frozen_recipe, write_started
from bertline.training.step import UNFINISHED, StepResult, has_overflowed, train_step
from bertline.training.stop import StopSignal

logger = logging.getLogger(__name__)

# After this many successive steps without a finite gradient, the weights themselves are taken to be wrong.
MAX_SKIPPED_IN_A_ROW = 10
VOTES = ("stop_wanted", "checkpoint_wanted", UNFINISHED)


class Phase:
    """The state of a phase.

    Attributes:
        learner: model, data and optimizer; a checkpoint's two safetensors files contain its tensors.
        verification: of the dataset's files, once in every process of a phase.
        progress: counts, which a checkpoint's state.json contains, as it does `best` and the loss scale.
        best: the best step so far.
        journal: the file for the averages of `meter`; None if this is not rank 0.
        saved_step: step of the last checkpoint; None if there is none, or if it must be written again.
        saved_at: time of the last checkpoint, or of the beginning, by the clock of `time.monotonic`.
    """

    def __init__(
        self,
        recipe: dict[str, Any],
        card_json: Path,
        output: Path,
        group: Group,
        lock: TrainingLock | None,
        options: Options,
        stop_signal: StopSignal,
        *,
        initial_weights: Path | None = None,
    ) -> None:
        """Load the newest checkpoint, or the initial weights. Rank 0 holds the lock."""
        self.recipe, self.output, self.group, self.lock, self.options = recipe, output, group, lock, options
        self.stop_signal, self.card_json = stop_signal, card_json
        self.settings, self.checkpoints = recipe["settings"], output / paths.CHECKPOINTS
        self.total_steps: int = self.settings["steps"]
        self.best = Best(every=self.settings["publish_best_every"], keep=options.keep_best)
        self.rolled_back_to: int | None = None
        self.ranks_differed = False
        self.stop_wanted, self.stop_request = False, StopRequest(group, in_lockstep=options.fsdp)
        prepare_device(self.settings, group, options)
        data = self._open_data()
        if group.is_rank_zero:
            clean_up(self.checkpoints, output)
        found = self._find_checkpoint()
        self.samples = digest_of_samples(data.train.card, data.train.sequence_length)
        if found:
            check_samples(*found, card_json, self.samples)
        self.learner = make_learner(
            recipe, data, group, options, initial_weights=initial_weights, resumed=found, votes=VOTES
        )
        self.verification = verify_in_background(
            card_json, data.train.card, data.train.sequence_length, rank=group.rank, world_size=group.world_size
        )
        self.meter = Meter(self.learner.model, group, has_pairs=self.learner.data.has_pairs)
        if found is None:
            first = self.learner.accumulator.position_at(0)
            self.progress = Progress(started=time.time_ns() // 1_000_000, first_position=first)
        else:
            self._restore_state(found[1])
            report_lost_reproducibility(found[1]["reproducibility"], reproducibility_of(options, group, self.learner))
        self.saved_step: int | None = self.progress.step if found else None
        self.writer = CheckpointWriter(
            self.checkpoints,
            keep=Retention(options.keep_checkpoints, options.keep_every, options.keep_steps),
            before=self._before_checkpoint,
        )

    def begin(self) -> None:
        """Open the outputs and go to the next global batch; record step zero, unless a checkpoint was loaded."""
        is_new = self.saved_step is None
        self._open_outputs(last_step=-1 if is_new else self.progress.reported_step)
        self.saved_at = time.monotonic()
        self.learner.accumulator.seek(self.progress.next_batch)
        if is_new:
            self._record_step_zero()

    def _open_data(self) -> TrainingData:
        card_json, length = self.card_json, self.settings["sequence_length"]
        data = open_training_data(card_json, length, self.group.device, self.settings["corpus_weights"])
        check_dataset(self.recipe, card_json, data.train.card)
        if (self.best.every or self.best.keep) and not len(data.held_out):
            raise BertlineError(
                f"{card_json}: there are no held-out samples of length {length} to find the best step by; leave out "
                "publish_best_every and --keep-best, or hold out more text"
            )
        return data

    def _open_outputs(self, *, last_step: int) -> None:
        """Write what is known from the start, and open the journal after `last_step`, -1 for a new one."""
        is_rank_zero = self.group.is_rank_zero
        self.frozen = self._frozen_recipe()
        self.jobs = write_started(self.checkpoints, self.frozen) if is_rank_zero else []
        if is_rank_zero:  # for reports, when the dataset is deleted
            with write_atomically(self.output / paths.CARD) as path:
                shutil.copy2(self.card_json, path)
        journal, points = self.output / paths.STARTED_JOURNAL, self.progress.points
        self.journal = Journal(journal, last_step=last_step, points=points) if is_rank_zero else None

    def _record_step_zero(self) -> None:
        """Evaluate the initial weights. This is not interrupted: there is nothing to save yet."""
        self._make_ranks_equal()
        self._record(0, {**self._evaluate(), "train/micro_batch_tokens": float(self.learner.batching.tokens)})
        if self.options.keep_every or 0 in self.options.keep_steps:
            self.save()

    def _find_checkpoint(self, *, after_update: bool = False) -> tuple[Path, dict[str, Any]] | None:
        required = {"with_best": self.best.every is not None, "after_update": after_update}
        return agree_on_checkpoint(self.group, self.checkpoints, self.recipe["fingerprint"], **required)

    def _restore_state(self, state: dict[str, Any]) -> None:
        self.progress = Progress.from_state(state)
        self.best.restore(state.get("best"))
        self.meter.restore(state.get("meter"))

    @property
    def is_trained(self) -> bool:
        """Whether all steps are done and reported."""
        return self.progress.step == self.total_steps and not self.progress.unreported

    def train_one_step(self) -> None:
        """Train one step; then write a journal point, evaluate and save a checkpoint if they are due.

        If a rank was asked to stop between two micro-batches, nothing changes but `stop_wanted`; if during the
        evaluation, the next call, also of another process that resumes, repeats that and is not interrupted again.

        Raises BertlineError if one of the dataset's files was found to be damaged, and what the last checkpoint raised.
        """
        self.verification.check()
        self.writer.check()
        if self.progress.unreported:
            self._report(checkpoint_wanted=True)
            return
        result = train_step(
            self.learner, self.progress.step + 1, self.progress.next_batch, self._votes, self._stop_is_seen
        )
        self.stop_wanted = result.statistics["stop_wanted"] > 0
        if result.interrupted:
            return
        self.progress.count(result)
        if not result.updated:
            if not result.backed_off:
                self._report_skipped(result)
            return
        self.meter.add(result)
        self._report(checkpoint_wanted=result.statistics["checkpoint_wanted"] > 0)

    def _votes(self) -> dict[str, float]:
        return {"stop_wanted": float(self.stop_signal.received), "checkpoint_wanted": float(self._time_has_passed())}

    def _stop_is_seen(self) -> bool:
        return self.stop_request.is_seen(here=self.stop_signal.received)

    def _report(self, *, checkpoint_wanted: bool) -> None:
        metrics: dict[str, float] = {}
        progress, options = self.progress, self.options
        last = progress.step == self.total_steps
        by_option = options.evaluate_every and progress.step % options.evaluate_every == 0
        held_out: dict[str, float] = {}
        if last or by_option or self.best.is_due(progress.step):
            try:
                held_out = self._evaluate() if progress.unreported else self._evaluate(self._stop_is_seen)
            except Interrupted:
                progress.unreported = self.stop_wanted = True
                return
        if progress.unreported:
            progress.unreported = False
            self.saved_step = None  # the checkpoint of this step is written again, with the report
        if last or progress.step == 1 or progress.step % options.log_every == 0:
            position = self.learner.accumulator.position_at(progress.next_batch)
            metrics |= self.meter.read()
            metrics["train/samples"] = float(position - progress.first_position)
            metrics["train/epoch"] = position / self.learner.data.samples_per_epoch
            metrics["train/tokens"] = float(progress.tokens)
            metrics["train/skipped_steps"] = float(progress.skipped - progress.backed_off)
            if self.settings["precision"] == "fp16":
                metrics["train/loss_scale"] = self.learner.scale.value
        metrics |= held_out
        improved = self.best.update(progress.step, metrics, last=last)
        if metrics:
            self._record(progress.step, metrics)
        if last or checkpoint_wanted or improved or options.saves(progress.step):
            self.save()

    def _record(self, step: int, metrics: dict[str, float]) -> None:
        """Write a point of the journal and a line of the log."""
        if self.journal is not None:
            self.progress.points = self.journal.append(step, metrics)
            each, position = self.meter.seconds_a_sample(), self.learner.accumulator.position_at
            now = self.progress.next_batch
            left = None if each is None else each * (position(now + self.total_steps - step) - position(now))
            log_point(step, self.total_steps, metrics, seconds_left=left)

    def _evaluate(self, stop_is_seen: Callable[[], bool] = lambda: False) -> dict[str, float]:
        learner, precision = self.learner, self.settings["precision"]
        return evaluate(
            learner.model,
            learner.data,
            self.group,
            batching=learner.batching,
            precision=precision,
            stop_is_seen=stop_is_seen,
        )

    def _report_skipped(self, result: StepResult) -> None:
        """Warn of a global batch with a non-finite gradient. After too many in a row, roll back."""
        progress = self.progress
        logger.warning(
            "step %d: the loss or its gradient is not finite; global batch %d is skipped",
            progress.step + 1, progress.skipped_in_a_row[-1],
        )  # fmt: skip
        if len(progress.skipped_in_a_row) < MAX_SKIPPED_IN_A_ROW:
            return
        samples = ", ".join(map(str, sorted(result.batch.samples.tolist())))
        logger.warning("samples of the last global batch: %s", samples)
        self._roll_back(
            f"step {progress.step + 1}: the loss or its gradient is not finite, {MAX_SKIPPED_IN_A_ROW} times in a row"
        )

    def _roll_back(self, explanation: str) -> None:
        """Return to the last checkpoint and continue after the offending global batches, once per checkpoint.

        Not to one that was saved after a skipped global batch, whose weights may be corrupt.

        Raises BertlineError if there is no checkpoint, or if this one was returned to before.
        """
        self.writer.wait()
        found = self._find_checkpoint(after_update=True)
        advice = "lower learning_rate or lengthen warmup"
        if found is None:
            raise BertlineError(f"{explanation}, and there is no checkpoint to return to; {advice}")
        if found[1]["step"] == self.rolled_back_to:
            raise BertlineError(f"{explanation}, also after returning to step {self.rolled_back_to}; {advice}")
        next_batch = self.progress.next_batch
        logger.warning(
            "%s; returning to step %d and continuing with the next global batch", explanation, found[1]["step"]
        )
        restore_learner(self.learner, *found)
        self._restore_state(found[1])
        self.rolled_back_to = self.saved_step = self.progress.step
        self.progress.skipped = next_batch - self.progress.step
        self.progress.skipped_in_a_row = []
        if self.journal is not None:
            self.journal.cut_back(self.progress.reported_step, points=self.progress.points)
        self.learner.accumulator.seek(next_batch)

    def _time_has_passed(self) -> bool:
        """Return whether rank 0's clock demands a checkpoint: the step's reduction passes it on to the other ranks."""
        minutes = (time.monotonic() - self.saved_at) / 60
        return self.group.is_rank_zero and minutes >= self.options.checkpoint_every_minutes

    def save(self) -> None:
        """Start writing a checkpoint of the current state. Training may continue meanwhile.

        Does nothing if this step already has a checkpoint: batches skipped since are skipped again after a resume.
        Rolls back instead if a weight is not finite: an update can overflow although its gradient is finite.
        """
        if self.saved_step == self.progress.step:
            return
        if self.group.all_reduce_max(int(has_overflowed(self.learner.model))):
            self._roll_back(f"step {self.progress.step}: a weight is not finite")
            return
        self._make_ranks_equal()
        learner = self.learner
        weights = learner.model.state_dict()
        moments = learner.sharding.all_moments(learner.optimizer) | learner.kfac.tensors()
        state = {
            **asdict(self.progress),
            "fingerprint": self.recipe["fingerprint"],
            "samples": self.samples,
            "loss_scale": learner.scale.state(),
            "best": self.best.state(),
            "meter": self.meter.state(),
            "reproducibility": reproducibility_of(self.options, self.group, learner),
        }
        if self.group.is_rank_zero:
            self.writer.start(weights, moments, state)
        else:
            gather_with_rank_zero(weights, moments)
        self.saved_step, self.saved_at = self.progress.step, time.monotonic()

    def _make_ranks_equal(self) -> None:
        """Give all ranks rank 0's K-FAC factors and, unless sharded, weights and moments: what every rank computes."""
        learner = self.learner
        if self.group.world_size == 1 or self.options.fsdp:
            return
        tensors = learner.kfac.factors()
        if not learner.sharding.enabled:
            tensors |= learner.model.state_dict() | optimizer_tensors(learner.optimizer, learner.model)
        different = make_equal(tensors, self.group)
        if different and not self.ranks_differed:
            self.ranks_differed = True
            logger.warning(
                "step %d: what rank %s computed differs from rank 0's, because different processors round "
                "differently; here and at every checkpoint all ranks get rank 0's",
                self.progress.step, ", ".join(map(str, different)),
            )  # fmt: skip

    def _before_checkpoint(self) -> None:
        if self.lock is not None and self.journal is not None:
            self.lock.check()
            self.journal.make_durable()

    def wait_for_checkpoint(self) -> None:
        """Wait until rank 0 has written its last checkpoint."""
        self.writer.wait()
        self.group.barrier()

    def publish(self) -> None:
        """Write the phase's outputs, recipe.json last: if it exists, the phase is finished.

        Raises BertlineError if one of the dataset's files was found to be damaged.
        """
        self.learner.accumulator.close()
        if problem := self.group.last_of(self.verification.finish()):
            raise BertlineError(problem)
        if unverified := self.group.all_reduce_max(self.verification.unverified):
            logger.warning(
                "the phase ended before all files of samples were verified: a rank has %d left; `validate_dataset.py` "
                "verifies them all", unverified,
            )  # fmt: skip
        self.writer.wait()
        if self.journal is not None:
            self.journal.close()
            best = self.best if self.best.every is not None else None
            weights, step, skipped = published_weights(
                self.checkpoints, self.recipe["fingerprint"], self.progress.step, best
            )
            frozen = self.frozen | {
                "finished": time.time_ns() // 1_000_000,
                "jobs": self.jobs,
                "skipped_steps": self.progress.skipped - self.progress.backed_off,
                "published_step": step,
                "next_position": self.learner.accumulator.position_at(step + skipped),
            }
            publish_phase(self.output, weights, self.journal.path, frozen)
            logger.info("finished: %s", self.output / paths.WEIGHTS)
        self.group.barrier()

    def _frozen_recipe(self) -> dict[str, Any]:
        """Return the recipe with the run's circumstances that are known from the start."""
        learner = self.learner
        frozen = frozen_recipe(
            {**self.recipe, "model": learner.model.config.to_dict()},
            device=self.group.device,
            world_size=self.group.world_size,
            threads=torch.get_num_threads(),
        )
        return frozen | {
            "started": self.progress.started,
            "dataset_digest": learner.data.digest,
            "tokenizer_sha256": learner.data.tokenizer_sha256,
            "compiled": self.options.compiled,
            "micro_batch_tokens": learner.batching.tokens,
        }
