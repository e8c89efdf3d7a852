"""The tokenizer: taken, trained, checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_recipe import schema_of_configurations
from encoding_helpers import SPECIAL, VOCABULARY, make_documents, write_shard
from tokenizers import Tokenizer, models, pre_tokenizers

from bertline.console import BertlineError
from bertline.encoding.lines import CharacterCounts, line_encoder
from bertline.encoding.normalizer import JOINERS, REMOVED, bert_normalizer, strips_accents
from bertline.encoding.tokenizer import (
    continuations,
    load_tokenizer,
    make_tokenizer,
    read_tokenizer,
    save_tokenizer,
    special_token_ids,
    take_tokenizer,
    take_with_options,
)
from bertline.encoding.vocabulary import (
    choose_sample,
    read_sample,
    train_byte_level,
    train_unigram,
    train_wordpiece,
)
from bertline.settings.configuration import fill_defaults

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/train_tokenizer.py"


def write_vocabulary(path: Path, tokens: list[str]) -> Path:
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


def dataset_to_train_on(folder: Path, documents: list[Any], **tokenizer: Any) -> Path:
    """Write the shards of a dataset below `folder`, and its recipe."""
    shards = folder / "results/datasets/0123456789abcdef/shards"
    shards.mkdir(parents=True)
    for number, of_shard in enumerate(documents):
        write_shard(shards / f"{number:05d}.txt.zst", of_shard)
    settings = {"shards": len(documents), "seed": 12345, "tokenizer": tokenizer}
    tokenizer.setdefault("strip_accents", False)
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps({"fingerprint": "0123456789abcdef", "settings": settings}))
    return recipe


@pytest.mark.parametrize("missing", SPECIAL)
def test_a_vocabulary_without_a_special_token_is_refused_in_one_line(tmp_path: Path, missing: str) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", [token for token in VOCABULARY if token != missing])
    with pytest.raises(BertlineError) as error:
        take_tokenizer(vocabulary, lowercase=True)
    assert f"vocab.txt: the vocabulary has no {missing};" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_duplicate_token_is_named_with_its_lines(tmp_path: Path) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", [*VOCABULARY, "river"])
    with pytest.raises(BertlineError, match="'river' is in lines 9 and 24"):
        take_tokenizer(vocabulary, lowercase=True)


def test_ids_are_line_numbers_whatever_the_line_ends(tmp_path: Path) -> None:
    unusual = [*VOCABULARY, "\u2028", "\x85"]  # line ends to str.splitlines, tokens to Google
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(unusual).encode())
    tokenizer = take_tokenizer(tmp_path / "vocab.txt", lowercase=True)
    assert [tokenizer.token_to_id(token) for token in unusual] == list(range(len(unusual)))


@pytest.mark.parametrize(("place", "line"), [(9, 10), (len(VOCABULARY), len(VOCABULARY) + 1)])
def test_an_empty_line_is_named_and_one_line_end_at_the_end_is_none(tmp_path: Path, place: int, line: int) -> None:
    lines = [*VOCABULARY[:place], "", *VOCABULARY[place:]]
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", lines)
    for _ in range(2):
        with pytest.raises(BertlineError, match=rf"vocab.txt: line {line} is empty; remove it, or get the file again"):
            take_tokenizer(vocabulary, lowercase=True)
        vocabulary.write_text(vocabulary.read_text() + "\n")  # another empty line is no duplicate
    for end in ("", "\n"):
        vocabulary.write_text("\n".join(VOCABULARY) + end)
        assert take_tokenizer(vocabulary, lowercase=True).get_vocab_size() == len(VOCABULARY)


SETTINGS_BESIDE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"do_lower_case": False},
        {"lowercase": True},
        "lowercase is true, but tokenizer_config.json next to it means do_lower_case: false",
    ),
    (
        {},
        {"lowercase": False},
        "lowercase is false, but tokenizer_config.json next to it means do_lower_case: true",
    ),
    (
        {"do_lower_case": True, "strip_accents": False},
        {"lowercase": True},
        "strip_accents is true, but tokenizer_config.json next to it means strip_accents: false",
    ),
    (
        {"do_lower_case": False},
        {"strip_accents": True},
        "strip_accents is true, but tokenizer_config.json next to it means strip_accents: false",
    ),
    (
        {"tokenize_chinese_chars": False},
        {"lowercase": True},
        "tokenize_chinese_chars is true, but tokenizer_config.json next to it means tokenize_chinese_chars: false",
    ),
]


@pytest.mark.parametrize(("beside", "given", "fault"), SETTINGS_BESIDE)
def test_a_vocabulary_is_not_read_with_other_settings_than_those_next_to_it(
    tmp_path: Path, beside: dict[str, Any], given: dict[str, Any], fault: str
) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", VOCABULARY)
    take_tokenizer(vocabulary, **given)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside))
    with pytest.raises(BertlineError) as caught:
        take_tokenizer(vocabulary, **given)
    remedy = "give the same, or move it to a folder without that file"
    assert str(caught.value) == f"{vocabulary}: {fault}; {remedy}"


@pytest.mark.parametrize(
    "beside",
    [
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
        {"tokenizer_class": "BertTokenizer"},
    ],
)
def test_a_vocabulary_has_the_settings_next_to_it_unless_others_are_given(
    tmp_path: Path, beside: dict[str, Any]
) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", VOCABULARY)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside))
    expected = read_tokenizer(vocabulary).to_str()
    assert take_tokenizer(vocabulary).to_str() == expected
    normalizer = json.loads(expected)["normalizer"]
    assert normalizer["lowercase"] == beside.get("do_lower_case", True)
    assert normalizer["strip_accents"] == beside.get("strip_accents")
    assert normalizer["handle_chinese_chars"] == beside.get("tokenize_chinese_chars", True)
    if "tokenize_chinese_chars" not in beside:
        same = take_tokenizer(vocabulary, lowercase=normalizer["lowercase"], strip_accents=normalizer["strip_accents"])
        assert same.to_str() == expected


def test_a_tokenizer_is_not_written_over_the_vocabulary_that_it_is_made_of(tmp_path: Path) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", VOCABULARY)
    (tmp_path / "link.txt").symlink_to(vocabulary)
    for output in ("vocab.txt", "link.txt"):
        command = [sys.executable, SCRIPT.with_name("take_tokenizer.py"), vocabulary, "--output", tmp_path / output]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.stderr.splitlines() == [f"error: {tmp_path / output} is the vocabulary; name another output"]
    assert take_tokenizer(vocabulary, lowercase=True).get_vocab_size() == len(VOCABULARY)


def test_options_that_a_tokenizer_json_does_not_follow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    save_tokenizer(make_tokenizer(VOCABULARY, lowercase=True, source="x"), path)
    for option, given in (("--no-lowercase", {"lowercase": False}), ("--strip-accents", {"strip_accents": False})):
        with pytest.raises(BertlineError, match=f"tokenizer.json contains this setting; leave out {option}"):
            take_with_options(path, **{"lowercase": None, **given})
    for lowercase in (None, True):  # true is the default of a configuration
        assert take_with_options(path, lowercase=lowercase).to_str() == take_tokenizer(path).to_str()


def test_a_cased_vocabulary_is_not_lowercased_unless_the_file_next_to_it_says_so(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "vocab.txt", [*VOCABULARY, "River"])
    for lowercase in (None, True):
        with pytest.raises(
            BertlineError, match=r"vocab\.txt has words in upper case, such as 'River'; give --no-lowercase"
        ):
            take_with_options(path, lowercase=lowercase)
    assert take_with_options(path, lowercase=False).to_str() == take_tokenizer(path, lowercase=False).to_str()
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    for lowercase in (None, True):
        assert take_with_options(path, lowercase=lowercase).to_str() == take_tokenizer(path).to_str()


def test_markers_of_a_vocabulary_are_no_words_in_upper_case(tmp_path: Path) -> None:
    """The vocabulary of Google's Chinese BERT has `<S>` and `<T>`, and is lowercase."""
    uncased = write_vocabulary(tmp_path / "vocab.txt", ["[PAD]", "[unused1]", *SPECIAL[1:], "<S>", "<T>", "一", "二"])
    assert take_with_options(uncased, lowercase=True).encode("一<S>").tokens[1:3] == ["一", "[UNK]"]
    cased = write_vocabulary(tmp_path / "cased.txt", [*SPECIAL, "<S>", "River", *(f"W{n}" for n in range(50))])
    with pytest.raises(BertlineError, match="such as 'River'"):  # the first one
        take_with_options(cased, lowercase=True)


def test_a_byte_order_mark_of_a_vocabulary_is_named(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCABULARY), encoding="utf-8-sig")
    with pytest.raises(BertlineError, match=r"vocab\.txt begins with a byte order mark; save it as UTF-8 without one"):
        take_tokenizer(path, lowercase=True)


def test_a_tokenizer_json_gives_the_bytes_that_its_vocabulary_gave(tmp_path: Path) -> None:
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", VOCABULARY)
    save_tokenizer(take_tokenizer(vocabulary, lowercase=False), tmp_path / "first.json")
    save_tokenizer(take_tokenizer(tmp_path / "first.json", lowercase=True), tmp_path / "second.json")
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()
    assert json.loads((tmp_path / "second.json").read_text())["normalizer"]["lowercase"] is False


def test_a_tokenizer_json_without_added_tokens_is_read(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer(VOCABULARY, lowercase=True, source="x"), tmp_path / "tokenizer.json")
    description = json.loads((tmp_path / "tokenizer.json").read_text())
    del description["added_tokens"]
    (tmp_path / "without.json").write_text(json.dumps(description))
    text = "the river [SEP]"
    with_them = load_tokenizer(tmp_path / "tokenizer.json").encode(text).ids
    assert take_tokenizer(tmp_path / "without.json", lowercase=True).encode(text).ids == with_them


def test_literal_special_tokens_in_text_are_words(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer([*VOCABULARY, "[", "]", "sep"], lowercase=True, source="x"), tmp_path / "t.json")
    tokenizer = load_tokenizer(tmp_path / "t.json")
    special = set(special_token_ids(tokenizer).values()) - {tokenizer.token_to_id("[UNK]")}
    ids = tokenizer.encode("the [SEP] river[MASK] [CLS][PAD] [sep]", add_special_tokens=False).ids
    assert special.isdisjoint(ids)
    assert [tokenizer.id_to_token(index) for index in ids[:4]] == ["the", "[", "sep", "]"]


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))  # noqa: S106
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BertlineError, match="its normalizer is None; name a tokenizer of BERT's kind"):
        load_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(BertlineError, match=r"is not a tokenizer.json"):
        load_tokenizer(tmp_path / "broken.json")
    with pytest.raises(BertlineError, match="does not exist"):
        take_tokenizer(tmp_path / "absent.txt", lowercase=True)


def test_words_split_by_other_rules_than_bert_s_are_refused(tmp_path: Path) -> None:
    other = make_tokenizer(VOCABULARY, lowercase=True, source="x")
    other.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BertlineError, match="its pre_tokenizer is Sequence; name a tokenizer of BERT's kind"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_token_added_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(VOCABULARY, lowercase=True, source="x")
    tokenizer.add_tokens(["two words"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BertlineError, match="'two words' is added outside its vocabulary"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_padding_and_truncation_of_an_external_file_are_switched_off(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(VOCABULARY, lowercase=True, source="x")
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(tmp_path / "tokenizer.json").encode("the river", add_special_tokens=False).ids) == 2
    assert len(load_tokenizer(tmp_path / "tokenizer.json").encode("the " * 9, add_special_tokens=False).ids) == 9


def test_continuations_are_the_pieces_that_begin_with_two_hashes() -> None:
    tokenizer = make_tokenizer([*VOCABULARY, "##", "#"], lowercase=True, source="x")
    continues = continuations(tokenizer)
    assert [tokenizer.id_to_token(index) for index in continues.nonzero()[0]] == ["##s", "##ing", "##er", "##ly"]
    assert len(continues) == len(VOCABULARY) + 2


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_ids_of_googles_vocabulary_are_those_of_transformers(test_data: Path, case: str) -> None:
    from transformers import BertTokenizer

    vocabulary = test_data / f"vocab/bert-base-{case}-vocab.txt"
    theirs = BertTokenizer(str(vocabulary), do_lower_case=case == "uncased")
    ours = take_tokenizer(vocabulary, lowercase=case == "uncased")
    assert special_token_ids(ours) == dict(zip(SPECIAL, (0, 100, 101, 102, 103), strict=True))
    texts = (test_data / "books/carroll-alice.txt").read_text(encoding="utf-8").splitlines()[:400]
    texts += ["naïve Ἀθῆναι 東京 is 東京", "it's 3.14—or so", "İstanbul\u00a0ΣΊΣΥΦΟΣ", "a\x1cb\u200bc", "x" * 101]
    for text in texts:
        assert ours.encode(text, add_special_tokens=False).ids == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.slow
def test_training_gives_the_same_bytes_whatever_the_threads_and_the_hash_seed(tmp_path: Path) -> None:
    documents = [make_documents(60, number) for number in range(2)]
    recipe = dataset_to_train_on(tmp_path, documents, train="wordpiece", vocab_size=90, lowercase=True)
    digests = set()
    for number, (threads, parallel) in enumerate([("1", "true"), ("2", "true"), ("3", "true"), ("1", "false")]):
        output = tmp_path / f"{number}.json"
        subprocess.run(
            [sys.executable, SCRIPT, "--recipe", recipe, "--output", output],
            check=True,
            capture_output=True,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONHASHSEED": str(number),
                "RAYON_NUM_THREADS": threads,
                "TOKENIZERS_PARALLELISM": parallel,
            },
        )
        digests.add(hashlib.sha256(output.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_training_is_the_same_where_characters_do_not_all_fit(tmp_path: Path) -> None:
    """Characters that are equally rare compete for the last places: the library's own choice is random."""
    letters = [chr(code) for code in range(0x4E00, 0x4E00 + 300)]
    shard = write_shard(tmp_path / "0.txt.zst", [["".join(letters), *make_documents(1, 1)[0]]])
    first, second = (
        train_wordpiece([shard], vocab_size=120, lowercase=False, strip_accents=None, seed=1) for _ in range(2)
    )
    assert first.get_vocab() == second.get_vocab()
    assert first.get_vocab_size() <= 120
    assert letters[0] in first.get_vocab()
    assert letters[-1] not in first.get_vocab()


@pytest.mark.parametrize("train", [train_wordpiece, train_unigram])
def test_rare_characters_are_tokens_up_to_the_first_thousand(tmp_path: Path, train: Callable[..., Tokenizer]) -> None:
    rare = [chr(code) for code in range(0x400, 0x400 + 40)]
    common = [["the old river ran by the mill " * 20] * 1000] * 2  # one character in 10,000 is more than all rare ones
    shard = write_shard(tmp_path / "0.txt.zst", [*common, [" ".join(rare)]])
    tokenizer = train([shard], vocab_size=2100, lowercase=False, strip_accents=False, seed=1)
    assert tokenizer.token_to_id("[UNK]") not in tokenizer.encode(" ".join(rare)).ids


def test_a_trained_tokenizer_encodes_its_text_without_unknown_tokens(tmp_path: Path) -> None:
    documents = make_documents(60, 1)
    shard = write_shard(tmp_path / "0.txt.zst", documents)
    tokenizer = train_wordpiece([shard], vocab_size=100, lowercase=True, strip_accents=None, seed=1)
    assert [tokenizer.id_to_token(index) for index in range(5)] == SPECIAL
    text = " ".join(sentence for document in documents for sentence in document)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.token_to_id("[UNK]") not in ids
    assert tokenizer.decode(ids) == text.replace(" .", ".")
    assert "river" in tokenizer.get_vocab()


def test_training_without_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match="there is no text to train a tokenizer on"):
        train_wordpiece(
            [write_shard(tmp_path / "0.txt.zst", [])], vocab_size=100, lowercase=True, strip_accents=None, seed=1
        )


def test_a_sample_is_whole_lines_of_about_the_asked_size_from_all_shards(tmp_path: Path) -> None:
    """And of no more different words than a trainer can hold."""
    lines = {f"{shard}/{number} {'é' * 400}" for shard in range(3) for number in range(9000)}
    shards = [
        write_shard(tmp_path / f"{shard}.txt.zst", [[line for line in sorted(lines) if line.startswith(f"{shard}/")]])
        for shard in range(3)
    ]

    def sample(seed: int, sample_bytes: int, **most: int) -> list[str]:
        blocks = choose_sample(shards, bert_normalizer(True), seed=seed, sample_bytes=sample_bytes, **most)
        return [line for text in read_sample(blocks) for line in text.split("\n") if line]

    assert sorted(sample(1, 1 << 40)) == sorted(lines)
    some = sample(1, 9_000_000)
    assert set(some) <= lines
    assert len(set(some)) == len(some)
    assert {line[0] for line in some} == {"0", "1", "2"}
    assert 7_500_000 < sum(len(line.encode()) + 1 for line in some) < 9_500_000
    assert sample(2, 9_000_000) != some
    blocks = choose_sample(shards, bert_normalizer(True), seed=1, sample_bytes=9_000_000)
    assert blocks == sorted(blocks)
    # A million bytes have some 1,200 lines, each with a number of its own.
    few = sample(1, 9_000_000, max_words=3000)
    assert set(few) < set(some)
    assert 3000 < len({line.split()[0][2:] for line in few}) < 4600


def test_a_sample_of_text_without_spaces_is_as_small_as_the_memory_of_the_trainers_asks(tmp_path: Path) -> None:
    lines = [chr(0xE01 + number % 40) * 90 + str(number) for number in range(30_000)]  # of some 275 bytes, in Thai
    shard = write_shard(tmp_path / "0.txt.zst", [lines])
    blocks = choose_sample([shard], bert_normalizer(True), seed=1, sample_bytes=1 << 40, max_word_bytes=2_500_000)
    words = {line for text in read_sample(blocks) for line in text.split("\n") if line}
    assert words < set(lines)
    assert 2_500_000 < sum(len(word.encode()) for word in words) < 3_600_000


def test_byte_level_bpe_is_trained_to_the_same_bytes_and_marks_what_continues_a_word(tmp_path: Path) -> None:
    documents = [*make_documents(80, 3), ["A [SEP] and a <mask> are text.", "Ēķā é東 \U0001f600"]]
    recipe = dataset_to_train_on(tmp_path, [documents], train="bpe", vocab_size=300, lowercase=False)
    for number, hash_seed in enumerate("12"):
        subprocess.run(
            [sys.executable, SCRIPT, "--recipe", recipe, "--output", tmp_path / f"{number}.json"],
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    tokenizer = load_tokenizer(tmp_path / "0.json")
    assert list(special_token_ids(tokenizer).values()) == [0, 1, 2, 3, 4]
    continues = continuations(tokenizer)
    for sentence in (sentence for document in documents for sentence in document):
        encoding = tokenizer.encode(sentence, add_special_tokens=False)
        assert tokenizer.decode(encoding.ids).strip() == sentence
        assert (~continues[encoding.ids]).sum() == len(sentence.split(" "))


def test_a_bpe_that_cannot_be_read_word_by_word_is_refused(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "0.txt.zst", make_documents(5, 3))
    with pytest.raises(BertlineError, match="given 100, allowed for byte-level BPE is at least 261"):
        train_byte_level([shard], vocab_size=100, lowercase=True, strip_accents=None, seed=1)
    right = json.loads(train_byte_level([shard], vocab_size=270, lowercase=True, strip_accents=None, seed=1).to_str())
    changes = {
        "its pre_tokenizer is Whitespace": {"pre_tokenizer": {"type": "Whitespace"}},
        "its normalizer is Replace": {
            "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": " "},
        },
        "its model sets dropout": {"model": {**right["model"], "dropout": 0.1}},
    }
    for fault, change in changes.items():
        (tmp_path / "tokenizer.json").write_text(json.dumps({**right, **change}))
        with pytest.raises(BertlineError, match=fault):
            load_tokenizer(tmp_path / "tokenizer.json")


TEXT_WITH_MARKS = {
    "th": ["น้ำท่วมที่บ้าน", "ภาษาไทยมีสระ"],
    "hi": ["हिन्दी में लिखा है", "पुस्तक"],
    "ja": ["がくせいです", "ポスト"],
    "ko": ["한국어를 배운다", "학교"],
    "it": ["Perché no", "È così"],
}


@pytest.mark.parametrize("language", TEXT_WITH_MARKS)
@pytest.mark.parametrize("strip_accents", [False, True, None])
@pytest.mark.parametrize("train", [train_wordpiece, train_byte_level])
def test_a_new_tokenizer_keeps_marks_unless_it_is_configured_to_strip_them(
    tmp_path: Path, language: str, strip_accents: bool | None, train: Callable[..., Tokenizer]
) -> None:
    sentences = TEXT_WITH_MARKS[language]
    shard = write_shard(tmp_path / "00000.txt.zst", [sentences] * 3)
    tokenizer = train([shard], vocab_size=400, lowercase=True, strip_accents=strip_accents, seed=1)
    assert strips_accents(tokenizer) == (strip_accents is not False)
    for sentence in sentences:
        decoded = tokenizer.decode(tokenizer.encode(sentence, add_special_tokens=False).ids)
        lost = len(unicodedata.normalize("NFD", sentence)) - len(unicodedata.normalize("NFD", decoded.strip()))
        marks = sum(unicodedata.category(c) == "Mn" for c in unicodedata.normalize("NFD", sentence))
        assert lost == (0 if strip_accents is False else marks)
    assert "[UNK]" not in tokenizer.encode(" ".join(sentences)).tokens


TEXT_WITH_JOINERS = {
    "Persian": ["می\u200cخواهم کتاب\u200cها را ببینم", "نمی\u200cدانم"],
    "Sinhala": ["ශ්\u200dරී ලංකාව", "ක්\u200dය"],
    "Malayalam": ["അവൻ ന്\u200d പാല്\u200d"],
    "Bengali": ["র\u200d্যাব কাজ করে"],
}


@pytest.mark.parametrize("language", TEXT_WITH_JOINERS)
@pytest.mark.parametrize("train", [train_wordpiece, train_byte_level, train_unigram])
def test_a_new_tokenizer_keeps_zero_width_joiners_of_a_text_that_is_spelled_with_them(
    tmp_path: Path, language: str, train: Callable[..., Tokenizer]
) -> None:
    sentences = TEXT_WITH_JOINERS[language]
    shard = write_shard(tmp_path / "00000.txt.zst", [sentences] * 3)
    save_tokenizer(train([shard], vocab_size=400, lowercase=True, strip_accents=False, seed=1), tmp_path / "t.json")
    tokenizer = load_tokenizer(tmp_path / "t.json")
    encode = line_encoder(tokenizer)
    for sentence in sentences:
        ids = tokenizer.encode(sentence, add_special_tokens=False).ids
        assert tokenizer.decode(ids).strip() == sentence
        assert encode([sentence], "")[0].tolist() == ids
        # What documents cannot contain, but the text of a task can: a direction, a soft hyphen, a byte order mark.
        assert tokenizer.encode(f"\ufeff{sentence}\u200f\xad", add_special_tokens=False).ids == ids
    assert "[UNK]" not in tokenizer.encode(" ".join(sentences)).tokens
    counts = CharacterCounts(tokenizer, encode)
    counts.add(sentences, *encode(sentences, ""))
    assert counts.stripped_characters == 0


def test_a_tokenizer_that_keeps_joiners_removes_all_else_that_googles_removes() -> None:
    googles, with_joiners = (bert_normalizer(False, joiners=joiners) for joiners in (False, True))
    removed, different = re.compile(REMOVED), []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if 0xD800 <= code < 0xE000 or character in JOINERS:
            continue
        expected = googles.normalize_str(f"a{character}b")
        found = with_joiners.normalize_str(f"a{character}b")
        if (found != expected and not character.isspace()) or (removed.match(character) is None) != (found != "ab"):
            different.append(f"U+{code:04X}")
    assert different == []


def test_joiners_that_a_given_vocabulary_removes_are_counted() -> None:
    tokenizer = make_tokenizer([*VOCABULARY, "می", "##خ"], lowercase=True, source="x")
    lines = ["می\u200cخ the", "می"]
    encode = line_encoder(tokenizer)
    counts = CharacterCounts(tokenizer, encode)
    counts.add(lines, *encode(lines, ""))
    assert counts.stripped_characters == 1


@pytest.mark.parametrize("train", [train_wordpiece, train_byte_level, train_unigram])
def test_a_few_joiners_in_other_text_leave_the_tokenizer_googles(
    tmp_path: Path, train: Callable[..., Tokenizer]
) -> None:
    documents = [["The old river ran by the mill and the town of the king."] * 200] * 20
    plain = write_shard(tmp_path / "0.txt.zst", [*documents, ["Emoji ab"]])
    joined = write_shard(tmp_path / "1.txt.zst", [*documents, ["Emoji a\u200db"]])
    found = [
        train([shard], vocab_size=300, lowercase=True, strip_accents=False, seed=1).to_str()
        for shard in (plain, joined)
    ]
    assert found[0] == found[1]


def test_the_schema_strips_accents_only_for_a_given_vocabulary() -> None:
    schema = schema_of_configurations()
    trained, given = (
        fill_defaults(tokenizer, schema["$defs"]["tokenizer"], schema)
        for tokenizer in ({"train": "wordpiece", "vocab_size": 100}, {"file": "vocab.txt"})
    )
    assert trained["strip_accents"] is False
    assert given["strip_accents"] is None


def test_runs_of_a_script_without_spaces_are_tokens_and_garbage_is_not(tmp_path: Path) -> None:
    words = ["น้ำท่วม", "ที่บ้าน", "ภาษาไทย", "มีสระ"]
    run = "".join(words[number * 7 % 4] for number in range(40))
    assert 200 < len(run) < 300
    shard = write_shard(tmp_path / "00000.txt.zst", [[run, f"{run} 12"], ["a"]])
    tokenizer = train_wordpiece([shard], vocab_size=200, lowercase=True, strip_accents=False, seed=1)
    assert tokenizer.decode(tokenizer.encode(run).ids) == run
    mostly_words = [["plain words " * 20]] * 2000
    shard = write_shard(tmp_path / "00001.txt.zst", [*mostly_words, ["x" * 150]])
    tokenizer = train_wordpiece([shard], vocab_size=200, lowercase=True, strip_accents=None, seed=1)
    assert tokenizer.encode("x" * 150, add_special_tokens=False).tokens == ["[UNK]"]  # as in Google's BERT
