"""Averages of training metrics, and training speed."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Mapping

from bertline.modeling.architectures import PreTrainingNetwork
from bertline.results.journal import RECENT_POINTS
from bertline.training.distributed.process_group import Group
from bertline.training.flops import flops_of, peak_of_all
from bertline.training.step import StepResult
from bertline.training.system_metrics import SystemMetrics

AVERAGED = ("mlm_loss", "mlm_accuracy", "pair_loss", "pair_accuracy")


class Meter:
    """Averages and speed between two points of the journal."""

    def __init__(self, model: PreTrainingNetwork, group: Group, *, has_pairs: bool) -> None:
        """Start the clocks. All ranks must call it."""
        self._model, self._has_pairs, self._peak = model, has_pairs, peak_of_all(group.device)
        self._system = SystemMetrics(group)
        self._last_read = time.monotonic()
        self._first = (0.0, 0)  # seconds and samples of the first step
        self._samples_after_first = 0
        # Of the first step's end and the points since: the time, and the samples after the first step until then.
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_POINTS)
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._last: dict[str, float] = {}  # averages, norm and learning rate of the last step

    def add(self, result: StepResult) -> None:
        """Count one step."""
        batch = result.batch
        averages = averages_of(result.statistics, samples=len(batch.samples))
        self._last = {**averages, "norm": result.norm, "learning_rate": result.learning_rate}
        counted = {
            "steps": 1,
            "samples": len(batch.samples),
            "tokens": int(batch.lengths.sum()),
            "flops": flops_of(self._model, batch),
            "seconds": result.seconds,
            "waited": result.waited,
            "real": result.tokens[0],
            "computed": result.tokens[1],
            **averages,
        }
        for name, value in counted.items():
            self._sums[name] += value
        if self._recent:
            self._samples_after_first += len(batch.samples)
        else:
            self._first = (result.seconds, len(batch.samples))
            self._recent.append((time.monotonic(), 0))

    def state(self) -> dict[str, dict[str, float]]:
        """Return what `restore` needs to continue the averages: all that does not depend on the time."""
        return {"sums": {name: self._sums[name] for name in ("steps", *AVERAGED)}, "last": dict(self._last)}

    def restore(self, state: Mapping[str, Mapping[str, float]] | None) -> None:
        """Continue from a `state`, or from none; speeds are those of the steps after it."""
        self._sums.clear()
        if state is not None:
            self._sums |= state["sums"]
            self._last = dict(state["last"])

    def read(self) -> dict[str, float]:
        """Return metrics since the last call; norm and learning rate are the last step's. All ranks must call it."""
        sums, self._sums = self._sums, defaultdict(float)
        now = time.monotonic()
        seconds, self._last_read = now - self._last_read, now
        if self._recent:
            self._recent.append((now, self._samples_after_first))
        averages = {name: sums[name] / max(1, sums["steps"]) for name in AVERAGED}
        metrics = {
            "train/loss": averages["mlm_loss"],
            "train/mlm_loss": averages["mlm_loss"],
            "train/mlm_accuracy": averages["mlm_accuracy"],
            "train/step_loss": self._last["mlm_loss"],
            "train/learning_rate": self._last["learning_rate"],
            "train/gradient_norm": self._last["norm"],
        }
        if sums["seconds"]:  # not 0, the time of the steps before a restart
            metrics |= self._speeds(sums, seconds)
        if self._has_pairs:
            metrics["train/loss"] += averages["pair_loss"]
            metrics["train/step_loss"] += self._last["pair_loss"]
            metrics |= {f"train/{name}": averages[name] for name in ("pair_loss", "pair_accuracy")}
        return metrics | self._system.sample()

    def _speeds(self, sums: Mapping[str, float], seconds: float) -> dict[str, float]:
        """Return the speeds of the steps of this process; `seconds` include all between and after them."""
        speeds = {
            "train/samples_per_second": sums["samples"] / sums["seconds"],
            "train/tokens_per_second": sums["tokens"] / sums["seconds"],
            # Including evaluations, checkpoints and all else since the last call.
            "train/overall_samples_per_second": sums["samples"] / seconds,
            "train/overall_tokens_per_second": sums["tokens"] / seconds,
            "train/tflops_per_second": sums["flops"] / sums["seconds"] / 1e12,
            "train/data_wait_share": sums["waited"] / sums["seconds"],
        }
        if sums["computed"]:  # a rank may have no part in the batches
            speeds["train/padding_share"] = 1 - sums["real"] / sums["computed"]
        if self._peak:
            speeds["train/model_flops_utilization"] = speeds["train/tflops_per_second"] / self._peak
            speeds["train/overall_model_flops_utilization"] = sums["flops"] / seconds / 1e12 / self._peak
        return speeds

    def seconds_a_sample(self) -> float | None:
        """Return the mean time for a sample by the wall clock over the last points.

        The first step, which compiles, counts only if there is no other. None before the first step of this process.
        """
        if self._samples_after_first:
            since, samples = self._recent[0]
            return (time.monotonic() - since) / (self._samples_after_first - samples)
        seconds, samples = self._first
        return seconds / samples if samples else None


def averages_of(statistics: dict[str, float], *, samples: int) -> dict[str, float]:
    """Return the averages named in `AVERAGED` from sums over a global batch of `samples`."""
    masked = max(1.0, statistics["masked"])
    return {
        "mlm_loss": statistics["mlm_loss"] / masked,
        "mlm_accuracy": statistics["mlm_correct"] / masked,
        "pair_loss": statistics["pair_loss"] / samples,
        "pair_accuracy": statistics["pair_correct"] / samples,
    }
