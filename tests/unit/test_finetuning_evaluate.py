"""The metrics as modules of `evaluate`, offline, against scikit-learn, scipy and published predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertline.console import BertlineError
from bertline.finetuning import evaluate_modules
from bertline.finetuning.glue_metrics import compute_metrics
from bertline.finetuning.squad import read_squad
from bertline.finetuning.tag_metrics import score_tags

evaluate = pytest.importorskip("evaluate")
MODULES = Path(evaluate_modules.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache of its own, and no network: any request would fail."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", True)
        patch.setattr(evaluate.config, "HF_METRICS_CACHE", str(folder / "metrics"))
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(folder / "modules"))
        patch.setattr("socket.socket.connect", lambda *_: pytest.fail("a metric asked the network"))
        yield


def load(module: str, config: str | None = None) -> Any:
    return evaluate.load(str(MODULES / f"{module}.py"), config)


@pytest.mark.parametrize("kind", ["random", "one class", "constant predictions"])
@pytest.mark.filterwarnings("ignore")
def test_texts_agree_with_scikit_learn_and_scipy(kind: str) -> None:
    generator = np.random.default_rng(4)
    predictions, references = generator.integers(2, size=(2, 200))
    if kind == "one class":
        references[:] = 0
    if kind == "constant predictions":
        predictions[:] = 1
    found = {
        name: load("texts", name).compute(predictions=predictions, references=references)
        for name in ("accuracy", "f1", "f1_macro", "matthews", "mrpc", "cola")
    }
    assert found["mrpc"] == {
        "accuracy": pytest.approx(accuracy_score(references, predictions)),
        "f1": pytest.approx(f1_score(references, predictions, zero_division=0)),
    }
    assert found["cola"]["matthews"] == pytest.approx(matthews_corrcoef(references, predictions))
    assert found["f1_macro"]["f1_macro"] == pytest.approx(
        f1_score(references, predictions, average="macro", zero_division=0)
    )
    numbers = generator.normal(size=200), generator.normal(size=200)
    if kind == "constant predictions":
        numbers[0][:] = 3.0
    if kind == "one class":
        numbers[1][:] = 2.5
    scores = load("texts", "stsb").compute(predictions=numbers[0], references=numbers[1])
    expected = (0, 0) if kind != "random" else (pearsonr(*numbers).statistic, spearmanr(*numbers).statistic)
    assert (scores["pearson"], scores["spearman"]) == pytest.approx(expected)


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="'bleu' is none of cola, sst2"):
        load("texts", "bleu")
    with pytest.raises(ValueError, match="is none of v1, v2"):
        load("squad")


def as_squad(path: Path, published: Path, *, version_2: bool) -> tuple[list, list]:
    squad = read_squad(path, version_2=version_2)
    given = json.loads(published.read_text())
    predictions = [
        {"id": question.id, "prediction_text": given[question.id]}
        | ({"no_answer_probability": float(given[question.id] == "")} if version_2 else {})
        for question in squad.questions
        if question.id in given
    ]
    references = [
        {
            "id": question.id,
            "answers": {
                "text": [answer.text for answer in question.answers],
                "answer_start": [answer.start for answer in question.answers],
            },
        }
        for question in squad.questions
        if question.id in given
    ]
    return predictions, references


def test_published_squad_predictions_score_what_they_are_published_with(test_data: Path) -> None:
    folder = test_data / "squad"
    pairs = as_squad(folder / "dev-v1.1.json", folder / "predictions-dev-v1.1-bert.json", version_2=False)
    scores = load("squad", "v1").compute(predictions=pairs[0], references=pairs[1])
    assert (round(scores["exact_match"], 4), round(scores["f1"], 4)) == (86.2062, 92.1956)
    pairs = as_squad(folder / "dev-v2.0-slice.json", folder / "predictions-dev-v2.0-bert.json", version_2=True)
    scores = load("squad", "v2").compute(predictions=pairs[0], references=pairs[1])
    assert (round(scores["exact_match"], 4), round(scores["f1"], 4)) == (74.5198, 78.0868)
    assert (round(scores["has_answer_exact_match"], 4), round(scores["has_answer_f1"], 4)) == (74.5146, 81.2762)
    assert round(scores["no_answer_f1"], 4) == 74.5257
    assert scores["best_f1"] == scores["f1"]


def test_the_best_threshold_of_squad_is_the_best_of_all() -> None:
    generator = np.random.default_rng(5)
    ids = [str(number) for number in range(30)]
    texts = [["cat", "cat dog", "dog"][number] for number in generator.integers(3, size=30)]
    doubts = generator.random(30).round(1)
    answers = [["cat"] if answerable else [] for answerable in generator.random(30) < 0.5]

    def compute(predicted: list[str]) -> dict[str, float]:
        predictions = [
            {"id": name, "prediction_text": text, "no_answer_probability": doubt}
            for name, text, doubt in zip(ids, predicted, doubts, strict=True)
        ]
        references = [
            {"id": name, "answers": {"text": accepted, "answer_start": [0] * len(accepted)}}
            for name, accepted in zip(ids, answers, strict=True)
        ]
        return load("squad", "v2").compute(predictions=predictions, references=references)

    found = compute(texts)
    for name in ("exact_match", "f1"):
        all_scores = [
            compute(["" if doubt > threshold else text for text, doubt in zip(texts, doubts, strict=True)])[name]
            for threshold in np.arange(-0.05, 1.1, 0.1)
        ]
        assert found[f"best_{name}"] == pytest.approx(max(all_scores))
        assert found[f"best_{name}"] >= found[name]


# Tags


def spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """Spans of well-formed BIO tags, from their description: B- begins one, I- of the same type goes on."""
    found, begin = set(), None
    for place, tag in enumerate([*tags, "O"]):
        if begin is not None and not tag.startswith("I-"):
            found.add((begin, place, tags[begin][2:]))
            begin = None
        if tag.startswith("B-"):
            begin = place
    return found


CHUNKS = st.lists(st.tuples(st.sampled_from(["PER", "LOC", None]), st.integers(1, 3)), min_size=1, max_size=6)


def as_tags(chunks: list[tuple[str | None, int]], length: int) -> list[str]:
    tags = [
        tag
        for kind, size in chunks
        for tag in (["O"] * size if kind is None else [f"B-{kind}", *[f"I-{kind}"] * (size - 1)])
    ]
    return (tags + ["O"] * length)[:length]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(CHUNKS, CHUNKS), min_size=1, max_size=5))
def test_span_scores_agree_with_their_definition(sentences: list) -> None:
    predicted, expected = ([as_tags(pair[side], 12) for pair in sentences] for side in (0, 1))
    scores = score_tags(predicted, expected)
    right = sum(len(spans(a) & spans(b)) for a, b in zip(predicted, expected, strict=True))
    of_predicted, of_expected = (sum(len(spans(tags)) for tags in side) for side in (predicted, expected))
    assert scores["precision"] == pytest.approx(right / of_predicted if of_predicted else 0)
    assert scores["recall"] == pytest.approx(right / of_expected if of_expected else 0)
    assert scores["f1"] == pytest.approx(2 * right / (of_predicted + of_expected) if right else 0)


def test_span_scores_as_a_module_and_of_nothing() -> None:
    tags = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O"]]
    scores = load("tags").compute(predictions=tags, references=[tags[0], ["O", "B-PER", "O"]])
    assert scores == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": pytest.approx(5 / 6)}
    with pytest.raises(BertlineError, match="no sentence to score"):
        score_tags([], [])
    with pytest.raises(BertlineError, match="differ in their numbers of tags"):
        score_tags([["O"]], [["O", "O"]])
    with pytest.raises(BertlineError, match="no example to score"):
        compute_metrics(["f1_macro"], [], [])
