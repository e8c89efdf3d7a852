"""Conversion of start and end logits to answers as text of the original context."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bertline.finetuning.squad_windows import SquadFile, Windows, has_most_context

N_BEST = 20  # candidates kept per question, as in Google's run_squad.py


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible answer: its text, and the logits of its first and last token."""

    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        """Logarithm of the answer's odds, up to a constant."""
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class QuestionAnswers:
    """A question's candidates, best first (none for an empty context), and the one without an answer, ""."""

    candidates: list[Candidate]
    null: Candidate

    @property
    def best_text(self) -> str:
        """Text of the best candidate, "" if there is none."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def null_difference(self) -> float:
        """Score of "no answer" minus that of the best candidate, 0 if there is none."""
        return self.null.score - (self.candidates[0].score if self.candidates else 0.0)


def answer_questions(
    squad: SquadFile, windows: Windows, start_logits: np.ndarray, end_logits: np.ndarray, *, max_answer_length: int
) -> dict[str, QuestionAnswers]:
    """Return every question's answers, by its id.

    Args:
        squad, windows: a file and its windows (made with for_training off, so that each question has one).
        start_logits, end_logits: float32 [T], for each token of `windows.sequences.tokens`.
        max_answer_length: in tokens.

    A candidate starts at a token for which its window has the most context (`has_most_context`); all such spans are
    ranked, not only those of the best starts and ends, except white space. If a text occurs several times, its best
    span is kept. The score of having no answer is that of [CLS], the lowest over the question's windows.
    """
    allowed = has_most_context(windows)
    answers: dict[str, QuestionAnswers] = {}
    for question, group in groupby(range(len(windows.question)), key=lambda window: int(windows.question[window])):
        found: list[tuple[int, int, Candidate]] = []
        unanswered: list[Candidate] = []
        asked = squad.questions[question]
        context, spans = squad.contexts[asked.context], windows.spans[asked.context]
        for window in group:
            offset = windows.sequences.offsets[window]  # of [CLS]
            unanswered.append(Candidate("", float(start_logits[offset]), float(end_logits[offset])))
            begin = offset + windows.sequences.second_segment_start[window]
            part = slice(begin, begin + windows.context_tokens[window])
            starts, ends = np.where(allowed[part], start_logits[part], -np.inf), end_logits[part]
            first = int(windows.first_token[window])
            for _, start, end in best_spans(starts, ends, max_answer_length, N_BEST):
                text = _text_between(context, int(spans[first + start, 0]), int(spans[first + end, 1]))
                if text:  # a space before a character of several bytes is a token of its own
                    found.append((first + start, first + end, Candidate(text, float(starts[start]), float(ends[end]))))
        found.sort(key=lambda item: (-item[2].score, *item[:2]))
        best: dict[str, Candidate] = {}
        for _, _, candidate in found[:N_BEST]:
            best.setdefault(candidate.text, candidate)
        null = min(unanswered, key=lambda candidate: candidate.score)
        answers[asked.id] = QuestionAnswers(list(best.values()), null)
    return answers


def best_spans(
    start_logits: np.ndarray, end_logits: np.ndarray, max_length: int, count: int
) -> Iterator[tuple[float, int, int]]:
    """Yield the `count` best (score, start, end), end - start < max_length, unordered. Starts at -inf are left out."""
    tokens = len(start_logits)
    if tokens == 0:
        return
    width = min(max_length, tokens)
    padded = np.concatenate([end_logits, np.full(width - 1, -np.inf, dtype=end_logits.dtype)])
    scores = (start_logits[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)).ravel()
    kept = np.argpartition(scores, -count)[-count:] if len(scores) > count else np.arange(len(scores))
    for index in kept:
        if scores[index] > -np.inf:
            start, length = divmod(int(index), width)
            yield float(scores[index]), start, start + length


def n_best(answers: Mapping[str, QuestionAnswers], *, with_null: bool) -> dict[str, list[dict[str, str | float]]]:
    """Return every question's candidates with their probabilities, best first; `with_null` includes "".

    Probabilities are the softmax of the candidates' scores. Source: nbest_predictions.json of Google's run_squad.py.
    """
    result: dict[str, list[dict[str, str | float]]] = {}
    for question, found in answers.items():
        candidates = sorted(
            [*found.candidates, *([found.null] if with_null or not found.candidates else [])],
            key=lambda candidate: -candidate.score,
        )
        weights = np.exp([candidate.score - candidates[0].score for candidate in candidates])
        result[question] = [
            {
                "text": candidate.text,
                "probability": float(weight / weights.sum()),
                "start_logit": candidate.start_logit,
                "end_logit": candidate.end_logit,
            }
            for candidate, weight in zip(candidates, weights, strict=True)
        ]
    return result


def most_frequent_answer(squad: SquadFile) -> str:
    """Return the majority baseline's answer to every question: the most frequent first answer, "" for no answer."""
    texts = Counter(question.answers[0].text if question.answers else "" for question in squad.questions)
    return min(texts, key=lambda text: (-texts[text], text))


def copy_position(train: Windows, squad: SquadFile, windows: Windows) -> dict[str, str]:
    """Return the copy-position baseline's answers: the same token positions of every context.

    These are the most frequent (first token, last token) of the training answers; in a shorter context, both are
    limited to its last token.
    """
    usable = train.answer_tokens[train.answer_tokens[:, 0] >= 0]
    positions = Counter((int(first), int(last)) for first, last in usable)
    if not positions:
        return {question.id: "" for question in squad.questions}
    first, last = min(positions, key=lambda position: (-positions[position], position))
    predictions = {}
    for question in squad.questions:
        spans, context = windows.spans[question.context], squad.contexts[question.context]
        end = len(spans) - 1
        found = (int(spans[min(first, end), 0]), int(spans[min(last, end), 1])) if len(spans) else (0, 0)
        predictions[question.id] = _text_between(context, *found)
    return predictions


def _text_between(context: str, start: int, stop: int) -> str:
    """Return the text of tokens from their places, with the marks that a vocabulary without accents leaves out.

    The places of byte-level tokens include the space before a word.
    """
    while stop > start and stop < len(context) and unicodedata.category(context[stop]) == "Mn":
        stop += 1
    return context[start:stop].strip()
