"""Character references, such as &amp; and &#233;, by MediaWiki's rule: they end with a semicolon, unlike HTML's."""

from __future__ import annotations

import html
import re
from html.entities import html5

_REFERENCE = re.compile(r"&(?:#(?=\d)0*+(\d*+)|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_MAX_DIGITS = 7  # Python rejects a number of thousands of digits


def unescape(text: str) -> str:
    """Replace every reference by its character; remove those whose numbers are of no character."""
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(reference: re.Match[str]) -> str:
    if (digits := reference[1]) is not None:
        return html.unescape(f"&#{digits or 0};") if len(digits) <= _MAX_DIGITS else ""
    is_known = reference[0][1] == "#" or reference[0][1:] in html5
    return html.unescape(reference[0]) if is_known else reference[0]
