"""SQuAD: reading, windows, answers and scores."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from roberta_folder import train_vocabulary
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import make_tokenizer, read_tokenizer, take_tokenizer
from bertline.finetuning.digest import digest_of_examples
from bertline.finetuning.metrics.squad import (
    best_null_threshold,
    normalize_answer,
    question_scores,
    score_squad,
)
from bertline.finetuning.squad_answers import (
    Candidate,
    QuestionAnswers,
    answer_questions,
    best_spans,
    copy_position,
    most_frequent_answer,
    n_best,
)
from bertline.finetuning.squad_task import prepare_squad
from bertline.finetuning.squad_windows import (
    Answer,
    Question,
    SquadFile,
    Windows,
    has_most_context,
    make_windows,
    read_squad,
)
from bertline.tasks.registry import TASKS
from bertline.tasks.squad import SQUAD_TASKS

Json = dict[str, Any]
CONTEXT = "Ada Veli was born in Tarn in 1820. Ada Veli moved to Kord, a town of 300 people, and died in Kord in 1861."


def small_file() -> Json:
    """A SQuAD v1.1 document of two questions on one paragraph."""

    def question(identity: str, text: str, answer: str) -> Json:
        return {
            "id": identity,
            "question": text,
            "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)}],
        }

    questions = [question("q1", "Where was Ada Veli born?", "Tarn"), question("q2", "When did she die?", "1861")]
    return {"version": "1.1", "data": [{"title": "Ada", "paragraphs": [{"context": CONTEXT, "qas": questions}]}]}


def write(path: Path, document: Json) -> Path:
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = sorted({word.strip("?.,").lower() for word in f"{CONTEXT} where when did she die".split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "?", *words]
    made = make_tokenizer(vocabulary, lowercase=True, source="the test")
    return made


@pytest.fixture(scope="module")
def google_tokenizer(test_data: Path) -> Tokenizer:
    taken = take_tokenizer(test_data / "vocab/bert-base-uncased-vocab.txt", lowercase=True)
    return taken


def windows_of(squad: SquadFile, tokenizer: Tokenizer, **changes: Any) -> Windows:
    settings = {"max_sequence_length": 24, "doc_stride": 8, "max_query_length": 8, "for_training": False} | changes
    return make_windows(squad, tokenizer, **settings)


def text_of_answer(squad: SquadFile, windows: Windows, window: int) -> str:
    """The characters under an input's labelled tokens."""
    context = squad.questions[windows.question[window]].context
    shift = windows.first_token[window] - windows.sequences.second_segment_start[window]
    first, last = windows.answer[window] + shift
    return squad.contexts[context][windows.spans[context][first, 0] : windows.spans[context][last, 1]]


# Scores


@pytest.mark.parametrize(
    ("file", "published", "expected", "missing", "unknown"),
    [
        ("dev-v1.1.json", "predictions-dev-v1.1-bert.json", (86.2062, 92.1956), 0, 0),
        # 10,585 predictions, of which 28 are for no question of the file.
        ("dev-v1.1.json", "predictions-dev-v1.1-logistic-regression-baseline.json", (40.1419, 50.9815), 13, 28),
        ("dev-v2.0-slice.json", "predictions-dev-v2.0-bert.json", (74.5198, 78.0868), 0, 11873 - 781),
    ],
)
def test_published_predictions_score_what_the_official_scripts_give(
    test_data: Path,
    file: str,
    published: str,
    expected: tuple[float, float],
    missing: int,
    unknown: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    version_2 = "v2.0" in file
    squad = read_squad(test_data / "squad" / file, version_2=version_2)
    answers = {question.id: [answer.text for answer in question.answers] for question in squad.questions}
    predictions = json.loads((test_data / "squad" / published).read_text())
    scores = score_squad(answers, predictions, version_2=version_2)
    assert (round(scores["exact_match"], 4), round(scores["f1"], 4)) == expected
    assert (scores["missing"], scores["total"]) == (missing, len(squad.questions))
    assert scores["unknown"] == unknown
    assert len(caplog.messages) == (unknown > 0)
    assert all(f"for ids that the file does not have: {unknown}, such as '" in line for line in caplog.messages)
    if version_2:
        has_answer = (round(scores["has_answer_exact_match"], 4), round(scores["has_answer_f1"], 4))
        assert has_answer == (74.5146, 81.2762)
        assert round(scores["no_answer_exact_match"], 4) == round(scores["no_answer_f1"], 4) == 74.5257


def test_normalisation_drops_case_punctuation_and_articles() -> None:
    assert normalize_answer("  The U.S. and an  Old-world,\ta thing ") == "us and oldworld thing"


def test_words_count_as_often_as_they_are_in_both() -> None:
    exact, f1 = question_scores("big big cat", ["big cat cat"])
    assert (exact, f1) == (0.0, pytest.approx(2 / 3))


def test_the_versions_differ_where_an_answer_is_empty_after_normalisation() -> None:
    assert question_scores("", ["The"]) == (1.0, 0.0)
    assert question_scores("", ["The"], version_2=True) == (1.0, 1.0)
    assert question_scores("cat", [], version_2=True) == (0.0, 0.0)


def test_a_question_whose_answers_are_empty_after_normalisation_is_one_without_an_answer() -> None:
    scores = score_squad({"a": ["The"], "b": ["cat"]}, {"a": "", "b": "dog"}, version_2=True)
    assert (scores["no_answer_f1"], scores["has_answer_f1"]) == (100.0, 0.0)


def test_scoring_no_question_is_an_error() -> None:
    with pytest.raises(BertlineError, match="no question"):
        score_squad({}, {})


def test_the_null_threshold_is_the_best_of_all_thresholds() -> None:
    generator = np.random.default_rng(3)
    for _ in range(50):
        ids = [str(index) for index in range(12)]
        answers = {key: ["cat"] if generator.random() < 0.5 else [] for key in ids}
        predictions = {key: ["cat", "cat dog", "dog"][generator.integers(3)] for key in ids}
        differences = {key: float(generator.integers(-4, 5)) for key in ids}

        def f1(threshold: float, answers: Json = answers, texts: Json = predictions, by: Json = differences) -> float:
            chosen = {key: text if by[key] <= threshold else "" for key, text in texts.items()}
            return score_squad(answers, chosen, version_2=True)["f1"]

        best = max(f1(threshold) for threshold in np.arange(-6, 7))
        found = best_null_threshold(answers, predictions, differences)
        assert f1(found) == pytest.approx(best)
        lowest = min(differences.values()) - 1
        assert found == next(level for level in sorted({lowest, *differences.values()}) if f1(level) > best - 1e-9)


def test_the_official_dev_set_is_recognised_and_a_changed_one_of_its_size_is_not(
    test_data: Path, tmp_path: Path
) -> None:
    content = (test_data / "squad/dev-v1.1.json").read_bytes()
    # The SHA-256 with which config/config.yaml downloads the official file.
    recipe = yaml.safe_load((Path(__file__).parents[2] / "config/config.yaml").read_text())
    assert hashlib.sha256(content).hexdigest() == recipe["evaluation"]["squad_v1"]["dev"]["sha256"]

    def is_official(document: Json) -> bool | None:
        squad = read_squad(write(tmp_path / "dev.json", document), version_2=False)
        return TASKS["squad_v1"].is_official("dev", {"dev": digest_of_examples(squad.labelled())})

    document = json.loads(content)
    document["data"].reverse()
    assert is_official(document) is True
    document["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    assert is_official(document) is False


def test_the_published_v2_predictions_by_no_threshold_and_with_rebuilt_answers(test_data: Path) -> None:
    # Questions of v2.0's dev that v1.1's dev lacks are the unanswerable ones, so all 11,873 can be scored.
    squad = read_squad(test_data / "squad/dev-v1.1.json", version_2=False)
    predictions = json.loads((test_data / "squad/predictions-dev-v2.0-bert.json").read_text())
    answers = {question.id: [answer.text for answer in question.answers] for question in squad.questions}
    gold = {question: answers.get(question, []) for question in predictions}
    scores = score_squad(gold, predictions, version_2=True)
    assert (round(scores["exact_match"], 3), round(scores["f1"], 3)) == (78.742, 81.775)
    # Published answers are final: a doubt of 1 where the text is empty leaves them as they are.
    doubts = {question: float(text == "") for question, text in predictions.items()}
    threshold = best_null_threshold(gold, predictions, doubts)
    left = {question: text if doubts[question] <= threshold else "" for question, text in predictions.items()}
    assert score_squad(gold, left, version_2=True) == scores


def test_a_question_without_a_score_of_having_no_answer_is_named() -> None:
    with pytest.raises(BertlineError, match="question 'b' has no score of having no answer"):
        best_null_threshold({"a": ["x"], "b": []}, {"a": "x", "b": "y"}, {"a": 0.0})
    with pytest.raises(BertlineError, match="question 'a' has no prediction"):
        best_null_threshold({"a": ["x"]}, {}, {"a": 0.0})


# Reading


def broken(change: Callable[[Json], None]) -> Json:
    document = copy.deepcopy(small_file())
    change(document)
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("data"), "the top level has no key 'data'"),
        (lambda d: d["data"][0].pop("paragraphs"), r"data\[0\] has no key 'paragraphs'"),
        (lambda d: d["data"][0]["paragraphs"][0].pop("context"), r"paragraphs\[0\] has no key 'context'"),
        (lambda d: d["data"][0]["paragraphs"][0]["qas"][1].pop("id"), r"qas\[1\] has no key 'id'"),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][0].update(answer_start="7"),
            r"answers\[0\].answer_start is not of type int",
        ),
        (lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(id="q1"), "'q1' appears twice"),
        (lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(answers=[]), "'q2' has no answer.*squad_v2"),
        (lambda d: d["data"].clear(), "contains no question"),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][0].update(answer_start=True),
            r"answers\[0\].answer_start is not of type int",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][0].update(answer_start=10**30),
            r"answers\[0\].answer_start is too large",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][0].update(text=" "),
            r"qas\[0\].answers\[0\].text is empty",
        ),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(is_impossible="false"),
            r"qas\[1\].is_impossible is not of type bool",
        ),
    ],
)
def test_a_bad_file_is_one_line_that_names_the_place(
    tmp_path: Path, change: Callable[[Json], None], message: str
) -> None:
    path = write(tmp_path / "squad.json", broken(change))
    with pytest.raises(BertlineError, match=message) as caught:
        read_squad(path, version_2=False)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"), [("false", "is not of type bool"), (0, "is not of type bool"), (None, "bool")]
)
def test_only_a_truth_value_says_that_a_question_is_impossible(tmp_path: Path, value: object, message: str) -> None:
    document = broken(lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(is_impossible=value))
    with pytest.raises(BertlineError, match=rf"qas\[1\]\.is_impossible .*{message}"):
        read_squad(write(tmp_path / "squad.json", document), version_2=True)


def test_a_possible_question_without_an_answer_is_a_contradiction(tmp_path: Path) -> None:
    document = broken(lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(is_impossible=False, answers=[]))
    path = write(tmp_path / "squad.json", document)
    with pytest.raises(BertlineError, match=r"qas\[1\]: question 'q2' has no answer and is_impossible: false"):
        read_squad(path, version_2=True)
    assert len(read_squad(path, version_2=True, labelled=False).questions) == 2


def test_a_file_without_any_label_is_one_line_where_labels_are_needed(tmp_path: Path) -> None:
    """Every question would count as unanswerable, and a network that never answers would score 100."""
    document = broken(lambda d: [qa.update(answers=[]) for qa in d["data"][0]["paragraphs"][0]["qas"]])
    path = write(tmp_path / "squad.json", document)
    with pytest.raises(BertlineError, match="no question has an answer or is_impossible; name a file with labels"):
        read_squad(path, version_2=True)
    assert len(read_squad(path, version_2=True, labelled=False).questions) == 2
    document["data"][0]["paragraphs"][0]["qas"][0]["is_impossible"] = True
    assert len(read_squad(write(path, document), version_2=True).questions) == 2


def test_plausible_answers_of_an_impossible_question_are_not_answers(tmp_path: Path) -> None:
    document = broken(lambda d: d["data"][0]["paragraphs"][0]["qas"][1].update(is_impossible=True))
    squad = read_squad(write(tmp_path / "squad.json", document), version_2=True)
    assert [len(question.answers) for question in squad.questions] == [1, 0]


def test_a_misplaced_answer_is_counted_and_left_out_of_training(tmp_path: Path, tokenizer: Tokenizer) -> None:
    document = broken(lambda d: d["data"][0]["paragraphs"][0]["qas"][0]["answers"][0].update(answer_start=3))
    squad = read_squad(write(tmp_path / "squad.json", document), version_2=False)
    assert squad.misplaced == ["q1"]
    train, dev = windows_of(squad, tokenizer, for_training=True), windows_of(squad, tokenizer)
    assert set(train.question) == {1}
    assert set(dev.question) == {0, 1}
    assert train.unusable == 1


def test_the_first_answer_that_is_in_place_is_trained_on(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def change(document: Json) -> None:
        answers = document["data"][0]["paragraphs"][0]["qas"][0]["answers"]
        answers.insert(0, {"text": "Veli", "answer_start": 3})

    squad = read_squad(write(tmp_path / "squad.json", broken(change)), version_2=False)
    assert squad.misplaced == []
    windows = windows_of(squad, tokenizer, for_training=True)
    assert (windows.unusable, set(windows.question)) == (0, {0, 1})
    labelled = [window for window in np.flatnonzero(windows.question == 0) if windows.answer[window, 0]]
    assert {text_of_answer(squad, windows, window) for window in labelled} == {"Tarn"}


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(small_file()), encoding="utf-8-sig")
    assert len(read_squad(path, version_2=False).questions) == 2


def test_questions_that_are_cut_off_are_reported(
    tmp_path: Path, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path = write(tmp_path / "squad.json", small_file())
    settings = {"max_sequence_length": 24, "doc_stride": 8, "max_query_length": 5, "max_answer_length": 4}
    prepare_squad(SQUAD_TASKS["squad_v1"], dict.fromkeys(("train", "dev"), str(path)), settings, tokenizer)
    told = "1 of 2 questions are longer than max_query_length 5; their end is cut off"
    assert caplog.messages == [f"train: {told}", f"dev: {told}"]


# Windows


def test_a_question_is_cut_off_at_its_limit(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer, max_query_length=3)
    assert set(windows.sequences.second_segment_start) == {5}  # behind [CLS], three tokens and [SEP]
    assert windows.sequences.lengths.max() == 24


def test_windows_overlap_by_the_stride_and_cover_the_context(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer)
    assert windows.sequences.lengths.max() == 24
    for question in (0, 1):
        mine = np.flatnonzero(windows.question == question)
        first, count = windows.first_token[mine], windows.context_tokens[mine]
        assert list(first) == [8 * index for index in range(len(mine))]
        assert first[-1] + count[-1] == len(windows.spans[0])
        assert first[-2] + count[-2] < len(windows.spans[0])
    kept = windows.sequences.tokens[windows.sequences.offsets[0] : windows.sequences.offsets[1]]
    vocabulary = tokenizer
    text = [vocabulary.id_to_token(int(token)) for token in kept]
    assert text[:8] == ["[CLS]", "where", "was", "ada", "veli", "born", "?", "[SEP]"]
    assert text[8:12] == ["ada", "veli", "was", "born"]
    assert text[-1] == "[SEP]"
    assert windows.sequences.second_segment_start[0] == 8


def test_a_window_without_the_answer_points_at_the_classification_token(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer)
    labelled = {0: 0, 1: 0}
    for window, question in enumerate(windows.question):
        if windows.answer[window, 0] == 0:
            assert list(windows.answer[window]) == [0, 0]
        else:
            labelled[question] += 1
            assert text_of_answer(squad, windows, window) == squad.questions[question].answers[0].text
    assert labelled == {0: 1, 1: 1}


def test_an_answer_is_labelled_in_exactly_the_windows_that_hold_all_of_it(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer, doc_stride=1)
    first, last = windows.answer_tokens[windows.question].T
    end = windows.first_token + windows.context_tokens
    held = (windows.first_token <= first) & (last < end)
    assert 0 < held.sum() < len(held)
    assert ((windows.answer[:, 0] > 0) == held).all()


def test_each_word_and_mark_as_an_answer_is_labelled_with_itself(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    answers = [Answer(match.group(), match.start()) for match in re.finditer(r"\w+|[.,]", CONTEXT)]
    squad = replace(squad, questions=[replace(squad.questions[0], answers=(answer,)) for answer in answers])
    windows = windows_of(squad, tokenizer, max_sequence_length=64)
    labelled = [text_of_answer(squad, windows, window) for window in range(len(answers))]
    assert labelled == [answer.text for answer in answers]


@pytest.mark.parametrize(
    ("file", "version_2"), [("train-v1.1-slice", False), ("dev-v1.1", False), ("dev-v2.0-slice", True)]
)
@pytest.mark.parametrize(("length", "stride"), [(384, 128), (128, 64)])
def test_every_real_answer_can_be_recovered_from_its_tokens(
    test_data: Path,
    google_tokenizer: Tokenizer,
    file: str,
    version_2: bool,
    length: int,
    stride: int,
) -> None:
    squad = read_squad(test_data / "squad" / f"{file}.json", version_2=version_2)
    if length == 384:  # every accepted answer, not only the first
        questions = [
            replace(question, answers=(answer,))
            for question in squad.questions
            for answer in dict.fromkeys(question.answers)
        ]
        squad = replace(squad, questions=questions)
    else:
        squad = replace(squad, questions=[question for question in squad.questions[:1500] if question.answers])
    windows = make_windows(
        squad,
        google_tokenizer,
        max_sequence_length=length,
        doc_stride=stride,
        max_query_length=64,
        for_training=True,
    )
    assert (squad.misplaced, windows.unusable) == ([], 0)
    labelled = np.flatnonzero(windows.answer[:, 0])
    assert set(windows.question[labelled]) == set(range(len(squad.questions)))
    for window in labelled:
        answer = squad.questions[windows.question[window]].answers[0].text.strip()
        before, found, after = text_of_answer(squad, windows, int(window)).partition(answer)
        assert found
        # Tokens hold more than the answer only where it begins or ends inside a word: "Japan" of "Japanese".
        assert not set(before + after) & set(" \n\t")


def test_each_token_has_most_context_in_exactly_one_window(test_data: Path, google_tokenizer: Tokenizer) -> None:
    squad = read_squad(test_data / "squad/dev-v2.0-slice.json", version_2=True)
    squad = replace(squad, questions=squad.questions[::20])
    windows = make_windows(
        squad, google_tokenizer, max_sequence_length=96, doc_stride=20, max_query_length=32, for_training=False
    )
    chosen = has_most_context(windows)
    times = [np.zeros(len(windows.spans[question.context]), dtype=int) for question in squad.questions]
    for window, question in enumerate(windows.question):
        begin = windows.sequences.offsets[window] + windows.sequences.second_segment_start[window]
        first, count = windows.first_token[window], windows.context_tokens[window]
        times[question][first : first + count] += chosen[begin : begin + count]
    assert all((count == 1).all() for count in times)
    assert chosen.sum() == sum(len(count) for count in times)


def window_with_most_context(windows: Windows, question: int, token: int) -> int:
    """The window of a token as _check_is_max_context of Google's run_squad.py chooses it, one window after another."""
    best, best_score = -1, -1.0
    for window in np.flatnonzero(windows.question == question):
        start, length = int(windows.first_token[window]), int(windows.context_tokens[window])
        end = start + length - 1
        if start <= token <= end:
            score = min(token - start, end - token) + 0.01 * length
            if score > best_score:
                best, best_score = int(window), score
    return best


@pytest.mark.parametrize(
    ("room", "stride", "counts"),
    [
        *((room, stride, range(1, 41, 3)) for room in (2, 5, 8, 11, 12) for stride in sorted({1, room // 2, room - 1})),
        # Its length makes a window win over one that has one more token of context, and is shorter by more than 100.
        (384, 128, [395, 523, 700]),
        (250, 200, [271, 460]),
    ],
)
def test_a_token_has_most_context_where_google_finds_it(
    tokenizer: Tokenizer, room: int, stride: int, counts: Sequence[int]
) -> None:
    squad = SquadFile(
        [" ".join(["was"] * count) for count in counts],
        [Question(str(place), "where", place, ()) for place in range(len(counts))],
        [],
    )
    windows = windows_of(squad, tokenizer, max_sequence_length=room + 4, doc_stride=stride, max_query_length=1)
    expected = np.zeros(len(windows.sequences.tokens), dtype=bool)
    for question, count in enumerate(counts):
        for token in range(count):
            window = window_with_most_context(windows, question, token)
            begin = windows.sequences.offsets[window] + windows.sequences.second_segment_start[window]
            expected[begin + token - windows.first_token[window]] = True
    assert expected.sum() == sum(counts)
    np.testing.assert_array_equal(has_most_context(windows), expected)


def test_a_query_that_leaves_no_room_is_an_error(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    with pytest.raises(BertlineError, match="max_query_length: given 64, which leaves no room for a context"):
        windows_of(squad, tokenizer, max_query_length=64)


# Answers


def test_the_best_spans_are_those_of_a_search_over_all() -> None:
    generator = np.random.default_rng(0)
    for tokens, width, count in [(1, 5, 20), (7, 3, 4), (40, 30, 20), (6, 50, 8)]:
        start, end = generator.normal(size=(2, tokens)).astype(np.float32)
        start[::3] = -np.inf
        everything = [
            (float(start[s] + end[e]), s, e)
            for s in range(tokens)
            for e in range(s, min(tokens, s + width))
            if start[s] > -np.inf
        ]
        expected = sorted(everything, reverse=True)[:count]
        assert sorted(best_spans(start, end, width, count), reverse=True) == expected


def answers_with_perfect_scores(squad: SquadFile, windows: Windows) -> dict[str, QuestionAnswers]:
    start = np.zeros(len(windows.sequences.tokens), dtype=np.float32)
    end = start.copy()
    for window in np.flatnonzero(windows.answer[:, 0]):
        start[windows.sequences.offsets[window] + windows.answer[window, 0]] = 5
        end[windows.sequences.offsets[window] + windows.answer[window, 1]] = 5
    answers = answer_questions(squad, windows, start, end, max_answer_length=5)
    assert {key: found.best_text for key, found in answers.items()} == {"q1": "Tarn", "q2": "1861"}
    return answers


def test_a_network_with_perfect_scores_answers_every_question(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer)
    answers = answers_with_perfect_scores(squad, windows)
    best = answers["q1"].candidates
    assert [candidate.score for candidate in best] == sorted((c.score for c in best), reverse=True)
    assert len({candidate.text for candidate in best}) == len(best)
    assert answers["q1"].null_difference == pytest.approx(-10)


def randomly_scored(tmp_path: Path, tokenizer: Tokenizer) -> tuple[SquadFile, Windows, np.ndarray, np.ndarray]:
    """A small file, its windows, and random start and end scores of their tokens."""
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer)
    generator = np.random.default_rng(0)
    start, end = generator.normal(size=(2, len(windows.sequences.tokens))).astype(np.float32)
    return squad, windows, start, end


def test_an_answer_starts_where_its_window_has_most_context(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad, windows, start, end = randomly_scored(tmp_path, tokenizer)
    best = answer_questions(squad, windows, start, end, max_answer_length=5)
    elsewhere = ~has_most_context(windows)
    elsewhere[windows.sequences.offsets[:-1]] = False  # the score of "no answer" does not depend on the context
    start[elsewhere] = 100
    assert answer_questions(squad, windows, start, end, max_answer_length=5) == best


def test_the_candidates_are_the_20_best_spans_of_all_windows(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad, windows, start, end = randomly_scored(tmp_path, tokenizer)
    answers = answer_questions(squad, windows, start, end, max_answer_length=5)
    allowed = has_most_context(windows)
    for number, question in enumerate(squad.questions):
        spans: list[tuple[float, str]] = []
        for window in np.flatnonzero(windows.question == number):
            begin = windows.sequences.offsets[window] + windows.sequences.second_segment_start[window]
            count, places = windows.context_tokens[window], windows.spans[0][windows.first_token[window] :]
            for first in np.flatnonzero(allowed[begin : begin + count]):
                for last in range(first, min(first + 5, count)):
                    score = float(start[begin + first]) + float(end[begin + last])
                    spans.append((score, CONTEXT[places[first, 0] : places[last, 1]]))
        assert len(np.unique(windows.first_token[windows.question == number])) > 1
        best = sorted(spans, reverse=True)[:20]
        found = [(candidate.score, candidate.text) for candidate in answers[question.id].candidates]
        assert [text for _, text in found] == list(dict.fromkeys(text for _, text in best))
        assert set(found) <= set(best)


def test_spans_of_equal_score_are_in_the_order_of_the_context(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer, max_sequence_length=64)
    assert len(windows.sequences) == len(squad.questions)
    words = ["born", "Tarn", "1820", "moved", "town", "300", "people", "died", "1861"]
    logits = np.zeros(len(windows.sequences.tokens), dtype=np.float32)
    logits[np.isin(windows.sequences.tokens, [tokenizer.token_to_id(word.lower()) for word in words])] = 5
    for found in answer_questions(squad, windows, logits, logits, max_answer_length=1).values():
        assert [candidate.text for candidate in found.candidates][: len(words)] == words


def test_of_a_text_in_two_places_the_better_score_is_kept(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    windows = windows_of(squad, tokenizer, max_sequence_length=64)
    logits = np.zeros(len(windows.sequences.tokens), dtype=np.float32)
    kord = np.flatnonzero(windows.sequences.tokens == tokenizer.token_to_id("kord"))
    logits[kord] = [5, 4, 4, 5]
    answers = answer_questions(squad, windows, logits, logits, max_answer_length=1)
    assert [found.candidates[0] for found in answers.values()] == [Candidate("Kord", 5.0, 5.0)] * 2


def test_a_piece_of_white_space_is_no_answer(tmp_path: Path) -> None:
    train_vocabulary().save_pretrained(tmp_path)
    squad = SquadFile(["The river 漢 deep"], [Question("q", "who", 0, (Answer("漢", 10),))], [])
    windows = windows_of(squad, read_tokenizer(tmp_path))
    begin, spans = int(windows.sequences.second_segment_start[0]), windows.spans[0]
    blank = next(place for place, (first, last) in enumerate(spans) if not squad.contexts[0][first:last].strip())
    logits = np.zeros(len(windows.sequences.tokens), dtype=np.float32)
    logits[begin + blank] = 5
    found = answer_questions(squad, windows, logits, logits, max_answer_length=5)["q"]
    assert found.best_text.strip()
    assert all(candidate.text == candidate.text.strip() != "" for candidate in found.candidates)
    assert len({candidate.text for candidate in found.candidates}) == len(found.candidates)


@pytest.mark.parametrize("answer", ["river\t", "\triver", "\triver\t\n", "river"])
def test_white_space_around_an_answer_adds_no_token(tmp_path: Path, answer: str) -> None:
    """Tabs and line breaks are tokens of RoBERTa's tokenizer."""
    train_vocabulary().save_pretrained(tmp_path)
    context = "The\triver\t\nis"
    squad = SquadFile([context], [Question("q", "who", 0, (Answer(answer, context.index(answer)),))], [])
    windows = windows_of(squad, read_tokenizer(tmp_path))
    assert text_of_answer(squad, windows, 0) == "river"


@pytest.mark.parametrize(("context", "answer"), [("the cafe\u0301 closed", "cafe\u0301"), ("यह गाँव में है", "में")])
def test_an_answer_keeps_the_marks_that_its_tokens_lack(context: str, answer: str) -> None:
    tokenizer = make_tokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cafe", "closed", "यह", "गाव", "म", "ह"],
        lowercase=True,
        source="the test",
    )
    squad = SquadFile([context], [Question("q", "the", 0, (Answer(answer, context.index(answer)),))], [])
    windows = windows_of(squad, tokenizer)
    logits = np.zeros(len(windows.sequences.tokens), dtype=np.float32)
    logits[windows.answer[0, 0]] = 5
    assert windows.answer[0, 0] == windows.answer[0, 1]
    found = answer_questions(squad, windows, logits, logits, max_answer_length=1)["q"]
    assert found.best_text == answer
    assert copy_position(windows, squad, windows) == {"q": answer}


def test_an_empty_context_gets_an_empty_answer(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def change(document: Json) -> None:
        document["data"][0]["paragraphs"][0]["context"] = " "

    squad = read_squad(write(tmp_path / "squad.json", broken(change)), version_2=True)
    windows = windows_of(squad, tokenizer)
    logits = np.zeros(len(windows.sequences.tokens), dtype=np.float32)
    answers = answer_questions(squad, windows, logits, logits, max_answer_length=5)
    assert [found.best_text for found in answers.values()] == ["", ""]
    assert [found.null_difference for found in answers.values()] == [0.0, 0.0]
    of_nothing = {"text": "", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}
    assert n_best(answers, with_null=False) == {"q1": [of_nothing], "q2": [of_nothing]}
    assert copy_position(windows, squad, windows) == {"q1": "", "q2": ""}


def test_baselines_are_the_most_frequent_answer_and_the_most_frequent_place(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    def change(document: Json) -> None:
        questions = document["data"][0]["paragraphs"][0]["qas"]
        questions.append({**questions[1], "id": "q3"})

    train = read_squad(write(tmp_path / "train.json", broken(change)), version_2=False)
    assert most_frequent_answer(train) == "1861"

    def other(document: Json) -> None:
        paragraph = document["data"][0]["paragraphs"][0]
        paragraph["context"] = CONTEXT.replace("1861", "1900")

    dev = read_squad(write(tmp_path / "dev.json", broken(other)), version_2=False)
    copied = copy_position(windows_of(train, tokenizer), dev, windows_of(dev, tokenizer))
    assert copied == {"q1": "1900", "q2": "1900"}
    longer = [replace(question, answers=(Answer("in Tarn in", 18),)) for question in train.questions]
    longer_windows = windows_of(replace(train, questions=longer), tokenizer)
    short = replace(dev, contexts=["Ada died."])
    assert set(copy_position(longer_windows, dev, windows_of(dev, tokenizer)).values()) == {"in Tarn in"}
    assert set(copy_position(longer_windows, short, windows_of(short, tokenizer)).values()) == {"."}


def test_of_equally_frequent_places_the_first_in_a_context_is_copied(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad = read_squad(write(tmp_path / "squad.json", small_file()), version_2=False)
    answers = [Answer(word, CONTEXT.index(word)) for word in ("Tarn", "was")]
    questions = [replace(one, answers=(answer,)) for one, answer in zip(squad.questions, answers, strict=True)]
    windows = windows_of(replace(squad, questions=questions), tokenizer, max_sequence_length=64)
    assert windows.answer_tokens.tolist() == [[5, 5], [2, 2]]
    assert copy_position(windows, squad, windows) == {"q1": "was", "q2": "was"}


def test_the_n_best_answers_are_spans_of_the_context_with_probabilities(tmp_path: Path, tokenizer: Tokenizer) -> None:
    squad, windows, start, end = randomly_scored(tmp_path, tokenizer)
    answers = answer_questions(squad, windows, start, end, max_answer_length=5)
    for with_null in (True, False):
        for question, found in n_best(answers, with_null=with_null).items():
            probabilities = [one["probability"] for one in found]
            assert sum(probabilities) == pytest.approx(1)
            assert probabilities == sorted(probabilities, reverse=True)
            assert all(one["text"] in CONTEXT for one in found)
            assert ("" in [one["text"] for one in found]) == with_null
            sums = [one["start_logit"] + one["end_logit"] for one in found]
            odds = np.log(probabilities[0]) - np.log(probabilities)
            np.testing.assert_allclose(odds, sums[0] - np.array(sums), atol=1e-6)
            best = next(one for one in found if one["text"])
            assert best["text"] == answers[question].best_text
            at_classification = windows.sequences.offsets[:-1][windows.question == int(question[1]) - 1]
            null = (start[at_classification] + end[at_classification]).min()
            assert answers[question].null_difference == pytest.approx(null - best["start_logit"] - best["end_logit"])


def test_a_text_of_100_000_characters_is_cut_into_windows_and_answered(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def change(document: Json) -> None:
        paragraph = document["data"][0]["paragraphs"][0]
        paragraph["context"] = "was born in " * 8400 + CONTEXT
        for question in paragraph["qas"]:
            question["answers"][0]["answer_start"] += 12 * 8400

    squad = read_squad(write(tmp_path / "squad.json", broken(change)), version_2=False)
    assert len(squad.contexts[0]) > 100_000
    windows = windows_of(squad, tokenizer, max_sequence_length=64, doc_stride=32)
    assert len(windows.sequences) > 1000
    answers_with_perfect_scores(squad, windows)
