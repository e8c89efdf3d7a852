"""Unigram: trained to the same bytes, right about words, and the same in transformers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from encoding_helpers import make_documents, write_shard
from finetuning_helpers import MODEL
from test_encoding_tokenizer import SCRIPT, dataset_to_train_on
from tokenizers import Regex, Tokenizer, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

from bertline.console import BertlineError
from bertline.encoding.lines import CharacterCounts, line_encoder
from bertline.encoding.tokenizer import (
    continuations,
    load_tokenizer,
    make_unigram,
    save_tokenizer,
    special_token_ids,
    take_tokenizer,
)
from bertline.encoding.vocabulary import train_unigram
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import BertConfig

MIXED = [
    'The 3 kings\' "river" [SEP] (in <mask> 1066).',
    "多彩なライブとともに、祝日前の渋谷の夜。",
    "ที่บ้าน ผู้ติดตาม",
    "हिन्दी पानी",
    "Ēķā don't x",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unigram")
    shard = write_shard(folder / "0.txt.zst", [*make_documents(80, 3), MIXED, MIXED])
    save_tokenizer(
        train_unigram([shard], vocab_size=300, lowercase=False, strip_accents=None, seed=1), folder / "tokenizer.json"
    )
    return folder / "tokenizer.json"


def begins(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text, of the tokens that the bitmap joins."""
    encoding, continues = tokenizer.encode(text, add_special_tokens=False), continuations(tokenizer)
    words: list[tuple[int, int]] = []
    for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if continues[index] and words:
            start = words.pop()[0]
        words.append((start, end))
    return [text[start:end] for start, end in words]


@pytest.mark.slow
def test_training_gives_the_same_bytes_whatever_the_shards_the_threads_and_the_hash_seed(tmp_path: Path) -> None:
    documents = make_documents(80, 3)
    found = set()
    for number, (threads, divided) in enumerate(
        [("1", [documents]), ("3", [documents]), ("2", [documents[50:], documents[:50]])]
    ):
        folder = tmp_path / str(number)
        recipe = dataset_to_train_on(folder, divided, train="unigram", vocab_size=200, lowercase=True)
        variables = {"PYTHONHASHSEED": str(number), "RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        subprocess.run(
            [sys.executable, SCRIPT, "--recipe", recipe, "--output", folder / "tokenizer.json"],
            check=True,
            cwd=folder,
            env={**os.environ, **variables},
        )
        found.add((folder / "tokenizer.json").read_bytes())
    assert len(found) == 1


def test_the_vocabulary_has_the_asked_size_and_the_special_tokens_first(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "0.txt.zst", make_documents(80, 3))
    tokenizer = train_unigram([shard], vocab_size=38, lowercase=False, strip_accents=None, seed=1)
    assert tokenizer.get_vocab_size() == 38
    assert list(special_token_ids(tokenizer).values()) == [0, 1, 2, 3, 4]


def test_training_without_text_or_with_too_many_characters_gives_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match="there is no text to train a tokenizer on"):
        train_unigram(
            [write_shard(tmp_path / "0.txt.zst", [])], vocab_size=100, lowercase=True, strip_accents=None, seed=1
        )
    letters = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 300))
    shard = write_shard(tmp_path / "1.txt.zst", [[letters, *make_documents(1, 1)[0]]])
    assert train_unigram([shard], vocab_size=120, lowercase=False, strip_accents=None, seed=1).get_vocab_size() <= 120


def test_words_with_the_character_that_sentencepiece_reserves_are_not_trained_on(tmp_path: Path) -> None:
    """U+2585, a block of which progress bars are drawn."""
    shard = write_shard(tmp_path / "0.txt.zst", [["the old", "a▅ ▅▅"]])
    tokenizer = train_unigram([shard], vocab_size=300, lowercase=False, strip_accents=None, seed=1)
    assert not {"▅", "a"} & set(tokenizer.get_vocab())
    assert tokenizer.encode("▅", add_special_tokens=False).tokens == ["▁", "▅"]
    write_shard(shard, [["a▅ ▅▅"]])
    with pytest.raises(
        BertlineError, match=r"every word in .*/0\.txt\.zst has '▅' .*; add other text or train wordpiece"
    ):
        train_unigram([shard], vocab_size=300, lowercase=False, strip_accents=None, seed=1)


def test_a_very_long_word_is_trained_on_and_tokenized(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "0.txt.zst", [["あいう" * 50_000]])
    tokenizer = train_unigram([shard], vocab_size=80, lowercase=False, strip_accents=None, seed=1)
    encoding = tokenizer.encode("あいう" * 50_000, add_special_tokens=False)
    assert tokenizer.decode(encoding.ids) == "あいう" * 50_000


def test_tokens_are_at_the_place_of_their_text(trained: Path) -> None:
    tokenizer = load_tokenizer(trained)
    for text in (*MIXED, "  The  river\t(1066)  "):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        assert {text[start:end] for start, end in encoding.offsets} & {" ", "\t", ""} == set()
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            assert text[start:end].strip() == text[start:end]
            assert token.removeprefix("▁") in ("", text[start:end])
        assert tokenizer.decode(encoding.ids) == " ".join(text.split())


def test_the_bitmap_joins_words_but_not_marks_and_pieces_of_scripts_without_spaces(trained: Path) -> None:
    tokenizer = load_tokenizer(trained)
    assert begins(tokenizer, "The kings' rivers, 1066).") == ["The", "kings", "'", "rivers", ",", "1066", ")", "."]
    assert begins(tokenizer, "हिन्दी पानी") == ["हिन्दी", "पानी"]
    japanese = begins(tokenizer, "渋谷の夜。")
    assert len(japanese) > 2
    assert japanese[-1] == "。"


def test_hidden_characters_are_counted(trained: Path) -> None:
    tokenizer, lines = load_tokenizer(trained), ["the 鬱鬱 river", "", "鬱 鬱"]
    encode = line_encoder(tokenizer)
    counts = CharacterCounts(tokenizer, encode)
    counts.add(lines, *encode(lines, ""))
    assert (counts.unknown_characters, counts.characters) == (4, 12)


def test_transformers_loads_the_export_and_gives_the_same_ids(trained: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(trained)
    config = BertConfig.from_dict({**MODEL, "vocab_size": tokenizer.get_vocab_size()})
    torch.manual_seed(1)
    export_huggingface(config, BertForPreTraining(config).state_dict(), trained, tmp_path / "export")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    text = MIXED[0].replace("[SEP] ", "")  # which is a special token there
    for other in MIXED[1:]:
        assert theirs(text, other)["input_ids"] == tokenizer.encode(text, other).ids
        assert (
            theirs(text, other, return_offsets_mapping=True)["offset_mapping"] == tokenizer.encode(text, other).offsets
        )
    assert (theirs.mask_token, theirs.unk_token, theirs.pad_token_id) == ("[MASK]", "[UNK]", 0)
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "export"), device="cpu")
    assert len(fill("the old [MASK] ran")) == 5
    assert save_and_take(theirs, tmp_path) == tokenizer.get_vocab()


def save_and_take(theirs: transformers.PreTrainedTokenizerBase, folder: Path) -> dict[str, int]:
    theirs.save_pretrained(folder / "saved")
    return dict(take_tokenizer(folder / "saved/tokenizer.json", lowercase=False).get_vocab())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}},
            "does not begin with WhitespaceSplit and Metaspace",
        ),
        ({"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]]}}, "has no unk_id; text would get lost"),
    ],
)
def test_a_unigram_that_would_lose_text_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    description = json.loads(make_unigram([("▁a", -1.0)], lowercase=True).to_str())
    if "model" in change:
        description["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps({**description, **change}))
    with pytest.raises(BertlineError, match=message):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("step", "loses"),
    [
        (pre_tokenizers.Split("(", "removed"), True),
        (pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True), True),
        (pre_tokenizers.Split(" ", "removed", invert=True), True),
        (pre_tokenizers.Punctuation("removed"), True),
        (pre_tokenizers.CharDelimiterSplit("("), True),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Punctuation("removed")]), True),
        (pre_tokenizers.Split(Regex(r"\s+"), "removed"), False),
        (pre_tokenizers.Split(" ", "removed"), False),
        (pre_tokenizers.CharDelimiterSplit(" "), False),
        (pre_tokenizers.Split("(", "isolated"), False),
        (pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.Punctuation()]), False),
    ],
)
def test_a_unigram_whose_pre_tokenizer_removes_text_is_refused(
    trained: Path, tmp_path: Path, step: PreTokenizer, loses: bool
) -> None:
    """Behind the step that removes white space: the ids would be those of another text."""
    description = json.loads(trained.read_text())
    description["pre_tokenizer"]["pretokenizers"].append(json.loads(step.__getstate__()))
    path, text = tmp_path / "tokenizer.json", "the old (river"
    path.write_text(json.dumps(description))
    given = Tokenizer.from_file(str(path))
    assert (given.decode(given.encode(text, add_special_tokens=False).ids) != text) == loses
    if not loses:
        assert load_tokenizer(path).encode(text).ids == load_tokenizer(trained).encode(text).ids
        return
    message = r"tokenizer\.json: its pre_tokenizer removes text in the step \w+; give it another behavior$"
    with pytest.raises(BertlineError, match=message):
        load_tokenizer(path)


@pytest.mark.parametrize("name", ["[UNK]", "<unk>"])
def test_a_unigram_whose_unknown_words_become_a_piece_is_refused(trained: Path, tmp_path: Path, name: str) -> None:
    path = trained if name == "[UNK]" else named_as_xlm_r(trained, tmp_path)
    description = json.loads(path.read_text())
    pieces = [piece for piece, _ in description["model"]["vocab"]]
    assert pieces[description["model"]["unk_id"]] == name
    load_tokenizer(path)
    description["model"]["unk_id"] = pieces.index("▁the")
    (tmp_path / "wrong.json").write_text(json.dumps(description))
    with pytest.raises(BertlineError, match=rf"wrong.json: its unk_id is that of '▁the', not of {re.escape(name)}; "):
        load_tokenizer(tmp_path / "wrong.json")


def named_as_xlm_r(trained: Path, folder: Path) -> Path:
    """Write the trained tokenizer with XLM-R's names and pre-tokenizer, which does not part marks from words."""
    names = dict(zip(("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"), NAMES, strict=True))
    description = json.loads(trained.read_text())
    pieces = dict(description["model"]["vocab"])
    of_names = [[name, 0.0] for name in names.values()]
    letters = [[letter, -9.0] for letter in "<>/padsunkm" if letter not in pieces]
    words = [[piece, score] for piece, score in pieces.items() if piece not in names]
    description["model"] |= {"vocab": [*of_names, *words, *letters], "unk_id": NAMES.index("<unk>")}
    description["pre_tokenizer"]["pretokenizers"] = description["pre_tokenizer"]["pretokenizers"][:2]
    description |= {"post_processor": None, "normalizer": {"type": "NFKC"}}
    description["added_tokens"] = [
        {**token, "id": number, "content": name}
        for number, (name, token) in enumerate(zip(NAMES, description["added_tokens"], strict=True))
    ]
    (folder / "tokenizer.json").write_text(json.dumps(description))
    return folder / "tokenizer.json"


NAMES = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def test_special_tokens_that_are_pieces_as_xlm_rs_are_text_in_a_text(trained: Path, tmp_path: Path) -> None:
    path = named_as_xlm_r(trained, tmp_path)
    tokenizer, without = load_tokenizer(path), Tokenizer.from_file(str(path))
    for text in ("the old river<b> ran . </sea>", "< pad >", *MIXED[1:]):
        assert tokenizer.encode(text, add_special_tokens=False).ids == without.encode(text).ids
    for name in NAMES:
        for text in (f"the {name} river", f"the{name}river{name}"):
            encoding = tokenizer.encode(text, add_special_tokens=False)
            assert name not in encoding.tokens
            assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
    save_tokenizer(tokenizer, tmp_path / "again.json")
    assert load_tokenizer(tmp_path / "again.json").to_str() == tokenizer.to_str()


def test_hidden_characters_are_counted_whatever_the_name_of_the_unknown_token(trained: Path, tmp_path: Path) -> None:
    tokenizer, lines = load_tokenizer(named_as_xlm_r(trained, tmp_path)), ["the 鬱鬱 river", "", "鬱 鬱"]
    encode = line_encoder(tokenizer)
    counts = CharacterCounts(tokenizer, encode)
    counts.add(lines, *encode(lines, ""))
    assert (counts.unknown_characters, counts.characters) == (4, 12)
