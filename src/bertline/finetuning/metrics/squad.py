"""SQuAD's exact match and F1, as defined by the official evaluation scripts, in percent; a module of `evaluate`.

The config is `v1` or `v2`. Source: https://rajpurkar.github.io/SQuAD-explorer, evaluate-v1.1.py and evaluate-v2.0.py.
The two differ for answers that are empty after normalisation: v2.0 leaves them out, and an empty prediction is right
for a question that has no others; here that is one without an answer (no_answer_...), though evaluate-v2.0.py, which
gives it the same score, counts it among those with one. A question without a prediction counts as wrong in both
versions, as in evaluate-v1.1.py (evaluate-v2.0.py leaves it out of the average, which would reward leaving hard
questions out).
"""

import logging
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import datasets
import evaluate

from bertline.console import BertlineError

logger = logging.getLogger(__name__)

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lowercase `text`, remove ASCII punctuation and the articles a, an, the, and separate words by single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def question_scores(prediction: str, answers: Sequence[str], *, version_2: bool = False) -> tuple[float, float]:
    """Return (exact match, F1), each 0 to 1: the best over the accepted `answers`."""
    predicted = normalize_answer(prediction)
    accepted = [normalize_answer(answer) for answer in answers]
    if version_2:
        accepted = [answer for answer in accepted if answer] or [""]
    exact = float(any(predicted == answer for answer in accepted))
    return exact, max((_token_f1(predicted, answer, version_2) for answer in accepted), default=0.0)


def _token_f1(predicted: str, answer: str, version_2: bool) -> float:
    predicted_tokens, answer_tokens = predicted.split(), answer.split()
    if version_2 and not (predicted_tokens and answer_tokens):
        return float(predicted_tokens == answer_tokens)
    common = sum((Counter(predicted_tokens) & Counter(answer_tokens)).values())
    return 2 * common / (len(predicted_tokens) + len(answer_tokens)) if common else 0.0


def score_squad(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str], *, version_2: bool = False
) -> dict[str, float]:
    """Score predictions of a whole file, in percent.

    Args:
        answers: accepted answers of each question by its id; none for an unanswerable question.
        predictions: text by question id; "" means that there is no answer. Those for ids that are not in `answers` are
            counted, logged and not scored.

    Returns:
        exact_match and f1, and with version_2 the same for the questions with an answer (has_answer_...) and for those
        without (no_answer_...), if there are any; total and missing are numbers of questions, unknown is the number of
        predictions for other ids.

    Raises BertlineError if there is no question.
    """
    if not answers:
        raise BertlineError("there is no question to score; the SQuAD file is empty")
    exact: dict[str, float] = {}
    f1: dict[str, float] = {}
    for question, accepted in answers.items():
        predicted = predictions.get(question)
        scores = (0.0, 0.0) if predicted is None else question_scores(predicted, accepted, version_2=version_2)
        exact[question], f1[question] = scores
    result = {"exact_match": _percent(list(exact.values())), "f1": _percent(list(f1.values()))}
    if version_2:
        answerable = {question for question, accepted in answers.items() if any(map(normalize_answer, accepted))}
        for name, group in (("has_answer", answerable), ("no_answer", answers.keys() - answerable)):
            if group:
                result[f"{name}_exact_match"] = _percent([exact[question] for question in group])
                result[f"{name}_f1"] = _percent([f1[question] for question in group])
    unknown = predictions.keys() - answers.keys()
    if unknown:
        logger.warning(
            "predictions for ids that the file does not have: %d, such as '%s'; they are not scored",
            len(unknown),
            min(unknown),
        )
    missing = len(answers.keys() - predictions.keys())
    return result | {"total": len(answers), "missing": missing, "unknown": len(unknown)}


def _percent(values: list[float]) -> float:
    return 100.0 * sum(sorted(values)) / len(values)  # sorted: the sum must not depend on the order of a set


def best_null_threshold(
    answers: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_differences: Mapping[str, float],
    *,
    score: Literal["exact_match", "f1"] = "f1",
) -> float:
    """Return the threshold with the best v2.0 score if questions with a difference above it are left unanswered.

    Args:
        answers: accepted answers by question id, as in `score_squad`.
        predictions: the best non-empty answer by question id.
        null_differences: by question id, the score of "no answer" minus that of the best answer, or any other measure
            of doubt, such as a probability.

    The lowest threshold wins a tie. Source: find_best_thresh of evaluate-v2.0.py. Raises BertlineError if a question
    has no prediction or no difference.
    """
    for given, name in ((predictions, "prediction"), (null_differences, "score of having no answer")):
        missing = answers.keys() - given.keys()
        if missing:
            raise BertlineError(f"the question '{min(missing)}' has no {name}; give one for each question")
    part = ("exact_match", "f1").index(score)
    gains: list[tuple[float, float]] = []
    for question, accepted in answers.items():
        answered = question_scores(predictions[question], accepted, version_2=True)
        unanswered = question_scores("", accepted, version_2=True)
        gains.append((null_differences[question], answered[part] - unanswered[part]))
    # Among equal differences losses come first, so that no partial sum over them is the best.
    gains.sort()
    best, best_gain, gain = gains[0][0] - 1.0, 0.0, 0.0
    for difference, question_gain in gains:
        gain += question_gain
        if gain > best_gain:
            best, best_gain = difference, gain
    return best


class SquadMetrics(evaluate.Metric):
    """Exact match and F1 in percent, by question id; a question without a prediction counts as wrong.

    With `v2`, also those of questions with and without an answer, and the best scores that a threshold on
    no_answer_probability gives, with the thresholds. Any measure of doubt serves as that probability.
    """

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in ("v1", "v2"):
            raise ValueError(f"config_name: given {self.config_name!r}, allowed are v1, v2")
        predictions = {"id": datasets.Value("string"), "prediction_text": datasets.Value("string")}
        if self.config_name == "v2":
            predictions["no_answer_probability"] = datasets.Value("float64")
        answers = {"text": [datasets.Value("string")], "answer_start": [datasets.Value("int64")]}
        references = {"id": datasets.Value("string"), "answers": answers}
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation="",
            inputs_description="predictions and references as in the metrics 'squad' and 'squad_v2' of the Hub",
            features=datasets.Features({"predictions": predictions, "references": references}),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        answers = {given["id"]: given["answers"]["text"] for given in references}
        texts = {given["id"]: given["prediction_text"] for given in predictions}
        if self.config_name == "v1":
            return score_squad(answers, texts)
        scores = score_squad(answers, texts, version_2=True)
        doubts = {given["id"]: given["no_answer_probability"] for given in predictions}
        for score in ("exact_match", "f1"):
            threshold = best_null_threshold(answers, texts, doubts, score=score)
            left = {name: text if doubts[name] <= threshold else "" for name, text in texts.items()}
            scores[f"best_{score}"] = score_squad(answers, left, version_2=True)[score]
            scores[f"best_{score}_threshold"] = threshold
        return scores
