"""Whole phases of a very small model, undisturbed, killed, stopped and continued."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, journal, train
from transformers import BertForPreTraining

from bertline.console import BertlineError
from bertline.files import read_json, sha256_of_file, write_json
from bertline.modeling import bert
from bertline.modeling.huggingface import export_huggingface
from bertline.training.data.opening import open_training_data
from bertline.training.initial import carried_over_position, make_model
from bertline.training.publishing import export_phase

LONG = recipe(steps=60)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


@pytest.fixture(scope="module")
def finished(card, tmp_path_factory):
    """One rank, undisturbed."""
    output = tmp_path_factory.mktemp("finished") / "phase"
    train(LONG, card, output, evaluate_every=20)
    return output


def test_a_phase_learns_and_leaves_its_outputs(card, finished):
    assert sorted(path.name for path in finished.iterdir()) == [
        "checkpoints", "dataset.json", "metrics.jsonl", "model.safetensors", "recipe.json",
    ]  # fmt: skip
    points = journal(finished)
    assert [point["step"] for point in points] == [0, 1, 10, 20, 30, 40, 50, 60]
    evaluated = [point["step"] for point in points if "held_out/mlm_loss" in point["metrics"]]
    assert evaluated == [0, 20, 40, 60]
    first, last = points[0]["metrics"], points[-1]["metrics"]
    assert last["held_out/mlm_loss"] < first["held_out/mlm_loss"]
    assert last["train/samples"] == 960
    assert last["train/tokens"] > 10_000
    for key in ("train/mlm_loss", "train/pair_loss", "train/gradient_norm", "train/tokens_per_second"):
        assert last[key] > 0
    assert last["system/memory_megabytes"] > 50
    frozen = json.loads((finished / "recipe.json").read_text())
    assert frozen["settings"] == LONG["settings"]
    assert frozen["model"]["vocab_size"] == 75
    assert frozen["dataset_digest"] == sha256_of_file(card)
    assert frozen["finished"] >= frozen["started"]
    assert not (finished / "checkpoints" / "lock.json").exists()


def test_a_finished_phase_is_exported(card, finished, tmp_path):
    export_phase(finished, card.parent / "tokenizer.json", tmp_path / "export")
    assert BertForPreTraining.from_pretrained(tmp_path / "export").config.vocab_size == 75


def test_a_length_that_is_no_multiple_of_eight_may_be_all_that_the_network_has_positions_for(tmp_path):
    card = write_dataset(tmp_path / "data", length=30, draw_length=lambda random: int(random.integers(20, 31)))
    given = recipe(sequence_length=30, steps=2, global_batch_size=8)
    given["model"] = {**given["model"], "max_position_embeddings": 30}
    train(given, card, tmp_path / "phase")
    assert (tmp_path / "phase/recipe.json").exists()


def test_training_on_masked_words_only_does_not_change_the_weights_for_pairs(card, tmp_path):
    """On any number of ranks, and stopped and resumed."""
    without = read_json(card)
    without["settings"]["pair_objective"] = "none"
    write_json(card.parent / "without_pairs.json", without)
    card = card.parent / "without_pairs.json"
    given = recipe(steps=4)
    assert Trainer(given, card, tmp_path / "one", stop_after_minutes=0.0).finish() == 75
    train(given, card, tmp_path / "one")
    train(given, card, tmp_path / "two", ranks=2)
    before = make_model(given, open_training_data(card, 32, torch.device("cpu"))).state_dict()
    for output in (tmp_path / "one", tmp_path / "two"):
        after = load_file(output / "model.safetensors")
        for name in ("encoder.pooler.weight", "encoder.pooler.bias", "pair_head.weight", "pair_head.bias"):
            assert torch.equal(after[name], before[name])
        assert not torch.equal(after["encoder.embeddings.word.weight"], before["encoder.embeddings.word.weight"])
        assert not any("pair" in name for point in journal(output) for name in point["metrics"])


def test_resumed_on_other_ranks_it_lists_what_is_no_longer_the_same(card, tmp_path):
    output = tmp_path / "phase"
    trainer = Trainer(LONG, card, output, checkpoint_every=3)
    assert trainer.kill_when(lambda: (output / "checkpoints" / "step-00000009").exists())
    resumed = train(LONG, card, output, ranks=2)
    assert "world_size was 1 and is 2: same samples in the same batches" in resumed.log.read_text()
    assert journal(output)[-1]["step"] == 60


def test_deterministic_kernels_have_the_same_bits_on_a_cpu(card, tmp_path):
    given = recipe(steps=4, packing=True, precision="bf16")
    given["model"] = {**given["model"], "attention_probs_dropout_prob": 0.0}
    train(given, card, tmp_path / "plain")
    stopped = Trainer(given, card, tmp_path / "phase", deterministic=True, stop_after_minutes=0.0)
    assert stopped.finish() == 75
    resumed = train(given, card, tmp_path / "phase")
    assert "no longer the same bits" not in resumed.log.read_text()
    assert sha256_of_file(tmp_path / "phase/model.safetensors") == sha256_of_file(tmp_path / "plain/model.safetensors")


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_with_two_threads_a_stopped_phase_ends_with_the_same_bits(card, tmp_path, compiled, packing):
    given, options = recipe(steps=8, packing=packing), {"compiled": compiled, "threads": 2, "micro_batch_tokens": 256}
    if compiled:
        given["model"] = {**given["model"], "num_hidden_layers": 1}  # compiles in half the time
    train(given, card, tmp_path / "whole", **options)
    assert Trainer(given, card, tmp_path / "phase", **options, stop_after_minutes=0.0).finish() == 75
    resumed = train(given, card, tmp_path / "phase", **options)
    assert "no longer the same bits" not in resumed.log.read_text()
    assert sha256_of_file(tmp_path / "phase/model.safetensors") == sha256_of_file(tmp_path / "whole/model.safetensors")


def test_another_instruction_set_and_activation_checkpointing_are_reported_when_it_resumes(card, tmp_path):
    given, output = recipe(steps=2), tmp_path / "phase"
    assert Trainer(given, card, output, stop_after_minutes=0.0).finish() == 75
    resumed = train(given, card, output, environment={"ONEDNN_MAX_CPU_ISA": "avx2"}, activation_checkpointing=True)
    here = torch.backends.cpu.get_cpu_capability()
    log = resumed.log.read_text()
    assert f"instruction_set was {here} and is {here}, oneDNN up to AVX2: same samples" in log
    assert "activation_checkpointing was False and is True" in log


def test_resumed_with_another_number_of_threads_it_keeps_the_old_one_and_reports_it(card, tmp_path):
    given, output = recipe(steps=2), tmp_path / "phase"
    assert Trainer(given, card, output, threads=2, stop_after_minutes=0.0).finish() == 75
    shutil.copytree(output, tmp_path / "other")
    log = train(given, card, output, threads=1).log.read_text()
    assert "threads of a process: 2, as before, for the same bits; --no-keep-threads takes the 1 given now" in log
    assert "no longer the same bits" not in log
    assert json.loads((output / "recipe.json").read_text())["threads"] == 2

    log = train(given, card, tmp_path / "other", threads=1, keep_threads=False).log.read_text()
    assert "threads was 2 and is 1: same samples in the same batches, but no longer the same bits" in log
    assert json.loads((tmp_path / "other/recipe.json").read_text())["threads"] == 1


def files_in(output):
    return {path: path.read_bytes() for path in output.rglob("*") if path.is_file() and path.name != ".lock.guard"}


def refusal(given, card, output):
    """The one line of a training that is refused, which changes no file."""
    before = files_in(output)
    trainer = Trainer(given, card, output)
    assert trainer.finish() == 1
    assert files_in(output) == before
    assert "Traceback" not in trainer.log.read_text()
    return trainer.log.read_text().splitlines()[-1]


OTHER = {**recipe(steps=4, learning_rate=0.01), "fingerprint": "b" * 16}


def test_a_changed_recipe_never_continues_what_another_began(card, tmp_path):
    output, given = tmp_path / "phase", recipe(steps=3)
    assert Trainer(given, card, output, stop_after_minutes=0.0).finish() == 75
    expected = f"error: {output} is the unfinished phase {'a' * 16}, not {'b' * 16}; name another output"
    assert refusal(OTHER, card, output) == expected
    (output / "checkpoints/recipe.json").unlink()
    assert "step-00000001 is a checkpoint of another model than bbbb" in refusal(OTHER, card, output)
    train(given, card, output, log_every=1)
    assert [point["step"] for point in journal(output)] == [0, 1, 2, 3]


def test_a_changed_recipe_never_replaces_what_another_finished(card, tmp_path):
    """Also when its checkpoints are gone."""
    output, given = tmp_path / "phase", recipe(steps=3)
    train(given, card, output)
    expected = f"error: {output} is the finished phase {'a' * 16}, not {'b' * 16}; name another output"
    assert refusal(OTHER, card, output) == expected
    shutil.rmtree(output / "checkpoints")
    assert refusal(OTHER, card, output) == expected
    assert "finished before" in train(given, card, output).log.read_text()


def test_a_second_trainer_waits_or_reports_the_lock(card, tmp_path):
    output = tmp_path / "phase"
    first = Trainer(recipe(steps=120), card, output)
    while not (output / "checkpoints" / "lock.json").exists():
        time.sleep(0.01)
    second = Trainer(recipe(steps=120), card, output, when_locked="stop")
    assert second.finish() == 1
    assert "is training this; let it finish or stop it; after a reboot" in second.log.read_text()
    third = Trainer(recipe(steps=120), card, output)
    while "waiting until it is done" not in third.log.read_text():
        assert third.running()
        time.sleep(0.01)
    first.signal(signal.SIGTERM)
    assert first.finish() == 75
    assert third.finish() == 0
    assert "resuming" in third.log.read_text()


@pytest.mark.parametrize("kind", ["lamb", "adamw"])
def test_the_second_phase_takes_weights_and_moments_over(card, tmp_path, kind):
    first, second, third = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    train(recipe(steps=5, optimizer=kind), card, first)
    next_recipe = {
        **recipe(steps=1, optimizer=kind, learning_rate=1e-3, schedule="constant", warmup=0),
        "fingerprint": "b" * 16,
        "initial_weights": {"phase": "a" * 16},
    }
    train(next_recipe, card, second, initial_weights=first / "model.safetensors")
    moments = load_file(second / "checkpoints" / "step-00000001" / "optimizer.safetensors")
    before = load_file(first / "checkpoints" / "step-00000005" / "optimizer.safetensors")
    name = "encoder.layers.0.qkv.weight"
    # LAMB's bias correction starts anew, AdamW's goes on.
    assert moments[f"{name}.step"] == (1 if kind == "lamb" else 6)
    # One gradient explains both moments only if they go on from the phase before.
    gradient = (moments[f"{name}.exp_avg"] - 0.9 * before[f"{name}.exp_avg"]) / 0.1
    expected = 0.999 * before[f"{name}.exp_avg_sq"] + 0.001 * gradient**2
    torch.testing.assert_close(moments[f"{name}.exp_avg_sq"], expected, rtol=1e-3, atol=1e-16)

    without = {**next_recipe, "settings": {**next_recipe["settings"], "carry_over": "weights"}}
    train({**without, "fingerprint": "c" * 16}, card, third, initial_weights=first)
    fresh = load_file(third / "checkpoints" / "step-00000001" / "optimizer.safetensors")
    assert fresh[f"{name}.step"] == 1
    start = load_file(first / "model.safetensors")[name]
    for folder in (second, third):
        moved = (load_file(folder / "model.safetensors")[name] - start).abs().max()
        assert 0 < moved < 0.02


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_a_phase_is_made_longer_by_one_that_takes_everything_over(card, tmp_path, kind):
    """Two phases of 6 steps end with the bits of one of 12, because nothing starts anew."""
    common = {"optimizer": kind, "schedule": "constant", "warmup": 0, "learning_rate": 1e-3}
    train(recipe(steps=12, **common), card, tmp_path / "whole")
    train(recipe(steps=6, **common), card, tmp_path / "first")
    longer = {
        **recipe(steps=6, carry_over="everything", **common),
        "fingerprint": "b" * 16,
        "model": {**LONG["model"], "hidden_dropout_prob": 0.1},
        "initial_weights": {"phase": "a" * 16},
    }
    train(longer, card, tmp_path / "second", initial_weights=tmp_path / "first")
    assert json.loads((tmp_path / "second/recipe.json").read_text())["next_position"] == 12 * 16
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "second"))
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("between", [False, True])
def test_a_phase_with_the_same_data_as_an_earlier_one_continues_in_it(card, tmp_path, between):
    """It would see the same samples in the same order, with the same masks; also with another phase between them."""
    folders = [tmp_path / (digit * 16) for digit in "abc"]
    train(recipe(steps=6), card, folders[0])
    before = {"phase": "a" * 16}
    if between:
        other = {**recipe(steps=2, carry_over="weights"), "seed": 43, "fingerprint": "b" * 16}
        train({**other, "initial_weights": before}, card, folders[1], initial_weights=folders[0])
        before = {"phase": "b" * 16}
    # Runs have links to their phases, which are next to each other elsewhere.
    link = tmp_path / "runs/demo/last"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / before["phase"])
    continued = {
        **recipe(steps=3, carry_over="weights"),
        "fingerprint": "c" * 16,
        "initial_weights": before,
        "continues_data_of": "a" * 16,
    }
    train(continued, card, folders[2], initial_weights=link)
    assert read_json(folders[2] / "checkpoints/step-00000003/state.json")["first_position"] == 6 * 16
    assert read_json(folders[2] / "recipe.json")["next_position"] == 9 * 16
    assert journal(folders[2])[-1]["metrics"]["train/samples"] == 3 * 16


def test_a_phase_whose_data_continues_has_to_be_next_to_the_one_before(tmp_path):
    continued = {**recipe(), "initial_weights": {"phase": "b" * 16}, "continues_data_of": "a" * 16}
    with pytest.raises(BertlineError, match=rf"phase {'a' * 16}: its folder .* is not next to {tmp_path}/{'b' * 16}"):
        carried_over_position(continued, tmp_path / ("b" * 16))


def test_data_cannot_continue_in_another_dataset(card, tmp_path):
    train(recipe(steps=1), card, tmp_path / "first")
    longer = {
        **recipe(steps=1, carry_over="everything"),
        "seed": 43,
        "fingerprint": "b" * 16,
        "initial_weights": {"phase": "a" * 16},
    }
    trainer = Trainer(longer, card, tmp_path / "second", initial_weights=tmp_path / "first")
    assert trainer.finish() == 1
    assert "seed was 42" in trainer.log.read_text().splitlines()[-1]


def test_weights_of_another_vocabulary_are_refused_in_one_line(card, tmp_path):
    other_card = write_dataset(tmp_path / "other", reversed_words=True)
    model = bert.BertForPreTraining(bert.BertConfig.from_dict({**LONG["model"], "vocab_size": 75}))
    export_huggingface(model.config, model.state_dict(), other_card.parent / "tokenizer.json", tmp_path / "bert")
    given = {**recipe(steps=1), "initial_weights": {"directory": str(tmp_path / "bert")}}
    trainer = Trainer(given, card, tmp_path / "phase")
    assert trainer.finish() == 1
    assert re.search(
        r"tokenizer\.json: '.*' is entry \d+, but \d+ of .*tokenizer\.json; build the", trainer.log.read_text()
    )
    assert "Traceback" not in trainer.log.read_text()
    train(given, other_card, tmp_path / "fitting")

    given = {**recipe(steps=1), "fingerprint": "b" * 16, "initial_weights": {"phase": "a" * 16}}
    trainer = Trainer(given, card, tmp_path / "next", initial_weights=tmp_path / "fitting")
    assert trainer.finish() == 1
    assert "have different tokenizers" in trainer.log.read_text()


def test_a_numbered_order_has_other_samples_and_masks(card, tmp_path):
    """Which a phase gets whose weights of corpora are not those of an earlier one."""
    seen = []
    for number, order in enumerate(({}, {"data_order": 1}, {"data_order": 2}, {"data_order": 1})):
        train({**recipe(steps=1, global_batch_size=4), **order}, card, tmp_path / str(number), log_every=1)
        seen.append(journal(tmp_path / str(number))[1]["metrics"]["train/mlm_loss"])
    assert seen[1] == seen[3]
    assert len(set(seen)) == 3
