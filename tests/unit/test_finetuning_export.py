"""The model that a fine-tuning leaves: transformers loads it and gives the answers that Bertline scored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from finetuning_helpers import MODEL, NAMES, NO_DROPOUT, PLACES, Json, recipe_for, write_cola, write_conll, write_squad
from finetuning_helpers import write_tokenizer as write_test_tokenizer
from huggingface_hub import ModelCard
from roberta_folder import train_vocabulary
from safetensors.torch import load_file
from tokenizers import Tokenizer, processors

from bertline.console import BertlineError
from bertline.encoding.tokenizer import load_tokenizer, read_tokenizer, save_tokenizer
from bertline.finetuning.card import model_card
from bertline.finetuning.options import Options
from bertline.finetuning.prediction import classify, load_finetuned, tag
from bertline.finetuning.train import finetune
from bertline.modeling.architectures import architecture_of
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.conversion import convert_weights
from bertline.modeling.huggingface import export_huggingface, write_huggingface
from bertline.modeling.network_config import BertConfig, config_from_dict
from bertline.tasks.registry import TASKS

MODERN = {
    "architecture": "modern",
    **{key: value for key, value in MODEL.items() if "dropout" not in key},
}


def answers_of_a_pipeline(task: str, folder: Path, inputs: Any, **options: Any) -> list[Json]:
    answers: list[Json] = transformers.pipeline(task, model=str(folder), device="cpu")(inputs, **options)
    return answers


def finetuned(tmp_path: Path, recipe: Json, architecture: str) -> Path:
    if architecture == "modern":
        recipe["model"] = MODERN
    tokenizer = write_test_tokenizer(tmp_path / "tokenizer.json")
    finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    return tmp_path / "out"


def second_column(path: Path) -> list[str]:
    return [line.split("\t")[1] for line in path.read_text().splitlines() if line]


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_a_pipeline_classifies_as_the_scored_predictions(tmp_path: Path, architecture: str) -> None:
    file = write_cola(tmp_path / "train.tsv")
    out = finetuned(tmp_path, recipe_for("cola", file, epochs=40, model=NO_DROPOUT), architecture)
    sentences = [line.split("\t")[3] for line in file.read_text().splitlines()]
    answers = answers_of_a_pipeline("text-classification", out / "huggingface", sentences)
    predicted = second_column(out / "predictions.tsv")[1:]
    assert [answer["label"] for answer in answers] == predicted
    assert set(predicted) == {"0", "1"}


@pytest.mark.parametrize("architecture", ["bert", "modern", "roberta"])
def test_names_of_special_tokens_in_a_text_are_text_except_for_masked_words(tmp_path: Path, architecture: str) -> None:
    text = "n1 was [SEP] born </s> in [PAD] p3 <pad> died"
    if architecture == "roberta":
        train_vocabulary([text]).save_pretrained(tmp_path)
    else:
        write_test_tokenizer(tmp_path / "tokenizer.json")
    ours = read_tokenizer(tmp_path / "tokenizer.json")
    shape = {key: value for key, value in MODERN.items() if key != "architecture"}
    config = config_from_dict({**shape, "architecture": architecture, "vocab_size": ours.get_vocab_size()})
    network = architecture_of(config).task_network(config, "sequence", 2)
    (tmp_path / "classifier").mkdir()
    write_huggingface(
        config, network.state_dict(), tmp_path / "tokenizer.json", tmp_path / "classifier", head="sequence"
    )
    of_classifier = transformers.AutoTokenizer.from_pretrained(tmp_path / "classifier")
    assert of_classifier(text).input_ids == ours.encode(text).ids
    language = architecture_of(config).pretraining(config)
    export_huggingface(config, language.state_dict(), tmp_path / "tokenizer.json", tmp_path / "language")
    of_language = transformers.AutoTokenizer.from_pretrained(tmp_path / "language")
    assert of_language(f"n1 was {of_language.mask_token} born").input_ids.count(of_language.mask_token_id) == 1


def test_a_pipeline_reads_pairs_and_numbers(tmp_path: Path) -> None:
    rows = [f"{NAMES[index % 12]}\t{PLACES[index // 3]}\t{index / 6:.3f}\n" for index in range(30)]
    (tmp_path / "train.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    out = finetuned(tmp_path, recipe_for("stsb", tmp_path / "train.tsv", epochs=60, model=NO_DROPOUT), "bert")
    pairs = [dict(zip(("text", "text_pair"), row.split("\t")[:2], strict=True)) for row in rows]
    answers = answers_of_a_pipeline("text-classification", out / "huggingface", pairs, function_to_apply="none")
    predicted = [float(cell) for cell in second_column(out / "predictions.tsv")[1:]]
    assert [answer["score"] for answer in answers] == pytest.approx(predicted, rel=1e-4)
    assert max(predicted) - min(predicted) > 0.1


PAIR = ("n1 was [SEP] born", "in p3 died")


def write_classifier(folder: Path, tokenizer: Path, **settings: Any) -> Path:
    """A classifier whose outputs depend much on the types of tokens, with changed settings of its tokenizer."""
    torch.manual_seed(1)
    shape = {**MODEL, **NO_DROPOUT, "vocab_size": read_tokenizer(tokenizer).get_vocab_size(), "initializer_range": 0.5}
    config = BertConfig.from_dict(shape)
    network = architecture_of(config).task_network(config, "sequence", 2)
    folder.mkdir()
    write_huggingface(config, network.state_dict(), tokenizer, folder, head="sequence", labels=("no", "yes"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


def scores_of_transformers(folder: Path) -> list[float]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        scores: list[float] = model(**tokenizer(*PAIR, return_tensors="pt")).logits.softmax(1)[0].tolist()
    return scores


def scores_of_ours(folder: Path) -> list[float]:
    scores: list[float] = classify(load_finetuned(folder), [PAIR])[0].tolist()
    return scores


def set_template(folder: Path, template: Any) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = template
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("trims", [True, False])
def test_a_bert_with_the_tokenizer_of_roberta_reads_pairs_in_transformers(tmp_path: Path, trims: bool) -> None:
    train_vocabulary([" ".join(PAIR)]).save_pretrained(tmp_path)
    given = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    first, last = (("<s>", given.token_to_id("<s>")), ("</s>", given.token_to_id("</s>")))
    set_template(tmp_path, processors.RobertaProcessing(last, first, trim_offsets=trims, add_prefix_space=False))
    given = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    folder = write_classifier(tmp_path / "model", tmp_path / "tokenizer.json")
    assert scores_of_ours(folder) == pytest.approx(scores_of_transformers(folder), abs=1e-5)
    written = Tokenizer.from_file(str(folder / "tokenizer.json"))
    before, after = given.encode(*PAIR), written.encode(*PAIR)
    assert (before.ids, before.offsets) == (after.ids, after.offsets)
    assert (sum(before.type_ids), after.type_ids[-1]) == (0, 1)
    alone = written.encode(PAIR[0])
    assert (alone.ids, alone.type_ids) == (given.encode(PAIR[0]).ids, [0] * len(alone.ids))
    again = read_tokenizer(folder / "tokenizer.json")
    save_tokenizer(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (folder / "tokenizer.json").read_text()


GENERAL = {"tokenizer_class": "PreTrainedTokenizerFast"}


@pytest.mark.parametrize(
    ("settings", "pair", "types"),
    [
        ({}, None, True),
        ({}, "[CLS] $A [SEP] $B [SEP]", True),  # a class of BERT ignores the template
        (GENERAL, "[CLS] $A [SEP] $B [SEP]", False),
        (GENERAL, None, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, None, False),
        ({**GENERAL, "model_input_names": None}, None, False),  # not among this class's inputs by default
    ],
)
def test_a_model_of_another_program_reads_pairs_as_transformers_does(
    tmp_path: Path, settings: Json, pair: str | None, types: bool
) -> None:
    tokenizer = write_test_tokenizer(tmp_path / "tokenizer.json")
    folder = write_classifier(tmp_path / "model", tokenizer, **settings)
    if settings.get("model_input_names", "") is None:
        without = {key: value for key, value in json.loads((folder / "tokenizer_config.json").read_text()).items()}
        del without["model_input_names"]
        (folder / "tokenizer_config.json").write_text(json.dumps(without))
    ids = [(token, load_tokenizer(tokenizer).token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    if pair:
        set_template(folder, processors.TemplateProcessing("[CLS] $A [SEP]", pair, ids))
    expected = scores_of_transformers(folder)
    marked = transformers.AutoTokenizer.from_pretrained(folder)(*PAIR).get("token_type_ids", [0])[-1]
    assert bool(marked) == types
    assert scores_of_ours(folder) == pytest.approx(expected, abs=1e-5)
    # And so does what a conversion makes of it.
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    convert_weights(folder, tmp_path / "converted")
    assert scores_of_transformers(tmp_path / "converted") == pytest.approx(expected, abs=1e-5)
    assert scores_of_ours(tmp_path / "converted") == pytest.approx(expected, abs=1e-5)
    # Bertline's own were trained with types, whatever an earlier version's export says.
    (folder / "task.json").write_text('{"task": "mrpc"}')
    assert scores_of_ours(folder) == pytest.approx(scores_of_ours(write_classifier(tmp_path / "own", tokenizer)))


def test_a_template_with_other_types_is_one_line(tmp_path: Path) -> None:
    tokenizer = write_test_tokenizer(tmp_path / "tokenizer.json")
    folder = write_classifier(tmp_path / "model", tokenizer, **GENERAL)
    ids = [(token, load_tokenizer(tokenizer).token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    set_template(folder, processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP]:1 $B:1 [SEP]:1", ids))
    with pytest.raises(BertlineError, match=r"^\S+tokenizer\.json: its template for two texts does not give type 1 to"):
        load_finetuned(folder)


@pytest.mark.parametrize("task", ["cola", "stsb"])
def test_a_pipeline_truncates_too_long_inputs_as_predictions_do(tmp_path: Path, task: str) -> None:
    """To the length of the training, not to that of the network."""
    if task == "cola":
        file, inputs = write_cola(tmp_path / "train.tsv"), [("n1 was born " * 20,), ("p2 and " * 100,)]
        given: list[Any] = [texts[0] for texts in inputs]
    else:
        file = tmp_path / "train.tsv"
        file.write_text("sentence1\tsentence2\tscore\n" + "n1\tp1\t1\nn2\tp2\t3\nn1 was\tp2\t5\nn2 died\tp1\t2\n" * 8)
        inputs = [("n1 was born " * 10 + "n2 died " * 15, "p3"), ("n2", "p1 and " * 14 + "p2 " * 100)]
        given = [{"text": first, "text_pair": second} for first, second in inputs]
    out = finetuned(tmp_path, recipe_for(task, file, epochs=20 if task == "cola" else 60, model=NO_DROPOUT), "bert")
    answers = answers_of_a_pipeline("text-classification", out / "huggingface", given, truncation=True)
    expected = classify(load_finetuned(out / "huggingface"), inputs).max(axis=1)
    assert [answer["score"] for answer in answers] == pytest.approx(expected.tolist(), rel=1e-4)


def test_a_pipeline_tags_too_long_sentences_as_predictions_do(tmp_path: Path) -> None:
    file = write_conll(tmp_path / "train.conll")
    recipe = recipe_for("table/names", file, epochs=12) | {"table": {"kind": "tagging", "word": 0, "tag": -1}}
    out = finetuned(tmp_path, recipe, "bert")
    words = ["n1", "was", "born", "in", "p1", "and", "n2", "died", "in", "p2"] * 8
    answers = answers_of_a_pipeline("token-classification", out / "huggingface", [" ".join(words)], ignore_labels=[])
    (expected,) = tag(load_finetuned(out / "huggingface"), [words])
    assert [entity["entity"] for entity in answers[0]] == expected[:30]
    assert set(expected[30:]) == {"O"}


@pytest.mark.parametrize(
    ("task", "use"),
    [
        ("cola", 'pipeline("text-classification", model="path/to/this/folder", truncation=True)("...")'),
        (
            "mrpc",
            'pipeline("text-classification", model="path/to/this/folder", truncation=True)'
            '({"text": "...", "text_pair": "..."})',
        ),
        ("table/names", 'pipeline("token-classification", model="path/to/this/folder")("...")'),
    ],
)
def test_the_example_in_the_card_runs_and_truncates(tmp_path: Path, task: str, use: str) -> None:
    if task == "table/names":
        recipe = recipe_for(task, write_conll(tmp_path / "train.conll"), epochs=1)
        recipe |= {"table": {"kind": "tagging", "word": 0, "tag": -1}}
    elif task == "cola":
        recipe = recipe_for(task, write_cola(tmp_path / "train.tsv"), epochs=1)
    else:
        file = tmp_path / "train.tsv"
        file.write_text("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "1\t1\t2\tn1\tp1\n0\t3\t4\tn2\tp2\n" * 4)
        recipe = recipe_for(task, file, epochs=1)
    out = finetuned(tmp_path, recipe, "bert")
    (example,) = [line for line in (out / "huggingface/README.md").read_text().splitlines() if "pipeline(" in line]
    assert example == use
    called = example.replace("path/to/this/folder", str(out / "huggingface")).replace("...", "n1 was born " * 100)
    subprocess.run([sys.executable, "-c", f"from transformers import pipeline\n{called}"], check=True)


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_transformers_answers_questions_as_the_scored_predictions(tmp_path: Path, architecture: str) -> None:
    file = write_squad(tmp_path / "squad.json")
    recipe = recipe_for("squad_v1", file, epochs=30, max_sequence_length=48)
    out = finetuned(tmp_path, recipe, architecture)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(out / "huggingface").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out / "huggingface")
    predicted = json.loads((out / "predictions.json").read_text())
    best = json.loads((out / "nbest.json").read_text())
    for paragraph in (
        paragraph for article in json.loads(file.read_text())["data"] for paragraph in article["paragraphs"]
    ):
        for question in paragraph["qas"]:
            given = tokenizer(
                question["question"], paragraph["context"], return_tensors="pt", return_offsets_mapping=True
            )
            spans = given.pop("offset_mapping")[0]
            logits = model(**given)
            inside = torch.tensor([part == 1 for part in given.sequence_ids()])
            scores = logits.start_logits[0][:, None] + logits.end_logits[0]
            allowed = torch.ones_like(scores).triu() - torch.ones_like(scores).triu(4) > 0
            scores[~(allowed & inside & inside[:, None])] = -torch.inf
            start, end = divmod(int(scores.argmax()), len(inside))
            assert paragraph["context"][spans[start, 0] : spans[end, 1]] == predicted[question["id"]]
            of_best = best[question["id"]][0]
            assert scores.max().item() == pytest.approx(of_best["start_logit"] + of_best["end_logit"], abs=1e-4)
    assert len(set(predicted.values())) > 6


@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_a_pipeline_tags_as_the_scored_predictions(tmp_path: Path, architecture: str) -> None:
    file = write_conll(tmp_path / "train.conll")
    recipe = recipe_for("table/names", file, epochs=12) | {"table": {"kind": "tagging", "word": 0, "tag": -1}}
    out = finetuned(tmp_path, recipe, architecture)
    sentences = [
        " ".join(line.split()[0] for line in sentence.splitlines()) for sentence in file.read_text().split("\n\n")
    ]
    answers = answers_of_a_pipeline("token-classification", out / "huggingface", sentences, ignore_labels=[])
    tags = [entity["entity"] for sentence in answers for entity in sentence]
    assert tags == second_column(out / "predictions.conll")
    assert {"B-PER", "B-LOC", "O"} == set(tags)


def test_the_folder_has_its_origin_and_no_path_of_the_data(tmp_path: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), epochs=1)
    recipe["description"] = "Generated sentences."
    out = finetuned(tmp_path, recipe, "bert")
    described = json.loads((out / "huggingface/task.json").read_text())
    assert described == {key: recipe[key] for key in ("fingerprint", "task", "seed", "start", "settings")}
    card = ModelCard.load(out / "huggingface/README.md")
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["bert", "cola"],
        "metrics": ["accuracy", "matthews_correlation"],
    }
    assert "\n\nGenerated sentences.\n\n" in card.text
    assert "This is not the official development set: do not compare with published scores. The settings" in card.text
    assert "chosen on these same sets: expect lower scores on new data." in card.text
    scores = json.loads((out / "metrics.json").read_text())["scores"]
    assert f"| accuracy | {scores['accuracy']:.2f} |" in card.text
    assert "- train: train.tsv, 32 examples\n" in card.text
    assert "- dev: train.tsv, 32 examples, 32 of them with the texts of a training example\n" in card.text
    assert f"- fingerprint: {recipe['fingerprint']}" in card.text
    written = [path.read_text() for path in (out / "huggingface").iterdir() if path.suffix in (".json", ".md")]
    assert not any(str(tmp_path) in text for text in written)


def test_the_card_has_the_scores_on_an_official_set_in_its_header_and_no_others(tmp_path: Path) -> None:
    recipe = recipe_for("mnli", tmp_path / "dev.tsv", initial_weights={"directory": "x", "hub": "google-bert/x"})
    scores = {"accuracy": 84.0, "accuracy_mismatched": 85.5}
    metrics = {"scores": scores, "primary": "accuracy", "examples": {"dev": 9815}, "digests": {"dev": "0" * 64}}
    (tmp_path / "mnli.md").write_text(model_card(recipe, metrics, "sequence"))
    unknown = ModelCard.load(tmp_path / "mnli.md")
    assert (unknown.data.base_model, unknown.data.metrics) == ("google-bert/x", ["accuracy"])
    assert (unknown.data.datasets, unknown.data.eval_results) == (None, None)
    assert "Whether this is the official development set is not known" in unknown.text

    metrics |= {"scores": {"spearman": 88.123}, "primary": "spearman", "digests": TASKS["stsb"].digests}
    (tmp_path / "stsb.md").write_text(model_card(recipe | {"task": "stsb"}, metrics, "sequence"))
    official = ModelCard.load(tmp_path / "stsb.md")
    assert (official.data.datasets, official.data.metrics) == (["nyu-mll/glue"], ["spearmanr"])
    (result,) = official.data.eval_results
    assert (result.dataset_type, result.dataset_config, result.dataset_split) == ("nyu-mll/glue", "stsb", "validation")
    assert (result.metric_type, result.metric_value) == ("spearmanr", 88.12)
    assert "This is the official development set." in official.text


def test_the_card_has_the_scores_on_a_test_set_apart(tmp_path: Path) -> None:
    recipe = recipe_for("table/names", tmp_path / "dev.conll")
    metrics = {"scores": {"f1": 82.0, "f1_test": 80.0}, "primary": "f1", "examples": {"dev": 1000, "test": 37}}
    (tmp_path / "names.md").write_text(model_card(recipe, metrics, "tokens"))
    card = ModelCard.load(tmp_path / "names.md")
    assert card.data.metrics == ["f1"]
    dev, test = card.text.split("## Scores on the test set (37 examples), in percent")
    assert "## Scores on the development set (1,000 examples), in percent" in dev
    assert dev.rstrip().endswith("chosen on these same sets: expect lower scores on new data.")
    assert "80.00" not in dev
    assert "F1, test set | 80.00 |" in test
    metrics = {"scores": {"accuracy": 84.0, "accuracy_mismatched": 85.5}, "primary": "accuracy"}
    metrics["examples"] = {"dev": 9815, "dev_mismatched": 9832}
    card = model_card(recipe_for("mnli", tmp_path / "dev.tsv"), metrics, "sequence")
    assert "(9,815 examples)" in card
    assert "85.50 (9,832 examples) |" in card


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        (
            {"phase": "a" * 16, "step": 1500},
            f"Starts from the weights of the pretraining phase {'a' * 16} at step 1,500.",
        ),
        ({"directory": "models/theirs"}, "Starts from the weights in theirs."),
        (
            {"directory": "results/runs/demo/export", "content": "b" * 16},
            f"Starts from the weights in export (digest {'b' * 16}).",
        ),
        (
            {"directory": "resources/weights/0123", "content": "b" * 16, "name": "/home/me/google"},
            f"Starts from the weights google (digest {'b' * 16}).",
        ),
        (
            {"directory": "resources/weights/0123", "content": "b" * 16, "name": "a/b at 0123", "hub": "a/b"},
            "Starts from the weights a/b at 0123.",
        ),
    ],
)
def test_the_card_says_what_the_training_started_from(tmp_path: Path, initial: Json, said: str) -> None:
    """Not whose run a phase is, which is not in the trainer's recipe."""
    recipe = recipe_for("cola", tmp_path / "train.tsv", initial_weights=initial)
    metrics = {"scores": {"matthews": 1.0}, "primary": "matthews", "examples": {"dev": 9}}
    assert said in model_card(recipe, metrics, "sequence")


def test_a_model_of_padded_external_weights_keeps_their_rows(tmp_path: Path) -> None:
    """With a vocab.txt and more embeddings than words, as some published models have."""
    tokenizer = write_test_tokenizer(tmp_path / "tokenizer.json")
    words = load_tokenizer(tokenizer).get_vocab_size()
    config = BertConfig.from_dict({**MODEL, "vocab_size": words})
    export_huggingface(config, BertForPreTraining(config).state_dict(), tokenizer, tmp_path / "google")
    (tmp_path / "google/tokenizer.json").unlink()
    weights = {"directory": str(tmp_path / "google")}
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), epochs=2, initial_weights=weights)
    recipe |= {"start": "pretrained", "model": {"directory": str(tmp_path / "google")}}
    finetune(
        recipe,
        tmp_path / "google/vocab.txt",
        tmp_path / "out",
        initial_weights=tmp_path / "google",
        options=Options(threads=1),
    )
    sentences = [line.split("\t")[3] for line in (tmp_path / "train.tsv").read_text().splitlines()]
    answers = answers_of_a_pipeline("text-classification", tmp_path / "out/huggingface", sentences)
    assert [answer["label"] for answer in answers] == second_column(tmp_path / "out/predictions.tsv")[1:]
    assert "Starts from the weights in google." in (tmp_path / "out/huggingface/README.md").read_text()
