"""Fine-tuning of external RoBERTa weights: transformers predicts the same with the model that is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from finetuning_helpers import NAMES, PLACES, WORDS, Json, recipe_for, write_cola, write_conll, write_squad
from finetuning_helpers import write_tokenizer as write_test_tokenizer
from ranking_files import write_files
from roberta_folder import train_vocabulary, write_roberta
from tokenizers import Tokenizer
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from bertline.console import BertlineError
from bertline.encoding.tokenizer import load_tokenizer, read_tokenizer
from bertline.finetuning.features import extract_features
from bertline.finetuning.prediction import answer, classify, load_finetuned, tag
from bertline.finetuning.ranking.collection import open_collection, write_collection
from bertline.finetuning.ranking.lists import read_candidates
from bertline.finetuning.ranking.task import join
from bertline.finetuning.ranking.texts import read_texts
from bertline.finetuning.sequences import make_sequences
from bertline.finetuning.squad_task import prepare_squad
from bertline.finetuning.squad_windows import make_windows, read_squad
from bertline.finetuning.tag_task import TaggedFile, tag_inputs
from bertline.finetuning.text_task import sequences_of_texts
from bertline.finetuning.train import finetune
from bertline.modeling.huggingface import load_huggingface
from bertline.settings.configuration import defaults_of
from bertline.tasks.squad import SQUAD_TASKS

TEXTS = [f"{word} {other}" for word in WORDS for other in ("was", "born", "died", ". ?")]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    write_roberta(tmp_path / "theirs", texts=TEXTS)
    return tmp_path / "theirs"


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    train_vocabulary(TEXTS).save_pretrained(tmp_path / "tokenizer")
    return load_tokenizer(tmp_path / "tokenizer/tokenizer.json")


def finetuned(theirs: Path, recipe: Json) -> Path:
    recipe |= {"start": "pretrained", "model": {"directory": str(theirs)}}
    recipe["initial_weights"] = {"directory": str(theirs)}
    output = theirs.parent / "out"
    finetune(recipe, theirs / "tokenizer.json", output, initial_weights=theirs)
    return output


def second_column(path: Path) -> list[str]:
    return [line.split("\t")[1] for line in path.read_text().splitlines() if line]


def outputs(model: Any, **given: Any) -> Any:
    with torch.no_grad():
        return model.eval()(**given)


def test_pairs_have_roberta_s_template(tokenizer: Tokenizer) -> None:
    theirs = train_vocabulary(TEXTS)
    texts = [("n1 was born", "where ?"), ("who",), ("", "n2")]
    found = sequences_of_texts("inputs", texts, tokenizer, 64)
    for number, pair in enumerate(texts):
        begin, end = found.offsets[number : number + 2]
        assert found.tokens[begin:end].tolist() == theirs(*pair).input_ids
    assert found.tokens[found.second_segment_start[0] - 2 :][:2].tolist() == [2, 2]
    assert found.second_segment_start[1] == 0


@pytest.mark.parametrize("limit", [12, 13, 20])
def test_a_cut_pair_fills_the_sequence_exactly(tokenizer: Tokenizer, limit: int) -> None:
    found = sequences_of_texts("inputs", [("n1 was born in p3 " * 4, "n2 died in p4 " * 4)], tokenizer, limit)
    assert found.lengths.tolist() == [limit]
    assert found.tokens.tolist().count(2) == 3


def test_bert_s_template_stays(tmp_path: Path) -> None:
    bert = load_tokenizer(write_test_tokenizer(tmp_path / "tokenizer.json"))
    found = make_sequences([([7], [8])], bert)
    assert found.tokens.tolist() == [2, 7, 3, 8, 3]
    bert.post_processor = None
    assert make_sequences([([7], [8])], bert).tokens.tolist() == [2, 7, 3, 8, 3]


def test_windows_contain_the_context_after_two_separators(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write_squad(tmp_path / "squad.json"), version_2=False)
    limits = {"max_sequence_length": 24, "doc_stride": 5, "max_query_length": 12}
    windows = make_windows(squad, tokenizer, **limits, for_training=True)
    contexts = [tokenizer.encode(context, add_special_tokens=False).ids for context in squad.contexts]
    assert windows.sequences.lengths.max() == 24
    answered = 0
    for number, question in enumerate(windows.question):
        begin, end = windows.sequences.offsets[number : number + 2]
        ids = windows.sequences.tokens[begin:end]
        second, first = windows.sequences.second_segment_start[number], windows.first_token[number]
        part = ids[second : second + windows.context_tokens[number]].tolist()
        asked = squad.questions[question]
        assert part == contexts[asked.context][first : first + len(part)]
        assert ids[second - 2 : second].tolist() == [2, 2]
        start, last = windows.answer[number]
        if last:
            answered += 1
            assert tokenizer.decode(ids[start : last + 1].tolist()).strip() == asked.answers[0].text
    assert answered > len(squad.questions) / 2


def test_windows_that_would_only_touch_after_two_separators_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    file = str(write_squad(tmp_path / "squad.json"))
    settings = {"max_sequence_length": 24, "max_query_length": 12, "max_answer_length": 4}
    data = {"train": file, "dev": file}
    with pytest.raises(
        BertlineError, match=r"^doc_stride: given 8, .* has 8 of the context, .* one below 8, such as 4"
    ):
        prepare_squad(SQUAD_TASKS["squad_v1"], data, settings | {"doc_stride": 8}, tokenizer)
    bert = read_tokenizer(write_test_tokenizer(tmp_path / "tokenizer.json"))
    assert len(prepare_squad(SQUAD_TASKS["squad_v1"], data, settings | {"doc_stride": 8}, bert).train)


def test_words_to_tag_are_tokenized_as_in_their_sentence(tokenizer: Tokenizer) -> None:
    sentences = [["n1", "was", "born"], ["p2"], ["who", "\u200b", "died"]]
    found = tag_inputs(TaggedFile(sentences, sentences), tokenizer, 64)
    for number, words in enumerate(sentences):
        begin, end = found.sequences.offsets[number : number + 2]
        assert found.sequences.tokens[begin:end].tolist() == tokenizer.encode(" ".join(words)).ids


def test_one_text_is_classified_as_in_transformers(theirs: Path, tmp_path: Path) -> None:
    file = write_cola(tmp_path / "train.tsv")
    out = finetuned(theirs, recipe_for("cola", file, epochs=20, learning_rate=5e-4, max_sequence_length=64))
    sentences = [line.split("\t")[3] for line in file.read_text().splitlines()]
    predicted = second_column(out / "predictions.tsv")[1:]
    assert set(predicted) == {"0", "1"}
    model = AutoModelForSequenceClassification.from_pretrained(out / "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(out / "huggingface")
    logits = outputs(model, **tokenizer(sentences, padding=True, return_tensors="pt")).logits
    assert [str(index) for index in logits.argmax(1).tolist()] == predicted
    loaded = classify(load_finetuned(out / "huggingface"), [(sentence,) for sentence in sentences])
    np.testing.assert_allclose(loaded, logits.softmax(1), atol=1e-5)
    assert "Starts from the weights in theirs." in (out / "huggingface/README.md").read_text()


def test_pairs_are_scored_as_in_transformers(theirs: Path, tmp_path: Path) -> None:
    rows = [f"{NAMES[index % 12]} was\t{PLACES[index // 3]}\t{index / 6:.3f}\n" for index in range(30)]
    (tmp_path / "train.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    recipe = recipe_for("stsb", tmp_path / "train.tsv", epochs=20, learning_rate=5e-4)
    out = finetuned(theirs, recipe)
    texts = [[row.split("\t")[column] for row in rows] for column in (0, 1)]
    model = AutoModelForSequenceClassification.from_pretrained(out / "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(out / "huggingface")
    found = outputs(model, **tokenizer(*texts, padding=True, return_tensors="pt")).logits[:, 0]
    predicted = [float(cell) for cell in second_column(out / "predictions.tsv")[1:]]
    assert found.tolist() == pytest.approx(predicted, rel=1e-4, abs=1e-5)
    assert max(predicted) - min(predicted) > 0.1


def test_questions_are_answered_as_in_transformers(theirs: Path, tmp_path: Path) -> None:
    file = write_squad(tmp_path / "squad.json")
    settings = {"max_sequence_length": 64, "max_query_length": 16, "max_answer_length": 4}
    out = finetuned(theirs, recipe_for("squad_v1", file, epochs=6, learning_rate=5e-4, **settings))
    model = AutoModelForQuestionAnswering.from_pretrained(out / "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(out / "huggingface")
    predicted = json.loads((out / "predictions.json").read_text())
    best = json.loads((out / "nbest.json").read_text())
    squad = read_squad(file, version_2=False)
    for question in squad.questions:
        context = squad.contexts[question.context]
        given = tokenizer(question.text, context, return_tensors="pt", return_offsets_mapping=True)
        spans = given.pop("offset_mapping")[0]
        logits = outputs(model, **given)
        inside = torch.tensor([part == 1 for part in given.sequence_ids()])
        scores = logits.start_logits[0][:, None] + logits.end_logits[0]
        allowed = torch.ones_like(scores).triu() - torch.ones_like(scores).triu(4) > 0
        scores[~(allowed & inside & inside[:, None])] = -torch.inf
        start, end = divmod(int(scores.argmax()), len(inside))
        assert context[spans[start, 0] : spans[end, 1]] == predicted[question.id]
        of_best = best[question.id][0]
        assert scores.max().item() == pytest.approx(of_best["start_logit"] + of_best["end_logit"], abs=1e-4)
    assert len(set(predicted.values())) > 6
    again = answer(load_finetuned(out / "huggingface"), squad)
    assert {name: found.best_text for name, found in again.items()} == predicted


def test_words_are_tagged_as_in_transformers(theirs: Path, tmp_path: Path) -> None:
    file = write_conll(tmp_path / "train.conll")
    recipe = recipe_for("table/names", file, epochs=12, learning_rate=1e-3)
    out = finetuned(theirs, recipe | {"table": {"kind": "tagging", "word": 0, "tag": -1}})
    sentences = [[line.split()[0] for line in part.splitlines()] for part in file.read_text().split("\n\n")]
    model = AutoModelForTokenClassification.from_pretrained(out / "huggingface")
    tokenizer = AutoTokenizer.from_pretrained(out / "huggingface")
    tags = []
    for words in sentences:
        chosen = outputs(model, **tokenizer(" ".join(words), return_tensors="pt")).logits[0].argmax(1).tolist()
        firsts = [len(tokenizer(" ".join(words[:number])).input_ids) - 1 for number in range(len(words))]
        tags += [model.config.id2label[chosen[first]] for first in firsts]
    assert tags == second_column(out / "predictions.conll")
    assert {"B-PER", "B-LOC", "O"} == set(tags)
    assert [one for found in tag(load_finetuned(out / "huggingface"), sentences) for one in found] == tags


def test_features_are_the_hidden_states_of_transformers(theirs: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    (tmp_path / "texts.txt").write_text("n1 was born in p3 .\nwho ||| n2 died\n")
    options = {
        **defaults_of("features"),
        "layers": (-1, 0),
        "max_sequence_length": 64,
        "output": tmp_path / "out.jsonl",
    }
    extract_features(theirs, [tmp_path / "texts.txt"], **options)
    model, tokenizer = AutoModel.from_pretrained(theirs), AutoTokenizer.from_pretrained(theirs)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for line, texts in zip(lines, [("n1 was born in p3 .",), ("who", "n2 died")], strict=True):
        states = outputs(model, **tokenizer(*texts, return_tensors="pt"), output_hidden_states=True).hidden_states
        for place, layer in enumerate((-1, 0)):
            found = [token["layers"][place]["values"] for token in line["features"]]
            np.testing.assert_allclose(found, states[layer][0], atol=1e-4)
    assert load_huggingface(theirs)[0].architecture == "roberta"


def test_a_ranking_joins_query_and_passage_by_the_template(theirs: Path, tmp_path: Path) -> None:
    given, tokenizer = write_files(tmp_path), read_tokenizer(theirs / "tokenizer.json")
    (tmp_path / "tokenized").mkdir()
    write_collection(Path(given["collection"]), tokenizer, tmp_path / "tokenized")
    passages, queries = (
        open_collection(tmp_path / "tokenized", tokenizer).passages,
        read_texts(Path(given["queries"]), tokenizer),
    )
    candidates = read_candidates(Path(given["candidates"]), queries, passages)
    pairs = join(queries, passages, candidates, {"max_query_length": 40, "max_sequence_length": 120}, tokenizer)
    inputs = pairs.take(np.arange(len(pairs)))
    assert pairs.lengths.tolist() == inputs.lengths.tolist()
    texts = [
        dict(line.split("\t") for line in Path(given[name]).read_text().splitlines())
        for name in ("queries", "collection")
    ]
    for row, line in enumerate(Path(given["candidates"]).read_text().splitlines()):
        query, passage = line.split("\t")
        expected = tokenizer.encode(texts[0][query], texts[1][passage]).ids
        assert inputs.tokens[inputs.offsets[row] : inputs.offsets[row + 1]].tolist() == expected
    # Cut to the limits.
    short = join(queries, passages, candidates, {"max_query_length": 6, "max_sequence_length": 16}, tokenizer)
    assert int(short.lengths.max()) == 16
