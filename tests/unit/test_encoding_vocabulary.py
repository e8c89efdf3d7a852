"""The vocabulary that is trained: of which characters, of which text, the same each time."""

from __future__ import annotations

import io
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pytest
from corpus_recipe import schema_of_configurations
from encoding_helpers import write_shard
from tokenizers import Tokenizer, pre_tokenizers

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed
from bertline.encoding import vocabulary
from bertline.encoding.normalizer import bert_normalizer
from bertline.encoding.shards import size_of_shard
from bertline.encoding.vocabulary import TRAINERS, train_byte_level, train_wordpiece

# Abbreviation signs of Bengali, Gurmukhi and Telugu, punctuation for Unicode but not for the library.
YOUNG_MARKS = "\u09fd\u0a76\u0c77\u2e43\u2e44\u2e45\u2e46\u2e47\u2e48"


def test_characters_are_counted_as_the_librarys_pre_tokenizer_divides_words() -> None:
    """Whatever Unicode's version of each of them is: for every character that the normalizer leaves."""
    codes = (chr(code) for code in range(sys.maxunicode + 1))
    known = (f"a{code}b" for code in codes if unicodedata.category(code) not in ("Cn", "Co", "Cs"))
    text = bert_normalizer(False, strip_accents=False).normalize_str("\n".join(known))
    words = [word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)]
    wanted = Counter(word[0] for word in words), Counter(letter for word in words for letter in word[1:])
    for counts, of_library in zip(vocabulary._count_characters(iter([text])), wanted, strict=True):
        given = {chr(code): int(counts[code]) for code in np.flatnonzero(counts)}
        assert {letter for letter in given | of_library if given.get(letter) != of_library[letter]} == set()


def test_training_is_the_same_each_time_with_marks_that_are_letters_to_the_library(tmp_path: Path) -> None:
    sentences = [f"word{mark} the cat{mark}" for mark in YOUNG_MARKS]
    shard = write_shard(tmp_path / "0.txt.zst", [sentences] * 20)
    trained = [train_wordpiece([shard], vocab_size=200, lowercase=False, strip_accents=False, seed=1) for _ in range(6)]
    assert len({tokenizer.to_str() for tokenizer in trained}) == 1
    ids = [trained[0].token_to_id(f"##{mark}") for mark in YOUNG_MARKS]
    assert ids == list(range(ids[0], ids[0] + len(ids)))


def test_a_line_of_several_blocks_belongs_to_the_first_and_is_read_in_pieces_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a line's time is linear in its length: reading on by a little would copy all before it again."""
    monkeypatch.setattr(vocabulary, "SAMPLE_BLOCK_BYTES", 10_000)
    long = "old river " * 4_500  # 45,000 bytes, and a newline
    shard = write_shard(tmp_path / "0.txt.zst", [["a short line .", long.strip(), "another line ."]])
    size, reads = size_of_shard(shard), 0

    class Counted:
        def __init__(self, file: BinaryIO) -> None:
            self._file = file
            self.seek = file.seek

        def read(self, size: int) -> bytes:
            nonlocal reads
            reads += 1
            return self._file.read(size)

    with read_compressed(shard) as file:
        counted = cast(BinaryIO, Counted(file))
        blocks = [vocabulary._lines_of_block(counted, start) for start in range(0, size, 10_000)]
    assert blocks == [f"a short line .\n{long.strip()}\n".encode(), b"", b"", b"", b"another line .\n\n"]
    assert reads == len(blocks) + 4


@pytest.mark.parametrize("ends", [[19], [9, 29], [10, 20, 30], [3, 4, 5, 38]])
def test_every_line_belongs_to_one_block_wherever_lines_end(monkeypatch: pytest.MonkeyPatch, ends: list[int]) -> None:
    """Also if the first line that ends in a block ends with it."""
    monkeypatch.setattr(vocabulary, "SAMPLE_BLOCK_BYTES", 10)
    text = bytearray(b"a" * 40)
    for end in [*ends, 39]:
        text[end] = 10
    lines = bytes(text).splitlines(keepends=True)
    begins = [0, *(end + 1 for end in ends)]
    expected = [
        b"".join(line for begin, line in zip(begins, lines, strict=True) if start <= begin < start + 10)
        for start in range(0, 40, 10)
    ]
    assert [vocabulary._lines_of_block(io.BytesIO(text), start) for start in range(0, 40, 10)] == expected


def test_a_script_of_many_characters_has_all_but_one_in_ten_thousand() -> None:
    counts = np.zeros(0x6000, dtype=np.int64)
    counts[0x4E00 : 0x4E00 + 3000] = 10
    counts[0x5A00:0x5A02] = 1  # together less than one in ten thousand
    assert vocabulary._choose_alphabet(counts, 10_000) == list(range(0x4E00, 0x4E00 + 3000))
    assert vocabulary._choose_alphabet(counts, 2000) == list(range(0x4E00, 0x4E00 + 2000))


def test_the_least_vocabulary_of_bpe_is_that_of_the_configuration(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "0.txt.zst", [["the old river ran ."]])
    least = schema_of_configurations()["$defs"]["tokenizer"]["else"]["allOf"][0]["then"]["properties"]["vocab_size"]
    assert least == {"minimum": 261}
    tokenizer = train_byte_level([shard], vocab_size=261, lowercase=False, strip_accents=False, seed=1)
    assert tokenizer.get_vocab_size() == 261
    with pytest.raises(BertlineError, match="given 260, allowed for byte-level BPE is at least 261"):
        train_byte_level([shard], vocab_size=260, lowercase=False, strip_accents=False, seed=1)


@pytest.mark.parametrize("train", TRAINERS.values())
@pytest.mark.parametrize("documents", [[], [[""]], [["", ""], [""]]])
def test_training_on_empty_lines_says_that_there_is_no_text(
    tmp_path: Path, train: Callable[..., Tokenizer], documents: list[list[str]]
) -> None:
    shard = write_shard(tmp_path / "0.txt.zst", documents)
    with pytest.raises(BertlineError, match=r"there is no text to train a tokenizer on in .*0\.txt\.zst; add some"):
        train([shard], vocab_size=300, lowercase=False, strip_accents=False, seed=1)
