"""The state of a phase in training: what a step changes, what a checkpoint holds, what a resume restores."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.modeling.float8 import compute_in_float8
from bertline.training.best import Best
from bertline.training.checkpoints import (
    CheckpointWriter,
    checkpoint_at,
    clean_up,
    find_checkpoint,
    load_checkpoint,
)
from bertline.training.data.batch_size_warmup import batch_ramp_of
from bertline.training.data.batches import GlobalBatch
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.distributed.fsdp import check_sharded_weights, load_weights, shard_weights, whole
from bertline.training.distributed.optimizer_sharding import Shards
from bertline.training.distributed.process_group import Group
from bertline.training.evaluation import evaluate
from bertline.training.flops import peak_of_all
from bertline.training.gradient_accumulator import Accumulation
from bertline.training.initial import (
    handed_over_position,
    load_handed_over_moments,
    load_initial_weights,
    make_model,
)
from bertline.training.journal import Journal, log_point
from bertline.training.lock import PhaseLock
from bertline.training.meter import Meter, averages_of
from bertline.training.micro_batch import choose_layout
from bertline.training.objective import check_cuda_graphs, prepare_precision
from bertline.training.optimizers.registry import load_optimizer_tensors, make_optimizer, optimizer_entry
from bertline.training.optimizers.schedules import learning_rate_of_phase
from bertline.training.options import Options
from bertline.training.publishing import publish_phase
from bertline.training.recipe import frozen_recipe
from bertline.training.reproducibility import compute_deterministically, exactness_of, report_lost_exactness
from bertline.training.scaling import LossScale
from bertline.training.started import write_begun
from bertline.training.stop import StopSignal

logger = logging.getLogger(__name__)

# After so many steps in a row without a finite gradient the weights themselves are at fault.
MOST_SKIPPED_IN_A_ROW = 10


class Phase:
    """The state of a phase in training."""

    def __init__(
        self,
        recipe: dict[str, Any],
        card_json: Path,
        output: Path,
        group: Group,
        lock: PhaseLock | None,
        options: Options,
    ) -> None:
        self.recipe, self.output, self.group, self.lock, self.options = recipe, output, group, lock, options
        self.settings = recipe["settings"]
        self.total_steps: int = self.settings["steps"]
        self.batch_ramp = batch_ramp_of(self.settings)
        self.checkpoints = output / "checkpoints"
        self.writer = CheckpointWriter(
            self.checkpoints,
            keep=options.keep_checkpoints,
            keep_every=options.keep_every,
            before=self._before_checkpoint,
        )
        length = self.settings["sequence_length"]
        prepare_precision(self.settings["precision"], group.device)
        if options.cuda_graphs:
            check_cuda_graphs(group.device, compiled=options.compiled)
        if options.sharded_weights:
            name = self.settings["optimizer"]
            check_sharded_weights(
                options, optimizer=name, needs_whole_matrices=optimizer_entry(name).needs_whole_matrices
            )
        if options.deterministic:
            compute_deterministically()
        self.data: TrainingData = open_training_data(card_json, length, group.device, self.settings["corpus_weights"])
        self.model = make_model(recipe, self.data)
        if self.settings["precision"] == "fp8":
            compute_in_float8(self.model.encoder.layers)
        # A network without a pair head learns from masked words alone, whatever the dataset holds.
        self.data = replace(self.data, has_pairs=self.data.has_pairs and self.model.scores_pairs)
        self.best = Best(every=self.settings["publish_best_every"], keep=options.keep_best)
        if (self.best.every or self.best.keep) and not len(self.data.held_out):
            raise BertlineError(
                f"{card_json}: there are no held-out samples of length {length} to find the best step by; leave out "
                "publish_best_every and --keep-best, or hold out more text"
            )
        self.step = 0  # updates of the weights
        self.skipped = 0  # global batches that were passed over
        self.backed_off = 0  # of these, because fp16's loss scale was too high: nothing is wrong then
        self.skipped_in_a_row: list[int] = []
        self.rolled_back_to: int | None = None
        self.tokens = 0
        self.scale = LossScale(self.settings["precision"])
        self.started = time.time_ns() // 1_000_000
        self.stop_wanted = False
        self.jobs: list[str] = []

    def start(self, initial_weights: Path | None) -> None:
        """Resume the newest checkpoint, or begin with the initial weights."""
        if self.group.leads:
            clean_up(self.checkpoints, self.output)
        found = self._find_checkpoint()
        if found is None:
            load_initial_weights(self.model, self.recipe, initial_weights, self.data)
        else:
            torch.set_num_threads(found[1]["exactness"]["threads"])
        if self.options.sharded_weights:
            shard_weights(self.model, self.group)
        self.model.to(self.group.device).train()
        self.model.encoder.recomputes = self.options.recompute
        self.first_position = (
            handed_over_position(self.recipe, initial_weights) if found is None else found[1]["first_position"]
        )
        before = found[1]["exactness"] if found else None
        self.layout = choose_layout(self.model, self.data, self.recipe, self.group, self.options, before=before)
        self.shards = Shards(self.model, self.group, wanted=self.options.sharded_optimizer)
        self.optimizer = make_optimizer(
            self.model, self.settings, compiled=self.options.compiled_optimizer, owns=self.shards.owns
        )
        self.accumulation = Accumulation(
            self.model,
            self.data,
            self.recipe,
            self.group,
            self.layout,
            first_position=self.first_position,
            compiled=self.options.compiled,
            cuda_graphs=self.options.cuda_graphs,
            statistics=("stop_wanted", "checkpoint_wanted"),
        )
        if found is None:
            load_handed_over_moments(self.optimizer, self.model, self.recipe, initial_weights)
            self.accumulation.divide(self.options.division)
        else:
            self._restore(*found)
            self._compare_exactness(found[1]["exactness"])

        self.journal = None
        if self.group.leads:
            self.jobs = write_begun(self.checkpoints, self._frozen_recipe())
            self.journal = Journal(self.checkpoints / "journal.jsonl", last_step=self.step if found else -1)
        peak = peak_of_all(self.group.device)
        self.meter = Meter(self.model, self.group, peak=peak, has_pairs=self.data.has_pairs)
        self.saved = ((self.step, self.skipped) if found else None, time.monotonic())
        self.accumulation.seek(self.step + self.skipped)
        if found is None:
            self._write_point({**self._evaluate(), "train/micro_batch_tokens": float(self.layout.tokens)})

    def _find_checkpoint(self) -> tuple[Path, dict[str, Any]] | None:
        with_best = self.best.every is not None
        fingerprint = self.recipe["fingerprint"]
        found = find_checkpoint(self.checkpoints, fingerprint, with_best=with_best) if self.group.leads else None
        return self.group.from_leader(found)

    def _restore(self, path: Path, state: dict[str, Any]) -> None:
        weights, moments = load_checkpoint(path)
        expected = self.model.state_dict()
        if weights.keys() != expected.keys() or any(weights[key].shape != expected[key].shape for key in weights):
            raise BertlineError(f"the checkpoint {path} is of another model; move it away and run again")
        load_weights(self.model, weights)
        load_optimizer_tensors(self.optimizer, self.model, moments, kind=self.settings["optimizer"])
        self.step, self.skipped, self.tokens = state["step"], state["skipped"], state["tokens"]
        self.backed_off, self.skipped_in_a_row = state["backed_off"], state["skipped_in_a_row"]
        self.scale.restore(state["loss_scale"])
        self.best.restore(state.get("best"))
        self.started = state["started"]
        logger.info("resuming %s at step %d", path, self.step)

    def _compare_exactness(self, before: dict[str, Any]) -> None:
        """Compute as the checkpoint's trainer did; where that cannot be, say that exactness is lost."""
        divided_as_before = self.options.division in ("equal", "measured")
        if divided_as_before and len(before["shares"]) == self.group.world_size:
            self.accumulation.shares = before["shares"]
        else:
            self.accumulation.divide(self.options.division)
        report_lost_exactness(before, self._exactness())

    def _exactness(self) -> dict[str, Any]:
        return exactness_of(
            self.options,
            self.group,
            optimizer=self.settings["optimizer"],
            rows=self.layout.rows,
            shares=self.accumulation.shares,
        )

    def train_one_step(self, stop_signal: StopSignal) -> None:
        """One update of the weights, and what is due after it: a journal point, an evaluation, a checkpoint."""
        begun, gradients = time.monotonic(), self.accumulation.gradients
        batch = self.accumulation.compute(self.step + self.skipped, self.scale.value)
        gradients.add("stop_wanted", float(stop_signal.received))
        gradients.add("checkpoint_wanted", float(self._checkpoint_is_due()))
        statistics = gradients.reduce()
        self.stop_wanted = statistics["stop_wanted"] > 0
        norm = gradients.clip(self.settings["max_gradient_norm"], self.scale.value)
        finite = math.isfinite(norm) and math.isfinite(statistics["mlm_loss"] + statistics["pair_loss"])
        backed_off = self.scale.update(finite)
        if not finite:
            self._skip(batch, ordinary=backed_off)
            return
        learning_rate = learning_rate_of_phase(self.settings, self.step + 1)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = learning_rate
        self.optimizer.step()
        self.shards.spread_weights()
        self.step += 1
        self.skipped_in_a_row = []
        self.tokens += int(batch.lengths.sum())
        self.meter.add(
            averages_of(statistics, samples=len(batch.samples)),
            batch,
            norm=norm,
            learning_rate=learning_rate,
            seconds=time.monotonic() - begun,
            waited=self.accumulation.waited,
            computed=self.accumulation.tokens,
        )
        self._report_step(checkpoint_wanted=statistics["checkpoint_wanted"] > 0)

    def _report_step(self, *, checkpoint_wanted: bool) -> None:
        metrics: dict[str, float] = {}
        last = self.step == self.total_steps
        if last or self.step == 1 or self.step % self.options.log_every == 0:
            metrics |= self.meter.read()
            metrics["train/samples"] = float(self.batch_ramp.position_at(self.step + self.skipped))
            metrics["train/tokens"] = float(self.tokens)
            metrics["train/skipped_steps"] = float(self.skipped - self.backed_off)
            if self.settings["precision"] == "fp16":
                metrics["train/loss_scale"] = self.scale.value
        by_option = self.options.evaluate_every and self.step % self.options.evaluate_every == 0
        if last or by_option or self.best.is_due(self.step):
            metrics |= self._evaluate()
        improved = self.best.update(self.step, metrics, last=last)
        if metrics:
            self._write_point(metrics)
        if last or checkpoint_wanted or improved:
            self.save()

    def _skip(self, batch: GlobalBatch, *, ordinary: bool) -> None:
        """Pass over a global batch whose gradient is not finite: the data goes on, the weights stay."""
        self.skipped += 1
        if ordinary:
            self.backed_off += 1
            return
        self.skipped_in_a_row.append(self.step + self.skipped - 1)
        logger.warning(
            "step %d: the loss or its gradient is not finite; global batch %d is skipped",
            self.step + 1, self.skipped_in_a_row[-1],
        )  # fmt: skip
        if len(self.skipped_in_a_row) < MOST_SKIPPED_IN_A_ROW:
            return
        logger.warning("samples of the last global batch: %s", ", ".join(map(str, sorted(batch.samples.tolist()))))
        self._roll_back()

    def _roll_back(self) -> None:
        """Return to the last checkpoint, and go on behind the global batches that led astray; but only once."""
        self.writer.wait()
        found = self._find_checkpoint()
        explanation = (
            f"step {self.step + 1}: the loss or its gradient is not finite, {MOST_SKIPPED_IN_A_ROW} times in a row"
        )
        advice = "lower learning_rate or lengthen warmup"
        if found is None:
            raise BertlineError(f"{explanation}, and there is no checkpoint to return to; {advice}")
        if found[1]["step"] == self.rolled_back_to:
            raise BertlineError(f"{explanation}, also after returning to step {self.rolled_back_to}; {advice}")
        next_batch = self.step + self.skipped
        logger.warning("%s; returning to step %d and going on behind them", explanation, found[1]["step"])
        self._restore(*found)
        self.rolled_back_to = self.step
        self.skipped = next_batch - self.step
        self.skipped_in_a_row = []
        if self.journal is not None:
            self.journal.close()
            self.journal = Journal(self.journal.path, last_step=self.step)
        self.accumulation.seek(self.step + self.skipped)

    def _evaluate(self) -> dict[str, float]:
        return evaluate(self.model, self.data, self.group, layout=self.layout, precision=self.settings["precision"])

    def _write_point(self, metrics: dict[str, float]) -> None:
        if self.journal is None:
            return
        self.journal.append(self.step, metrics)
        seconds_left = self.meter.seconds_a_step() * (self.total_steps - self.step)
        log_point(self.step, self.total_steps, metrics, seconds_left=seconds_left)

    def _checkpoint_is_due(self) -> bool:
        """Rank 0's word, which the others learn in the step's reduction."""
        if not self.group.leads:
            return False
        if self.skipped_in_a_row:
            return False  # not from a state that may be lost
        by_step = self.options.checkpoint_every and (self.step + 1) % self.options.checkpoint_every == 0
        minutes = (time.monotonic() - self.saved[1]) / 60
        return bool(by_step) or minutes >= self.options.checkpoint_every_minutes

    def save(self) -> None:
        """Start to write a checkpoint of this moment, unless there is one. Training may go on meanwhile."""
        now = (self.step, self.skipped)
        if self.saved[0] == now:
            return
        weights, moments = self.model.state_dict(), self.shards.all_moments(self.optimizer)
        if not self.group.leads:
            for _ in chain(whole(weights), whole(moments)):
                pass  # sharded ones become whole only with all ranks
        else:
            self.writer.start(
                weights,
                moments,
                {
                    "fingerprint": self.recipe["fingerprint"],
                    "step": self.step,
                    "skipped": self.skipped,
                    "backed_off": self.backed_off,
                    "skipped_in_a_row": self.skipped_in_a_row,
                    "tokens": self.tokens,
                    "first_position": self.first_position,
                    "loss_scale": self.scale.state(),
                    "best": self.best.state(),
                    "started": self.started,
                    "exactness": self._exactness(),
                },
            )
        self.saved = (now, time.monotonic())

    def _before_checkpoint(self) -> None:
        if self.journal is not None and self.lock is not None:
            self.lock.check()
            self.journal.make_durable()

    def wait_for_checkpoint(self) -> None:
        """Until rank 0 has written its last checkpoint."""
        self.writer.wait()
        self.group.wait()

    def publish(self) -> None:
        """Write the phase's outputs, recipe.json last: where it lies, the phase is finished."""
        self.accumulation.close()
        self.writer.wait()
        if self.journal is not None:
            self.journal.close()
            weights, step, skipped = self._published()
            frozen = self._frozen_recipe() | {
                "finished": time.time_ns() // 1_000_000,
                "jobs": self.jobs,
                "skipped_steps": self.skipped - self.backed_off,
                "published_step": step,
                "next_position": self.first_position + self.batch_ramp.position_at(step + skipped),
            }
            publish_phase(self.output, weights, self.journal.path, frozen)
            logger.info("finished: %s", self.output / "model.safetensors")
        self.group.wait()

    def _frozen_recipe(self) -> dict[str, Any]:
        """The recipe with the circumstances that are known from the start."""
        frozen = frozen_recipe(
            {**self.recipe, "model": self.model.config.to_dict()},
            device=self.group.device,
            world_size=self.group.world_size,
            threads=torch.get_num_threads(),
        )
        return frozen | {
            "started": self.started,
            "dataset_digest": self.data.digest,
            "tokenizer_sha256": self.data.tokenizer_sha256,
            "compiled": self.options.compiled,
            "micro_batch_tokens": self.layout.tokens,
        }

    def _published(self) -> tuple[dict[str, torch.Tensor], int, int]:
        """The weights to publish, their step, and the global batches skipped before it."""
        best = self.best.step if self.best.every is not None else None
        if best in (None, self.step) and not self.options.sharded_weights:
            return self.model.state_dict(), self.step, self.skipped
        step = self.step if best is None else best
        found = checkpoint_at(self.checkpoints, self.recipe["fingerprint"], step)
        if found is None:
            raise BertlineError(
                f"{self.checkpoints}: the checkpoint of step {step}, which is to be published, was removed or damaged "
                "meanwhile; run again to train from the one before"
            )
        if best is not None:
            logger.info(
                "step %d of %d is published: its held-out MLM loss is the lowest, %.4f",
                step, self.step, self.best.mlm_loss,
            )  # fmt: skip
        return load_checkpoint(found[0])[0], step, found[1]["skipped"]
