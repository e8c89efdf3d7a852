"""The metrics as modules of `evaluate`, offline, against scikit-learn, scipy and published predictions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertline.console import BertlineError
from bertline.finetuning.metrics.tags import score_tags
from bertline.finetuning.metrics.texts import compute_metrics
from bertline.finetuning.scoring import compute_scores, load_metric
from bertline.finetuning.squad_windows import read_squad

SOURCE = Path(__file__).parents[2] / "src"
SCORE = """
import socket
socket.socket.connect = lambda *_: exit("a metric asked the network")
from bertline.finetuning.scoring import compute_scores
from bertline.training.rank_process import run_rank

def score():
    for _ in range(3):
        print(compute_scores("texts", "mrpc", [0, 1, 1], [1, 1, 1])["f1"])

run_rank(score, None)
"""


def run_python(code: str, home: Path) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(SOURCE)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], text=True, env=environment, **streams)


def test_concurrent_ranks_score_without_a_network_and_leave_no_file_in_the_user_s_folders(tmp_path: Path) -> None:
    jobs = [run_python(SCORE, tmp_path) for _ in range(3)]
    outputs = [job.communicate(timeout=300) for job in jobs]
    assert [output for output, _ in outputs] == ["0.8\n0.8\n0.8\n"] * 3, outputs
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["bertline.finetuning.train", "bertline.planning.resolve"])
def test_nothing_imports_evaluate_before_it_scores(tmp_path: Path, module: str) -> None:
    code = f"import sys; sys.modules['evaluate'] = sys.modules['datasets'] = None; import {module}"
    job = run_python(code, tmp_path)
    assert (job.communicate(timeout=300)[1], job.returncode) == ("", 0)


@pytest.mark.slow
def test_scoring_imports_no_transformers_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    code = (
        "import sys; from bertline.finetuning.scoring import load_metric; load_metric('texts', 'mrpc');"
        "assert 'transformers' not in sys.modules; from transformers import pipeline"
    )
    job = run_python(code, tmp_path)
    assert (job.communicate(timeout=300)[1], job.returncode) == ("", 0)


@pytest.mark.slow
def test_evaluate_loads_the_modules_as_documented(tmp_path: Path) -> None:
    documentation = (SOURCE.parent / "docs/fine-tuning.md").read_text()
    calls = re.findall(r'evaluate\.load\("src/(.*?)\)', documentation)
    loaded = "".join(f'print(evaluate.load("{SOURCE}/{call}).name)\n' for call in calls)
    job = run_python(f"import socket; socket.socket.connect = exit\nimport evaluate\n{loaded}", tmp_path)
    printed, errors = job.communicate(timeout=300)
    assert (errors, job.returncode) == ("", 0)
    assert printed.split() == ["text_metrics", "text_metrics", "squad_metrics", "tag_metrics"]


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
        name: compute_scores("texts", name, predictions, references)
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
    numbers = generator.normal(size=(2, 200)).astype(np.float32)
    if kind == "constant predictions":
        numbers[0][:] = 3.0
    if kind == "one class":
        numbers[1][:] = 2.5
    scores = compute_scores("texts", "stsb", *numbers)
    expected = (0, 0) if kind != "random" else (pearsonr(*numbers).statistic, spearmanr(*numbers).statistic)
    assert (scores["pearson"], scores["spearman"]) == pytest.approx(expected, abs=1e-6)


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="given 'bleu', allowed are boolq, cola, sst2"):
        load_metric("texts", "bleu")
    with pytest.raises(ValueError, match="allowed are v1, v2"):
        load_metric("squad")


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
    scores = compute_scores("squad", "v1", *pairs)
    assert (round(scores["exact_match"], 4), round(scores["f1"], 4)) == (86.2062, 92.1956)
    pairs = as_squad(folder / "dev-v2.0-slice.json", folder / "predictions-dev-v2.0-bert.json", version_2=True)
    scores = compute_scores("squad", "v2", *pairs)
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
        return compute_scores("squad", "v2", predictions, references)

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
    """Spans of well-formed BIO tags, from their description: B- begins one, I- of the same type continues it."""
    found, begin = set(), None
    for place, tag in enumerate([*tags, "O"]):
        if begin is not None and not tag.startswith("I-"):
            found.add((begin, place, tags[begin][2:]))
            begin = None
        if tag.startswith("B-"):
            begin = place
    return found


@pytest.mark.parametrize(
    "tags", ["B-NAME I-NAME I-NAME O S-CITY", "B-NAME I-NAME E-NAME O S-CITY", "B-NAME M-NAME E-NAME O S-CITY"]
)
def test_a_span_that_ends_too_early_is_wrong_in_every_scheme(tags: str) -> None:
    """BIO, BIOES and BMES."""
    reference = tags.split()
    found = score_tags([[*reference[:2], "O", *reference[3:]]], [reference])
    assert (found["precision"], found["recall"]) == (0.5, 0.5)


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


@pytest.mark.parametrize(
    ("predicted", "expected", "precision", "recall"),
    [
        ("NN VB", "IN VB", 1 / 2, 1 / 2),
        ("O O PER", "ORG O PER", 1, 1 / 2),
        ("DET NOUN NOUN VERB NOUN ADJ", "DET NOUN NOUN VERB NOUN NOUN", 5 / 6, 5 / 6),
        ("B-NP -LRB- I-NP", "B-NP -LRB- B-NP", 2 / 3, 2 / 3),
    ],
)
def test_tags_without_prefixes_are_scored_word_by_word(
    predicted: str, expected: str, precision: float, recall: float
) -> None:
    scores = score_tags([predicted.split()], [expected.split()])
    assert (scores["precision"], scores["recall"]) == pytest.approx((precision, recall))


@pytest.mark.parametrize(
    ("predicted", "expected", "f1"),
    [
        ("U-PER U-PER O", "B-PER L-PER O", 0),
        ("B-PER L-PER U-LOC", "B-PER L-PER U-LOC", 1),
        ("B-PER I-PER L-PER", "B-PER L-PER U-PER", 0),
        ("B-PER E-PER S-LOC", "B-PER E-PER S-PER", 1 / 2),
        ("B I O B", "B I O O", 2 / 3),
    ],
)
def test_last_and_single_words_of_spans_may_have_their_own_prefixes(predicted: str, expected: str, f1: float) -> None:
    assert score_tags([predicted.split()], [expected.split()])["f1"] == pytest.approx(f1)


def test_a_stray_prediction_does_not_turn_spans_into_single_words() -> None:
    reference = ["B-PER", "I-PER", "O", "B-LOC"]
    for labels in (None, ["B-PER", "I-PER", "B-LOC", "O"]):
        scores = score_tags([["B-PER", "O", "X", "O"]], [reference], labels)
        assert (scores["precision"], scores["recall"]) == (0.0, 0.0)


def test_all_labels_of_a_task_decide_whether_words_or_spans_are_scored() -> None:
    reference, labels = ["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-LOC", "B-PER", "I-PER", "O", "X"]
    for last in ("O", "X"):
        scores = compute_scores("tags", None, [["B-PER", "O", "O", "O", last]], [reference], labels=labels)
        assert scores["recall"] == pytest.approx(1 / 3)


def test_span_scores_as_a_module_and_of_nothing() -> None:
    tags = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O"]]
    scores = compute_scores("tags", None, tags, [tags[0], ["O", "B-PER", "O"]])
    assert scores == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": pytest.approx(5 / 6)}
    with pytest.raises(BertlineError, match="no sentence to score"):
        score_tags([], [])
    with pytest.raises(BertlineError, match="differ in their numbers of tags"):
        score_tags([["O"]], [["O", "O"]])
    with pytest.raises(BertlineError, match="no example to score"):
        compute_metrics(["f1_macro"], [], [])
