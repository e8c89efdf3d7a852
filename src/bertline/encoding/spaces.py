"""Spaces between the sentences of a document, of which a shard has one a line."""

from __future__ import annotations

import unicodedata

# They may follow a sentence of any script.
CLOSING = "\"'”’…—"


def is_joined(line: str) -> bool:
    """Return whether the sentence after this one follows without a space: this one ends in Chinese or Japanese.

    Not after an empty line, which ends a document. All other scripts have a space between sentences, also those that
    have none between words, such as Thai. The characters are the wide ones of UAX #11 but Korean and pictures.
    """
    last = line.rstrip(CLOSING)[-1:]
    return (
        last > "\u2e7f"
        and unicodedata.east_asian_width(last) in "WFH"
        and unicodedata.category(last)[0] in "LMNP"
        and "HANGUL" not in unicodedata.name(last, "")
    )


def join_lines(text: str) -> list[str]:
    """Return the documents of a shard's text, each with the spaces between its sentences."""
    parts, before = [], ""
    for line in text.split("\n"):
        parts += ["" if is_joined(before) else " " if before and line else "", line or "\n"]
        before = line
    return "".join(parts).split("\n")
