"""A training as in a phase, with a checkpoint and a kill: deterministic to the bit, and at full speed."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steps import free_memory, group_of_one, make_our_step, make_recipe, read_model, time_step

from bertline.files import read_json, sha256_of_file, write_json
from bertline.results import paths
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from gpu_parts.context import ROOT, Context, Result
from gpu_parts.samples import write_samples_like_wikipedia

TRAINER = ROOT / "workflow/scripts/pretrain.py"
SAMPLES = 50_000
TRAININGS, STARTS = 3, 5
SECONDS_TO_START = 12.0  # a trainer: imports, data, the first kernels
DETERMINISTIC_COST = 1.3  # upper bound, so that the steps fit into the time
MIN_STEPS, MAX_STEPS = 12, 3000
POINTS = 10  # number of a training's losses in its result


def run(context: Context) -> Iterator[Result]:
    """Yield the results of each training, whether a kill changed the weights, and the cost of determinism."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, settings, tokens = what_is_trained(context)
        length, samples = settings["sequence_length"], 400 if context.tiny else SAMPLES
        card = write_samples_like_wikipedia(folder / "data", length, samples, tiny=context.tiny)
        recipe = make_recipe(model, **settings)
        seconds = seconds_a_step(context, card, recipe, tokens)
        available = context.seconds_left() - STARTS * SECONDS_TO_START
        steps = max(MIN_STEPS, min(MAX_STEPS, int(available / (TRAININGS * DETERMINISTIC_COST * seconds))))
        if context.tiny:
            steps = MIN_STEPS
        recipe["settings"]["steps"] = steps
        trainer = Trainer(card, recipe, tokens, context.threads)
        whole = trainer.train(folder / "whole", deterministic=True)
        yield {"case": "deterministic", **whole}
        killed = trainer.train_with_a_kill(folder / "killed", deterministic=True)
        yield {"case": "deterministic, killed and resumed", **killed}
        digests = {sha256_of_file(folder / name / paths.WEIGHTS) for name in ("whole", "killed")}
        yield {"case": "the same weights after a kill", "outcome": "passed" if len(digests) == 1 else "failed"}
        fast = trainer.train_with_a_kill(folder / "fast", deterministic=False)
        yield {"case": "not deterministic, killed and resumed", **fast}
        cost = fast["tokens_per_second"] / whole["tokens_per_second"]
        yield {"case": "speed gained by leaving determinism out", "factor": round(cost, 3)}


def what_is_trained(context: Context) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the network, the settings, and the tokens of a micro-batch."""
    settings = {"learning_rate": 2e-4, "optimizer": "adamw", "schedule": "linear", "warmup": 0.1, "precision": "bf16"}
    if context.tiny:
        return read_model("bert-tiny"), {**settings, "sequence_length": 32, "global_batch_size": 16}, 256
    return read_model("bert-base"), {**settings, "sequence_length": 128, "global_batch_size": 512}, 32768


def seconds_a_step(context: Context, card: Path, recipe: dict[str, Any], tokens: int) -> float:
    """Measure the time of a step, to determine how many fit."""
    length = recipe["settings"]["sequence_length"]
    with group_of_one(context.threads) as group:
        data = open_training_data(card, length, group.device)
        batching = Batching(length, tokens // length, mask_free=group.device.type == "cuda")
        step = make_our_step(recipe, data, group, batching, compiled=False)
        seconds, _ = time_step(step, group.device, rounds=8, seconds=4.0)
        step.close()
    del step, data
    free_memory()
    return seconds


class Trainer:
    """Runner of workflow/scripts/pretrain.py, as in the workflow."""

    def __init__(self, card: Path, recipe: dict[str, Any], tokens: int, threads: int) -> None:
        self._card, self._recipe, self._tokens, self._threads = card, recipe, tokens, threads
        self._recipe_json = card.parent / paths.RECIPE
        write_json(self._recipe_json, recipe)
        self._every = max(1, recipe["settings"]["steps"] // 3)

    def train(self, output: Path, *, deterministic: bool) -> Result:
        """Train to the end."""
        process = self._start(output, deterministic)
        if process.wait():
            raise RuntimeError(f"the trainer ended with status {process.returncode}, see the log")
        return self._result(output)

    def train_with_a_kill(self, output: Path, *, deterministic: bool) -> Result:
        """Kill the trainer after its first checkpoint, restart it, and train to the end."""
        process = self._start(output, deterministic)
        marker = output / paths.DURABLE
        while process.poll() is None and not marker.exists():
            time.sleep(0.01)
        if not marker.exists():
            raise RuntimeError(f"the trainer ended with status {process.returncode} and no checkpoint, see the log")
        process.send_signal(signal.SIGKILL)
        process.wait()
        journal = (output / paths.STARTED_JOURNAL).read_text(encoding="utf-8")
        reached = json.loads(journal[: journal.rindex("\n")].splitlines()[-1])["step"]
        saved = read_json(marker)["step"]
        started = time.monotonic()
        result = self.train(output, deterministic=deterministic)
        seconds = round(time.monotonic() - started, 1)
        return {**result, "killed_at_step": reached, "resumed_at_step": saved, "seconds_after_the_kill": seconds}

    def _start(self, output: Path, deterministic: bool) -> subprocess.Popen[bytes]:
        options = {
            "--recipe": self._recipe_json,
            "--dataset": self._card,
            "--output": output,
            "--threads": self._threads,
            "--micro-batch-tokens": self._tokens,
            "--checkpoint-every": self._every,
            "--log-every": 1,
            "--evaluate-every": 0,
        }
        command = [sys.executable, str(TRAINER), *(str(word) for option in options.items() for word in option)]
        names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        return subprocess.Popen(  # noqa: S603
            [*command, *(["--deterministic"] if deterministic else [])], env={**os.environ, **names}
        )

    def _result(self, output: Path) -> Result:
        lines = (output / paths.JOURNAL).read_text(encoding="utf-8").splitlines()
        points = [point for line in lines if "train/loss" in (point := json.loads(line))["metrics"]]
        speeds = [point["metrics"]["train/tokens_per_second"] for point in points[len(points) // 4 :]]
        shown = points[:: max(1, len(points) // POINTS)]
        return {
            "steps": self._recipe["settings"]["steps"],
            "tokens_per_second": round(statistics.median(speeds)),
            "data_wait_share": round(statistics.mean(point["metrics"]["train/data_wait_share"] for point in points), 4),
            "losses": {str(point["step"]): round(point["metrics"]["train/loss"], 4) for point in [*shown, points[-1]]},
            "held_out_mlm_loss": round(json.loads(lines[-1])["metrics"]["held_out/mlm_loss"], 4),
        }
