"""Sentence splitting of any script by punctuation alone: Unicode Standard Annex #29, section 5.

For Chinese, Japanese, Burmese, Khmer, Amharic and others, whose full stops Punkt does not support, and for corpora too
small to train Punkt on. Abbreviations are not detected: "Dr. Smith" is split in two. Thai and Lao do not mark the ends
of sentences; there a space between two letters of the script ends one. Tibetan is not split: its shad ends clauses too.

A quotation in corner brackets of up to MAX_QUOTATION_LENGTH characters is not split, nor separated from a sentence that
continues after it in hiragana, as in 彼は「行く。でも遅れる。」と言った。 Longer quotations are speeches of several
sentences.
"""

from __future__ import annotations

from bisect import bisect_left

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


MAX_QUOTATION_LENGTH = 200
_QUOTATION = regex.compile(
    "|".join(f"{first}[^{first}{last}]{{0,{MAX_QUOTATION_LENGTH}}}+{last}" for first, last in ("「」", "『』"))
)
_HIRAGANA = regex.compile(r"\p{Hiragana}")


def outside_quotations(ends: list[int], paragraph: str) -> list[int]:
    """Return those of the ends of sentences, positions in a paragraph, that break no quotation."""
    if "「" not in paragraph and "『" not in paragraph:
        return ends
    quotations = [match.span() for match in _QUOTATION.finditer(paragraph)]

    def breaks_one(end: int) -> bool:
        number = bisect_left(quotations, (end, 0)) - 1  # the last one that begins before
        if number < 0:
            return False
        closed = quotations[number][1]
        return end < closed or (not paragraph[closed:end].strip() and _HIRAGANA.match(paragraph, end) is not None)

    return [end for end in ends if not breaks_one(end)]


def split_by_marks(paragraph: str) -> list[str]:
    """Return the sentences of a tidy paragraph, which are non-empty and keep all characters but spaces."""
    ends = outside_quotations([match.end() for match in _BOUNDARY.finditer(paragraph)], paragraph)
    sentences = (paragraph[start:end].strip() for start, end in zip([0, *ends], [*ends, len(paragraph)], strict=True))
    return [sentence for sentence in sentences if sentence]
