"""Filters of whole documents: the published rules, the language, and the counts of what they drop."""

from __future__ import annotations

import itertools
import json
import random
import tracemalloc
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_recipe import read_texts, schema_of_configurations
from hypothesis import given, strategies

from bertline.console import BertlineError
from bertline.corpus.documents import read_documents
from bertline.corpus.language import language_filter, language_identifier
from bertline.corpus.quality import c4, fineweb, gopher_quality, gopher_repetition, words_of

PROSE = (
    "The old mill stood by the river and nobody had lived there since the miller left, for reasons that no one knew.\n"
    "Some said that he owed money to a brother with whom he had quarrelled, others that water had spoilt his corn.\n"
    "In the spring the children came to fish below the wheel, and their mothers called them home before it grew dark.\n"
    "It rained all summer. The roof fell in at last."
)
ENGLISH = schema_of_configurations()["$defs"]["stop_words"]["default"]
JAPANESE = "彼は言った。「行く。」と彼女は答えた。雨が降る。夜になる。街は静かだ。"
NUMBERS = " ".join(f"{number}{number}" for number in range(10, 40))


def often(pair: str, percent: int) -> str:
    """A Chinese text of characters that occur once, and of a pair that is this share of it."""
    others = map(chr, itertools.count(0x4E00))
    between = round(2 * 100 / percent) - 2
    return "".join(pair + "".join(itertools.islice(others, between)) for _ in range(100))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, None),
        (" ".join(PROSE.split()[:50]), None),
        (" ".join(PROSE.split()[:49]), "words"),
        (" ".join([*PROSE.split()[:49], "—", "—"]), "words"),
        ("the word of " * 33_334, "words"),
        ("to be of it is " * 20, "word_length"),
        ("internationally misunderstandings of " * 20, "word_length"),
        (PROSE + " #" * 9, "symbols"),
        (PROSE + " #" * 6, None),
        ("\n".join(f"- {line}" for line in PROSE.split("\n")), "bullets"),
        (PROSE.replace(".\n", "...\n"), "ellipses"),
        (PROSE + " " + NUMBERS, "letters"),
        (" ".join(word for word in PROSE.split() if word.lower() not in ENGLISH), "stop_words"),
    ],
)
def test_gopher_s_rules_of_quality(text: str, reason: str | None) -> None:
    """The numbers are those of the paper, section A.1.1."""
    assert gopher_quality(text, ENGLISH) == reason


def test_stop_words_are_those_of_the_text_s_language(test_data: Path) -> None:
    texts = {
        language: (test_data / f"multilingual/{language}.txt").read_text().replace("\n\n", "\n").split("\n")
        for language in ("de", "ja")
    }
    for language, words in (("de", ("der", "und", "die")), ("ja", ("の", "は", "ます"))):
        documents = ["\n".join(texts[language][start : start + 12]) for start in range(0, 480, 12)]
        right = [gopher_quality(text, stop_words=words) for text in documents]
        assert right.count(None) >= 38
        assert [gopher_quality(text, ENGLISH) for text in documents].count("stop_words") >= 38
        assert [gopher_quality(text, stop_words=()) for text in documents].count(None) >= 38


def test_stop_words_are_found_whatever_their_case_and_normal_form() -> None:
    text = PROSE + " Été là bas."
    assert gopher_quality(text, ["THE", "Mill"]) is None
    assert gopher_quality(text, [unicodedata.normalize("NFD", word) for word in ("été", "LÀ")]) is None
    assert gopher_quality(text, ["the", "The"]) is None  # one word
    assert gopher_quality(text, ["Mühle", "le"]) == "stop_words"


@pytest.mark.parametrize("word", ["of the", "a\u00a0b", " ", "\u200b"])
def test_a_stop_word_that_is_not_one_word_is_one_line(word: str) -> None:
    with pytest.raises(BertlineError, match=r"stop_words: given '.*', which is not one word; "):
        gopher_quality("", ["the", word])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, None),
        ("\n".join([*PROSE.split("\n"), *["Share."] * 3]), None),
        ("\n".join([*PROSE.split("\n"), *["Share."] * 4]), "lines"),
        (PROSE + "\n" + PROSE.split("\n")[0], "line_characters"),
        (PROSE[:150] + " buy now" * 6, "2_grams"),
        (PROSE + " " + " ".join(PROSE.split()[:25]), "5_grams"),
        ("Extraordinarily incomprehensible.", None),  # what occurs once is no repetition, however long
        (PROSE + " one two three four five" * 4, None),  # repetitions that overlap are counted once
        (
            "渋谷の夜を盛り上げてくれそうだ。多彩なライブとともに祝日前の街が賑わう。\n私は初めてだったが魚は新鮮でした。",
            None,
        ),
        ("渋谷の夜を盛り上げてくれそうだ。" * 3, "3_grams"),
        (often("电影", 14), None),  # no space is between them
        (often("电影", 22), "2_grams"),
        ("", None),
    ],
)
def test_gopher_s_rules_of_repetition(text: str, reason: str | None) -> None:
    """Table A1 of the paper."""
    assert gopher_repetition(text) == reason


@given(strategies.lists(strategies.sampled_from(["a", "b", "in", "the", "of", "old", "."]), max_size=60))
def test_repetitions_are_those_of_the_definition(words: list[str]) -> None:
    """Table A1 and section A.1.1, of n-grams as tuples of words with a space between them."""
    text = " ".join(words)
    ngrams = {length: list(zip(*(words[at:] for at in range(length)), strict=False)) for length in range(2, 11)}
    expected = None
    for length, most in {2: 0.2, 3: 0.18, 4: 0.16}.items():
        top, times = next(iter(Counter(ngrams[length]).most_common(1)), ((), 0))
        if times > 1 and times * len(" ".join(top)) > most * len(text):
            expected = expected or f"{length}_grams"
    for length, most in {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}.items():
        seen, characters, next_at = set(), 0, 0
        for at, ngram in enumerate(ngrams[length]):
            if at >= next_at and ngram in seen:
                characters, next_at = characters + len("".join(ngram)), at + length
            elif at >= next_at:
                seen.add(ngram)
        if characters > most * len(text):
            expected = expected or f"{length}_grams"
    assert gopher_repetition(text) == expected


@pytest.mark.parametrize("judge", [gopher_repetition, partial(gopher_quality, stop_words=[])])
def test_a_long_document_without_spaces_is_judged_in_bounded_memory(judge: Callable[[str], str | None]) -> None:
    """The longest document, of 11 million Han characters, must not need more than 1 GiB."""
    text = "".join(random.Random(1).choices([chr(code) for code in range(0x4E00, 0x9000)], k=300_000))  # noqa: S311
    tracemalloc.start()
    try:
        judge(text)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 100 * len(text)


@pytest.mark.parametrize(
    ("text", "kept", "reason"),
    [
        (PROSE, PROSE, None),
        (f"Home\n{PROSE}\nTwo words.\nRead on ...\nNo mark here", PROSE, None),
        (f"{PROSE}\nPlease enable JavaScript to read on.\nThis page uses cookies to work.", PROSE, None),
        (f"{PROSE}\nA word is too long: {'x' * 1001}.", PROSE, None),
        ("\n".join(PROSE.split("\n")[:3]), "\n".join(PROSE.split("\n")[:3]), None),
        ("\n".join(PROSE.split("\n")[:2]), None, "sentences"),
        ("\n".join(PROSE.split("\n")[2:]), None, None),  # the last line has two
        ("\n".join(f"He read “{title} in the old mill”" for title in "ABC"), None, None),  # a line is one at least
        (f"{PROSE}\nLorem ipsum dolor sit amet.", None, "lorem_ipsum"),
        (f"{PROSE}\nif (x) {{ return; }}", None, "curly_bracket"),
        (f"これは二つ\n{JAPANESE}", JAPANESE, None),
    ],
)
def test_c4_s_rules(text: str, kept: str | None, reason: str | None) -> None:
    found, why = c4(text)
    assert why == reason
    assert kept in (None, found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, None),
        ("\n".join(["The end of it", *["Some line without a mark that is long enough to count"] * 8]), "line_ends"),
        ("\n".join([PROSE, *["A short line."] * 9]), "short_lines"),
        (PROSE + "\nIt rained all summer." * 2, "repeated_lines"),
        ("\n".join(f"Incomprehensibilities {number} notwithstanding." for number in range(20)), "list"),
    ],
)
def test_fineweb_s_rules(text: str, reason: str | None) -> None:
    assert fineweb(text) == reason


SENTENCES = {
    "russian": "Старая мельница стояла у реки, и никто в ней не жил.",
    "armenian": "Հին ջրաղացը կանգնած էր գետի ափին, և ոչ ոք այնտեղ չէր ապրում։",
    "arabic": "كانت الطاحونة القديمة تقف بجانب النهر فهل سكنها أحد؟",
    "urdu": "پرانی چکی دریا کے کنارے کھڑی تھی اور وہاں کوئی نہیں رہتا تھا۔",
    "hindi": "पुरानी चक्की नदी के किनारे खड़ी थी और वहाँ कोई नहीं रहता था।",
    "amharic": "አሮጌው ወፍጮ በወንዙ ዳር ቆሞ ነበር፣ ማንም ሰው በዚያ አልኖረም።",
    "korean": "낡은 물레방아는 강가에 서 있었고 아무도 그곳에 살지 않았다.",
    "khmer": "ចិញ្ចៀនកិនស្រូវចាស់ស្ថិតនៅក្បែរមាត់ទន្លេហើយគ្មាននរណារស់នៅទីនោះទេ។",
    "burmese": "ရေစက်ဟောင်းသည်မြစ်ကမ်းဘေးတွင်ရှိပြီးမည်သူမျှထိုနေရာတွင်မနေခဲ့ပေ။",
    "japanese": "古い水車小屋は川のほとりに立っていて、そこには誰も住んでいなかったのである。",
    "half-width": "ﾌﾙｲｽｲｼｬｺﾞﾔﾊｶﾜﾉﾎﾄﾘﾆﾀｯﾃｲﾃｿｺﾆﾊﾀﾞﾚﾓｽﾝﾃﾞｲﾅｶｯﾀ｡",
    "chinese": "那座古老的水车磨坊矗立在宽阔的大河边，已经有很多很多年没有人在那里住过了。",
}


@pytest.mark.parametrize("script", SENTENCES)
def test_sentences_of_many_scripts_pass_the_rules_on_line_ends(script: str) -> None:
    text = "\n".join(f"{number} {SENTENCES[script]}" for number in range(10))
    assert c4(text) == (text, None)
    assert fineweb(text) is None
    in_one_line = text.replace("\n", " ")
    assert c4(in_one_line) == (in_one_line, None)


def test_languages_of_real_documents_are_found(test_data: Path) -> None:
    drop = language_filter(["ltg", "de"], 0.5)
    for language in ("ar", "de", "en", "hi", "ja", "ko", "th"):
        documents = (test_data / f"multilingual/{language}.txt").read_text().strip().split("\n\n")[:60]
        found = [drop(text) for text in documents]
        assert found.count(None if language == "de" else language) >= 0.97 * len(documents)


def test_a_language_that_is_not_identified_is_one_line() -> None:
    with pytest.raises(
        BertlineError, match=r"keep: given 'xyz', which is not identified; known are ace, af, .*ltg, lv"
    ):
        language_filter(["xyz"], 0.5)


def test_a_long_text_is_judged_by_all_of_it() -> None:
    german = "Der alte Müller wohnte am Fluss und niemand wusste, warum er das Haus verlassen hatte. "
    english = "The old miller lived by the river and nobody knew why he had left the house. "
    assert language_filter(["de"], 0.5)(english * 9 + german * 200) is None
    assert language_filter(["en"], 0.999999)("der the") == "unsure"
    assert language_identifier()("1 " * 2000 + (german * 6)[-490:])[0] == "de"  # its end


def test_a_language_may_have_exactly_the_probability_that_it_must_have() -> None:
    language, probability = language_identifier()("der the")
    assert language_filter([language], probability)("der the") is None
    assert language_filter([language], float(np.nextafter(probability, 1)))("der the") == "unsure"


def read(folder: Path, texts: list[str], **settings: Any) -> tuple[list[str], dict[str, Any]]:
    """The texts of the documents that are kept, and the counts."""
    (folder / "all.txt").write_text("\n* * *\n".join(texts))
    documents, counts = folder / "part.jsonl.zst", folder / "part.counts.json"
    read_texts([folder / "all.txt"], documents, counts, separator="* * *", sentences="unicode", **settings)
    return [document["text"] for document in read_documents(documents)], json.loads(counts.read_text())


def test_what_filters_drop_is_counted_by_reason(tmp_path: Path) -> None:
    texts = [
        PROSE.replace("\n", "\n\n"),
        ("Home\n\n" + PROSE + "\n\nNo mark here").replace(".\n", ".\n\n"),
        "Der alte Müller wohnte am Fluss und niemand wusste, warum er das Haus verlassen hatte.",
        "The old miller lived by the river and nobody knew why.",
        PROSE.replace("\n", "\n\n") + "\n\nCall f{x} or not.",
    ]
    filters = ["gopher_quality", "c4", "fineweb", "gopher_repetition"]
    kept, counts = read(tmp_path, texts, cleaning=filters, language_identification={"keep": "en"})
    assert kept == [PROSE, PROSE]
    assert counts["dropped"] == {"language_de": 1, "gopher_quality_words": 1, "c4_curly_bracket": 1}
    assert counts["read"] == 5
    assert counts["cleaning"]["c4"] == {"lines": 2, "characters": len("Home\n\nNo mark here"), "documents": 1}


def test_lines_of_a_document_that_c4_drops_are_not_counted(tmp_path: Path) -> None:
    kept, counts = read(tmp_path, ["Home\n\nOne sentence of five words."], cleaning=["c4"])
    assert kept == []
    assert counts["dropped"] == {"c4_sentences": 1}
    assert counts["cleaning"]["c4"] == {"lines": 0, "characters": 0, "documents": 0}


def test_without_filters_nothing_is_new_in_the_counts(tmp_path: Path) -> None:
    kept, counts = read(tmp_path, ["One."])
    assert kept == ["One."]
    assert "cleaning" not in counts


def test_c4_keeps_a_line_with_a_word_of_1000_characters() -> None:
    longest = f"{PROSE}\nA word is long: {'x' * 999}."
    assert c4(longest) == (longest, None)
    assert c4(f"{PROSE}\nA word is too long: {'x' * 1000}.") == (PROSE, None)


def test_three_characters_of_thai_are_a_word() -> None:
    assert words_of("กขค").number == pytest.approx(1)
    assert words_of("ภาษาไทย one").number == pytest.approx(1 + 7 / 3)


@pytest.mark.parametrize(("first", "length", "reason"), [(0, 30, "short_lines"), (10, 31, None)])
def test_a_line_of_30_characters_is_short(first: int, length: int, reason: str | None) -> None:
    lines = [f"Line {number} is thirty letters long." for number in range(first, first + 9)]
    assert set(map(len, lines)) == {length}
    assert fineweb("\n".join([PROSE, *lines])) == reason


@pytest.mark.parametrize(("characters", "reason"), [(500, "repeated_lines"), (505, None)])
def test_repeated_characters_are_a_share_of_those_without_line_breaks(characters: int, reason: str | None) -> None:
    """Five characters repeat: 1 percent of 500."""
    others = [f"{number} rain, and rain again, and then rain." for number in range(9)]
    others[0] += " rain" * ((characters - 10 - sum(map(len, others))) // 5)
    lines = ["Rain.", *others, "Rain."]
    lines[1] += "." * (characters - sum(map(len, lines)))
    assert sum(map(len, lines)) == characters
    assert fineweb("\n".join(lines)) == reason


def in_lines(words: list[str], length: int) -> str:
    return "\n".join(" ".join(words[at : at + length]) for at in range(0, len(words), length))


@pytest.mark.parametrize(
    ("kept", "dropped", "reason"),
    [
        (["word"] * 50, ["word"] * 49, "words"),
        (["word"] * 100_000, ["word"] * 100_001, "words"),
        (["old"] * 60, ["old"] * 59 + ["no"], "word_length"),
        (["abcdefghij"] * 60, ["abcdefghij"] * 59 + ["abcdefghijk"], "word_length"),
        (["word"] * 90 + ["word#"] * 10, ["word"] * 89 + ["word#"] * 11, "symbols"),
        (["word…"] * 10 + ["word"] * 90, ["word…"] * 11 + ["word"] * 89, "symbols"),
        (["word…", "word#"] * 10 + ["word"] * 80, ["word…", "word#"] * 11 + ["word"] * 78, "symbols"),  # of either
        (["word"] * 80 + ["1234"] * 20, ["word"] * 79 + ["1234"] * 21, "letters"),
    ],
)
def test_the_limits_of_gopher_s_rules_of_quality(kept: list[str], dropped: list[str], reason: str) -> None:
    assert gopher_quality(" ".join(kept), []) is None
    assert gopher_quality(" ".join(dropped), []) == reason


def test_the_limits_of_gopher_s_rules_of_lines() -> None:
    bullets = [in_lines(["•word", "word"] * marked + ["word"] * 2 * (100 - marked), 2) for marked in (90, 91)]
    assert [gopher_quality(text, []) for text in bullets] == [None, "bullets"]
    ellipses = [in_lines((["word"] * 4 + ["word..."]) * m + ["word"] * 5 * (100 - m), 5) for m in (30, 31)]
    assert [gopher_quality(text, []) for text in ellipses] == [None, "ellipses"]
    found = [f"{'word ' * 50}{words}" for words in ("of the", "of it")]
    assert [gopher_quality(text, ["the", "of", "a"]) for text in found] == [None, "stop_words"]


def filled(pieces: list[str], length: float) -> str:
    """The pieces, each followed by a word that occurs once, in a text of this many characters."""
    text = " ".join(f"{piece} {number}" for number, piece in enumerate(pieces))
    return f"{text} {'x' * (round(length) - len(text) - 1)}"


def test_the_limits_of_repeated_lines() -> None:
    unique = [f"unique{number}" for number in range(700)]
    texts = [in_lines(unique[: 10 * (99 - more)], 10) + "\nNo" * (more + 1) for more in (30, 31)]
    assert [gopher_repetition(text) for text in texts] == [None, "lines"]
    line = "x" * 200
    texts = [f"{line}\n{in_lines(unique, 10)[: most - 402]}\n{line}" for most in (1000, 999)]
    assert [gopher_repetition(text) for text in texts] == [None, "line_characters"]


@pytest.mark.parametrize(("length", "most"), [(2, 0.2), (3, 0.18), (4, 0.16)])
def test_the_limits_of_the_most_frequent_ngram(length: int, most: float) -> None:
    ngram = " ".join(["aa", "bb", "cc", "dd"][:length])
    of_ngram = 20 * len(ngram)
    assert gopher_repetition(filled([ngram] * 20, 1.01 * of_ngram / most)) is None
    assert gopher_repetition(filled([ngram] * 20, 0.99 * of_ngram / most)) == f"{length}_grams"


@pytest.mark.parametrize(("length", "most"), [(5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1)])
def test_the_limits_of_repeated_ngrams(length: int, most: float) -> None:
    ngrams = [" ".join(f"{letter}{word}" for word in "abcdefghij"[:length]) for letter in "ABCDEFGHIJ"]
    repeated = 10 * 2 * length  # without spaces
    assert gopher_repetition(filled(2 * ngrams, 1.01 * repeated / most)) is None
    assert gopher_repetition(filled(2 * ngrams, 0.99 * repeated / most)) == f"{length}_grams"


def test_the_limits_of_c4_are_those_of_the_final_text() -> None:
    """At least five words a line, and at least three sentences a page."""
    assert c4(f"{PROSE}\nThese are five words here.\nThese are only four.") == (
        f"{PROSE}\nThese are five words here.",
        None,
    )
    pages = ["These are five words here.\n" * sentences + "Home" for sentences in (3, 2)]
    assert [c4(page)[1] for page in pages] == [None, "sentences"]


@pytest.mark.parametrize("sentence", ["彼は古い水車小屋に住んでいた。", "គ្មាននរណារស់នៅទីនោះទេ។"])
def test_c4_does_not_take_a_line_without_spaces_for_a_word(sentence: str) -> None:
    line = sentence * (1001 // len(sentence) + 1)
    assert c4(line)[0] == line
    assert c4(f"{line}\n{sentence}{'x' * 1001}{sentence}")[0] == line


def test_c4_removes_the_markers_of_citations_before_it_looks_at_the_end_of_a_line() -> None:
    cited = PROSE.replace(".\n", ". [12]\n").replace("mill stood", "mill[1] stood").replace("wheel,", "wheel [],")
    assert c4(f"The history of the mill [edit]\n{cited}[citation needed]") == (PROSE.replace("wheel,", "wheel ,"), None)
    other = f"{PROSE}\nIt was, as he wrote [sic], a [[mill] of [1a] the river."
    assert c4(other) == (other, None)
    assert c4(f"{PROSE}\n[1]\nNo one came [2].") == (PROSE, None)


def test_the_limits_of_fineweb_s_rules() -> None:
    line = "is a line with some more words than thirty letters"
    ended = ["\n".join(f"{number} {line}{'.' * (number < marked)}" for number in range(100)) for marked in (13, 12)]
    assert [fineweb(text) for text in ended] == [None, "line_ends"]
    short = [
        "\n".join(f"{number} is short." if number < few else f"{number} {line}." for number in range(100))
        for few in (66, 67)
    ]
    assert [fineweb(text) for text in short] == [None, "short_lines"]
    words = [f"incomprehensible{number}." for number in range(93)]
    lists = [f"{in_lines(words, 3)}{' more' * more}." for more in (7, 6)]  # 31 lines
    assert [fineweb(text) for text in lists] == [None, "list"]


def test_the_limits_of_thai_are_exact() -> None:
    """A sum of thirds as floats is below or above a number of words."""
    line = "ก" * 14 + "."  # the mark is a word in this script
    assert c4(f"{'ก' * 12}.\n{'ก' * 11}.\n{line}")[0] == f"{'ก' * 12}.\n{line}"
    texts = ["\n".join(f"{'ก' * (6 + 3 * (number < more))} {number:x>30}." for number in range(31)) for more in (7, 6)]
    assert [fineweb(text) for text in texts] == [None, "list"]
    assert words_of(texts[0]).sixths == 600


QUOTED = {
    "english": ("said “that the mill is old, and no one lives there.”", '"It is the old mill by the river!"'),
    "german": ("Er sagte: „Die Mühle ist alt, und niemand wohnt dort.“", "Er sagte: »Die alte Mühle steht am Fluss.«"),
    "japanese": ("彼は「古い水車小屋は川のほとりに立っていた。」", "彼は『古い水車小屋は川のほとりに立っていた。』"),
}


@pytest.mark.parametrize("lines", QUOTED.values(), ids=QUOTED)
def test_a_line_that_ends_with_a_quotation_is_ended(lines: tuple[str, str]) -> None:
    text = "\n".join(f"{number} {lines[number % 2]} {number} {lines[number % 2]}" for number in range(10))
    assert fineweb(text) is None
    assert c4(text) == (text, None)


def test_dialogues_of_a_novel_pass_fineweb_s_rules(test_data: Path) -> None:
    novel = (test_data / "books/austen-emma.txt").read_text(encoding="utf-8")
    lines = [" ".join(paragraph.split()) for paragraph in novel.split("\n\n") if paragraph.strip()]
    passages = ["\n".join(lines[start : start + 8]) for start in range(0, len(lines), 8)]
    assert [fineweb(passage) for passage in passages].count("line_ends") < 0.05 * len(passages)
