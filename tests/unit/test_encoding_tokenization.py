"""A shard's ids: those of the library, cut into the right sentences and documents."""

from __future__ import annotations

import bz2
import logging
import tempfile
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from encoding_helpers import VOCABULARY, write_shard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyzstd import SeekableZstdFile
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bertline.console import BertlineError
from bertline.encoding import lines, tokenization, word_cache
from bertline.encoding.lines import EncodeLines, line_encoder, wordpiece_encoder
from bertline.encoding.normalizer import JOINERS, bert_normalizer
from bertline.encoding.shards import read_text_blocks
from bertline.encoding.tokenization import tokenize_shard
from bertline.encoding.tokenizer import (
    ROBERTA_NAMES,
    SPECIAL_TOKENS,
    is_byte_level,
    load_tokenizer,
    make_tokenizer,
    make_unigram,
    special_token_ids,
    take_tokenizer,
)
from bertline.encoding.vocabulary import train_byte_level, train_unigram, train_wordpiece
from bertline.encoding.word_cache import WordCache

LETTERS = [chr(code) for code in range(33, 127)]
RICH = [*VOCABULARY, *LETTERS, *(f"##{letter}" for letter in LETTERS), "##é", "é", "東", "σ", "ς", "##σ"]
UNCASED = make_tokenizer(dict.fromkeys(RICH), lowercase=True, source="the test")
CASED = make_tokenizer(dict.fromkeys(RICH), lowercase=False, source="the test")


def byte_level(*, lowercase: bool = False, prefix_space: bool = False, normalizer: Any = None) -> Tokenizer:
    """Byte-level BPE with RoBERTa's names or, where a space is put before each line, as it is trained here."""
    names = list(SPECIAL_TOKENS if prefix_space else ROBERTA_NAMES.values())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = bert_normalizer(lowercase, handle_chinese_chars=False) if prefix_space else normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=names,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = ["The old river, don't the rivers' towns  and   [SEP] <mask> </s> é東 ##s \t\t x"] * 3
    tokenizer.train_from_iterator(text, trainer=trainer)
    return load_json(tokenizer.to_str())


def unigram(*, lowercase: bool) -> Tokenizer:
    pieces = ["▁", "▁the", "the", "▁old", "river", "s", "▁t", "é", "東", "σ", "ß", *LETTERS, "▁|", "▁東"]
    return load_json(
        make_unigram(
            [(piece, -0.1 * rank) for rank, piece in enumerate(dict.fromkeys(pieces), 20)], lowercase=lowercase
        ).to_str()
    )


def load_json(text: str) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(text)
        return load_tokenizer(Path(folder) / "tokenizer.json")


TOKENIZERS = {
    "uncased": UNCASED,
    "cased": CASED,
    "accents": make_tokenizer(dict.fromkeys(RICH), lowercase=True, strip_accents=False, source="the test"),
    "joiners": make_tokenizer(dict.fromkeys([*RICH, *JOINERS]), lowercase=True, joiners=True, source="the test"),
    "no-accents": make_tokenizer(dict.fromkeys(RICH), lowercase=False, strip_accents=True, source="the test"),
    "roberta": byte_level(),
    "bpe-uncased": byte_level(lowercase=True, prefix_space=True),
    "bpe-cased": byte_level(prefix_space=True),
    "unigram-uncased": unigram(lowercase=True),
    "unigram-cased": unigram(lowercase=False),
    "bpe-nfkc": byte_level(normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
}
# Any character, and often those that the fast path could stumble over: separators, white space that is none,
# control and combining characters, characters that are normalised to others, special tokens.
TRICKY = st.sampled_from(
    [
        *"|^~_*+= \t\r;`½ßΣİ≠東",
        *("\x00", "\x1c", "\x85", "\u00a0", "\u2028", "\u200b", "\u0301", "\u0338", "\u037e", "\u1fef", "\ufffd"),
        *("\u200c", "\u200d", "[SEP]", "[MASK]", "<mask>", "</s>", "don't", "  ", "the", "rivers", " | ", "x" * 101),
    ]
)
ANY = st.characters(exclude_characters="\n", exclude_categories=["Cs"])
LINE = st.lists(st.one_of(TRICKY, TRICKY, ANY)).map("".join)


def assert_equal_to_library(encode: EncodeLines, tokenizer: Tokenizer, lines: list[str]) -> None:
    """Each of the lines is a document."""
    ids, lengths = encode([part for line in lines for part in (line, "")], "")
    expected = [row.ids for row in tokenizer.encode_batch_fast(lines, add_special_tokens=False)]
    assert lengths[::2].tolist() == [len(row) for row in expected]
    assert not lengths[1::2].any()
    assert ids.tolist() == [index for row in expected for index in row]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(blocks=st.lists(st.lists(LINE, min_size=1), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_ids_are_those_of_the_library(tokenizer: Tokenizer, blocks: list[list[str]]) -> None:
    encode = line_encoder(tokenizer)
    for block in blocks:
        assert_equal_to_library(encode, tokenizer, block)


ENDS_JOINED, ENDS_SPACED = ["東。", "“東。”", "カ", "ｶ", "！"], ["The old river.", "한국어", "한", "ที่", "👩", "x”"]


@pytest.mark.parametrize("kind", [kind for kind, tokenizer in TOKENIZERS.items() if is_byte_level(tokenizer)])
@given(before=st.sampled_from(ENDS_JOINED + ENDS_SPACED), lines=st.lists(LINE, min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_sentence_has_the_ids_that_byte_level_bpe_gives_it_after_another(
    kind: str, before: str, lines: list[str]
) -> None:
    without_prefix = load_json(TOKENIZERS[kind].to_str())
    without_prefix.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    space = "" if before in ENDS_JOINED else " "
    expected = without_prefix.encode_batch([space + line if line else "" for line in lines], add_special_tokens=False)
    block = [part for line in lines for part in (line, "", before, line, "")]  # a text, and after another sentence
    ids, lengths = line_encoder(TOKENIZERS[kind])(block, "")
    found = np.split(ids, np.cumsum(lengths)[:-1])[3::5]
    assert [row.tolist() for row in found] == [row.ids for row in expected]


@pytest.mark.parametrize("kind", ["unigram-uncased", "unigram-cased"])
@given(before=st.sampled_from(["東。", "東！", "東”", "x.", "x”"]), line=LINE)
@settings(max_examples=100, deadline=None)
def test_a_sentence_has_the_ids_that_unigram_gives_it_after_another(kind: str, before: str, line: str) -> None:
    """The mark at the end of a sentence is a word, so the ids of what follows are the rest of the text's."""
    tokenizer = TOKENIZERS[kind]
    text = before + ("" if before.startswith("東") else " ") + line
    expected = [tokenizer.encode(part, add_special_tokens=False).ids for part in (before, text)]
    ids, lengths = line_encoder(tokenizer)(["a", before, line, "", "a"], "b")
    assert ids[lengths[0] :][: lengths[1:3].sum()].tolist() == expected[1]
    assert lengths[1] == len(expected[0])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_document_has_the_ids_of_its_text(tmp_path: Path, kind: str) -> None:
    english = ["The old river. ", "“Don't go!” ", "said the town's king. ", "7 rivers. ", "(No.) ", "'Tis old."]
    japanese = ["東は川。", "the riverは東！", "東。”", "カ東"]
    path = write_shard(tmp_path / "0.txt.zst", [[line.strip() for line in text] for text in (english, japanese)])
    shard = tokenize_shard(path, TOKENIZERS[kind], tmp_path)
    expected = [TOKENIZERS[kind].encode("".join(text), add_special_tokens=False).ids for text in (english, japanese)]
    assert shard.ids.tolist() == expected[0] + expected[1]
    assert len(shard.sentence_offsets) == len(english) + len(japanese) + 1


@pytest.mark.parametrize("kind", ["roberta", "bpe-uncased", "bpe-cased", "bpe-nfkc"])
@given(blocks=st.lists(st.lists(LINE, min_size=1), min_size=1, max_size=4), remembered=st.sampled_from([0, 5]))
@settings(max_examples=20, deadline=None)
def test_a_cache_that_is_full_gives_the_library_s_ids_too(kind: str, blocks: list[list[str]], remembered: int) -> None:
    cache = WordCache(TOKENIZERS[kind], max_remembered=remembered)
    for block in blocks:
        assert_equal_to_library(cache.encode_lines, TOKENIZERS[kind], block)


def test_a_cache_has_a_limit_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text without spaces would fill the memory with few words."""
    monkeypatch.setattr(word_cache, "MAX_REMEMBERED_CHARACTERS", 1000)
    tokenizer = TOKENIZERS["bpe-cased"]
    cache = WordCache(tokenizer)
    for number in range(50):
        assert_equal_to_library(cache.encode_lines, tokenizer, [f"{number}" * 200])
        assert cache._characters <= 1000 + 400


ADVERSARIAL = [*LETTERS, *" \t\r\x0b\x0c\x1c\x85\xa0\u2003\u2028\u3000", *"\x00\xad\u200b\u200d\ufffd\ue000"]
ADVERSARIAL += [*"\u0301\u0338\u0345\u20dd", *"ÉßẞİıΣςσﬁ½ＫÅ東가がनี", "👩\u200d👧", "don't", "##s", "river", "  "]
ADVERSARIAL += [*SPECIAL_TOKENS, *ROBERTA_NAMES.values(), *("x" * length for length in (15, 16, 63, 64, 65, 99, 101))]


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_adversarial_lines_have_the_library_s_ids_cold_and_warm(tokenizer: Tokenizer) -> None:
    random = Random(1)  # noqa: S311 - not a secret
    encode = line_encoder(tokenizer)
    block = ["".join(random.choices(ADVERSARIAL, k=random.randrange(30))) for _ in range(1250)]
    for _ in range(2):
        assert_equal_to_library(encode, tokenizer, block)


@pytest.mark.slow
@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (True, False)])
def test_every_character_has_the_library_s_ids(lowercase: bool, strip_accents: bool | None) -> None:
    """Of the first two planes, the compatibility ideographs and the tags: all that normalization changes."""
    codes = [*range(0x20000), *range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200)]
    points = [chr(code) for code in codes if not 0xD800 <= code < 0xE000 and chr(code) != "\n"]
    vocabulary = dict.fromkeys([*SPECIAL_TOKENS, *points, *(f"##{point}" for point in points)])
    tokenizer = make_tokenizer(vocabulary, lowercase=lowercase, strip_accents=strip_accents, source="the test")
    assert_equal_to_library(wordpiece_encoder(tokenizer), tokenizer, [f"a{point}b {point}" for point in points])


def test_a_tokenizer_that_nanotoken_does_not_have_is_encoded_by_the_library_and_that_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tokenizer = make_tokenizer(dict.fromkeys(RICH), lowercase=True, source="the test")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    with caplog.at_level(logging.WARNING):
        encode = line_encoder(tokenizer)
    assert_equal_to_library(encode, tokenizer, ["The river's é,  东", "", "ab|c"])
    [message] = caplog.messages
    assert "Split" in message
    assert "\n" not in message


def test_a_tokenizer_that_nanotoken_encodes_differently_is_encoded_by_the_library_and_that_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accents = TOKENIZERS["accents"]
    monkeypatch.setattr(lines, "wordpiece_encoder", lambda tokenizer: wordpiece_encoder(accents))
    with caplog.at_level(logging.WARNING):
        encode = line_encoder(UNCASED)
    assert_equal_to_library(encode, UNCASED, ["The café"])
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("kind", [kind for kind, tokenizer in TOKENIZERS.items() if not is_byte_level(tokenizer)])
def test_wordpiece_is_encoded_by_nanotoken(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    line_encoder(TOKENIZERS[kind])
    assert caplog.messages == []


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@given(line=LINE)
@settings(max_examples=20, deadline=None)
def test_text_never_gives_a_special_token(tokenizer: Tokenizer, line: str) -> None:
    names = " ".join((*SPECIAL_TOKENS, *ROBERTA_NAMES.values()))
    ids, _ = line_encoder(tokenizer)([names, f"{line}{names}{line}", f"{names}東", names], "")
    special = special_token_ids(tokenizer)
    assert len(special) == 5
    assert not set(ids.tolist()) & (set(special.values()) - {special["[UNK]"]})


@pytest.fixture(scope="module")
def real_texts(test_data: Path) -> list[str]:
    """The beginnings of all files of real data, which are of many languages and formats."""
    texts = []
    for path in sorted(path for path in test_data.rglob("*") if path.is_file()):
        with bz2.open(path) if path.suffix == ".bz2" else path.open("rb") as file:
            texts.append(file.read(30_000).decode("utf-8", errors="replace"))
    assert len(texts) > 50
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("case", ["uncased", "cased", "bpe-uncased", "bpe-cased", "roberta", "unigram-cased"])
def test_ids_of_real_text_are_those_of_the_library_cold_and_warm(
    test_data: Path, real_texts: list[str], case: str
) -> None:
    if case in ("uncased", "cased"):
        tokenizer = take_tokenizer(test_data / f"vocab/bert-base-{case}-vocab.txt", lowercase=case == "uncased")
    else:
        tokenizer = TOKENIZERS[case]
    encode = line_encoder(tokenizer)
    for text in (*real_texts, *real_texts[:10]):
        assert_equal_to_library(encode, tokenizer, text.split("\n"))


def test_sentences_and_documents_are_found_again(tmp_path: Path) -> None:
    documents = [["the river .", "a town"], ["\u200b"], [], ["old kings", "\u200b", "the"]]
    shard = tokenize_shard(write_shard(tmp_path / "0.txt.zst", documents), UNCASED, tmp_path)
    assert shard.ids.dtype == np.uint16
    offsets = shard.sentence_offsets.tolist()
    sentences = [shard.ids[begin:end].tolist() for begin, end in pairwise(offsets)]
    decoded = [[UNCASED.id_to_token(index) for index in sentence] for sentence in sentences]
    # A sentence of nothing but a control character has no tokens and is left out; its document stays.
    assert decoded == [["the", "river", "."], ["a", "town"], ["old", "king", "##s"], ["the"]]
    assert shard.document_offsets.tolist() == [0, 5, 5, 5, 9]
    assert shard.documents_with_text.tolist() == [0, 3]


def test_an_empty_shard_has_no_documents(tmp_path: Path) -> None:
    shard = tokenize_shard(write_shard(tmp_path / "0.txt.zst", []), UNCASED, tmp_path)
    assert (shard.ids.size, shard.sentence_offsets.tolist(), shard.document_offsets.tolist()) == (0, [0], [0])


def test_blocks_hold_the_whole_text_whatever_their_size(tmp_path: Path) -> None:
    documents = [["the old river " * 5 + "end", "é東" * 7, "a, b. c"], ["a"]]
    text = "".join("".join(f"{line}\n" for line in document) + "\n" for document in documents)
    shard = write_shard(tmp_path / "0.txt.zst", documents)
    for size in (1, 2, 3, 7, 50, 1000):
        blocks = list(read_text_blocks(shard, size))
        assert all(block.endswith("\n") for block, _ in blocks)
        # Behind a part of a line the newline is not the shard's, and a space may have been taken out.
        joined = "".join(block if ends_line else block[:-1] for block, ends_line in blocks)
        assert joined.replace(" ", "") == text.replace(" ", "")


def test_a_long_line_is_split_behind_a_letter_or_a_digit(tmp_path: Path) -> None:
    """Not behind a mark, to which a tokenizer may join what follows."""
    shard = write_shard(tmp_path / "0.txt.zst", [["yes, — no. 7 é — ; " * 20 + "end"]])
    parts = [block for block, ends_line in read_text_blocks(shard, 40) if not ends_line]
    assert len(parts) > 5
    assert all(part[-2].isalnum() for part in parts)


def test_a_long_line_is_not_split_before_more_white_space(tmp_path: Path) -> None:
    """Which a tokenizer may join with the space that is taken out."""
    shard = write_shard(tmp_path / "0.txt.zst", [["one two  " + "x" * 40]])
    assert next(read_text_blocks(shard, 20)) == ("one\n", False)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_line_longer_than_a_block_has_the_ids_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    tokenizer = TOKENIZERS[kind]
    documents = [["The old  river, 7 towns . é " * 9 + "x"], ["a"], ["b c " * 40 + "d"]]
    path = write_shard(tmp_path / "0.txt.zst", documents)
    whole = tokenize_shard(path, tokenizer, tmp_path)
    monkeypatch.setattr(tokenization, "read_text_blocks", lambda path: read_text_blocks(path, 50))
    parted = tokenize_shard(path, tokenizer, tmp_path)
    expected = [tokenizer.encode(line, add_special_tokens=False).ids for document in documents for line in document]
    for shard in (whole, parted):
        assert shard.ids.tolist() == [index for row in expected for index in row]
        assert np.diff(shard.sentence_offsets).tolist() == [len(row) for row in expected]
        assert np.diff(shard.document_offsets).tolist() == [len(row) for row in expected]
        assert bytes(shard.word_starts) == bytes(whole.word_starts)


def test_a_damaged_shard_is_one_line(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "whole.txt.zst", [["the river " * 20_000]]).read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    cases = {"cut": whole[: len(whole) // 2], "other": b"no zstd at all, but long enough to look", "flip": flipped}
    for name, content in cases.items():
        (tmp_path / f"{name}.txt.zst").write_bytes(content)
        with pytest.raises(BertlineError, match=f"{name}.txt.zst is damaged .*; delete it and make it again") as error:
            tokenize_shard(tmp_path / f"{name}.txt.zst", UNCASED, tmp_path)
        assert "\n" not in str(error.value)
    with pytest.raises(BertlineError, match=r"absent.txt.zst does not exist"):
        tokenize_shard(tmp_path / "absent.txt.zst", UNCASED, tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"the\xff\n\n", "is not UTF-8"), (b"the\n", "ends inside a document"), (b"the\n\nriver", "ends inside a line")],
)
def test_a_shard_that_breaks_the_format_is_one_line(tmp_path: Path, content: bytes, fault: str) -> None:
    with SeekableZstdFile(tmp_path / "0.txt.zst", "w") as file:
        file.write(content)
    with pytest.raises(BertlineError, match=fault):
        tokenize_shard(tmp_path / "0.txt.zst", UNCASED, tmp_path)


@pytest.mark.parametrize(
    ("text", "lowercase", "unknown", "stripped"),
    [
        ("the river xyz the xyz", True, 6, 0),
        ("the café " + "a" * 101, True, 4 + 101, 0),
        ("ที่ it", True, 1 + 2, 2),
        ("ที่ it", False, 3 + 2, 0),
        ("한 が", True, 2, 2),
    ],
)
def test_characters_that_are_hidden_or_stripped_are_counted(
    tmp_path: Path, text: str, lowercase: bool, unknown: int, stripped: int
) -> None:
    tokenizer = make_tokenizer(VOCABULARY, lowercase=lowercase, source="the test")
    shard = write_shard(tmp_path / "0.txt.zst", [[text, "the king"], [text]])
    counts = tokenize_shard(shard, tokenizer, tmp_path).counts
    assert counts["characters"] == 2 * len(text.replace(" ", "")) + len("theking")
    assert (counts["unknown_characters"], counts["stripped_characters"]) == (2 * unknown, 2 * stripped)


@pytest.mark.parametrize("train", [train_wordpiece, train_byte_level, train_unigram])
def test_in_scripts_without_spaces_a_token_that_begins_with_a_letter_can_begin_a_segment(
    tmp_path: Path, train: Callable[..., Tokenizer]
) -> None:
    sentence = "ライブアクトとともに祝日前の渋谷の夜を盛り上げてくれそうだ running ที่บ้าน"
    shard = write_shard(tmp_path / "0.txt.zst", [[sentence]] * 2)
    tokenizer = train([shard], vocab_size=400, lowercase=True, strip_accents=False, seed=1)
    found = tokenize_shard(shard, tokenizer, tmp_path)
    begins = np.frombuffer(found.word_starts, dtype=np.uint8).astype(bool)
    tokens = [tokenizer.decode([index]).removeprefix("##").lstrip(" ▁") for index in found.ids.tolist()]
    first = np.array([token[:1] for token in tokens])
    letters = np.array([character.isalpha() and character > "\u0e00" for character in first])
    assert letters.sum() > 5
    assert begins[letters].all()
    marks = np.array([character != "" and unicodedata.category(character) == "Mn" for character in first])
    pieces = np.array([token in ("unning", "ning", "g", "ing", "n", "i") for token in tokens])
    broken = first == "\ufffd"
    assert not begins[marks | pieces | broken].any()
