"""Training that is killed, stopped, or diverges, and its end."""

from __future__ import annotations

import errno
import functools
import json
import logging
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import recipe, write_dataset
from torch import distributed
from training_processes import CONTEXT, Trainer, free_port, journal, newest_step, set_environment, step_of, train

from bertline.console import BertlineError, one_line_errors
from bertline.files import read_json, sha256_of_file
from bertline.training import checkpoints, loop, phase, scaling
from bertline.training.checkpoints import CheckpointWriter
from bertline.training.distributed.process_group import join_group
from bertline.training.lock import TrainingLock
from bertline.training.optimizers.kfac import Kfac
from bertline.training.options import Options
from bertline.training.phase import MAX_SKIPPED_IN_A_ROW, Phase
from bertline.training.stop import StopSignal

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"
LONG = recipe(steps=60)
# Metrics that depend on the recipe alone.
EXACT = (
    "train/loss",
    "train/mlm_loss",
    "train/mlm_accuracy",
    "train/pair_loss",
    "train/step_loss",
    "train/gradient_norm",
)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def is_being_written(folder, later_than):
    return any(step_of(part) > later_than for part in folder.glob(".step-*.part"))


def is_being_written_or_was(folder, later_than):
    """Nobody looks at the moment of the writing if the machine is busy."""
    return is_being_written(folder, later_than) or newest_step(folder) > later_than + 9


def is_publishing(output):
    begun = any(part for name in ("model", "metrics", "recipe") for part in output.glob(f".{name}.*.part"))
    return begun or ((output / "model.safetensors").exists() and not is_finished(output))


def is_finished(output):
    return (output / "recipe.json").exists()


def is_past(moment):
    return time.monotonic() > moment


def kill_often(given, card, output, *, kills, **options):
    """Kill a trainer at seeded moments, then let it finish. Returns kills inside a checkpoint and the export."""
    folder = output / "checkpoints"
    moments = random.Random(7)  # noqa: S311
    writing = publishing = 0
    for kill in range(kills):
        newest = newest_step(folder)
        trainer = Trainer(given, card, output, **options)
        until = time.monotonic() + moments.uniform(0.05, 0.3)
        if kill >= kills - 3:
            ready = functools.partial(is_publishing, output)
        elif kill % 2:
            ready = functools.partial(is_being_written_or_was, folder, newest)
        else:
            ready = functools.partial(is_past, until)
        killed = trainer.kill_when(ready)
        writing += is_being_written(folder, newest)
        publishing += killed and is_publishing(output)
    resumed = train(given, card, output, **options)
    assert "resuming" in resumed.log.read_text()
    assert not list(output.glob(".*.part"))
    return writing, publishing


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_killed_at_any_moment_it_ends_with_the_same_bits(card, tmp_path, ranks):
    """All ranks at once, as when a node loses its power: in a step, in a checkpoint, in the export."""
    kills = {1: 20, 2: 6, 4: 4}[ranks]
    undisturbed, output = tmp_path / "undisturbed", tmp_path / "phase"
    train(LONG, card, undisturbed, ranks=ranks, evaluate_every=20)
    writing, publishing = kill_often(
        LONG, card, output, kills=kills, ranks=ranks, checkpoint_every=3, evaluate_every=20
    )
    if ranks == 1:
        assert writing >= 5
        assert publishing >= 2
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(undisturbed / "model.safetensors")
    steps = [point["step"] for point in journal(output)]
    assert steps == sorted(set(steps)) == [point["step"] for point in journal(undisturbed)]


@pytest.mark.slow
def test_a_compiled_network_killed_on_two_ranks_ends_with_the_same_bits(card, tmp_path):
    """One kill and one layer: every process compiles."""
    given = recipe(steps=12, packing=True, precision="bf16", global_batch_size=32)
    given["model"] = {**given["model"], "num_hidden_layers": 1}
    undisturbed, output = tmp_path / "undisturbed", tmp_path / "phase"
    options = {"ranks": 2, "compiled": True, "micro_batch_tokens": 256}
    train(given, card, undisturbed, **options)
    trainer = Trainer(given, card, output, **options, checkpoint_every=3)
    assert trainer.kill_when(lambda: newest_step(output / "checkpoints") >= 3)
    text = train(given, card, output, **options).log.read_text()
    assert "resuming" in text
    assert "no longer the same bits" not in text
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(undisturbed / "model.safetensors")


@pytest.mark.slow
def test_a_compiled_optimizer_stopped_continues_with_the_same_bits(card, tmp_path):
    given, output = recipe(steps=4), tmp_path / "phase"
    train(given, card, tmp_path / "straight", compiled_optimizer=True)
    assert Trainer(given, card, output, compiled_optimizer=True, stop_after_minutes=0.0).finish() == 75
    resumed = train(given, card, output, compiled_optimizer=True)
    assert "compiled_optimizer was" not in resumed.log.read_text()
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(tmp_path / "straight/model.safetensors")


@pytest.mark.slow
def test_two_ranks_stopped_and_killed_end_with_the_same_bits(card, tmp_path):
    """The real command: SIGTERM, then SIGKILL to its whole process group, then undisturbed to the end."""
    undisturbed, output = tmp_path / "undisturbed", tmp_path / "phase"
    given = recipe(steps=24)
    train(given, card, undisturbed, ranks=2)
    (tmp_path / "recipe.json").write_text(json.dumps(given))
    command = [
        sys.executable, SCRIPTS / "launch.py", "--processes-per-node", "2", "--", SCRIPTS / "pretrain.py",
        "--recipe", tmp_path / "recipe.json", "--dataset", card, "--output", output,
        "--threads", "2", "--checkpoint-every", "3",
    ]  # fmt: skip
    for number, step, status in ((signal.SIGTERM, 3, 75), (signal.SIGKILL, 12, -9)):
        process = subprocess.Popen([*map(str, command)], process_group=0, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not any(step_of(path) >= step for path in output.glob("checkpoints/step-*")):
            time.sleep(0.005)
        if number == signal.SIGTERM:
            process.terminate()  # to the launcher alone, which passes it on
        else:
            os.killpg(process.pid, signal.SIGKILL)
        _, messages = process.communicate(timeout=60)
        assert process.returncode == status, messages
        assert (status == 75) == ("asked to stop" in messages)
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(undisturbed / "model.safetensors")


@pytest.mark.slow
def test_muon_with_a_growing_batch_is_resumed_with_the_same_bits(card, tmp_path):
    given = recipe(steps=24, optimizer="muon", schedule="wsd", batch_size_warmup={"from": 4, "steps": 12})
    straight, output = tmp_path / "straight", tmp_path / "phase"
    train(given, card, straight)
    trainer = Trainer(given, card, output, checkpoint_every=3)
    # Inside the warmup.
    assert trainer.kill_when(lambda: (output / "checkpoints" / "step-00000006").exists())
    resumed = train(given, card, output)
    assert "resuming" in resumed.log.read_text()
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(straight / "model.safetensors")
    # Sizes grow in fours: four steps each of 4, 8 and 12.
    sizes = [4 + 4 * (3 * step // 12) for step in range(12)] + [16] * 12
    samples = {point["step"]: point["metrics"].get("train/samples") for point in journal(output)}
    assert samples[24] == sum(sizes)
    assert samples[10] == sum(sizes[:10])


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_optimizer_with_a_state_of_its_own_is_resumed_with_the_same_bits(card, tmp_path, ranks):
    given = recipe(steps=24, optimizer="lion", learning_rate=0.001)
    straight, output = tmp_path / "straight", tmp_path / "phase"
    train(given, card, straight, ranks=ranks)
    trainer = Trainer(given, card, output, ranks=ranks, checkpoint_every=3)
    assert trainer.kill_when(lambda: newest_step(output / "checkpoints") >= 6)
    resumed = train(given, card, output, ranks=ranks)
    assert "resuming" in resumed.log.read_text()
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(straight / "model.safetensors")


@pytest.mark.parametrize("way", ["SIGUSR1", "deadline"])
def test_asked_to_stop_it_saves_and_continues_later(card, tmp_path, way):
    output = tmp_path / "phase"
    options = {"stop_after_minutes": 0.0} if way == "deadline" else {}
    trainer = Trainer(recipe(steps=4000), card, output, **options)
    if way == "SIGUSR1":
        while "step 10/" not in trainer.log.read_text():
            assert trainer.running()
            time.sleep(0.01)
        trainer.signal(signal.SIGUSR1)
    assert trainer.finish() == 75
    assert newest_step(output / "checkpoints") >= 1
    assert "asked to stop" in trainer.log.read_text()


@pytest.fixture
def group(monkeypatch):
    """This process alone, with a group as training has it."""
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    threads = torch.get_num_threads()
    yield join_group(1)
    distributed.destroy_process_group()
    torch.set_num_threads(threads)


@pytest.fixture
def hidden_gpus(monkeypatch):
    """A machine with GPUs of which CUDA_VISIBLE_DEVICES shows none, as seen on an NVIDIA H200."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def test_without_a_visible_gpu_a_machine_trains_on_its_cpu(hidden_gpus, group):
    assert group.device.type == "cpu"


def run_phase(
    group, card, output, *, poisoned, steps=40, stop_at=None, what="gradient", given=None, before=None, **options
):
    """Train in this process; of every global batch in `poisoned`, `what` is not finite: the last rank's gradient
    or loss, or the weights after its update. `given` is another recipe, of a phase after that in `before`."""
    lock = TrainingLock(output / "checkpoints") if group.is_rank_zero else None
    assert lock is None or lock.try_acquire() is None
    chosen = Options(checkpoint_every=5, **options)
    given = given or recipe(steps=steps)
    phase = Phase(given, card, output, group, lock, chosen, StopSignal(), initial_weights=before)
    phase.begin()
    accumulator = phase.learner.accumulator
    reduce = accumulator.gradients.reduce

    def reduce_poisoned():
        if phase.progress.next_batch in poisoned and group.rank == group.world_size - 1:
            for gradient in accumulator.gradients.tensors() if what == "gradient" else ():
                gradient.fill_(math.nan)
            if what == "loss":
                accumulator.gradients.add({"mlm_loss": math.nan})
        return reduce()

    update = phase.learner.optimizer.step

    def update_poisoned():
        update()
        if phase.progress.next_batch in poisoned and what == "weights":
            next(phase.learner.model.parameters()).data[0, 0] = math.inf

    accumulator.gradients.reduce, phase.learner.optimizer.step = reduce_poisoned, update_poisoned
    try:
        while phase.progress.step < phase.total_steps and phase.progress.next_batch != stop_at:
            phase.train_one_step()
        if phase.progress.step == phase.total_steps:
            phase.publish()
        else:
            phase.save()
            phase.wait_for_checkpoint()
    finally:
        accumulator.close()
        if lock is not None:
            lock.release()
    return phase


def run_rank(rank, ranks, port, log, card, output, given):
    set_environment(rank, ranks, port)
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    logging.basicConfig(format="%(message)s")

    with one_line_errors():
        phase = run_phase(join_group(ranks), card, output, **given)
        (output.parent / f"{output.name}.rank{rank}").write_text(f"{phase.progress.step} {phase.progress.skipped}")
        distributed.destroy_process_group()


def run_two_ranks(card, output, **given):
    """`run_phase` on two ranks; returns the exit status of rank 0, steps and skipped batches of both, and the log."""
    log, port = output.with_suffix(".log"), free_port()
    log.touch()
    processes = [
        CONTEXT.Process(target=run_rank, args=(rank, 2, port, log, card, output, given), daemon=True) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode is not None, log.read_text()
    counts = [path.read_text() for path in sorted(output.parent.glob(f"{output.name}.rank*"))]
    return processes[0].exitcode, counts, log.read_text()


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(group, card, tmp_path):
    phase = run_phase(group, card, tmp_path / "whole", poisoned={7, 8, 20})
    assert (phase.progress.step, phase.progress.skipped) == (40, 3)
    assert journal(tmp_path / "whole")[-1]["metrics"]["train/skipped_steps"] == 3
    weights = load_file(tmp_path / "whole" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())

    # Stopped between two skipped batches it goes on with the same bits.
    run_phase(group, card, tmp_path / "parts", poisoned={7, 8, 20}, stop_at=8)
    run_phase(group, card, tmp_path / "parts", poisoned={7, 8, 20})
    assert sha256_of_file(tmp_path / "parts" / "model.safetensors") == sha256_of_file(
        tmp_path / "whole" / "model.safetensors"
    )


def test_a_loss_that_is_not_finite_is_skipped_though_its_gradient_is(group, card, tmp_path):
    phase = run_phase(group, card, tmp_path / "phase", poisoned={3}, steps=6, what="loss", log_every=1)
    assert (phase.progress.step, phase.progress.skipped) == (6, 1)
    assert all("train/mlm_loss" in point["metrics"] for point in journal(tmp_path / "phase")[1:])


def test_many_in_a_row_return_to_the_last_checkpoint_and_continue_after_them(group, card, tmp_path, caplog):
    poisoned = set(range(12, 12 + MAX_SKIPPED_IN_A_ROW))
    phase = run_phase(group, card, tmp_path / "phase", poisoned=poisoned, log_every=1)
    assert "returning to step 10 and continuing with the next global batch" in caplog.text
    assert "samples of the last global batch: " in caplog.text
    # Steps 11 and 12 were taken back, so their two batches are passed over as well.
    assert (phase.progress.step, phase.progress.skipped) == (40, MAX_SKIPPED_IN_A_ROW + 2)
    assert [point["step"] for point in journal(tmp_path / "phase")] == list(range(41))


def test_skipped_batches_with_updates_between_them_are_not_in_a_row(group, card, tmp_path, caplog):
    phase = run_phase(group, card, tmp_path / "phase", poisoned=set(range(6, 6 + 2 * MAX_SKIPPED_IN_A_ROW, 2)))
    assert "returning to step" not in caplog.text
    assert (phase.progress.step, phase.progress.skipped) == (40, MAX_SKIPPED_IN_A_ROW)
    assert read_json(tmp_path / "phase/checkpoints/step-00000040/state.json")["skipped_in_a_row"] == []


def test_what_a_stop_saves_among_skipped_batches_is_not_returned_to(group, card, tmp_path, caplog):
    """If the weights themselves are corrupt, the checkpoint before is as good as without the stop."""
    poisoned = set(range(12, 12 + MAX_SKIPPED_IN_A_ROW))
    run_phase(group, card, tmp_path / "whole", poisoned=poisoned)
    run_phase(group, card, tmp_path / "phase", poisoned=poisoned, stop_at=15)
    assert newest_step(tmp_path / "phase/checkpoints") == 12
    caplog.clear()
    run_phase(group, card, tmp_path / "phase", poisoned=poisoned, keep_steps=(12,))
    assert "returning to step 10 and continuing with the next global batch" in caplog.text
    digests = [sha256_of_file(tmp_path / name / "model.safetensors") for name in ("whole", "phase")]
    assert digests[0] == digests[1]
    # Training came to step 12 again, with other weights.
    assert read_json(tmp_path / "phase/checkpoints/step-00000012/state.json")["skipped_in_a_row"] == []


def test_a_stop_among_skipped_batches_leaves_the_checkpoint_of_its_step_as_it_was(group, card, tmp_path, caplog):
    """It is the one to return to."""
    poisoned = set(range(5, 5 + MAX_SKIPPED_IN_A_ROW))
    run_phase(group, card, tmp_path / "whole", poisoned=poisoned, log_every=1)
    for stop_at in (8, 9):
        run_phase(group, card, tmp_path / "phase", poisoned=poisoned, stop_at=stop_at, log_every=1)
        assert read_json(tmp_path / "phase/checkpoints/step-00000005/state.json")["skipped"] == 0
    caplog.clear()
    run_phase(group, card, tmp_path / "phase", poisoned=poisoned, log_every=1)
    assert "returning to step 5 and continuing with the next global batch" in caplog.text
    whole, phase = (
        [(point["step"], *(point["metrics"].get(name) for name in EXACT)) for point in journal(tmp_path / name)]
        for name in ("whole", "phase")
    )
    assert whole == phase
    digests = [sha256_of_file(tmp_path / name / "model.safetensors") for name in ("whole", "phase")]
    assert digests[0] == digests[1]
    positions = [read_json(tmp_path / name / "recipe.json")["next_position"] for name in ("whole", "phase")]
    assert positions == [(40 + MAX_SKIPPED_IN_A_ROW) * 16] * 2


@pytest.mark.parametrize(("batch", "step"), [(9, 5), (39, 35)])
def test_weights_that_are_not_finite_are_neither_saved_nor_published(group, card, tmp_path, caplog, batch, step):
    """Also those of the last step."""
    run_phase(group, card, tmp_path / "phase", poisoned={batch}, what="weights")
    assert (
        f"step {batch + 1}: a weight is not finite; returning to step {step} and continuing with the next"
        in caplog.text
    )
    weights = load_file(tmp_path / "phase/model.safetensors")
    assert all(weight.isfinite().all() for weight in weights.values())
    assert [point["step"] for point in journal(tmp_path / "phase")] == [0, 1, 10, 20, 30, 40]


def test_weights_that_are_not_finite_before_the_first_checkpoint_are_one_line(group, card, tmp_path):
    with pytest.raises(BertlineError, match="step 5: a weight is not finite, and there is no checkpoint to return to"):
        run_phase(group, card, tmp_path / "phase", poisoned={4}, what="weights")


def test_the_loss_scale_is_carried_over_with_everything(group, card, tmp_path, monkeypatch):
    monkeypatch.setattr("bertline.training.phase.prepare_device", lambda *given: None)  # CPUs compute in fp16, slowly
    monkeypatch.setattr("bertline.training.scaling.GROWS_AFTER", 2)
    common = {"optimizer": "adamw", "schedule": "constant", "learning_rate": 1e-3, "precision": "fp16"}
    options = {"poisoned": set(), "log_every": 1}
    run_phase(group, card, tmp_path / "whole", given=recipe(steps=6, **common), **options)
    run_phase(group, card, tmp_path / "first", given=recipe(steps=3, **common), **options)
    following = {"fingerprint": "b" * 16, "initial_weights": {"phase": "a" * 16}}
    for carry_over in ("everything", "weights+moments"):
        given = {**recipe(steps=3, carry_over=carry_over, **common), **following}
        run_phase(group, card, tmp_path / carry_over, given=given, before=tmp_path / "first", **options)
    whole, everything, moments = (
        [point["metrics"]["train/loss_scale"] for point in journal(tmp_path / name)[1:]]
        for name in ("whole", "everything", "weights+moments")
    )
    assert everything == whole[3:]
    assert moments == whole[:3]


def test_a_first_loss_scale_is_taken_if_the_phase_before_had_another_precision(group, card, tmp_path, monkeypatch):
    monkeypatch.setattr("bertline.training.phase.prepare_device", lambda *given: None)  # CPUs compute in fp16, slowly
    common = {"optimizer": "adamw", "schedule": "constant", "learning_rate": 1e-3, "steps": 2}
    run_phase(group, card, tmp_path / "first", given=recipe(**common), poisoned=set())
    given = {
        **recipe(**common, precision="fp16", carry_over="everything"),
        **{"fingerprint": "b" * 16, "initial_weights": {"phase": "a" * 16}},
    }
    run_phase(group, card, tmp_path / "second", given=given, before=tmp_path / "first", poisoned=set())
    assert journal(tmp_path / "second")[1]["metrics"]["train/loss_scale"] == scaling.FIRST


def test_a_step_for_which_the_loss_scale_was_too_high_is_not_counted_as_skipped(group, card, tmp_path, monkeypatch):
    """But its samples are used."""
    monkeypatch.setattr("bertline.training.phase.prepare_device", lambda *given: None)  # CPUs compute in fp16, slowly
    given = recipe(steps=4, optimizer="adamw", learning_rate=1e-3, precision="fp16")
    phase = run_phase(group, card, tmp_path / "phase", given=given, poisoned={1, 3}, log_every=1)
    assert (phase.progress.skipped, phase.progress.backed_off) == (2, 2)
    points = [point["metrics"] for point in journal(tmp_path / "phase")[1:]]
    assert [point["train/skipped_steps"] for point in points] == [0, 0, 0, 0]
    assert [point["train/loss_scale"] for point in points] == [scaling.FIRST / 2**halved for halved in (0, 1, 2, 2)]
    frozen = read_json(tmp_path / "phase/recipe.json")
    assert (frozen["skipped_steps"], frozen["next_position"]) == (0, 6 * 16)


def test_points_of_the_journal_that_were_lost_since_a_checkpoint_are_reported(group, card, tmp_path, caplog):
    options, path = {"poisoned": {2}, "steps": 16, "log_every": 1}, tmp_path / "phase/checkpoints/journal.jsonl"
    for stop_at in (8, 9, 13):
        run_phase(group, card, tmp_path / "phase", **options, stop_at=stop_at)
    assert "points" not in caplog.text
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]))
    run_phase(group, card, tmp_path / "phase", **options)
    assert f"{path} lacks {len(lines) - 6} of its points up to step 12: they are lost" in caplog.text
    assert [point["step"] for point in journal(tmp_path / "phase")] == [*range(6), *range(13, 17)]


def test_averages_of_a_stopped_training_are_those_of_one_that_was_not(group, card, tmp_path):
    """A point has the mean of all steps since the last one, also of those before the stop."""
    options = {"poisoned": {2}, "steps": 12, "log_every": 10}
    run_phase(group, card, tmp_path / "whole", **options)
    run_phase(group, card, tmp_path / "parts", **options, stop_at=8)
    run_phase(group, card, tmp_path / "parts", **options)
    whole, parts = (
        [{key: value for key, value in point["metrics"].items() if key in EXACT} for point in journal(tmp_path / name)]
        for name in ("whole", "parts")
    )
    assert whole == parts
    assert len(whole[2]) == len(EXACT)


def test_a_kill_after_a_repeated_evaluation_writes_its_point_once(group, card, tmp_path, monkeypatch):
    """Training was stopped within the evaluation of step 4, and killed before a checkpoint after its repetition."""
    options = {"poisoned": set(), "steps": 8, "evaluate_every": 4, "log_every": 2}
    run_phase(group, card, tmp_path / "whole", **options)
    with monkeypatch.context() as stopped:
        stopped.setattr(Phase, "_stop_is_seen", lambda phase: phase.progress.step == 4)
        assert run_phase(group, card, tmp_path / "parts", **options, stop_at=4).progress.unreported
    with monkeypatch.context() as killed:
        killed.setattr(CheckpointWriter, "start", lambda *given: None)
        assert not run_phase(group, card, tmp_path / "parts", **options, stop_at=5).progress.unreported
    # Its checkpoint was not written again, as it is by a process that lives on.
    state = tmp_path / "parts/checkpoints/step-00000004/state.json"
    assert read_json(state)["unreported"]
    run_phase(group, card, tmp_path / "parts", **options, stop_at=5)
    assert not read_json(state)["unreported"]
    run_phase(group, card, tmp_path / "parts", **options)
    whole, parts = (
        [(point["step"], point["metrics"].get("held_out/mlm_loss")) for point in journal(tmp_path / name)]
        for name in ("whole", "parts")
    )
    assert whole == parts


def test_checkpoints_of_both_intervals_are_written_and_those_to_keep_are_kept(group, card, tmp_path):
    run_phase(group, card, tmp_path / "phase", poisoned=set(), steps=16, keep_every=7)  # besides every 5 steps
    assert sorted(map(step_of, (tmp_path / "phase/checkpoints").glob("step-*"))) == [0, 7, 14, 15, 16]


def test_a_checkpoint_that_is_asked_for_by_its_step_is_kept_after_a_skipped_batch(group, card, tmp_path):
    phase = run_phase(group, card, tmp_path / "phase", poisoned={4}, steps=8)
    assert phase.progress.skipped == 1
    assert {step_of(path) for path in (tmp_path / "phase/checkpoints").glob("step-*")} >= {5, 8}


def test_a_resumed_training_uses_no_file_of_its_checkpoint(group, card, tmp_path):
    """On NFS it could not be deleted."""
    run_phase(group, card, tmp_path / "phase", poisoned=set(), steps=8, stop_at=6)
    lock = TrainingLock(tmp_path / "phase/checkpoints")
    assert lock.try_acquire() is None
    phase = Phase(recipe(steps=8), card, tmp_path / "phase", group, lock, Options(), StopSignal())
    phase.begin()
    mapped = Path("/proc/self/maps").read_text()
    phase.learner.accumulator.close()
    lock.release()
    assert str(tmp_path / "phase/checkpoints/step-") not in mapped


def test_a_stop_after_a_first_batch_that_kfac_made_infinite_is_resumed_with_the_same_bits(
    group, card, tmp_path, monkeypatch
):
    """Its checkpoint, of step 0, has K-FAC's factors and no moments."""
    precondition, computed = Kfac.precondition, []

    def precondition_poisoned(self, *given, **options):
        precondition(self, *given, **options)
        if not computed:
            next(iter(self._layers.values())).module.weight.grad.fill_(math.inf)
        computed.append(1)

    monkeypatch.setattr(Kfac, "precondition", precondition_poisoned)
    kfac = {
        "method": "eigen", "decay": 0.95, "damping": 0.003, "kl_clip": 0.001, "factor_interval": 1,
        "inverse_interval": 10, "skip": [], "gradient_factor": "batch",
    }  # fmt: skip
    options = {"poisoned": set(), "given": recipe(steps=3, kfac=kfac)}
    assert run_phase(group, card, tmp_path / "whole", **options).progress.skipped == 1
    computed.clear()
    stopped = run_phase(group, card, tmp_path / "parts", stop_at=1, **options)
    assert (stopped.progress.step, stopped.progress.skipped) == (0, 1)
    run_phase(group, card, tmp_path / "parts", **options)
    assert len(computed) == 1 + 3
    weights = [sha256_of_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_a_stop_whose_checkpoint_cannot_be_written_does_not_end_as_saved(group, card, tmp_path, monkeypatch, caplog):
    def fill_disk(*given, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(loop, "join_group", lambda threads: group)
    monkeypatch.setattr(checkpoints, "save_checkpoint", fill_disk)
    with caplog.at_level("INFO"), pytest.raises(OSError, match="No space left on device"):
        loop.train(
            recipe(steps=4), card, tmp_path / "phase", initial_weights=None, options=Options(threads=1),
            stop_signal=StopSignal(0.0),
        )  # fmt: skip
    assert "is saved" not in caplog.text


def test_a_profile_counts_steps_and_not_skipped_batches(group, card, tmp_path, monkeypatch):
    """The first batch is skipped. A profile of steps 2 and 3 begins after its function is called once."""
    train_step, updated, calls = phase.train_step, [], []

    def train_step_poisoned(learner, step, batch_number, *given):
        learner.scale.value = math.inf if batch_number == 0 else 1.0
        result = train_step(learner, step, batch_number, *given)
        updated.append(result.updated)
        return result

    @contextmanager
    def profiled(steps, folder, *, done):
        assert (steps, done) == ((2, 3), 0)
        yield lambda: calls.append(sum(updated))

    monkeypatch.setattr(loop, "join_group", lambda threads: group)
    monkeypatch.setattr(loop, "profiled", profiled)
    monkeypatch.setattr(phase, "train_step", train_step_poisoned)
    loop.train(
        recipe(steps=4), card, tmp_path / "phase", initial_weights=None, options=Options(threads=1, profile=(2, 3)),
        stop_signal=StopSignal(),
    )  # fmt: skip
    assert updated == [False, True, True, True, True]
    assert calls == [1, 2, 3, 4]


def test_two_ranks_skip_what_is_not_finite_on_one_and_continue_later_with_the_same_bits(card, tmp_path):
    given = {"poisoned": {3, 4, 9}, "steps": 14}
    assert run_two_ranks(card, tmp_path / "whole", **given)[:2] == (0, ["14 3", "14 3"])
    # Stopped between two skipped batches.
    assert run_two_ranks(card, tmp_path / "parts", **given, stop_at=4)[1] == ["3 1", "3 1"]
    assert run_two_ranks(card, tmp_path / "parts", **given)[1] == ["14 3", "14 3"]
    assert sha256_of_file(tmp_path / "parts" / "model.safetensors") == sha256_of_file(
        tmp_path / "whole" / "model.safetensors"
    )


def test_two_ranks_roll_back_together_and_stop_together_if_it_does_not_help(card, tmp_path):
    poisoned = set(range(12, 12 + MAX_SKIPPED_IN_A_ROW))
    status, counts, text = run_two_ranks(card, tmp_path / "phase", poisoned=poisoned, steps=13)
    assert (status, counts) == (0, [f"13 {MAX_SKIPPED_IN_A_ROW + 2}"] * 2)
    assert "returning to step 10 and continuing with the next global batch" in text
    status, counts, text = run_two_ranks(card, tmp_path / "other", poisoned=set(range(12, 200)))
    assert (status, counts) == (1, [])
    assert "also after returning to step 10; lower learning_rate" in text


def test_when_that_does_not_help_it_stops_with_an_explanation(group, card, tmp_path):
    with pytest.raises(BertlineError, match=r"10 times in a row, also after returning to step 10; lower learning_rate"):
        run_phase(group, card, tmp_path / "phase", poisoned=set(range(12, 200)))
    with pytest.raises(BertlineError, match="there is no checkpoint to return to"):
        run_phase(group, card, tmp_path / "other", poisoned=set(range(3, 200)))


def test_a_loss_that_is_never_finite_stops_the_run_in_one_line(card, tmp_path):
    given = recipe(steps=20, learning_rate=1e30, optimizer="adamw", warmup=0)
    trainer = Trainer(given, card, tmp_path / "phase", checkpoint_every=1)
    assert trainer.finish() == 1
    assert "lower learning_rate or lengthen warmup" in trainer.log.read_text().splitlines()[-1]
    assert "Traceback" not in trainer.log.read_text()


def test_where_checkpoints_are_kept_that_of_step_0_is_one_and_training_resumes_from_it(card, tmp_path):
    output, given = tmp_path / "phase", recipe(steps=4)
    train(given, card, output, checkpoint_every=2, keep_every=2, keep_checkpoints=1)
    checkpoints = sorted((output / "checkpoints").glob("step-*"))
    assert [step_of(path) for path in checkpoints] == [0, 2, 4]
    digest = sha256_of_file(output / "model.safetensors")
    for path in checkpoints[1:]:
        shutil.rmtree(path)
    (output / "recipe.json").unlink()
    resumed = train(given, card, output)
    assert "at step 0" in resumed.log.read_text()
    assert sha256_of_file(output / "model.safetensors") == digest


def test_the_same_command_changes_nothing_of_a_finished_phase(card, tmp_path):
    """Not its record either, although the options are others and its checkpoints are gone."""
    output, given = tmp_path / "phase", recipe(steps=4)
    train(given, card, output, keep_every=3)
    assert [step_of(path) for path in sorted((output / "checkpoints").glob("step-*"))] == [0, 3, 4]
    shutil.rmtree(output / "checkpoints")
    before = {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()}
    again = train(given, card, output, micro_batch_tokens=64, log_every=1)
    assert "finished before" in again.log.read_text()
    assert {path.name: path.read_bytes() for path in output.iterdir() if path.is_file()} == before
