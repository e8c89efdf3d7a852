"""SQuAD v1.1 and v2.0: reading of the official JSON, and splitting into overlapping windows of tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import separators_in_pair
from bertline.files import parse_json, read_text
from bertline.finetuning.sequences import Sequences, make_sequences, tokenize
from bertline.tasks.lengths import room_for_context

logger = logging.getLogger(__name__)
MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """An accepted answer: its text, and the index of its first character in the context."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question on contexts[context]; without answers it is unanswerable."""

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class SquadFile:
    """A SQuAD file's contexts and questions, and the ids of those with answers, none of which is at its offset."""

    contexts: list[str]
    questions: list[Question]
    misplaced: list[str]

    def labelled(self) -> Iterator[tuple[Any, ...]]:
        """Yield the id, text, context and answers, as (text, start), of each question."""
        for one in self.questions:
            yield one.id, one.text, self.contexts[one.context], [(answer.text, answer.start) for answer in one.answers]


def read_squad(path: Path | str, *, version_2: bool, labelled: bool = True) -> SquadFile:
    """Read a SQuAD file; if it is not `labelled`, answers are not read.

    Raises BertlineError naming the place of a missing key, a value of another type, a repeated id, an empty answer, a
    question without an answer if `version_2` or its own `is_impossible` is False, a file without questions, or one
    that should be labelled and has no label at all. Questions without an answer at its offset are listed, not refused:
    scoring needs only their text, training leaves them out.
    """
    document = _read_document(path)
    contexts: list[str] = []
    questions: list[Question] = []
    seen: set[str] = set()
    misplaced: list[str] = []
    has_labels = not labelled
    for a, article in enumerate(_value(document, "data", list, f"{path}: the top level")):
        for p, paragraph in enumerate(_value(article, "paragraphs", list, f"{path}: data[{a}]")):
            where = f"{path}: data[{a}].paragraphs[{p}]"
            context = _value(paragraph, "context", str, where)
            for q, given in enumerate(_value(paragraph, "qas", list, where)):
                question = _question(given, len(contexts), f"{where}.qas[{q}]", version_2, labelled)
                has_labels |= bool(question.answers) or "is_impossible" in given
                if question.id in seen:
                    raise BertlineError(f"{where}.qas[{q}]: the id '{question.id}' appears twice; ids must be unique")
                seen.add(question.id)
                questions.append(question)
                if question.answers and not any(_in_place(answer, context) for answer in question.answers):
                    misplaced.append(question.id)
            contexts.append(context)
    if not questions:
        raise BertlineError(f"{path} contains no question; name a SQuAD file that does")
    if not has_labels:
        raise BertlineError(f"{path}: no question has an answer or is_impossible; name a file with labels")
    return SquadFile(contexts, questions, misplaced)


def _read_document(path: Path | str) -> Any:
    try:
        return parse_json(read_text(path).removeprefix("\ufeff"))
    except ValueError as error:
        raise BertlineError(f"{path} is not JSON ({error}); correct it, or give another file") from None


def _question(given: Any, context: int, where: str, version_2: bool, labelled: bool) -> Question:
    question_id = _value(given, "id", str, where)
    text = _value(given, "question", str, where)
    answers: list[Answer] = []
    is_impossible = _value(given, "is_impossible", bool, where) if "is_impossible" in given else None
    if labelled and not (version_2 and is_impossible):
        for n, answer in enumerate(_value(given, "answers", list, where)):
            inside = f"{where}.answers[{n}]"
            answers.append(Answer(_value(answer, "text", str, inside), _value(answer, "answer_start", int, inside)))
            if not answers[-1].text.strip():
                raise BertlineError(f"{inside}.text is empty; remove the answer")
        if not answers and version_2 and is_impossible is False:
            raise BertlineError(
                f"{where}: question '{question_id}' has no answer and is_impossible: false; correct one"
            )
        if not answers and not version_2:
            raise BertlineError(
                f"{where}: question '{question_id}' has no answer; data of that kind is the task squad_v2"
            )
    return Question(question_id, text, context, tuple(answers))


def _value(holder: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(holder, dict) or key not in holder:
        raise BertlineError(f"{where} has no key '{key}'; it must be in SQuAD's official format")
    if not isinstance(holder[key], kind) or (kind is int and isinstance(holder[key], bool)):
        raise BertlineError(f"{where}.{key} is not of type {kind.__name__}; it must be in SQuAD's official format")
    if kind is int and abs(holder[key]) > MAX_OFFSET:
        raise BertlineError(f"{where}.{key} is too large; it must be the index of a character")
    return holder[key]


def _in_place(answer: Answer, context: str) -> bool:
    return answer.start >= 0 and context.startswith(answer.text, answer.start)


@dataclass(frozen=True)
class Windows:
    """F inputs [CLS] question [SEP] part of the context [SEP], in the order of the questions.

    Attributes:
        sequences: the F inputs.
        question: int32 [F], index of the input's question.
        context_tokens: int32 [F], number of context tokens in the input, from its second segment's start.
        first_token: int32 [F], index of the first of them in the context.
        answer: int64 [F, 2], first and last token of the answer in the input; 0, 0 (= [CLS]) if the input lacks it.
        spans: for each context int32 [tokens, 2], each token's first character and the one after its last.
        answer_tokens: int32 [Q, 2], first and last token of each question's first usable answer in its context; -1
            for none.
        unusable: number of questions whose answers are all unusable for training: misplaced, or removed by the
            tokenizer.
        cut_off: number of questions that were longer than `max_query_length`.
    """

    sequences: Sequences
    question: np.ndarray
    context_tokens: np.ndarray
    first_token: np.ndarray
    answer: np.ndarray
    spans: list[np.ndarray]
    answer_tokens: np.ndarray
    unusable: int
    cut_off: int


def make_windows(
    squad: SquadFile,
    tokenizer: Tokenizer,
    *,
    max_sequence_length: int,
    doc_stride: int,
    max_query_length: int,
    for_training: bool,
) -> Windows:
    """Tokenize and split: a window starts every `doc_stride` tokens until one reaches the context's end.

    With `for_training`, questions with unusable answers only are omitted; otherwise every question has a window.
    Source: convert_examples_to_features of Google's run_squad.py. Raises BertlineError if there is no room for context.
    """
    between = separators_in_pair(tokenizer)
    room_for_context(max_sequence_length, max_query_length, 2 + between)
    encoded = tokenizer.encode_batch(squad.contexts, add_special_tokens=False)
    contexts = [encoding.ids for encoding in encoded]
    spans = [np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2) for encoding in encoded]
    queries = tokenize(tokenizer, [question.text for question in squad.questions])

    pairs: list[tuple[Sequence[int], Sequence[int]]] = []
    rows: list[tuple[int, int, int, int, int]] = []
    answer_tokens = np.full((len(squad.questions), 2), -1, dtype=np.int32)
    unusable = 0
    for index, (question, query) in enumerate(zip(squad.questions, queries, strict=True)):
        context = contexts[question.context]
        found = _tokens_of_answer(question, squad.contexts[question.context], spans[question.context])
        if found is not None:
            answer_tokens[index] = found
        elif question.answers:
            unusable += 1
            if for_training:
                continue
        query = query[:max_query_length]
        room = max_sequence_length - len(query) - 2 - between
        for start, end in _split(len(context), room, doc_stride):
            pairs.append((query, context[start:end]))
            shift = len(query) + 1 + between - start
            inside = found is not None and start <= found[0] and found[1] < end
            first, last = (found[0] + shift, found[1] + shift) if inside and found else (0, 0)
            rows.append((index, end - start, start, first, last))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return Windows(
        make_sequences(pairs, tokenizer),
        columns[:, 0].astype(np.int32),
        columns[:, 1].astype(np.int32),
        columns[:, 2].astype(np.int32),
        columns[:, 3:].copy(),
        spans,
        answer_tokens,
        unusable,
        sum(len(query) > max_query_length for query in queries),
    )


def log_questions_cut_off(name: str, windows: Windows, questions: int, limit: int) -> None:
    """Log how many of the questions of a set are cut off at `limit` tokens, if any are."""
    if windows.cut_off:
        logger.info(
            "%s: %d of %d questions are longer than max_query_length %d; their end is cut off",
            name,
            windows.cut_off,
            questions,
            limit,
        )


def _split(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return windows [start, end) of at most `room` tokens, at least one even for an empty context."""
    windows, start = [(0, min(room, tokens))], 0
    while windows[-1][1] < tokens:
        start += min(room, stride)
        windows.append((start, min(start + room, tokens)))
    return windows


def _tokens_of_answer(question: Question, context: str, spans: np.ndarray) -> tuple[int, int] | None:
    """Return the first and last token that the first usable answer overlaps; None without one."""
    for answer in question.answers:
        if not _in_place(answer, context):
            continue
        start = answer.start + len(answer.text) - len(answer.text.lstrip())
        end = answer.start + len(answer.text.rstrip())
        first = int(np.searchsorted(spans[:, 1], start, side="right"))
        last = int(np.searchsorted(spans[:, 0], end, side="left")) - 1
        if first <= last:
            return first, last
    return None


def has_most_context(windows: Windows) -> np.ndarray:
    """Return, as bool [T], whether a context token has more context in this window than in all others that contain it.

    A token's context is the smaller of the numbers of tokens left and right of it; the earlier window wins a tie, and a
    longer one counts a little more. Tokens outside the context are False. Source: _check_is_max_context of
    run_squad.py.
    """
    result = np.zeros(len(windows.sequences.tokens), dtype=bool)
    places = windows.sequences.offsets[:-1] + windows.sequences.second_segment_start
    first_window = np.flatnonzero(np.diff(windows.question, prepend=-1))
    for begin, end in zip(first_window, [*first_window[1:], len(windows.question)], strict=True):
        best = np.full(windows.first_token[end - 1] + windows.context_tokens[end - 1], -np.inf)
        chosen = np.zeros(len(best), dtype=np.int64)
        for window in range(begin, end):
            length, first = windows.context_tokens[window], windows.first_token[window]
            position = np.arange(length)
            score = np.minimum(position, length - 1 - position) + 0.01 * length
            better = score > best[first : first + length]
            best[first : first + length][better] = score[better]
            chosen[first : first + length][better] = places[window] + position[better]
        result[chosen] = True
    return result
