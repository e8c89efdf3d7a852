"""Warnings about a dataset that is of little use as it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from encoding_helpers import VOCABULARY, make_dataset

from bertline.encoding.advice import warnings_in, warnings_of
from bertline.encoding.tokenizer import make_tokenizer
from bertline.files import read_json

ENOUGH = {"00000": (20, 10), "00001": (15, 14), "held_out": (12, 12)}


def found(card: Any) -> list[str]:
    return [warning.split(";")[0] for warning in warnings_of(card)]


def test_a_text_of_one_document_is_warned_of_in_the_card_and_on_the_terminal(tmp_path: Path) -> None:
    sizes = {"00000": (1, 0), "00001": (0, 0), "held_out": (0, 0)}
    card = make_dataset(tmp_path, sizes=sizes, lengths=[32])
    warnings = read_json(card)["warnings"]
    assert [warning.split(";")[0] for warning in warnings] == [
        "0% of the samples of length 32 have a random second segment, not half",
        "no samples of length 32 are held out, so the held-out loss says little",
        "1 of 2 shards of length 32 are empty, with 1 documents to train on",
    ]
    shown = list(warnings_in({"mine": card, "other": tmp_path / "absent.json"}))
    assert shown == [f"dataset mine: {warning}" for warning in warnings]


@pytest.mark.parametrize(
    ("sentences", "advice"),
    [
        ("punkt", "set sentences: unicode for the corpora, or split the text and set sentences: lines"),
        ("unicode", "split the text and set sentences: lines"),
    ],
)
def test_sentences_that_are_divided_at_the_marks_of_any_script_are_not_advised_to_be(
    sentences: str, advice: str
) -> None:
    corpora = [{"name": "wiki", "settings": {"sentences": sentences}}]
    card = {"corpora": corpora, "sentences": 10, "text_tokens": 5000, "sequence_lengths": {}}
    (warning,) = warnings_of(card)
    assert warning == f"a sentence has 500 tokens on average, so hardly any ends were found; {advice}"


def test_text_hidden_by_unk_is_warned_of_by_characters(tmp_path: Path) -> None:
    vocabulary = [word for word in VOCABULARY if word != "bridge"]
    tokenizer = make_tokenizer(vocabulary, lowercase=True, source="the test")
    card = make_dataset(tmp_path, sizes=ENOUGH, tokenizer=tokenizer, lengths=[32])
    (warning,) = found(read_json(card))
    share = read_json(card)["unknown_tokens"] / read_json(card)["text_tokens"]
    assert warning.startswith("[UNK] replaces")
    assert float(warning.split()[2].rstrip("%")) / 100 > 1.2 * share  # a bridge has more letters than most


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        (
            {"stripped_characters": 40},
            [
                "the tokenizer removes or decomposes 4.0% of the characters (marks, not counting accents of Latin, "
                "Greek and Cyrillic, and zero-width joiners)"
            ],
        ),
        ({"sentences": 10}, ["a sentence has 500 tokens on average, so hardly any ends were found"]),
        (
            {"corpora": [{"name": "tales", "read": 9, "dropped": {"empty": 8}, "paragraphs_removed": {"symbols": 8}}]},
            [
                "89% of the documents of tales were dropped as empty",
                "of tales, 8 paragraphs with symbols, such as emoji or Braille, but no letter or digit are left out",
            ],
        ),
        (
            {"corpora": [{"name": "tales", "read": 9, "kept": 9, "paragraphs_removed": {"symbols": 8}}]},
            [],
        ),
        (
            {"corpora": [{"name": "wiki", "lost": {"places": 2, "bytes": 12000, "pages": 3}}]},
            [
                "the dump of wiki is damaged in 2 places: 12,000 bytes of it could not be unpacked, and 3 pages are "
                "incomplete"
            ],
        ),
        ({"corpora": [{"name": "wiki", "lost": {"places": 0, "bytes": 0, "pages": 0}}]}, []),
        (
            {
                "corpora": [{"name": "news", "settings": {"format": "leipzig"}}],
                "settings": {"pair_objective": "next_sentence"},
            },
            ["the sentences of news are in no order, so no sentence continues another"],
        ),
        (
            {"settings": {"pair_objective": "sentence_order"}, "without_partner": 12},
            ["12% of the pairs of length 32 are not of whole sentences, so their ends reveal the order"],
        ),
        (
            {"settings": {"tokenizer": {"train": "wordpiece", "vocab_size": 30522}}, "tokenizer": {"vocab_size": 9000}},
            ["the vocabulary has 9,000 tokens, not 30,522, because no more words are frequent in the text"],
        ),
        ({"settings": {"tokenizer": {"vocab_size": 2000}}, "tokenizer": {"vocab_size": 1132}}, []),
        ({"settings": {"tokenizer": {"file": "vocab.txt"}}, "tokenizer": {"vocab_size": 1132}}, []),
        (
            {"corpora": [{"name": "news", "look_split": 2}]},
            [
                "2 of the texts of news look like one sentence per line with an empty line between documents, but each "
                "was read as one document"
            ],
        ),
    ],
)
def test_what_a_card_counts_is_warned_of(changes: dict[str, Any], expected: list[str]) -> None:
    held_out = [{"samples": 40}]
    section = {"samples": 100, "samples_with_random_next": 52, "train": [{"samples": 100}], "held_out": held_out}
    section["samples_without_partner"] = changes.get("without_partner", 0)
    card = {
        "settings": {"pair_objective": "next_sentence"},
        "corpora": [{"name": "news"}],
        "sequence_lengths": {"32": section},
        "characters": 1000,
        "sentences": 250,
        "text_tokens": 5000,
    }
    assert found(card | changes) == expected


def test_the_advice_about_an_imported_dataset_is_about_its_files() -> None:
    files = [{"samples": 40}, {"samples": 0}]
    section = {"samples": 40, "samples_with_random_next": 4, "train": files, "held_out": []}
    card = {
        "settings": {"pair_objective": "next_sentence"},
        "imported": {},
        "corpora": [{"name": "theirs", "documents": 2, "read": 2, "kept": 2, "dropped": {}}],
        "sequence_lengths": {"64": section},
        "documents": 2,
    }
    assert warnings_of(card) == [
        "10% of the samples of length 64 have a random second segment, not half; make the files again, in which half "
        "of the labels are 1",
        "no samples of length 64 are held out, so the held-out loss says little; give files, or more of them, with "
        "--held-out",
        "1 of 2 files of length 64 are empty; leave them out",
    ]


@pytest.mark.parametrize(
    ("empty", "expected"),
    [
        ({"128": (5, 100), "512": (3, 4)}, ["3 of 4 files of length 512 are empty; leave them out"]),
        ({"128": (50, 100), "512": (1, 4)}, ["50 of 100 files of length 128 are empty; leave them out"]),
        ({"128": (1, 20), "512": (0, 4)}, []),
    ],
)
def test_empty_files_of_the_length_with_the_largest_share_are_named(
    empty: dict[str, tuple[int, int]], expected: list[str]
) -> None:
    sections = {
        length: {
            "samples": 100,
            "samples_with_random_next": 50,
            "train": [{"samples": 0}] * none + [{"samples": 9}] * (files - none),
            "held_out": [{"samples": 40}],
        }
        for length, (none, files) in empty.items()
    }
    card = {"settings": {"pair_objective": "next_sentence"}, "imported": {}, "corpora": []}
    assert warnings_of({**card, "sequence_lengths": sections}) == expected


@pytest.mark.parametrize(("dropped", "warned"), [({"c4_sentences": 4, "fineweb_list": 2}, 1), ({"c4_sentences": 4}, 0)])
def test_filters_that_drop_most_of_a_corpus_are_warned_of(dropped: dict[str, int], warned: int) -> None:
    corpus = {"name": "web", "read": 10, "dropped": {"short": 3, **dropped}}
    expected = ["filters dropped 60% of the documents of web, most by c4_sentences"]
    assert found({"corpora": [corpus], "sequence_lengths": {}}) == expected[:warned]


@pytest.mark.parametrize(
    ("dropped", "expected"),
    [
        ({"encoding": 51}, "51% of the documents of web were dropped as encoding; set the encoding of the pages that"),
        ({"empty": 60}, "60% of the documents of web were dropped as empty; name files with text, or the column"),
        ({"short": 99}, "99% of the documents of web were dropped as short; lower minimum_characters"),
        (
            {"language_en": 30, "language_unsure": 25},
            "55% of the documents of web were dropped as language, most by language_en; correct the languages",
        ),
        ({"language": 99}, None),  # of Common Crawl
        ({"encoding": 50}, None),
        ({"encoding": 30, "empty": 30, "short": 30}, None),
    ],
)
def test_a_reason_that_drops_most_of_a_corpus_is_warned_of(dropped: dict[str, int], expected: str | None) -> None:
    corpus = {"name": "web", "read": 100, "dropped": {"c4_sentences": 1, **dropped}}
    warnings = warnings_of({"corpora": [corpus], "sequence_lengths": {}})
    assert [warning[: len(expected or "")] for warning in warnings] == ([expected] if expected else [])
    assert not warnings_of({"corpora": [{**corpus, "read": 0, "dropped": {}}], "sequence_lengths": {}})


@pytest.mark.parametrize(("skipped", "warned"), [({"not a text": 31}, 1), ({"not a text": 30}, 0), ({"link": 31}, 0)])
def test_archives_of_which_hardly_anything_is_read_are_warned_of(skipped: dict[str, int], warned: int) -> None:
    corpus = {"name": "books", "read": 10, "dropped": {}, "members_skipped": skipped}
    expected = ["31 members of archives of books were not read, and only 10 documents"]
    assert found({"corpora": [corpus], "sequence_lengths": {}}) == expected[:warned]
