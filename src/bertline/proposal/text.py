"""Examination of the user's texts: their kinds, amount and language. A bounded sample of them is read.

The graph's own readers read the sample, so files that they refuse are refused here, with the same line.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.language import language_identifier
from bertline.files import Json
from bertline.proposal.corpora import Corpus, corpora_of, find_shape
from bertline.proposal.encodings import advice_on_encoding, parse_encodings
from bertline.proposal.sample import read_sample
from bertline.proposal.sizes import HELD_OUT_BYTES, HELD_OUT_DOCUMENTS, HELD_OUT_SHARE
from bertline.results.describe import counted

SAMPLE_CHARACTERS = 12_000_000  # read at most, in all
# A part of it for the language, the alphabet and the vocabulary: of each corpus in proportion to its characters.
KEPT_CHARACTERS, KEPT_OF_TEXT = 4_000_000, 200  # of all, and at least of a text
MIN_DOCUMENTS = 5  # of fewer, the graph holds out none
# A language counts if it has this share of the characters, by pieces at equal distances.
CLEAR_SHARE = 0.6
PIECES, CHARACTERS_OF_PIECE = 300, 1500
COVERAGE = 0.9995  # of the characters, by an alphabet


@dataclass(frozen=True)
class OwnText:
    """What was found. All but `sample` and `different` is of the whole text, extrapolated from what was read.

    Attributes:
        documents, characters, bytes, words: of the text as documents; words are those between spaces.
        language: ISO 639 code, and `share` of the sample's characters that are in it; 1 if it was given.
        others: other languages and their shares.
        script: the first word of the Unicode names of most of its letters, as LATIN.
        alphabet: number of different characters that make up 99.95 percent of the sample.
        sample: texts of documents, whole or their beginnings.
        different: number of different documents among those that were read.
        not_read, left_out: files that are not read, see `FoundFiles`.
    """

    corpora: list[Corpus]
    documents: int
    characters: int
    bytes: int
    words: int
    language: str
    share: float
    others: Mapping[str, float]
    script: str
    has_case: bool
    alphabet: int
    sample: list[str]
    different: int
    not_read: Mapping[str, int]
    left_out: Sequence[Path]


def look_at(
    given: Sequence[str],
    schema: Json,
    *,
    encoding: str = "utf-8",
    language: str | None = None,
    column: str | None = None,
    tables: Collection[str] = (),
    divided: Collection[str] = (),
) -> OwnText:
    """Look at files and folders of texts.

    Args:
        given: paths of files and folders.
        schema: config/config.schema.yaml.
        encoding: of plain text and CSV; several with commas between.
        language: of the text; None to identify it.
        column: of tables, with the text; None for a usual name, or the longest.
        tables: files to fine-tune on, which are no texts.
        divided: those that a table is going to be divided into.

    Raises BertlineError if a path is absent, nothing can be read, a sampled file is refused by its reader, there are
    too few documents to hold one out, the language is not clear, or there is a column but no table.
    """
    encodings = parse_encodings(encoding)
    corpora, not_read, left_out = corpora_of(given, tables, divided)
    where = ", ".join(given)
    if column is not None and all(corpus.name != "tables" for corpus in corpora):
        raise BertlineError(f"COLUMN={column}: no table is among {where}; leave COLUMN out")
    texts: dict[str, list[str]] = {}
    for corpus in corpora:
        if encoding != "utf-8" and corpus.settings["source"] == "files":
            corpus.settings["encoding"] = encodings
        with advice_on_encoding(corpus.files, encodings):
            find_shape(corpus, encodings, column)
            texts[corpus.name] = read_sample(corpus, schema, SAMPLE_CHARACTERS // len(corpora))
    if (one := _only_texts(corpora)) and _are_few(one):
        texts = {one.name: _read_divided(one, schema, texts[one.name])}
    documents = sum(corpus.of_all(corpus.documents_read) for corpus in corpora)
    if not any(corpus.characters_read for corpus in corpora):
        raise BertlineError(f"{where}: the files have no text; give a folder with some, as TEXT=folder")
    if documents < MIN_DOCUMENTS:
        raise BertlineError(
            f"{where}: {counted(documents, 'document')}, too few to hold one out ({MIN_DOCUMENTS} or more are needed); "
            "divide the text into files, or put empty lines between its parts"
        )
    characters = sum(corpus.of_all(corpus.characters_read) for corpus in corpora)
    sample = _sample_of(corpora, texts, characters)
    joined = "\n".join(sample)
    script, has_case, alphabet = _characters_of(joined)
    shares = {language: 1.0} if language else _languages_of(sample)
    found = _clear_language(shares, where)
    return OwnText(
        corpora=corpora,
        documents=documents,
        characters=characters,
        bytes=sum(corpus.of_all(corpus.bytes_of_text_read) for corpus in corpora),
        words=round(len(joined.split()) / len(joined) * characters),
        language=found,
        share=shares[found],
        others={name: part for name, part in shares.items() if name != found},
        script=script,
        has_case=has_case,
        alphabet=alphabet,
        sample=sample,
        different=len({text for of_corpus in texts.values() for text in of_corpus if text}),
        not_read=not_read,
        left_out=left_out,
    )


def _whole_texts(corpus: Corpus) -> int:
    """Return the number of a corpus's texts before the reader divides those of more than MAX_DOCUMENT_LENGTH."""
    documents = corpus.of_all(corpus.documents_read)
    return min(documents, len(corpus.files)) if _is_of_whole_files(corpus) else documents


def _are_few(corpus: Corpus) -> bool:
    """Return whether too few texts are whole to hold some out, or so few large ones that those would be too much."""
    texts, size = _whole_texts(corpus), corpus.of_all(corpus.bytes_of_text_read)
    held_out = size * HELD_OUT_DOCUMENTS / max(1, texts)
    return texts < MIN_DOCUMENTS or held_out > max(HELD_OUT_BYTES, HELD_OUT_SHARE * size)


def _is_of_whole_files(corpus: Corpus) -> bool:
    return corpus.name == "texts" and "sentences" not in corpus.settings


def _only_texts(corpora: Sequence[Corpus]) -> Corpus | None:
    """Return the corpus of undivided texts, if there is no other."""
    return corpora[0] if len(corpora) == 1 and _is_of_whole_files(corpora[0]) else None


def _read_divided(corpus: Corpus, schema: Json, undivided: list[str]) -> list[str]:
    """Read a sample with the parts between empty lines as documents, if there are more of these than whole texts."""
    corpus.settings["separator"] = "\n"  # its lines may be wrapped
    corpus.reasons["separator"] = (
        "the texts are few: their parts between empty lines are the documents, so that some are held out"
    )
    divided = read_sample(corpus, schema, SAMPLE_CHARACTERS)
    if len(divided) > len(undivided):
        return divided
    del corpus.settings["separator"], corpus.reasons["separator"]
    return undivided


def _sample_of(corpora: Sequence[Corpus], texts: Mapping[str, Sequence[str]], characters: int) -> list[str]:
    """Return texts of each corpus in proportion to its size, of all `characters`; of none more than was read."""
    with_text = [corpus for corpus in corpora if corpus.characters_read]
    in_each = {corpus.name: corpus.of_all(corpus.characters_read) for corpus in with_text}
    kept = min(KEPT_CHARACTERS / characters, *(c.characters_read / in_each[c.name] for c in with_text))
    return [text for name, number in in_each.items() for text in _kept(texts[name], round(kept * number))]


def _kept(texts: Sequence[str], at_most: int) -> list[str]:
    """Return the beginnings of texts, which have about `at_most` characters together; of many short texts, some."""
    texts = [text for text in texts if text]
    least = sum(min(len(text), KEPT_OF_TEXT) for text in texts)
    texts = texts[:: max(1, least // max(1, at_most))]
    share = min(1.0, at_most / max(1, sum(map(len, texts))))
    return [text[: max(KEPT_OF_TEXT, round(share * len(text)))] for text in texts]


def _clear_language(shares: Mapping[str, float], where: str) -> str:
    """Return the language of most characters. Raises BertlineError if that is not clear."""
    found, share = max(shares.items(), key=lambda pair: pair[1])
    if share < CLEAR_SHARE:
        seen = ", ".join(f"{name} {part:.0%}" for name, part in sorted(shares.items(), key=lambda pair: -pair[1])[:4])
        raise BertlineError(
            f"{where}: no language is clear ({seen}, by characters); "
            "give its ISO 639 code, as LANGUAGE=en, or the largest of several"
        )
    return found


def _languages_of(texts: Sequence[str]) -> dict[str, float]:
    """Return the languages of texts, and the share of the texts' characters in each, the largest first."""
    identify = language_identifier()
    ends = list(accumulate(map(len, texts)))
    pieces: Counter[str] = Counter()
    for number in range(PIECES):
        place = (2 * number + 1) * ends[-1] // (2 * PIECES)
        index = bisect_right(ends, place)
        text, start = texts[index], place - (ends[index] - len(texts[index]))
        start = max(0, min(start, len(text) - CHARACTERS_OF_PIECE))
        pieces[identify(text[start : start + CHARACTERS_OF_PIECE])[0]] += 1
    return {language: count / PIECES for language, count in pieces.most_common()}


def _characters_of(text: str) -> tuple[str, bool, int]:
    """Return a text's script, whether that has capital letters, and the number of characters of 99.95 percent of it."""
    counts = Counter(text)
    letters = {character: count for character, count in counts.items() if character.isalpha()}
    scripts: Counter[str] = Counter()
    for character, count in letters.items():
        scripts[unicodedata.name(character, "?").partition(" ")[0].partition("-")[0]] += count
    cased = sum(count for character, count in letters.items() if character.upper() != character.lower())
    covered = accumulate(count for _, count in counts.most_common())
    alphabet = 1 + sum(seen < COVERAGE * counts.total() for seen in covered)
    script = scripts.most_common(1)[0][0] if scripts else "?"
    return script, cased > sum(letters.values()) / 2, alphabet
