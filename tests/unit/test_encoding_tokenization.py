"""A shard's ids: those of the library, cut into the right sentences and documents."""

from __future__ import annotations

import bz2
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from encoding_helpers import VOCABULARY, write_shard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyzstd import SeekableZstdFile
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.shards import read_text_blocks
from bertline.encoding.tokenization import WordCache, tokenize_shard
from bertline.encoding.tokenizer import make_tokenizer, take_tokenizer

LETTERS = [chr(code) for code in range(33, 127)]
RICH = [*VOCABULARY, *LETTERS, *(f"##{letter}" for letter in LETTERS), "##é", "é", "東", "σ", "ς", "##σ"]
UNCASED = make_tokenizer(dict.fromkeys(RICH), lowercase=True, source="the test")
CASED = make_tokenizer(dict.fromkeys(RICH), lowercase=False, source="the test")
# Any character, and often those that the fast path could stumble over: separators, white space that is none,
# control and combining characters, characters that are normalised to others, special tokens.
TRICKY = st.sampled_from(
    [
        *"|^~_*+= \t\r;`½ßΣİ≠東",
        *("\x00", "\x1c", "\x85", "\u00a0", "\u2028", "\u200b", "\u0301", "\u0338", "\u037e", "\u1fef", "\ufffd"),
        *("[SEP]", "[MASK]", "the", "rivers", " | ", "x" * 101),
    ]
)
ANY = st.characters(exclude_characters="\n", exclude_categories=["Cs"])
LINE = st.lists(st.one_of(TRICKY, TRICKY, ANY)).map("".join)


def assert_equal_to_library(cache: WordCache, tokenizer: Tokenizer, lines: list[str]) -> None:
    ids, lengths, empty = cache.encode_lines("".join(f"{line}\n" for line in lines))
    expected = [row.ids for row in tokenizer.encode_batch_fast(lines, add_special_tokens=False)]
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == [index for row in expected for index in row]
    assert empty.tolist() == [line == "" for line in lines]


@pytest.mark.parametrize("tokenizer", [UNCASED, CASED], ids=["uncased", "cased"])
@given(blocks=st.lists(st.lists(LINE, min_size=1), min_size=1, max_size=4), remembered=st.sampled_from([0, 5, 1000]))
@settings(max_examples=150, deadline=None)
def test_ids_are_those_of_the_library(tokenizer: Tokenizer, blocks: list[list[str]], remembered: int) -> None:
    cache = WordCache(tokenizer, max_remembered=remembered)
    for lines in blocks:
        assert_equal_to_library(cache, tokenizer, lines)


@given(lines=st.lists(LINE, min_size=1))
@settings(max_examples=50, deadline=None)
def test_a_vocabulary_without_marks_gives_the_library_s_ids_too(lines: list[str]) -> None:
    tokenizer = make_tokenizer(VOCABULARY, lowercase=True, source="the test")
    assert_equal_to_library(WordCache(tokenizer), tokenizer, lines)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_ids_of_real_text_are_those_of_the_library(test_data: Path, case: str) -> None:
    tokenizer = take_tokenizer(test_data / f"vocab/bert-base-{case}-vocab.txt", lowercase=case == "uncased")
    books = sorted((test_data / "books").glob("*.txt"))
    texts = [book.read_bytes().decode("utf-8", errors="replace")[:150_000] for book in books]
    texts += [
        bz2.decompress(dump.read_bytes()).decode("utf-8")[:400_000]
        for dump in sorted((test_data / "wiki").glob("*.bz2"))
    ]
    assert len(texts) == 14
    cache = WordCache(tokenizer)
    for text in texts:
        assert_equal_to_library(cache, tokenizer, text.split("\n"))


def test_sentences_and_documents_are_found_again(tmp_path: Path) -> None:
    documents = [["the river .", "a town"], ["\u200b"], [], ["old kings", "\u200b", "the"]]
    shard = tokenize_shard(write_shard(tmp_path / "0.txt.zst", documents), UNCASED)
    assert shard.ids.dtype == np.uint16
    offsets = shard.sentence_offsets.tolist()
    sentences = [shard.ids[begin:end].tolist() for begin, end in pairwise(offsets)]
    decoded = [[UNCASED.id_to_token(index) for index in sentence] for sentence in sentences]
    # A sentence of nothing but a control character has no tokens and is left out; its document stays.
    assert decoded == [["the", "river", "."], ["a", "town"], ["old", "king", "##s"], ["the"]]
    assert shard.document_offsets.tolist() == [0, 2, 2, 2, 4]


def test_an_empty_shard_has_no_documents(tmp_path: Path) -> None:
    shard = tokenize_shard(write_shard(tmp_path / "0.txt.zst", []), UNCASED)
    assert (shard.ids.size, shard.sentence_offsets.tolist(), shard.document_offsets.tolist()) == (0, [0], [0])


def test_blocks_end_with_lines_whatever_their_size(tmp_path: Path) -> None:
    documents = [["the old river " * 5, "é東" * 7], ["a"]]
    shard = write_shard(tmp_path / "0.txt.zst", documents)
    whole = "".join(read_text_blocks(shard))
    for size in (1, 2, 3, 7, 50, 1000):
        blocks = list(read_text_blocks(shard, size))
        assert "".join(blocks) == whole
        assert all(block.endswith("\n") for block in blocks)


def test_a_damaged_shard_is_one_line(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "whole.txt.zst", [["the river " * 20_000]]).read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    cases = {"cut": whole[: len(whole) // 2], "other": b"no zstd at all, but long enough to look", "flip": flipped}
    for name, content in cases.items():
        (tmp_path / f"{name}.txt.zst").write_bytes(content)
        with pytest.raises(BertlineError, match=f"{name}.txt.zst is damaged .*; delete it and make it again") as error:
            tokenize_shard(tmp_path / f"{name}.txt.zst", UNCASED)
        assert "\n" not in str(error.value)
    with pytest.raises(BertlineError, match=r"absent.txt.zst does not exist"):
        tokenize_shard(tmp_path / "absent.txt.zst", UNCASED)


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"the\xff\n\n", "is not UTF-8"), (b"the\n", "ends inside a document"), (b"the\n\nriver", "ends inside a line")],
)
def test_a_shard_that_breaks_the_format_is_one_line(tmp_path: Path, content: bytes, fault: str) -> None:
    with SeekableZstdFile(tmp_path / "0.txt.zst", "w") as file:
        file.write(content)
    with pytest.raises(BertlineError, match=fault):
        tokenize_shard(tmp_path / "0.txt.zst", UNCASED)
