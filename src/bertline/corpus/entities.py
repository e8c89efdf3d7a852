"""Character references of HTML and XML, such as &amp; and &#233;."""

from __future__ import annotations

import html
import re

_NO_CHARACTER = re.compile(r"&#\d{8,}+;?")  # Python rejects a number of thousands of digits


def unescape(text: str) -> str:
    """Replace every reference by its character; remove those whose numbers are of no character."""
    return html.unescape(_NO_CHARACTER.sub("", text)) if "&" in text else text
