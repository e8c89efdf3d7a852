"""Unlike ranks: the same gradient, in less time than with equal parts."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from synthetic_dataset import recipe, write_dataset
from training_processes import CONTEXT, Trainer, free_port, set_environment

from bertline.console import BertlineError
from bertline.training.data.load_balancing import measure_rank_weights, parse_rank_weights

MODEL = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GIVEN: dict[str, Any] = {**recipe(global_batch_size=96), "model": MODEL}
ROUNDS, STEPS = 5, 3


def slow_down(accumulator: Any) -> None:
    """Make a micro-batch about four times as long: nine more forward passes, a backward pass being two of them."""
    forward = accumulator.forward

    def slow_forward(micro_batch: Any) -> Any:
        with torch.no_grad():
            for _ in range(9):
                forward(micro_batch)
        return forward(micro_batch)

    accumulator.forward = slow_forward


def compute(rank: int, ranks: int, port: int, card: Path, output: Path) -> None:
    """Time steps with equal and with measured parts in turns; rank 0 writes times, weights and the last gradient.

    Rank 1 is slower by work, not by what else the machine does, which would make the test depend on that.
    """
    from gradient_helpers import accumulate

    from bertline.training.data.opening import open_training_data
    from bertline.training.data.shapes import Batching
    from bertline.training.distributed.process_group import join_group
    from bertline.training.gradient_accumulator import GradientAccumulator
    from bertline.training.initial import make_model

    set_environment(rank, ranks, port)
    group = join_group(ranks)
    data = open_training_data(card, 32, group.device)
    model = make_model(GIVEN, data)
    accumulator = GradientAccumulator(model, data, GIVEN, group, Batching(32, 4))
    if rank == 1:
        slow_down(accumulator)
    seconds: dict[str, list[float]] = {"equal": [], "measured": []}
    weights: list[list[float]] = []
    for _ in range(ROUNDS if ranks > 1 else 1):
        for load_balancing in seconds:
            accumulator.rank_weights = [1.0] * ranks
            accumulator.balance_load(load_balancing)
            if load_balancing == "measured":
                weights.append(accumulator.rank_weights)
            accumulator.seek(0)
            group.barrier()
            started = time.monotonic()
            for step in range(STEPS):
                accumulate(accumulator, step)
                accumulator.gradients.reduce()
            seconds[load_balancing].append(time.monotonic() - started)
    accumulator.close()
    if group.is_rank_zero:
        save_file({name: weight.grad.clone() for name, weight in model.named_parameters()}, output / "gradient")
        (output / "times.json").write_text(json.dumps({"seconds": seconds, "rank_weights": weights}))


def run(card: Path, output: Path, *, ranks: int) -> dict[str, Any]:
    output.mkdir()
    port = free_port()
    processes = [CONTEXT.Process(target=compute, args=(rank, ranks, port, card, output)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    return json.loads((output / "times.json").read_text())


@pytest.mark.slow
def test_a_slower_rank_gets_less_and_the_gradient_stays(tmp_path):
    card = write_dataset(tmp_path / "dataset")
    both = run(card, tmp_path / "two", ranks=2)
    assert statistics.median(other / first for first, other in both["rank_weights"]) < 0.6
    equal, measured = (statistics.median(both["seconds"][name]) for name in ("equal", "measured"))
    assert measured < equal
    run(card, tmp_path / "one", ranks=1)
    gradient, expected = (load_file(tmp_path / name / "gradient") for name in ("two", "one"))
    for name, tensor in expected.items():
        torch.testing.assert_close(gradient[name], tensor, rtol=1e-3, atol=1e-6)


def test_a_rank_with_nothing_to_do_is_legal(tmp_path):
    card = write_dataset(tmp_path / "dataset")
    trainer = Trainer(recipe(steps=4), card, tmp_path / "phase", ranks=2, load_balancing="1,0")
    assert trainer.finish() == 0, trainer.log.read_text()
    trainer = Trainer(recipe(steps=4), card, tmp_path / "other", ranks=2, load_balancing="1,1,1")
    assert trainer.finish() == 1
    assert "--load-balancing: given 3 weights for 2 ranks" in trainer.log.read_text().splitlines()[-1]


def test_a_resumed_phase_keeps_its_rank_weights_by_default(tmp_path):
    card = write_dataset(tmp_path / "dataset")

    def go_on(load_balancing):
        """Train one more step; return its output."""
        output = tmp_path / "phase"
        trainer = Trainer(recipe(), card, output, ranks=2, load_balancing=load_balancing, stop_after_minutes=0.0)
        said = len(trainer.log.read_text())
        assert trainer.finish() == 75
        return trainer.log.read_text()[said:]

    go_on("3,1")
    text = go_on("measured")
    assert "resuming" in text
    assert "rank_weights was" not in text
    text = go_on("measured-again")
    assert "measured rank weights: " in text
    assert "rank_weights was [3.0, 1.0] and is" in text
    assert "no longer the same bits" in text
    assert "and is [1.0, 3.0]" in go_on("1,3")


def test_weights_are_speeds_without_the_first_pass_rounded_and_at_least_a_fiftieth(monkeypatch):
    """Of three passes of 100 tokens and a second each; the first one, which compiles, takes a minute."""
    clock, seconds = SimpleNamespace(now=1000.0), iter([60.0, 60.0, 1.0, 1.0, 1.0])
    fake_time = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr("bertline.training.data.load_balancing.time", fake_time)

    def compute():
        clock.now += next(seconds)
        return 100

    def gather(values):
        assert values == [100.0]  # tokens per second of this rank
        return torch.tensor([values, [37.3], [0.1], [0.0]])

    group = SimpleNamespace(device=torch.device("cpu"), barrier=lambda: None, gather=gather)
    assert measure_rank_weights(compute, group) == [1.0, 0.38, 0.02, 0.02]
    assert next(seconds, None) is None


@pytest.mark.parametrize("given", ["fast,slow", "", "1,-1", "0,0", "1,nan", "1,inf"])
def test_invalid_weights_are_refused_in_one_line(given):
    with pytest.raises(BertlineError, match="--load-balancing: given"):
        parse_rank_weights(given, 2)
