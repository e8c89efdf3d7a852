"""Identification of the language of documents, by py3langid."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bertline.console import BertlineError

# A long text is judged by pieces from its beginning, middle and end: identification passes some 0.5 MB a second.
PIECES, CHARACTERS_OF_PIECE = 3, 500


def language_filter(keep: Collection[str], at_least: float) -> Callable[[str], str | None]:
    """Return a function that maps a text to its language if the text should be dropped, else to None.

    Args:
        keep: languages by their codes, as `de` or `ltg`.
        at_least: the probability that the language must have; the language of a text below it is `unsure`.

    Raises BertlineError for a language that the model does not support.
    """
    identifier = _load()
    known = sorted(set(identifier.labels))
    if unknown := sorted(set(keep) - set(known)):
        raise BertlineError(
            f"language_identification.keep: given '{unknown[0]}', which is not identified; known are {', '.join(known)}"
        )

    def language_to_drop(text: str) -> str | None:
        language, probability = identifier.classify(_pieces(text))
        if language not in keep:
            return str(language)
        return None if probability >= at_least else "unsure"

    return language_to_drop


def language_identifier() -> Callable[[str], tuple[str, float]]:
    """Return a function that maps a text to the code of its language and the probability that this is right."""
    identifier = _load()

    def identify(text: str) -> tuple[str, float]:
        language, probability = identifier.classify(_pieces(text))
        return str(language), float(probability)

    return identify


def _load() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # takes a second, and only such corpora need it

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _pieces(text: str) -> str:
    if len(text) <= PIECES * CHARACTERS_OF_PIECE:
        return text
    starts = ((len(text) - CHARACTERS_OF_PIECE) * number // (PIECES - 1) for number in range(PIECES))
    return "\n".join(text[start : start + CHARACTERS_OF_PIECE] for start in starts)
