"""Sentence splitting of any script by punctuation alone: Unicode Standard Annex #29, section 5.

For Chinese, Japanese, Burmese, Khmer, Tibetan, Amharic and others, whose full stops Punkt does not support, and for
corpora too small to train Punkt on. Abbreviations are not detected: "Dr. Smith" is split in two. Thai and Lao do not
mark the ends of sentences; there a space between two letters of the script ends one.
"""

from __future__ import annotations

import regex


def _of(*values: str) -> str:
    """Return a pattern for a character with one of these Sentence_Break values, and the marks that extend it (SB5)."""
    return "[" + "".join(rf"\p{{SB={value}}}" for value in values) + r"][\p{SB=Extend}\p{SB=Format}]*+"


_IGNORED = r"[\p{SB=Extend}\p{SB=Format}]*"
# SB6, SB7, ... are the annex's rules. A tidy paragraph has no line ends (SB3, SB4).
_BOUNDARY = regex.compile(
    f"(?:{_of('STerm')}|(?P<full_stop>{_of('ATerm')}"
    + r"(?!\p{SB=Numeric})"  # SB6: 3.4
    + rf"(?!(?<=[\p{{SB=Upper}}\p{{SB=Lower}}]{_IGNORED}\p{{SB=ATerm}}{_IGNORED})\p{{SB=Upper}})))"  # SB7: U.S
    + rf"(?:(?!\p{{Ps}}){_of('Close')})*+(?:{_of('Sp')})*+"  # but an opening bracket begins the next
    + r"(?![\p{SB=SContinue}\p{SB=STerm}\p{SB=ATerm}])"  # SB8a: etc., and ?!
    # SB8: etc. of
    + r"(?(full_stop)(?![^\p{SB=OLetter}\p{SB=Upper}\p{SB=Lower}\p{SB=STerm}\p{SB=ATerm}]*+\p{SB=Lower}))"
    + r"|(?<=[\p{Thai}\p{Lao}])[ ]+(?=[\p{Thai}\p{Lao}])"
)


def split_by_marks(paragraph: str) -> list[str]:
    """Return the sentences of a tidy paragraph, which are non-empty and keep all characters but spaces."""
    ends = [match.end() for match in _BOUNDARY.finditer(paragraph)]
    sentences = (paragraph[start:end].strip() for start, end in zip([0, *ends], [*ends, len(paragraph)], strict=True))
    return [sentence for sentence in sentences if sentence]
