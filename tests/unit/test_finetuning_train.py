"""Fine-tuning: batches, the optimizer, and whole runs of a tiny network."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from finetuning_helpers import (
    MODEL,
    NAMES,
    NO_DROPOUT,
    PLACES,
    WORDS,
    Json,
    recipe_for,
    write_cola,
    write_conll,
    write_squad,
    write_tokenizer,
)

from bertline.console import BertlineError
from bertline.encoding.tokenizer import make_tokenizer, read_tokenizer, save_tokenizer
from bertline.finetuning import loop, step
from bertline.finetuning.batches import evaluation_batches, pad, training_batches
from bertline.finetuning.loop import predict
from bertline.finetuning.losses import loss_of, number_of_terms, targets_of
from bertline.finetuning.optimizer import BETAS, EPSILON, layerwise_factor, make_optimizer, set_learning_rate
from bertline.finetuning.options import Options
from bertline.finetuning.prediction import load_finetuned
from bertline.finetuning.prepared import prepare_task
from bertline.finetuning.sequences import make_sequences
from bertline.finetuning.train import check_recipe, finetune, make_model
from bertline.modeling.architectures import architecture_of
from bertline.modeling.bert import BertForPreTraining, make_task_network
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import BertConfig, config_from_dict
from bertline.training.contract import FAILED
from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.registry import make_optimizer as make_pretraining_optimizer

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


# Batches


def test_an_epoch_of_batches_holds_every_input_once() -> None:
    lengths = np.random.default_rng(0).integers(3, 90, size=203)
    batches = list(islice(training_batches(lengths, 4, seed=7), 2 * 51))
    for epoch in (batches[:51], batches[51:]):
        assert sorted(np.concatenate(epoch)) == list(range(203))
    assert not all(np.array_equal(a, b) for a, b in zip(batches[:51], batches[51:], strict=True))
    again = islice(training_batches(lengths, 4, seed=7), 2 * 51)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_batches_need_little_padding() -> None:
    lengths = np.random.default_rng(0).integers(3, 90, size=4000)
    batches = list(islice(training_batches(lengths, 16, seed=7), 250))
    padded = sum(len(rows) * lengths[rows].max() for rows in batches)
    assert padded < 1.06 * lengths.sum()


def test_the_shortest_inputs_do_not_always_share_a_batch() -> None:
    lengths = np.arange(3, 67)
    batches = list(islice(training_batches(lengths, 4, seed=7), 10 * 16))
    beside_the_shortest = {int(index) for rows in batches if 0 in rows for index in rows}
    assert len(beside_the_shortest) > 8


def test_batches_of_short_and_of_long_inputs_follow_each_other_in_no_order() -> None:
    lengths = np.random.default_rng(0).integers(3, 90, size=4000)
    batches = list(islice(training_batches(lengths, 16, seed=7), 250))
    rises = np.diff([lengths[rows].mean() for rows in batches]) > 0
    assert 0.4 < rises.mean() < 0.6


def test_evaluation_batches_hold_every_input_once_and_no_more_tokens_than_allowed() -> None:
    lengths = np.random.default_rng(0).integers(3, 90, size=203)
    batches = list(evaluation_batches(lengths, 200))
    assert sorted(np.concatenate(batches)) == list(range(203))
    assert max(len(rows) * lengths[rows].max() for rows in batches) <= 200
    assert [len(rows) for rows in evaluation_batches(np.array([300, 5]), 200)] == [1, 1]
    assert [len(rows) for rows in evaluation_batches(np.full(11, 20), 200)] == [10, 1]


def test_padded_batches_hold_the_inputs_and_their_segments(tokenizer: Path) -> None:
    sequences = make_sequences([([7, 8], [9]), ([7], None)], read_tokenizer(tokenizer))
    assert sequences.second_segment_start.tolist() == [4, 0]
    input_ids, token_type_ids, mask = pad(sequences, np.array([1, 0]), 0, torch.device("cpu"))
    assert input_ids.tolist() == [[2, 7, 3, 0, 0, 0], [2, 7, 8, 3, 9, 3]]
    assert token_type_ids.tolist() == [[0] * 6, [0, 0, 0, 0, 1, 1]]
    assert mask is not None
    assert mask.tolist() == [[True] * 3 + [False] * 3, [True] * 6]
    shorter = make_sequences([([7, 8], [9]), ([7], [9])], read_tokenizer(tokenizer))
    assert pad(shorter, np.array([0, 1]), 0, torch.device("cpu"))[1].tolist() == [
        [0, 0, 0, 0, 1, 1],
        [0, 0, 0, 1, 1, 0],
    ]
    assert pad(sequences, np.array([0]), 0, torch.device("cpu"))[2] is None


# The optimizer


def test_lower_layers_move_by_smaller_steps() -> None:
    model = make_task_network(BertConfig.from_dict({"vocab_size": 40, **MODEL, "num_hidden_layers": 3}), "sequence", 2)
    factors = [layerwise_factor(name, 3, 0.5) for name, _ in model.named_parameters()]
    assert {
        (
            ".".join(name.split(".")[1 : 3 if "layers" in name else 2]) if "encoder." in name else name.split(".")[0],
            factor,
        )
        for (name, _), factor in zip(model.named_parameters(), factors, strict=True)
    } == {
        *(("embeddings", 0.0625), ("layers.0", 0.125), ("layers.1", 0.25), ("layers.2", 0.5)),
        *(("pooler", 1.0), ("classifier", 1.0)),
    }
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = make_optimizer(model, weight_decay=0.0, layerwise_decay=0.5)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    set_learning_rate(optimizer, 1e-2)
    optimizer.step()
    # The first step of Adam is the learning rate, whatever the gradient.
    for (name, weight), factor in zip(model.named_parameters(), factors, strict=True):
        torch.testing.assert_close(start[name] - weight, torch.full_like(weight, 1e-2 * factor), rtol=1e-3, atol=1e-6)


def test_without_layerwise_decay_the_optimizer_is_that_of_pretraining_to_the_last_bit() -> None:
    settings = {"betas": BETAS, "epsilon": EPSILON, "weight_decay": 0.1, "learning_rate": 1e-2, "optimizer": "adamw"}
    results = []
    for is_finetuning in (True, False):
        torch.manual_seed(0)
        model = make_task_network(BertConfig.from_dict({"vocab_size": 40, **MODEL}), "sequence", 2)
        if is_finetuning:
            optimizer: torch.optim.Optimizer = make_optimizer(model, weight_decay=0.1, layerwise_decay=1.0)
            set_learning_rate(optimizer, 1e-2)
        else:
            optimizer = make_pretraining_optimizer(model, settings)
        for _ in range(3):
            ids = torch.randint(40, (4, 6))
            model(ids, torch.zeros_like(ids), None).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        results.append(model.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize(("micro_batch_tokens", "rounding"), [(8192, 0.0), (40, 1e-5)])
def test_word_embeddings_with_gradients_of_few_rows_get_the_bits_of_those_with_whole_ones(
    tmp_path: Path, tokenizer: Path, micro_batch_tokens: int, rounding: float
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    task = prepare_task("cola", recipe["data"], recipe["settings"], tokenizer)
    results = []
    for is_sparse in (True, False):
        torch.manual_seed(0)
        model = make_model({**MODEL, "initializer_range": 0.5}, task, 32, None).train()
        options = Options(threads=1, micro_batch_tokens=micro_batch_tokens)
        learner = step.Learner(model, task, recipe["settings"], 1, Group(0, 1, torch.device("cpu")), options)
        words = model.encoder.embeddings.word
        assert words.sparse
        words.sparse = is_sparse
        votes = dict.fromkeys(step.VOTES, 0.0)
        batches = islice(training_batches(task.train.lengths, 8, seed=7), 4)
        norms = [step.train_step(learner, rows, at, 1e-2, votes).norm for at, rows in enumerate(batches, 1)]
        assert all(norm > step.MAX_GRADIENT_NORM for norm in norms)  # so that every gradient is clipped
        results.append([words.weight.detach(), words.weight.grad, torch.tensor(norms)])
    for ours, whole in zip(*results, strict=True):
        torch.testing.assert_close(ours, whole, rtol=rounding, atol=rounding)


# Whole runs


def test_a_fine_tuning_uses_its_layerwise_decay(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def make(model: TaskNetwork, *, weight_decay: float, layerwise_decay: float) -> torch.optim.AdamW:
        given.append(layerwise_decay)
        return make_optimizer(model, weight_decay=weight_decay, layerwise_decay=layerwise_decay)

    monkeypatch.setattr(step, "make_optimizer", make)
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), epochs=1, layerwise_decay=0.9)
    finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert given == [0.9]


def test_a_tiny_network_learns_32_examples_by_heart(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), epochs=60, model=NO_DROPOUT)
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert metrics["scores"] == {"accuracy": 100.0, "matthews": 100.0}
    assert metrics["baselines"] == {"majority": 0.0}
    written = (tmp_path / "out/predictions.tsv").read_text().splitlines()
    labels = [line.split("\t")[1] for line in (tmp_path / "train.tsv").read_text().splitlines()]
    assert written == ["index\tprediction", *(f"{index}\t{label}" for index, label in enumerate(labels))]


def test_a_tiny_network_learns_to_answer_32_questions(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("squad_v1", write_squad(tmp_path / "squad.json"), epochs=60, model=NO_DROPOUT)
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert metrics["scores"] == {"exact_match": 100.0, "f1": 100.0}
    assert metrics["baselines"]["copy_position"] == pytest.approx(50.0)
    assert metrics["baselines"]["majority"] < 50
    assert len(json.loads((tmp_path / "out/predictions.json").read_text())) == 32


def test_a_tiny_network_learns_to_leave_questions_unanswered(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("squad_v2", write_squad(tmp_path / "squad.json", version_2=True), epochs=60, model=NO_DROPOUT)
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert metrics["scores"]["f1"] == metrics["scores"]["no_answer_f1"] == metrics["scores"]["has_answer_f1"] == 100.0
    assert isinstance(metrics["null_threshold"], float)
    predictions = json.loads((tmp_path / "out/predictions.json").read_text())
    assert all((text == "") == question.endswith("died") for question, text in predictions.items())
    assert len(predictions) == 32


def test_a_tiny_network_learns_a_regression(tmp_path: Path, tokenizer: Path) -> None:
    rows = [f"{NAMES[index % 12]}\t{PLACES[index // 3]}\t{index / 6:.3f}\n" for index in range(30)]
    (tmp_path / "train.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    recipe = recipe_for("stsb", tmp_path / "train.tsv", epochs=60, model=NO_DROPOUT)
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert metrics["scores"]["pearson"] > 95
    assert metrics["baselines"] == {"majority": 0.0}


def test_scores_in_bf16_are_as_distinct_as_those_in_fp32(tmp_path: Path, tokenizer: Path) -> None:
    generator = np.random.default_rng(5)
    rows = [
        f"{' '.join(generator.choice(WORDS, 12))}\t{' '.join(generator.choice(WORDS, 12))}\t{index / 100:.3f}\n"
        for index in range(500)
    ]
    (tmp_path / "train.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    model, distinct = {**NO_DROPOUT, "initializer_range": 0.2}, []
    for precision in ("fp32", "bf16"):
        recipe = recipe_for("stsb", tmp_path / "train.tsv", epochs=1, precision=precision, model=model)
        finetune(recipe, tokenizer, tmp_path / precision, options=Options(threads=1))
        predictions = (tmp_path / precision / "predictions.tsv").read_text().splitlines()
        distinct.append(len({line.split("\t")[1] for line in predictions}))
    assert distinct[1] > 0.9 * distinct[0] > 400


def test_the_same_seed_gives_the_same_predictions_and_another_seed_another_course(
    tmp_path: Path, tokenizer: Path
) -> None:
    file = write_squad(tmp_path / "squad.json")
    courses, predictions = [], []
    for name, seed in (("first", 5), ("second", 5), ("other", 6)):
        finetune(recipe_for("squad_v1", file, seed=seed), tokenizer, tmp_path / name, options=Options(threads=1))
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        courses.append([json.loads(line)["metrics"] for line in lines])
        predictions.append((tmp_path / name / "predictions.json").read_bytes())
    assert courses[0] == courses[1] != courses[2]
    assert predictions[0] == predictions[1]


def test_a_run_leaves_its_declared_files_and_nothing_else(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"metrics.json", "metrics.jsonl", "recipe.json", "predictions.tsv", "huggingface"}
    assert json.loads((tmp_path / "out/metrics.json").read_text()) == metrics
    assert metrics["primary"] in metrics["scores"]
    frozen = json.loads((tmp_path / "out/recipe.json").read_text())
    size = read_tokenizer(tokenizer).get_vocab_size()
    assert {key: frozen[key] for key in recipe} == {**recipe, "model": {**recipe["model"], "vocab_size": size}}
    assert frozen["versions"]["torch"] == torch.__version__
    journal = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [point["step"] for point in journal] == [*range(1, 17), 16]
    assert journal[-1]["metrics"] == {f"dev/{name}": value for name, value in metrics["scores"].items()}
    rates = [point["metrics"]["train/learning_rate"] for point in journal[:-1]]
    assert max(rates) == pytest.approx(2e-3, rel=0.05)
    assert 0 < rates[-1] < rates[2]


def test_a_point_of_the_journal_has_the_mean_loss_of_its_steps_and_the_last_step_has_one(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    losses = {}
    for points in (100, 3):
        monkeypatch.setattr(loop, "JOURNAL_POINTS", points)
        finetune(recipe, tokenizer, tmp_path / str(points), options=Options(threads=1))
        journal = [json.loads(line) for line in (tmp_path / f"{points}/metrics.jsonl").read_text().splitlines()]
        losses[points] = {
            point["step"]: point["metrics"]["train/loss"] for point in journal if "train/loss" in point["metrics"]
        }
    assert list(losses[100]) == list(range(1, 17))
    ranges = {5: range(1, 6), 10: range(6, 11), 15: range(11, 16), 16: [16]}
    means = {last: np.mean([losses[100][step] for step in steps]) for last, steps in ranges.items()}
    assert losses[3] == pytest.approx(means)


def test_predictions_do_not_depend_on_the_batch(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task_name, file in (
        ("cola", write_cola(tmp_path / "train.tsv")),
        ("squad_v1", write_squad(tmp_path / "squad.json")),
    ):
        recipe = recipe_for(task_name, file)
        task = prepare_task(task_name, recipe["data"], recipe["settings"], tokenizer)
        model = make_model(MODEL, task, 32, None)
        together = predict(model, task.dev.inputs, task.padding, "fp32")
        monkeypatch.setattr(loop, "EVALUATION_TOKENS", 1)
        alone = predict(model, task.dev.inputs, task.padding, "fp32")
        monkeypatch.undo()
        assert np.abs(together).max() > 1e-3
        np.testing.assert_allclose(together, alone, atol=1e-6)


def test_the_loss_does_not_depend_on_the_batch(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("squad_v1", write_squad(tmp_path / "squad.json"), max_sequence_length=16, doc_stride=4)
    task = prepare_task("squad_v1", recipe["data"], recipe["settings"], tokenizer)
    model = make_model(MODEL | {"initializer_range": 1.0}, task, 16, None).eval()

    def loss(rows: list[int]) -> torch.Tensor:
        inputs = pad(task.train, np.array(rows), 0, torch.device("cpu"))
        return loss_of(task.head, model(*inputs), torch.from_numpy(task.train_targets[rows]), inputs[2])

    rows = [int(task.train.lengths.argmin()), int(task.train.lengths.argmax())]
    torch.testing.assert_close(loss(rows), loss(rows[:1]) + loss(rows[1:]))


def test_the_loss_of_a_tagger_is_the_mean_over_the_words_of_a_batch(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.conll").write_text("n1 B\nwas O\nborn O\n\nn2 B\n\np1 O\nand O\n")
    data = {split: str(tmp_path / "a.conll") for split in ("train", "dev")}
    table = {"kind": "tagging", "word": 0, "tag": 1}
    task = prepare_task("table/x", data, {"max_sequence_length": 32}, tokenizer, table)
    assert [number_of_terms(task, np.array(rows)) for rows in ([0, 1, 2], [0, 1], [1])] == [6, 4, 1]
    settings, rows = recipe_for("table/x", tmp_path / "a.conll")["settings"], np.arange(3)
    model = make_model(MODEL | NO_DROPOUT, task, 32, None)
    inputs = pad(task.train, rows, 0, torch.device("cpu"))
    expected = loss_of(task.head, model(*inputs), targets_of(task, rows), inputs[2]).item() / 6
    options = Options(threads=1, micro_batch_tokens=1)  # an input each
    learner = step.Learner(model, task, settings, 1, Group(0, 1, torch.device("cpu")), options)
    assert step.train_step(learner, rows, 1, 0.0, dict.fromkeys(step.VOTES, 0.0)).loss == pytest.approx(expected)


def test_pairs_are_cut_to_the_length_and_predictions_bear_official_labels(tmp_path: Path, tokenizer: Path) -> None:
    labels = ["entailment", "not_entailment", "entailment"]
    rows = "".join(f"{index}\t{' '.join(NAMES)}\t{PLACES[index]}\t{label}\n" for index, label in enumerate(labels))
    (tmp_path / "train.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{rows}")
    recipe = recipe_for("rte", tmp_path / "train.tsv", max_sequence_length=10)
    task = prepare_task("rte", recipe["data"], recipe["settings"], tokenizer)
    assert task.train.lengths.tolist() == [10, 10, 10]
    assert task.train.second_segment_start.tolist() == [8, 8, 8]
    task.dev.evaluate(np.eye(2, dtype=np.float32)[[0, 1, 1]]).write_predictions(tmp_path)
    written = (tmp_path / "predictions.tsv").read_text()
    assert written == "index\tprediction\n0\tentailment\n1\tnot_entailment\n2\tnot_entailment\n"


def test_single_sentences_are_cut_to_the_length(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), max_sequence_length=7)
    task = prepare_task("cola", recipe["data"], recipe["settings"], tokenizer)
    assert task.train.lengths.tolist() == [7] * 32


def test_the_majority_baseline_is_the_most_frequent_class_of_training(tmp_path: Path, tokenizer: Path) -> None:
    for split, labels in (("train", "1101"), ("dev", "0010001100")):
        rows = "".join(f"{PLACES[index]}\t{label}\n" for index, label in enumerate(labels))
        (tmp_path / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    recipe = recipe_for("sst2", tmp_path / "train.tsv")
    recipe["data"]["dev"] = str(tmp_path / "dev.tsv")
    task = prepare_task("sst2", recipe["data"], recipe["settings"], tokenizer)
    assert task.baselines == {"majority": pytest.approx(30.0)}
    assert task.examples == {"train": 4, "dev": 10, "train_skipped": 0, "dev_skipped": 0, "dev_in_train": 4}


def test_pretrained_weights_are_where_training_starts(tmp_path: Path, tokenizer: Path) -> None:
    size = len(json.loads(tokenizer.read_text())["model"]["vocab"])
    config = BertConfig.from_dict({"vocab_size": size, **MODEL})
    torch.manual_seed(9)
    pretrained = BertForPreTraining(config)
    export_huggingface(config, pretrained.state_dict(), tokenizer, tmp_path / "huggingface")
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), initial_weights={"phase": "a" * 16})
    task = prepare_task("cola", recipe["data"], recipe["settings"], tokenizer)
    model = make_model({}, task, 32, tmp_path / "huggingface")
    expected = pretrained.encoder.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in model.encoder.state_dict().items())
    finetune(recipe, tokenizer, tmp_path / "out", initial_weights=tmp_path / "huggingface", options=Options(threads=1))
    assert (tmp_path / "out/metrics.json").exists()


@pytest.mark.parametrize("task", ["cola", "squad_v1"])
def test_the_modern_network_is_fine_tuned_from_its_export(tmp_path: Path, tokenizer: Path, task: str) -> None:
    size = len(json.loads(tokenizer.read_text())["model"]["vocab"])
    description = {"architecture": "modern", **{key: MODEL[key] for key in MODEL if "dropout" not in key}}
    config = config_from_dict({"vocab_size": size, **description})
    torch.manual_seed(9)
    pretrained = architecture_of(config).pretraining(config)
    export_huggingface(config, pretrained.state_dict(), tokenizer, tmp_path / "huggingface")
    write = write_cola if task == "cola" else write_squad
    given = recipe_for(task, write(tmp_path / "train.tsv"), initial_weights={"phase": "a" * 16})
    prepared = prepare_task(task, given["data"], given["settings"], tokenizer)
    model = make_model({}, prepared, 32, tmp_path / "huggingface")
    expected, ours = pretrained.state_dict(), model.state_dict()
    assert all(torch.equal(ours[name], expected[name]) for name in ours.keys() & expected.keys())
    assert {name.split(".")[0] for name in ours.keys() & expected.keys()} == {"encoder", "head"}
    finetune(given, tokenizer, tmp_path / "out", initial_weights=tmp_path / "huggingface", options=Options(threads=1))
    assert (tmp_path / "out/metrics.json").exists()
    from_scratch = {**recipe_for(task, tmp_path / "train.tsv"), "model": description}
    finetune(from_scratch, tokenizer, tmp_path / "random", options=Options(threads=1))
    assert (tmp_path / "random/metrics.json").exists()


def test_all_sets_of_mnli_are_predicted(tmp_path: Path, tokenizer: Path) -> None:
    labels = ["entailment", "neutral", "contradiction"]
    for name, count, header in (("train", 9, "gold_label"), ("dev", 6, "gold_label"), ("test", 4, None)):
        rows = [["index", "sentence1", "sentence2", *([header] if header else [])]]
        for index in range(count):
            rows.append([str(index), NAMES[index], PLACES[index], *([labels[index % 3]] if header else [])])
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    recipe = recipe_for("mnli", tmp_path / "train.tsv", epochs=1)
    sets = {"dev": "dev", "dev_mismatched": "train"} | dict.fromkeys(("test", "test_mismatched", "diagnostic"), "test")
    recipe["data"] |= {name: str(tmp_path / f"{file}.tsv") for name, file in sets.items()}
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert metrics["scores"].keys() == {"accuracy", "accuracy_mismatched"}
    lines = {
        str(path.relative_to(tmp_path / "out")): len(path.read_text().splitlines())
        for path in (tmp_path / "out").rglob("*.tsv")
    }
    submitted = {f"submission/{name}.tsv": 5 for name in ("MNLI-m", "MNLI-mm", "AX")}
    assert lines == {"predictions.tsv": 7, "predictions_mismatched.tsv": 10, **submitted}


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_a_tiny_network_learns_to_tag(tmp_path: Path, tokenizer: Path, architecture: str) -> None:
    recipe = recipe_for("table/names", write_conll(tmp_path / "train.conll"), epochs=40, model=NO_DROPOUT)
    if architecture == "modern":
        recipe["model"] = {"architecture": "modern", **{key: MODEL[key] for key in MODEL if "dropout" not in key}}
    recipe["table"] = {"kind": "tagging", "word": 0, "tag": -1}
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert metrics["scores"] == {"accuracy": 100.0, "f1": 100.0, "precision": 100.0, "recall": 100.0}
    assert (tmp_path / "out/predictions.conll").read_text() == (tmp_path / "train.conll").read_text().replace(" ", "\t")


def test_a_tagged_test_file_is_scored_and_one_without_tags_is_predicted(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("table/names", write_conll(tmp_path / "train.conll"), epochs=40, model=NO_DROPOUT)
    recipe |= {"table": {"kind": "tagging", "word": 0, "tag": -1}}
    recipe["settings"]["predict_test"] = True
    recipe["data"]["test"] = recipe["data"]["train"]
    scores = finetune(recipe, tokenizer, tmp_path / "tagged", options=Options(threads=1))["scores"]
    assert scores["f1_test"] == scores["f1"] == 100.0
    words = "\n".join(line.split()[0] if line else "" for line in (tmp_path / "train.conll").read_text().splitlines())
    (tmp_path / "words.conll").write_text(words + "\n")
    recipe["data"]["test"] = str(tmp_path / "words.conll")
    scores = finetune(recipe, tokenizer, tmp_path / "words", options=Options(threads=1))["scores"]
    assert "f1_test" not in scores
    predicted = [(tmp_path / folder / "predictions_test.conll").read_text() for folder in ("tagged", "words")]
    assert predicted[0] == predicted[1]


def test_squad_is_written_in_the_official_files(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("squad_v2", write_squad(tmp_path / "squad.json", version_2=True))
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    predictions, best, odds = (
        json.loads((tmp_path / f"out/{name}.json").read_text()) for name in ("predictions", "nbest", "null_odds")
    )
    assert predictions.keys() == best.keys() == odds.keys()
    for question, text in predictions.items():
        answered = next(one["text"] for one in best[question] if one["text"])
        assert text == (answered if odds[question] <= metrics["null_threshold"] else "")
    recipe = recipe_for("squad_v1", write_squad(tmp_path / "squad.json"))
    finetune(recipe, tokenizer, tmp_path / "v1", options=Options(threads=1))
    assert not (tmp_path / "v1/null_odds.json").exists()
    assert all(one["text"] for found in json.loads((tmp_path / "v1/nbest.json").read_text()).values() for one in found)


# Early stopping and resuming


def test_training_ends_after_epochs_without_a_better_score_with_the_best_weights(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dev set has the training examples, of which 12 have the other label: its score rises, then falls."""
    weights, update = {}, loop.EarlyStopping.update

    def update_and_keep(self: loop.EarlyStopping, score: float, step: int, model: TaskNetwork) -> None:
        weights[step] = copy.deepcopy(model.state_dict())
        update(self, score, step, model)

    monkeypatch.setattr(loop.EarlyStopping, "update", update_and_keep)
    train = write_cola(tmp_path / "train.tsv")
    rows = [line.split("\t") for line in train.read_text().splitlines()]
    labels = [str(1 - int(row[1])) if number < 12 else row[1] for number, row in enumerate(rows)]
    dev = "".join(f"t\t{label}\t\t{row[3]}\n" for label, row in zip(labels, rows, strict=True))
    (tmp_path / "dev.tsv").write_text(dev)
    model = {**NO_DROPOUT, "initializer_range": 0.5}
    recipe = recipe_for("cola", train, epochs=40, patience=3, learning_rate=1e-3, warmup=0, model=model)
    recipe["data"]["dev"] = str(tmp_path / "dev.tsv")
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    points = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    scores = {point["step"]: point["metrics"]["dev/matthews"] for point in points if "dev/matthews" in point["metrics"]}
    last, best = metrics["last_step"], metrics["best_step"]
    assert list(scores) == list(range(4, last + 1, 4))  # every epoch, once
    assert last < 160
    assert best == max(scores, key=lambda step: scores[step]) == last - 3 * 4
    assert sorted(scores.values())[-2] < scores[best]
    assert scores[4] < scores[best] > scores[last]
    assert metrics["scores"]["matthews"] == pytest.approx(scores[best])
    published = load_finetuned(tmp_path / "out/huggingface").network.state_dict()
    assert all(torch.equal(weight, weights[best][name]) for name, weight in published.items())
    assert not any(torch.equal(weights[last][name], weights[best][name]) for name in published)


def test_an_equal_score_is_not_a_better_one(tmp_path: Path, tokenizer: Path) -> None:
    train = write_cola(tmp_path / "train.tsv")
    recipe = recipe_for("cola", train, epochs=10, patience=2, learning_rate=1e-12)  # predictions stay as they are
    metrics = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert (metrics["best_step"], metrics["last_step"]) == (4, 12)


@pytest.mark.parametrize(("epochs", "steps"), [(0.5, [2]), (1.5, [4, 6])])
def test_the_end_of_a_part_of_an_epoch_is_scored_as_well(
    tmp_path: Path, tokenizer: Path, epochs: float, steps: list[int]
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), epochs=epochs, patience=3)
    finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    points = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [point["step"] for point in points if "dev/matthews" in point["metrics"]] == steps


def write_other_cola(path: Path) -> Path:
    """Labels that have nothing to do with those of `write_cola`."""
    generator = np.random.default_rng(8)
    path.write_text(
        "".join(f"t\t{generator.integers(2)}\t\t{' '.join(generator.choice(WORDS, 8))}\n" for _ in range(24))
    )
    return path


KILLED = """
import json, os, signal, sys
from pathlib import Path
from torch.optim import AdamW
from bertline.finetuning.options import Options
from bertline.finetuning.train import finetune

step, made = AdamW.step, []

def step_or_die(self, closure=None):
    step(self)
    made.append(1)
    if len(made) == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)

AdamW.step = step_or_die
options = Options(threads=1, checkpoint_every_minutes=0)
finetune(json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), options=options)
"""


@pytest.mark.parametrize("patience", [None, 2])
def test_a_killed_fine_tuning_ends_as_one_that_was_not(
    tmp_path: Path,
    tokenizer: Path,
    patience: int | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), patience=patience, epochs=5)
    recipe["data"]["dev"] = str(write_other_cola(tmp_path / "dev.tsv"))
    whole = finetune(recipe, tokenizer, tmp_path / "whole", options=Options(threads=1))
    arguments = [json.dumps(recipe), str(tokenizer), str(tmp_path / "killed"), "11"]
    monkeypatch.setenv("BERTLINE_JOB", "slurm 11")
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    started = json.loads((tmp_path / "killed/checkpoints/recipe.json").read_text())
    monkeypatch.setenv("BERTLINE_JOB", "slurm 12")
    with caplog.at_level("INFO"):
        resumed = finetune(recipe, tokenizer, tmp_path / "killed", options=Options(threads=1))
    assert any(line.startswith("resuming ") for line in caplog.messages)
    assert {**whole, "seconds": 0} == {**resumed, "seconds": 0}
    frozen = json.loads((tmp_path / "killed/recipe.json").read_text())
    assert (started["jobs"], frozen["jobs"]) == (["slurm 11"], ["slurm 11", "slurm 12"])
    first = json.loads((tmp_path / "killed/metrics.jsonl").read_text().splitlines()[-1])["timestamp"]
    assert started["started"] < frozen["started"] <= first <= frozen["finished"]  # milliseconds since 1970
    assert started["settings"] == frozen["settings"]
    for name in ("metrics.jsonl", "predictions.tsv"):
        contents = [(tmp_path / folder / name).read_text() for folder in ("whole", "killed")]
        if name == "metrics.jsonl":
            contents = [[json.loads(line) | {"timestamp": 0} for line in text.splitlines()] for text in contents]
        assert contents[0] == contents[1]
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {
        path.name for path in (tmp_path / "whole").iterdir()
    }


# Bad input


def test_weights_of_another_vocabulary_are_refused(tmp_path: Path, tokenizer: Path) -> None:
    size = len(json.loads(tokenizer.read_text())["model"]["vocab"])
    config = BertConfig.from_dict({"vocab_size": size, **MODEL})
    export_huggingface(config, BertForPreTraining(config).state_dict(), tokenizer, tmp_path / "huggingface")
    other = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?", *reversed(WORDS)]
    save_tokenizer(make_tokenizer(other, lowercase=True, source="the test"), tmp_path / "other.json")
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), initial_weights={"phase": "a" * 16})
    with pytest.raises(
        BertlineError, match=r"tokenizer\.json: 'was' is entry 7, but 37 of .*other\.json; name the tokenizer"
    ):
        finetune(
            recipe,
            tmp_path / "other.json",
            tmp_path / "out",
            initial_weights=tmp_path / "huggingface",
            options=Options(threads=1),
        )
    assert not (tmp_path / "out").exists()


def test_an_empty_dev_set_is_one_line(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "dev.tsv").write_text("")
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    recipe["data"]["dev"] = str(tmp_path / "dev.tsv")
    with pytest.raises(BertlineError, match=r"dev\.tsv contains no example"):
        finetune(recipe, tokenizer, tmp_path / "out")
    (tmp_path / "dev.json").write_text('{"data": []}')
    recipe = recipe_for("squad_v1", write_squad(tmp_path / "squad.json"))
    recipe["data"]["dev"] = str(tmp_path / "dev.json")
    with pytest.raises(BertlineError, match=r"dev\.json contains no question"):
        finetune(recipe, tokenizer, tmp_path / "out")


def test_answers_that_are_not_in_their_context_are_reported(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = json.loads(write_squad(tmp_path / "squad.json").read_text())
    document["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["text"] = "elsewhere"
    (tmp_path / "squad.json").write_text(json.dumps(document))
    recipe = recipe_for("squad_v1", tmp_path / "squad.json")
    prepared = prepare_task("squad_v1", recipe["data"], recipe["settings"], tokenizer)
    assert (prepared.examples["train"], prepared.examples["dev"]) == (31, 32)
    assert [line.split(": ", 1)[1] for line in caplog.messages] == [
        "questions without an answer that is at its offset: 1, the first is '0-was born'; " + rest
        for rest in ("training leaves them out", "they are scored by the answer's text")
    ]


def test_losses_before_and_after_a_kill_between_two_points_of_the_journal_are_in_the_second(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "JOURNAL_POINTS", 3)
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    finetune(recipe, tokenizer, tmp_path / "whole", options=Options(threads=1))
    step, made = torch.optim.AdamW.step, []

    def step_or_stop(self: torch.optim.AdamW, closure: None = None) -> None:
        step(self)
        made.append(1)
        if len(made) == 9:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.AdamW, "step", step_or_stop)
    with pytest.raises(KeyboardInterrupt):
        finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1, checkpoint_every_minutes=0))
    finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert 9 < len(made) < 9 + 16
    journals = [(tmp_path / folder / "metrics.jsonl").read_text() for folder in ("whole", "out")]
    points = [[json.loads(line) for line in journal.splitlines()] for journal in journals]
    assert [(point["step"], point["metrics"]) for point in points[0]] == [
        (point["step"], point["metrics"]) for point in points[1]
    ]


def test_dropout_is_another_at_every_step(tmp_path: Path, tokenizer: Path) -> None:
    """The same input and, but for a rounding error, the same weights."""
    train = write_cola(tmp_path / "train.tsv", examples=1)
    for model, times in (({}, 8), (NO_DROPOUT, 1)):
        recipe = recipe_for("cola", train, epochs=8, learning_rate=1e-20, model=model)
        finetune(recipe, tokenizer, tmp_path / f"{times}", options=Options(threads=1))
        points = [json.loads(line) for line in (tmp_path / f"{times}/metrics.jsonl").read_text().splitlines()]
        losses = [point["metrics"]["train/loss"] for point in points if "train/loss" in point["metrics"]]
        assert (len(losses), len(set(losses))) == (8, times)


def test_fp16_passes_over_steps_that_overflow_and_continues_with_its_loss_scale(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, which computes in fp16 as well, if slowly. At first the loss is multiplied by far too much."""
    monkeypatch.setattr("bertline.finetuning.train.prepare_precision", lambda precision, device: None)
    monkeypatch.setattr("bertline.training.scaling.FIRST", 2.0**40)
    step, made, last = torch.optim.AdamW.step, [], [-1]

    def step_or_stop(self: torch.optim.AdamW, closure: None = None) -> None:
        step(self)
        made.append(1)
        if len(made) == last[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.AdamW, "step", step_or_stop)
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), precision="fp16", epochs=40, model=NO_DROPOUT)
    whole = finetune(recipe, tokenizer, tmp_path / "whole", options=Options(threads=1))
    assert whole["scores"]["accuracy"] == 100.0
    updates = len(made)
    assert 120 < updates < 155  # of 160 steps

    made.clear()
    last[0] = 50
    with pytest.raises(KeyboardInterrupt):
        finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1, checkpoint_every_minutes=0))
    finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert updates <= len(made) < updates + 10  # with the last checkpoint's scale: a new one would overflow again
    journals = [(tmp_path / folder / "metrics.jsonl").read_text() for folder in ("whole", "out")]
    losses = [[json.loads(line)["metrics"] for line in journal.splitlines()] for journal in journals]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("task", ["cola", "squad_v1", "tagging/names"])
def test_an_update_that_diverges_at_the_end_is_one_line_and_leaves_no_result(
    tmp_path: Path, tokenizer: Path, task: str
) -> None:
    """The loss of a step is that before its update."""
    write = {"cola": write_cola, "squad_v1": write_squad}.get(task, write_conll)
    of_all = {"epochs": 1, "batch_size": 512, "learning_rate": 1e30, "warmup": 0}
    recipe = recipe_for("squad_v1" if task == "squad_v1" else "cola", write(tmp_path / "data.tsv"), **of_all)
    if task == "tagging/names":
        recipe |= {"task": task, "table": {"kind": "tagging", "word": 0, "tag": 1}}
    with pytest.raises(BertlineError, match="the outputs of the network are not finite"):
        finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"checkpoints"}


def test_a_warm_up_longer_than_the_fine_tuning_is_refused_before_its_first_step(
    tmp_path: Path, tokenizer: Path
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), warmup=17)
    with pytest.raises(BertlineError, match=r"^warmup: given 17, .* at most 16; .* reached$"):
        finetune(recipe, tokenizer, tmp_path / "out")
    assert not list(tmp_path.glob("out/**/*.jsonl"))


def test_a_diverging_training_is_one_line_and_leaves_no_result(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), learning_rate=1e30, warmup=0)
    with pytest.raises(BertlineError, match=r"the loss is not finite at step .* lower the learning rate"):
        finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"checkpoints"}


@pytest.mark.parametrize(
    ("changes", "initial_weights", "message"),
    [
        ({"max_sequence_length": 65}, None, "max_sequence_length 65 is more than the model's 64 positions"),
        ({"model": {"vocab_size": 20}}, None, "has 38 entries where the model has 20"),
        ({"precision": "fp64"}, None, "settings.precision: given 'fp64', allowed is one of fp32, tf32, bf16, fp16"),
        ({"precision": "fp16"}, None, "precision: fp16 needs a GPU"),
        ({"initial_weights": {"phase": "a"}}, None, "name their directory with --initial-weights"),
        ({}, Path("weights"), "the recipe starts from random weights"),
    ],
)
def test_a_recipe_that_does_not_fit_is_one_line(
    tmp_path: Path, tokenizer: Path, changes: Json, initial_weights: Path | None, message: str
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), **changes)
    with pytest.raises(BertlineError) as caught:
        finetune(recipe, tokenizer, tmp_path / "out", initial_weights=initial_weights, options=Options(threads=1))
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_key_is_named(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", tmp_path / "train.tsv")
    del recipe["data"]
    with pytest.raises(BertlineError, match="recipe: the top level: the key 'data' is missing"):
        finetune(recipe, tokenizer, tmp_path / "out")


def test_a_setting_that_is_left_out_has_the_default_of_the_schema(tmp_path: Path) -> None:
    for task, key, default in (("cola", "batch_size", 32), ("squad_v1", "doc_stride", 128)):
        recipe = recipe_for(task, tmp_path / "train.tsv")
        del recipe["settings"][key]
        assert check_recipe(recipe, None)["settings"][key] == default


def test_an_unknown_task_is_one_line(tmp_path: Path, tokenizer: Path) -> None:
    with pytest.raises(BertlineError, match="unknown task 'ax', allowed are squad_v1, squad_v2, boolq, cola"):
        finetune(recipe_for("ax", tmp_path / "train.tsv"), tokenizer, tmp_path / "out")


def run_script(recipe: Json, tokenizer: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = output.with_suffix(".recipe.json")
    path.write_text(json.dumps(recipe))
    arguments = ["--recipe", str(path), "--tokenizer", str(tokenizer)]
    return subprocess.run(
        [
            sys.executable,
            "workflow/scripts/finetune.py",
            *arguments,
            "--output",
            str(output),
            "--threads",
            "1",
            *options,
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_takes_no_initial_weights_as_random_ones(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("squad_v1", write_squad(tmp_path / "squad.json"))
    done = run_script(recipe, tokenizer, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/metrics.json").exists()


@pytest.mark.parametrize("number", [0, -1, 17])
def test_no_more_fine_tunings_share_a_gpu_than_it_has_locks(tmp_path: Path, tokenizer: Path, number: int) -> None:
    """With more, a training would take the GPU while one of them still runs on it."""
    recipe = recipe_for("squad_v1", write_squad(tmp_path / "squad.json"))
    done = run_script(recipe, tokenizer, tmp_path / "out", "--fine-tunings-per-gpu", str(number))
    assert done.returncode != 0
    assert f'Invalid value "{number}" for --fine-tunings-per-gpu' in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_script_ends_with_one_line_for_a_bad_file(tmp_path: Path, tokenizer: Path) -> None:
    file = write_cola(tmp_path / "train.tsv")
    file.write_text("t\t1\n")
    done = run_script(recipe_for("cola", file), tokenizer, tmp_path / "out")
    assert done.returncode == FAILED
    assert done.stderr.splitlines()[-1].startswith(f"error: {file}: line 1: no column 'original_judgement'")
    assert "Traceback" not in done.stderr
