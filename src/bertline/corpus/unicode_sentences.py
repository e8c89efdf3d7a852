"""Sentences of any script by its punctuation alone: Unicode Standard Annex #29, section 5.

For Chinese, Japanese, Burmese, Khmer, Tibetan, Amharic and others, whose full stops Punkt does not know, and for texts
too few to train Punkt on. It knows no abbreviations: "Dr. Smith" are two sentences. Thai and Lao mark no ends of
sentences; there a space between two letters of the script ends one.
"""

from __future__ import annotations

import regex


def _of(*values: str) -> str:
    """A character with one of these values of the property Sentence_Break, and the marks that belong to it (SB5)."""
    return "[" + "".join(rf"\p{{SB={value}}}" for value in values) + r"][\p{SB=Extend}\p{SB=Format}]*+"


_IGNORED = r"[\p{SB=Extend}\p{SB=Format}]*"
# The numbers are those of the annex's rules. In a tidy paragraph there are no line ends (SB3, SB4).
_BOUNDARY = regex.compile(
    f"(?:{_of('STerm')}|(?P<full_stop>{_of('ATerm')}"
    + r"(?!\p{SB=Numeric})"  # SB6: 3.4
    + rf"(?!(?<=[\p{{SB=Upper}}\p{{SB=Lower}}]{_IGNORED}\p{{SB=ATerm}}{_IGNORED})\p{{SB=Upper}})))"  # SB7: U.S
    + rf"(?:(?!\p{{Ps}}){_of('Close')})*+(?:{_of('Sp')})*+"  # but what opens a bracket begins the next
    + r"(?![\p{SB=SContinue}\p{SB=STerm}\p{SB=ATerm}])"  # SB8a: etc., and ?!
    # SB8: etc. of
    + r"(?(full_stop)(?![^\p{SB=OLetter}\p{SB=Upper}\p{SB=Lower}\p{SB=STerm}\p{SB=ATerm}]*+\p{SB=Lower}))"
    + r"|(?<=[\p{Thai}\p{Lao}])[ ]+(?=[\p{Thai}\p{Lao}])"
)


def split_by_marks(paragraph: str) -> list[str]:
    """The sentences of a tidy paragraph, which are never empty and hold all its characters but spaces."""
    ends = [match.end() for match in _BOUNDARY.finditer(paragraph)]
    sentences = (paragraph[start:end].strip() for start, end in zip([0, *ends], [*ends, len(paragraph)], strict=True))
    return [sentence for sentence in sentences if sentence]
