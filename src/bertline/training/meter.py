"""Averages of training metrics, and training speed."""

from __future__ import annotations

from bertline.modeling.architectures import PreTrainingNetwork
from bertline.training.distributed.process_group import Group
from bertline.training.flops import flops_of
from bertline.training.step import StepResult
from bertline.training.system_metrics import SystemMetrics

AVERAGED = ("mlm_loss", "mlm_accuracy", "pair_loss", "pair_accuracy")


class Meter:
    """Averages and speed between two points of the journal."""

    def __init__(self, model: PreTrainingNetwork, group: Group, *, peak: float | None, has_pairs: bool) -> None:
        """Start the clocks; `peak` is that of all devices together in TFLOP/s, None if unknown."""
        self._model, self._has_pairs, self._peak = model, has_pairs, peak
        self._system = SystemMetrics(group)
        self._all_steps, self._all_seconds = 0, 0.0
        self._reset()

    def _reset(self) -> None:
        self._steps, self._samples, self._tokens, self._seconds, self._waited = 0, 0, 0, 0.0, 0.0
        self._real, self._computed, self._flops = 0, 0, 0.0
        self._sums = dict.fromkeys(AVERAGED, 0.0)

    def add(self, result: StepResult) -> None:
        """Count one step."""
        batch, tokens = result.batch, int(result.batch.lengths.sum())
        self._steps += 1
        self._all_steps += 1
        self._samples += len(batch.samples)
        self._tokens += tokens
        self._flops += flops_of(self._model, batch)
        self._seconds += result.seconds
        self._waited += result.waited
        self._real += result.tokens[0]
        self._computed += result.tokens[1]
        self._all_seconds += result.seconds
        for name, value in averages_of(result.statistics, samples=len(batch.samples)).items():
            self._sums[name] += value
        self._norm, self._learning_rate = result.norm, result.learning_rate

    def read(self) -> dict[str, float]:
        """Return metrics since the last call; norm and learning rate are the last step's. All ranks must call it."""
        averages = {name: total / max(1, self._steps) for name, total in self._sums.items()}
        metrics = {
            "train/loss": averages["mlm_loss"],
            "train/mlm_loss": averages["mlm_loss"],
            "train/mlm_accuracy": averages["mlm_accuracy"],
            "train/learning_rate": self._learning_rate,
            "train/gradient_norm": self._norm,
            "train/samples_per_second": self._samples / self._seconds,
            "train/tokens_per_second": self._tokens / self._seconds,
            "train/tflops_per_second": self._flops / self._seconds / 1e12,
            "train/padding_share": 1 - self._real / max(1, self._computed),
            "train/data_wait_share": self._waited / self._seconds,
        }
        if self._has_pairs:
            metrics["train/loss"] += averages["pair_loss"]
            metrics |= {f"train/{name}": averages[name] for name in ("pair_loss", "pair_accuracy")}
        if self._peak:
            metrics["train/model_flops_utilization"] = metrics["train/tflops_per_second"] / self._peak
        self._reset()
        return metrics | self._system.sample()

    def seconds_a_step(self) -> float:
        """Return the mean time of a step since the start of this process; 0 before its first step."""
        return self._all_seconds / max(1, self._all_steps)


def averages_of(statistics: dict[str, float], *, samples: int) -> dict[str, float]:
    """Return the averages named in `AVERAGED` from sums over a global batch of `samples`."""
    masked = max(1.0, statistics["masked"])
    return {
        "mlm_loss": statistics["mlm_loss"] / masked,
        "mlm_accuracy": statistics["mlm_correct"] / masked,
        "pair_loss": statistics["pair_loss"] / samples,
        "pair_accuracy": statistics["pair_correct"] / samples,
    }
