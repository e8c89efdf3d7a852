"""Lengths of inputs of two texts: what the settings of a fine-tuning leave for the second text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.console import BertlineError
from bertline.tasks.registry import RANKING

FEWEST_SPECIAL_TOKENS = 3  # of two texts: BERT's template is [CLS] A [SEP] B [SEP], and RoBERTa's has one more


def room_for_context(max_sequence_length: int, max_query_length: int, special_tokens: int, where: str = "") -> int:
    """Return the number of tokens of a context that fit into an input next to the longest question.

    Args:
        max_sequence_length: in tokens.
        max_query_length: of the question, in tokens, without special ones.
        special_tokens: number of them in an input of two texts.
        where: of the settings, for messages.

    Raises BertlineError if none fits.
    """
    return _room(max_sequence_length, max_query_length, special_tokens, where, "context")


def room_for_passage(max_sequence_length: int, max_query_length: int, special_tokens: int, where: str = "") -> int:
    """Return the number of tokens of a passage that fit into an input next to the longest query.

    As `room_for_context`, but `max_query_length` includes the query's [CLS] and [SEP].
    """
    return _room(max_sequence_length, max_query_length, special_tokens - 2, where, "passage")


def _room(max_sequence_length: int, max_query_length: int, others: int, where: str, second: str) -> int:
    room = max_sequence_length - max_query_length - others
    if room < 1:
        raise BertlineError(
            f"{where}max_query_length: given {max_query_length}, which leaves no room for a {second} in "
            f"max_sequence_length {max_sequence_length}; lower the first or raise the second"
        )
    return room


def check_overlap(settings: Mapping[str, Any], special_tokens: int, where: str = "") -> None:
    """Raise BertlineError if windows of a context, one every `doc_stride` tokens, would not overlap.

    Args:
        settings: of SQuAD. For the others, see `room_for_context`.
    """
    length, query_length, stride = (settings[key] for key in ("max_sequence_length", "max_query_length", "doc_stride"))
    room = room_for_context(length, query_length, special_tokens, where)
    if stride >= room:
        advice = f"write one below {room}, such as {room // 2}" if room > 1 else "lower max_query_length"
        raise BertlineError(
            f"{where}doc_stride: given {stride}, but next to a question of max_query_length {query_length}, a window "
            f"of {length} tokens has {room} of the context, and windows would not overlap; {advice}"
        )


def check_lengths(task: str, settings: Mapping[str, Any], special_tokens: int, where: str = "") -> None:
    """Raise BertlineError for settings that leave no room for the second text, or no overlap of windows.

    Args:
        task: SQuAD or a ranking, by its name in a recipe.
        settings: with all defaults. For the others, see `room_for_context`.
    """
    if task.startswith(RANKING):
        room_for_passage(settings["max_sequence_length"], settings["max_query_length"], special_tokens, where)
    else:
        check_overlap(settings, special_tokens, where)
