"""Spaces between the sentences of a shard: those of the text that the sentences were found in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from encoding_helpers import write_shard
from tokenizers import Tokenizer

from bertline.corpus.unicode_sentences import split_by_marks
from bertline.encoding.spaces import is_joined, join_lines
from bertline.encoding.vocabulary import train_byte_level, train_unigram

TEXTS = {
    "English": "He said: “東京!” and left. The mill (in 京都) is old. It stands… Does it?",
    "Japanese": "彼は「行く。」と言った。雨が降る！東京は大きい。これは３。",
    "Chinese": "老人说：“磨坊很老。”然后走了。他走了！河水很深。",
    "Korean": "오래된 방앗간이 있다. 비가 온다. 그는 떠났다.",
    "Thai": "โรงสีเก่า ฝนตก เขาไป",
    "Khmer": "ម៉ាស៊ីនកិនស្រូវចាស់។ គ្មាននរណារស់នៅ។",
    "Burmese": "စက်ဟောင်း။ မိုးရွာသည်။",
    "Hindi": "पुरानी चक्की। बारिश हुई। वह गया।",
    "Armenian": "Հին ջրաղացը։ Անձրև է։",
    "Arabic": "الطاحونة قديمة. هل تمطر؟ ذهب.",
    "pictures": "Great 👍🏽. Yes 😀. No!",
}


@pytest.mark.parametrize("language", TEXTS)
def test_sentences_are_joined_to_the_text_that_they_were_found_in(language: str) -> None:
    sentences = split_by_marks(TEXTS[language])
    assert len(sentences) > 1 or language == "Thai"
    text = "".join(f"{sentence}\n" for sentence in sentences) + "\n"
    assert join_lines(text) == [TEXTS[language], "", ""]


@pytest.mark.parametrize("end", ["東", "。", "！", "」", "々", "カ", "ｶ", "Ａ", "３", "〇", "。”", "。…", '東"'])
def test_no_space_follows_a_character_of_chinese_or_japanese(end: str) -> None:
    assert is_joined(f"x {end}")


@pytest.mark.parametrize("end", ["", ".", ".”", '."', "(東)", "한", "ﾡ", "ที่", "။", "།", "؟", "👍", "①", "…", "—"])
def test_a_space_follows_any_other_character(end: str) -> None:
    assert not is_joined(f"東 {end}" if end else end)


@pytest.mark.parametrize(("train", "space"), [(train_byte_level, "Ġ"), (train_unigram, "▁")])
def test_a_vocabulary_has_the_words_of_texts_and_not_those_of_their_sentences(
    tmp_path: Path, train: Callable[..., Tokenizer], space: str
) -> None:
    """No token of Japanese begins with a space, which only the first sentence of a document has."""
    sentences = [f"{noun}は{place}に行った。" for noun in ("彼", "先生", "学生") for place in ("東京", "京都", "大阪")]
    shard = write_shard(tmp_path / "0.txt.zst", [["the mill.", *sentences * 20], ["the mill."]])
    tokenizer = train([shard], vocab_size=320, lowercase=False, strip_accents=None, seed=1)
    tokens = sorted(tokenizer.get_vocab())
    texts = [tokenizer.decode([tokenizer.token_to_id(token)]) for token in tokens if token.startswith(space)]
    assert all(text.isascii() for text in texts)
