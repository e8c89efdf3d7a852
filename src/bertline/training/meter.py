"""Averages of what training reports, and its speed."""

from __future__ import annotations

import torch

from bertline.training.batches import GlobalBatch
from bertline.training.system_metrics import SystemMetrics


class Meter:
    """Averages between two points of the journal, and the speed."""

    def __init__(self, device: torch.device, *, has_pairs: bool) -> None:
        self._has_pairs = has_pairs
        self._system = SystemMetrics(device)
        self._all_steps, self._all_seconds = 0, 0.0
        self._forget()

    def _forget(self) -> None:
        self._steps, self._samples, self._tokens, self._seconds = 0, 0, 0, 0.0
        self._mlm_loss, self._pair_loss = 0.0, 0.0

    def add(
        self, statistics: dict[str, float], batch: GlobalBatch, norm: float, learning_rate: float, seconds: float
    ) -> None:
        """Count one step."""
        self._steps += 1
        self._all_steps += 1
        self._samples += len(batch.samples)
        self._tokens += int(batch.lengths.sum())
        self._seconds += seconds
        self._all_seconds += seconds
        self._mlm_loss += statistics["mlm_loss"]
        self._pair_loss += statistics["pair_loss"]
        self._norm, self._learning_rate = norm, learning_rate

    def read(self) -> dict[str, float]:
        """Metrics since the last call; gradient norm and learning rate are the last step's."""
        mlm_loss, pair_loss = self._mlm_loss / self._steps, self._pair_loss / self._steps
        metrics = {
            "train/loss": mlm_loss,
            "train/mlm_loss": mlm_loss,
            "train/learning_rate": self._learning_rate,
            "train/gradient_norm": self._norm,
            "train/samples_per_second": self._samples / self._seconds,
            "train/tokens_per_second": self._tokens / self._seconds,
        }
        if self._has_pairs:
            metrics["train/loss"] += pair_loss
            metrics["train/pair_loss"] = pair_loss
        self._forget()
        return metrics | self._system.sample()

    def seconds_a_step(self) -> float:
        """The mean of this session; 0 before its first step."""
        return self._all_seconds / max(1, self._all_steps)
