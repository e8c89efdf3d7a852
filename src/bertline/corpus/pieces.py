"""Split long text into pieces, for steps whose time or memory grows faster than the length of their input."""

from __future__ import annotations

from collections.abc import Iterator


def pieces_of(text: str, most: int) -> Iterator[str]:
    """Yield pieces of at most `most` characters, which end at white space, or anywhere if a piece has none."""
    start = 0
    while start < len(text):
        end = start + most
        if end < len(text):
            end = max(text.rfind(" ", start, end), text.rfind("\n", start, end)) + 1 or end
        yield text[start:end]
        start = end
