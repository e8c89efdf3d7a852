"""One phase of pretraining, from its recipe to model.safetensors. Stopped at any moment, it goes on where it was."""

from __future__ import annotations

import logging
import math
import signal
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from bertline.console import BertlineError
from bertline.training.batches import GlobalBatch, global_batch, micro_batches
from bertline.training.checkpoints import clean_up, find_checkpoint, load_checkpoint, save_checkpoint
from bertline.training.data import TrainingData, open_training_data
from bertline.training.evaluation import evaluate
from bertline.training.gradients import FlatGradients
from bertline.training.group import Group, join_group
from bertline.training.hashing import mix_integers
from bertline.training.initial import load_handed_over_moments, load_initial_weights, make_model
from bertline.training.journal import Journal
from bertline.training.lock import PhaseLock
from bertline.training.meter import Meter
from bertline.training.objective import losses_of
from bertline.training.optimizers import load_optimizer_tensors, make_optimizer, optimizer_tensors
from bertline.training.publishing import publish_phase
from bertline.training.recipe import frozen_recipe, masking_of
from bertline.training.schedules import learning_rate_at

logger = logging.getLogger(__name__)

STOPPED = 75  # the exit status of a trainer that was told to stop: EX_TEMPFAIL, run me again
LOCK_RETRY_SECONDS = 2.0
STATISTICS = ("mlm_loss", "pair_loss", "stop_wanted", "checkpoint_wanted")


@dataclass(frozen=True)
class Options:
    """What alters how a phase is run, and not its result."""

    threads: int = 1  # of this node
    micro_batch_tokens: int = 16384  # a micro-batch has as many full-length rows as fit, at least one
    log_every: int = 10  # steps
    evaluate_every: int = 200  # steps; 0 for only at the start and the end
    checkpoint_every: int = 0  # steps; 0 for only by the clock
    checkpoint_every_minutes: float = 15.0
    keep_checkpoints: int = 2
    wait_for_lock: bool = True


def train(
    recipe: dict[str, Any], card_json: Path, output: Path, *, initial_weights: Path | None, options: Options
) -> None:
    """Train one phase and write `output`/model.safetensors, metrics.jsonl and, last, recipe.json.

    Every process of the group calls this. Told to stop by SIGTERM, all of them leave a checkpoint and exit with 75.

    Parameters
    ----------
    recipe: what `parse_recipe` gave.
    card_json: the dataset's dataset.json.
    output: the phase's folder; checkpoints lie in its subfolder checkpoints/.
    initial_weights: the folder that the recipe's `initial_weights` names.

    Raises BertlineError when data, weights or settings do not fit, or the loss stops being finite.
    """
    stop_signal = StopSignal()
    group = join_group(options.threads)
    if not group.leads:
        logging.getLogger().setLevel(logging.ERROR)
    lock = PhaseLock(output / "checkpoints") if group.leads else None
    try:
        _acquire(lock, group, wait=options.wait_for_lock)
        phase = Phase(recipe, card_json, output, group, lock, options)
        phase.start(initial_weights)
        while phase.step < phase.total_steps:
            phase.train_one_step(stop_signal)
            if phase.stop_wanted:
                phase.save()
                logger.info("told to stop: step %d is saved, run the same command to go on", phase.step)
                raise SystemExit(STOPPED)
        phase.publish()
    finally:
        if lock is not None:
            lock.release()
    distributed.destroy_process_group()


class StopSignal:
    """Becomes true once the process was sent SIGTERM."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self._receive)

    def _receive(self, number: int, frame: object) -> None:
        self.received = True


def _acquire(lock: PhaseLock | None, group: Group, *, wait: bool) -> None:
    """Wait until rank 0 has the phase's lock. All ranks come back often, so that no collective times out."""
    told = False
    while True:
        owner = group.from_leader(lock.try_acquire() if lock else None)
        if owner is None:
            return
        if not wait:
            raise BertlineError(f"{owner} is training this phase; let it finish, or stop it")
        if not told:
            logger.info("%s is training this phase; waiting until it is done", owner)
            told = True
        time.sleep(LOCK_RETRY_SECONDS)


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
        self.checkpoints = output / "checkpoints"
        self.micro_batch_size = max(1, options.micro_batch_tokens // self.settings["sequence_length"])
        self.data: TrainingData = open_training_data(card_json, self.settings["sequence_length"], group.device)
        self.model = make_model(recipe, self.data)
        # A network without a pair head learns from masked words alone, whatever the dataset holds.
        self.data = replace(self.data, has_pairs=self.data.has_pairs and self.model.scores_pairs)
        self.step = 0
        self.tokens = 0
        self.started = time.time_ns() // 1_000_000
        self.stop_wanted = False

    def start(self, initial_weights: Path | None) -> None:
        """Resume the newest checkpoint, or begin with the initial weights."""
        if self.group.leads:
            clean_up(self.checkpoints)
        found = self.group.from_leader(
            find_checkpoint(self.checkpoints, self.recipe["fingerprint"]) if self.group.leads else None
        )
        if found is None:
            load_initial_weights(self.model, self.recipe, initial_weights, self.data)
        self.model.to(self.group.device).train()
        self.optimizer = make_optimizer(self.model, self.settings)
        self.gradients = FlatGradients(self.model, STATISTICS)
        if found is None:
            load_handed_over_moments(self.optimizer, self.model, self.recipe, initial_weights)
        else:
            self._resume(*found)

        self.journal = None
        if self.group.leads:
            self.journal = Journal(self.checkpoints / "journal.jsonl", last_step=self.step if found else -1)
        self.meter = Meter(self.group.device, has_pairs=self.data.has_pairs)
        self.last_checkpoint = (self.step if found else -1, time.monotonic())
        if found is None:
            self._write_point(self._evaluate())

    def _resume(self, path: Path, state: dict[str, Any]) -> None:
        weights, moments = load_checkpoint(path)
        expected = self.model.state_dict()
        if weights.keys() != expected.keys() or any(weights[key].shape != expected[key].shape for key in weights):
            raise BertlineError(f"the checkpoint {path} is of another model; move it away and run again")
        self.model.load_state_dict(weights)
        load_optimizer_tensors(self.optimizer, self.model, moments, reset_step=False)
        self.step, self.tokens, self.started = state["step"], state["tokens"], state["started"]
        torch.set_num_threads(state["exactness"]["threads"])
        logger.info("resuming %s at step %d", path, self.step)
        for name, value in self._exactness().items():
            before = state["exactness"].get(name)
            if before != value:
                logger.warning(
                    "%s was %s and is %s: same samples in the same batches, but no longer the same bits",
                    name, before, value,
                )  # fmt: skip

    def _exactness(self) -> dict[str, Any]:
        """What the last bits of the weights depend on, apart from the recipe."""
        return {
            "world_size": self.group.world_size,
            "threads": torch.get_num_threads(),
            "micro_batch_size": self.micro_batch_size,
            "device": torch.cuda.get_device_name() if self.group.device.type == "cuda" else "cpu",
            "torch": torch.__version__,
        }

    def train_one_step(self, stop_signal: StopSignal) -> None:
        """One update of the weights, and what is due after it: a journal point, an evaluation, a checkpoint."""
        begun = time.monotonic()
        batch = global_batch(
            self.data.train.lengths,
            step=self.step,
            size=self.settings["global_batch_size"],
            seed=self.recipe["seed"],
            masking=masking_of(self.settings),
        )
        self._accumulate_gradients(batch)
        self.gradients.add("stop_wanted", float(stop_signal.received))
        self.gradients.add("checkpoint_wanted", float(self._checkpoint_is_due()))
        statistics = self.gradients.reduce()
        norm = float(self.gradients.clip(self.settings["max_gradient_norm"]))
        if not (math.isfinite(norm) and math.isfinite(statistics["mlm_loss"] + statistics["pair_loss"])):
            raise BertlineError(
                f"step {self.step + 1}: the loss or its gradient is not finite; lower learning_rate or lengthen warmup"
            )
        learning_rate = self._learning_rate()
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = learning_rate
        self.optimizer.step()
        self.step += 1
        self.tokens += int(batch.lengths.sum())
        self.stop_wanted = statistics["stop_wanted"] > 0
        self.meter.add(statistics, batch, norm, learning_rate, time.monotonic() - begun)

        metrics: dict[str, float] = {}
        last = self.step == self.total_steps
        if last or self.step == 1 or self.step % self.options.log_every == 0:
            metrics |= self.meter.read()
            metrics["train/samples"] = float(self.step * self.settings["global_batch_size"])
            metrics["train/tokens"] = float(self.tokens)
        if last or (self.options.evaluate_every and self.step % self.options.evaluate_every == 0):
            metrics |= self._evaluate()
        if metrics:
            self._write_point(metrics)
        if last or statistics["checkpoint_wanted"] > 0:
            self.save()

    def _accumulate_gradients(self, batch: GlobalBatch) -> None:
        """Leave this rank's part of the gradient in the buffer: of the mean over the whole global batch."""
        # A function of the step: no generator's state has to be saved.
        torch.manual_seed(mix_integers(self.recipe["seed"], self.step, self.group.rank))
        masked, rows = int(batch.masked_counts.sum()), len(batch.samples)
        self.gradients.zero()
        for micro_batch in micro_batches(
            batch,
            self.data.train,
            rank=self.group.rank,
            world_size=self.group.world_size,
            micro_batch_size=self.micro_batch_size,
            padding_id=self.data.padding_id,
        ):
            losses = losses_of(
                self.model,
                micro_batch.to(self.group.device),
                seed=self.recipe["seed"],
                vocabulary=self.data.vocabulary,
                precision=self.settings["precision"],
            )
            mlm_loss, pair_loss = losses.mlm / masked, losses.pair / rows
            (mlm_loss + pair_loss if self.data.has_pairs else mlm_loss).backward()
            self.gradients.add("mlm_loss", mlm_loss.detach())
            self.gradients.add("pair_loss", pair_loss.detach())

    def _learning_rate(self) -> float:
        return learning_rate_at(
            self.step + 1,
            peak=self.settings["learning_rate"],
            total=self.total_steps,
            warmup=self.settings["warmup"],
            schedule=self.settings["schedule"],
            power=self.settings["power"],
        )

    def _evaluate(self) -> dict[str, float]:
        return evaluate(
            self.model,
            self.data,
            self.group,
            micro_batch_size=self.micro_batch_size,
            precision=self.settings["precision"],
        )

    def _write_point(self, metrics: dict[str, float]) -> None:
        if self.journal is None:
            return
        self.journal.append(self.step, metrics)
        shown = {
            "train/loss": "loss {:.4f}",
            "train/learning_rate": "learning rate {:.3g}",
            "train/tokens_per_second": "{:,.0f} tokens/s",
            "held_out/mlm_loss": "held-out MLM loss {:.4f}",
            "held_out/mlm_accuracy": "accuracy {:.3f}",
        }
        parts = [text.format(metrics[key]) for key, text in shown.items() if key in metrics]
        left = timedelta(seconds=round(self.meter.seconds_a_step() * (self.total_steps - self.step)))
        logger.info("step %d/%d, %s, %s left", self.step, self.total_steps, ", ".join(parts), left)

    def _checkpoint_is_due(self) -> bool:
        """Rank 0's word, which the others learn in the step's reduction."""
        if not self.group.leads:
            return False
        by_step = self.options.checkpoint_every and (self.step + 1) % self.options.checkpoint_every == 0
        minutes = (time.monotonic() - self.last_checkpoint[1]) / 60
        return bool(by_step) or minutes >= self.options.checkpoint_every_minutes

    def save(self) -> None:
        """Write a checkpoint of this step, unless there is one."""
        if self.last_checkpoint[0] == self.step:
            return
        if self.journal is not None and self.lock is not None:
            self.lock.check()
            self.journal.make_durable()
            save_checkpoint(
                self.checkpoints,
                weights=self.model.state_dict(),
                optimizer=optimizer_tensors(self.optimizer, self.model),
                state={
                    "fingerprint": self.recipe["fingerprint"],
                    "step": self.step,
                    "tokens": self.tokens,
                    "started": self.started,
                    "exactness": self._exactness(),
                },
                keep=self.options.keep_checkpoints,
            )
        self.last_checkpoint = (self.step, time.monotonic())
        self.group.wait()

    def publish(self) -> None:
        """Write the phase's outputs, recipe.json last: where it lies, the phase is finished."""
        if self.journal is not None:
            self.journal.close()
            recipe = {**self.recipe, "model": self.model.config.to_dict()}
            frozen = frozen_recipe(
                recipe,
                device=self.group.device,
                world_size=self.group.world_size,
                threads=torch.get_num_threads(),
            )
            frozen |= {
                "started": self.started,
                "finished": time.time_ns() // 1_000_000,
                "dataset_digest": self.data.digest,
                "tokenizer_sha256": self.data.tokenizer_sha256,
            }
            publish_phase(self.output, self.model.state_dict(), self.journal.path, frozen)
            logger.info("finished: %s", self.output / "model.safetensors")
        self.group.wait()
