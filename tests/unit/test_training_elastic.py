"""A training that is killed and resumed on other numbers of ranks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, journal, train

RANKS = (1, 2, 4, 3, 1)
STEPS = 60


@pytest.mark.slow
@pytest.mark.fault(row="elastic")
def test_killed_and_resumed_on_other_numbers_of_ranks_it_has_the_same_losses(
    tmp_path: Path, record_property: Any
) -> None:
    """A sample in another batch, left out or taken twice, or other masks, would be another loss. No dropout: each rank
    draws its own."""
    card = write_dataset(tmp_path / "dataset")
    given = recipe(steps=STEPS)
    given["model"] = {**given["model"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    train(given, card, tmp_path / "undisturbed", log_every=1)
    output, waits = tmp_path / "phase", []
    for number, ranks in enumerate(RANKS[:-1], 1):
        until, started = number * STEPS // len(RANKS), time.monotonic()
        trainer = Trainer(given, card, output, ranks=ranks, checkpoint_every=3, log_every=1)
        resumed_at = newest(output)
        trainer.wait_until(lambda at=resumed_at: newest(output) > at)
        waits.append(time.monotonic() - started)
        assert trainer.kill_when(lambda until=until: newest(output) >= until)
    resumed = train(given, card, output, ranks=RANKS[-1], log_every=1)
    assert resumed.log.read_text().count("world_size was") == len(RANKS) - 1
    undisturbed, found = (
        [point for point in journal(path) if point["step"]] for path in (tmp_path / "undisturbed", output)
    )
    assert [point["step"] for point in found] == list(range(1, STEPS + 1))
    samples, losses = (
        [(one["metrics"][name], other["metrics"][name]) for one, other in zip(undisturbed, found, strict=True)]
        for name in ("train/samples", "train/loss")
    )
    assert all(one == other for one, other in samples)
    difference = max(abs(one - other) for one, other in losses)
    assert difference < 1e-5
    record_property("faults", len(RANKS) - 1)
    record_property("largest difference of losses", difference)
    record_property("seconds to the first new checkpoint", round(max(waits), 1))


def newest(output: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in output.glob("checkpoints/step-*")), default=0)
