"""Tokenizers as Hugging Face `tokenizers` files, made from a vocabulary or read from an external file and checked.

There are three kinds: BERT's WordPiece, the byte-level BPE of GPT-2 and RoBERTa, and SentencePiece's Unigram. Text
never becomes a special token: a literal `[SEP]` or `<mask>` is text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from bertline.console import BertlineError
from bertline.encoding.normalizer import bert_normalizer
from bertline.encoding.tokenizer_checks import (
    BEGIN_OF_WORD,
    CONTINUATION_PREFIX,
    check_kind,
    check_template,
)
from bertline.encoding.tokenizer_config import check_agreement, check_case, check_class, settings_for
from bertline.files import read_text, write_text
from bertline.results import paths

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_NAMES = dict(zip(SPECIAL_TOKENS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))
BERT_MAX_WORD_LENGTH = 100  # characters, of transformers' BERT; Google's code has 200
SCRIPTS_WITHOUT_SPACES = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
SPACE = "Ġ"  # the byte 0x20 in byte-level BPE


def id_type(vocab_size: int) -> type[np.unsignedinteger]:
    """Return the type in which ids are stored: uint16 if the vocabulary allows it, else uint32."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def make_tokenizer(
    vocabulary: Iterable[str],
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    joiners: bool = False,
    max_word_length: int = BERT_MAX_WORD_LENGTH,
    source: str,
) -> Tokenizer:
    """Return BERT's normalizer, pre-tokenizer and WordPiece with `vocabulary`, whose order gives the ids.

    `strip_accents` None is `lowercase`, and `joiners` stay if asked for, see `bert_normalizer`. A word of more than
    `max_word_length` characters is [UNK]. `source` names the vocabulary in errors. Raises BertlineError if a special
    token is missing or a token is empty or a duplicate.
    """
    ids: dict[str, int] = {}
    for token in vocabulary:
        if not token:
            raise BertlineError(f"{source}: line {len(ids) + 1} is empty; remove it, or get the file again")
        if token in ids:
            raise BertlineError(
                f"{source}: the token '{token}' is in lines {ids[token] + 1} and {len(ids) + 1}; remove one"
            )
        ids[token] = len(ids)
    _check_special_tokens(ids, source)
    model = models.WordPiece(
        ids,
        unk_token="[UNK]",  # noqa: S106 - not a password
        continuing_subword_prefix=CONTINUATION_PREFIX,
        max_input_chars_per_word=max_word_length,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = bert_normalizer(lowercase, strip_accents=strip_accents, joiners=joiners)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    return with_special_tokens(tokenizer)


def make_unigram(
    pieces: Sequence[tuple[str, float]],
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    joiners: bool = False,
) -> Tokenizer:
    """Return a Unigram tokenizer with the special tokens as the first ids.

    Its words begin with BEGIN_OF_WORD. Punctuation marks are words of their own, as BERT's, so no token crosses one: an
    answer ends before a full stop, and a literal `[SEP]` is text.

    Args:
        pieces: tokens with the logarithms of their probabilities.
        lowercase, strip_accents, joiners: see `bert_normalizer`.
    """
    vocabulary = [*((token, 0.0) for token in SPECIAL_TOKENS), *pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=SPECIAL_TOKENS.index("[UNK]")))
    tokenizer.normalizer = bert_normalizer(
        lowercase, handle_chinese_chars=False, strip_accents=strip_accents, joiners=joiners
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),  # so that the place of a word in the text is without the space before it
            pre_tokenizers.Metaspace(replacement=BEGIN_OF_WORD, prepend_scheme="always"),
            pre_tokenizers.Split(Regex(f"{BEGIN_OF_WORD}?[\\p{{P}}$+<=>^`|~]"), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement=BEGIN_OF_WORD, prepend_scheme="always")
    return with_special_tokens(tokenizer)


def take_tokenizer(path: Path | str, *, lowercase: bool | None = None, strip_accents: bool | None = None) -> Tokenizer:
    """Return the tokenizer of a `vocab.txt` (one token per line) or of a `tokenizer.json`, which defines its case.

    Without `lowercase`, the settings of a vocab.txt are those of the tokenizer_config.json next to it, or else the
    defaults of transformers. `strip_accents` None is `lowercase`, as in Google's BERT. Raises BertlineError if those
    given do not mean the same as that file.
    """
    path = Path(path)
    if path.suffix == ".json":
        tokenizer = load_tokenizer(path)
        # One with RoBERTa's names has its own template, and a [MASK] that includes the space before it.
        return with_special_tokens(tokenizer) if tokenizer.token_to_id("[CLS]") is not None else tokenizer
    settings = settings_for(path, lowercase=lowercase, strip_accents=strip_accents)
    text = read_text(path)
    if text.startswith("\ufeff"):
        raise BertlineError(f"{path} begins with a byte order mark; save it as UTF-8 without one")
    words = text.removesuffix("\n").split("\n")
    tokenizer = make_tokenizer(words, lowercase=settings["do_lower_case"], source=str(path))
    tokenizer.normalizer = bert_normalizer(
        settings["do_lower_case"],
        handle_chinese_chars=settings["tokenize_chinese_chars"],
        strip_accents=settings["strip_accents"],
    )
    return tokenizer


def take_with_options(path: Path, *, lowercase: bool | None, strip_accents: bool | None = None) -> Tokenizer:
    """Return the tokenizer of `take_tokenizer` for the options of a command.

    Raises BertlineError for options that a tokenizer.json does not follow (but not for --lowercase, a default that the
    graph passes always), and for a vocab.txt with words in upper case that is to be lowercased, unless the file next
    to it says so.
    """
    if path.suffix == ".json":
        for option, given in (("--no-lowercase", lowercase is False), ("--strip-accents", strip_accents is not None)):
            if given:
                raise BertlineError(f"{path}: a tokenizer.json contains this setting; leave out {option}")
    tokenizer = take_tokenizer(path, lowercase=lowercase, strip_accents=strip_accents)
    if path.suffix != ".json" and lowercase is not False:
        check_case(path)
    return tokenizer


def find_tokenizer(folder: Path) -> Path:
    """Return the tokenizer's file in a folder with weights. Raises BertlineError if there is none."""
    found = next((path for name in paths.TOKENIZER_FILES if (path := folder / name).exists()), None)
    if found is None:
        raise BertlineError(f"{folder} has neither {' nor '.join(paths.TOKENIZER_FILES)}; put one of them there")
    return found


def read_tokenizer(path: Path | str) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json, or of a vocab.txt and the tokenizer_config.json next to it.

    Of a folder, its tokenizer. Without tokenizer_config.json text is lowercased, as in transformers. Raises
    BertlineError if that file means another tokenizer.
    """
    path = find_tokenizer(Path(path)) if Path(path).is_dir() else Path(path)
    if path.suffix == ".json":
        tokenizer = load_tokenizer(path)
        check_agreement(path, tokenizer)
        return tokenizer
    check_class(path)
    return take_tokenizer(path)


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Load and check a tokenizer.json, and set it up to treat special tokens in text as plain text.

    Raises BertlineError if the file is not BERT's WordPiece, byte-level BPE or Unigram, or lacks a special token.
    """
    text = read_text(path)
    try:
        description = json.loads(text)
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception for any invalid file
        raise BertlineError(
            f"{path} is not a tokenizer.json of Hugging Face's tokenizers ({error}); name another"
        ) from None
    vocabulary = description["model"]["vocab"]
    check_kind(description, path)
    if is_unigram(tokenizer):
        vocabulary = {piece: index for index, (piece, _) in enumerate(vocabulary)}
    _check_special_tokens(vocabulary, str(path))
    for token in description.get("added_tokens", []):
        if not token["special"] or vocabulary.get(token["content"]) != token["id"]:
            raise BertlineError(f"{path}: '{token['content']}' is added outside its vocabulary; put it there")
    if "" in vocabulary:
        raise BertlineError(f"{path}: the token with the id {vocabulary['']} is empty; give it a name")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise BertlineError(f"{path}: the ids of its vocabulary have gaps; number them from 0 without any")
    check_template(description.get("post_processor"), vocabulary, path)
    if is_unigram(tokenizer) and _literal_specials(tokenizer):
        description["pre_tokenizer"]["pretokenizers"].append(_divider(tokenizer))
        tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for token, name in _literal_specials(tokenizer):
        raise BertlineError(f"{path}: a literal '{name}' in a text would become {token}; remove its merges")
    return tokenizer


def _literal_specials(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Return the special tokens, and their names, that text of these names would become."""
    tokenizer.encode_special_tokens = True
    special = special_token_ids(tokenizer)
    names = {token: str(tokenizer.id_to_token(index)) for token, index in special.items()}
    found = {name: tokenizer.encode(f"a {name} {name}", add_special_tokens=False).ids for name in names.values()}
    harmful = set(special.values()) - {special["[UNK]"]}
    return [(token, name) for token, name in names.items() if harmful.intersection(found[name])]


def _divider(tokenizer: Tokenizer) -> Any:
    """Return the part of a pre-tokenizer that divides the names of special tokens, which XLM-R's Unigram has as pieces.

    Lower scores of these pieces would also lower that of [UNK], and so divide other text in another way.
    """
    names = [str(tokenizer.id_to_token(index)) for index in special_token_ids(tokenizer).values()]
    firsts = [f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names]
    pattern = {"Regex": f"{BEGIN_OF_WORD}?(?:{'|'.join(firsts)})"}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Return whether it is byte-level BPE."""
    return isinstance(tokenizer.model, models.BPE)


def is_unigram(tokenizer: Tokenizer) -> bool:
    """Return whether it is Unigram."""
    return isinstance(tokenizer.model, models.Unigram)


def save_tokenizer(tokenizer: Tokenizer, path: Path | str) -> None:
    """Write tokenizer.json: the same tokenizer gives the same bytes."""
    write_text(path, tokenizer.to_str(pretty=True) + "\n")


def special_token_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of [PAD] [UNK] [CLS] [SEP] [MASK], under these names even if they are called <pad> and so on."""
    is_roberta = tokenizer.token_to_id("[CLS]") is None
    names = ROBERTA_NAMES.items() if is_roberta else zip(SPECIAL_TOKENS, SPECIAL_TOKENS, strict=True)
    return {token: index for token, name in names if (index := tokenizer.token_to_id(name)) is not None}


def separators_in_pair(tokenizer: Tokenizer) -> int:
    """Return how many [SEP] the tokenizer's template puts between two texts: two in RoBERTa's, one in BERT's."""
    separator = special_token_ids(tokenizer)["[SEP]"]
    return max(1, tokenizer.encode("", "").ids.count(separator) - 1)


def words_in_sentence(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Return the words, changed so that each is tokenized by itself as in the sentence.

    RoBERTa's byte-level BPE has other tokens for a word after a space, and adds no space before the first one.
    """
    spaced = is_byte_level(tokenizer) and not tokenizer.pre_tokenizer.add_prefix_space
    return [f" {word}" if spaced and number else word for number, word in enumerate(words)]


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of texts, uint32 [tokens], and the number of each text's, int64 [texts]; none is special."""
    rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    ids = np.array([index for row in rows for index in row], dtype=np.uint32)
    return ids, np.array([len(row) for row in rows], dtype=np.int64)


def continuations(tokenizer: Tokenizer) -> np.ndarray:
    """Return which ids continue a word: bool [vocabulary].

    Of WordPiece `##ing`; of BPE all that do not begin with a space. Of Unigram those that begin with a letter, a digit
    or a combining mark; but where a script has no spaces, a token is taken for a word.
    """
    tokens = _tokens(tokenizer)
    if is_byte_level(tokenizer):
        continues = np.array([not token.startswith(SPACE) for token in tokens])
        continues[list(special_token_ids(tokenizer).values())] = False
        return continues
    if is_unigram(tokenizer):
        special = set(special_token_ids(tokenizer).values())
        return np.array([index not in special and _continues(token) for index, token in enumerate(tokens)])
    return np.array([token.startswith(CONTINUATION_PREFIX) and token != CONTINUATION_PREFIX for token in tokens])


def _continues(token: str) -> bool:
    first = token[:1]
    if first == BEGIN_OF_WORD or _is_letter_without_spaces(first):
        return False
    return unicodedata.category(first)[0] in "LMN"


def _is_letter_without_spaces(character: str) -> bool:
    return (
        character > "\u0e00"
        and character.isalpha()
        and unicodedata.name(character, "").startswith(SCRIPTS_WITHOUT_SPACES)
    )


def segment_starts(tokenizer: Tokenizer) -> np.ndarray:
    """Return with which ids a segment of a sample can begin: bool [vocabulary].

    Those that begin a word; and, because text of scripts without spaces has few of them, those that begin with a letter
    of such a script.
    """
    tokens, byte_level = _tokens(tokenizer), is_byte_level(tokenizer)
    starts = ~continuations(tokenizer)
    if is_unigram(tokenizer):
        return starts
    decode = decoders.ByteLevel().decode
    for index in np.flatnonzero(~starts).tolist():
        first = decode([tokens[index]])[:1] if byte_level else tokens[index][len(CONTINUATION_PREFIX) :][:1]
        if _is_letter_without_spaces(first):
            starts[index] = True
    return starts


def begins_with_space(tokenizer: Tokenizer) -> np.ndarray:
    """Return which ids of byte-level BPE begin with a space: bool [vocabulary]."""
    return np.array([token.startswith(SPACE) for token in _tokens(tokenizer)])


def _tokens(tokenizer: Tokenizer) -> list[str]:
    """Return the vocabulary in the order of its ids."""
    ids = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(ids, key=ids.__getitem__)


def with_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Mark the special tokens as such and add BERT's template, for programs that read the export."""
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    add_template(tokenizer)
    tokenizer.encode_special_tokens = True
    return tokenizer


def add_template(tokenizer: Tokenizer) -> None:
    """Add BERT's template, with [CLS] at the beginning and [SEP] behind each text."""
    ids = special_token_ids(tokenizer)
    first, last = (str(tokenizer.id_to_token(ids[token])) for token in ("[CLS]", "[SEP]"))  # <s> and </s> of RoBERTa's
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, ids["[CLS]"]), (last, ids["[SEP]"])],
    )


def _check_special_tokens(vocabulary: Collection[str], source: str) -> None:
    names = ROBERTA_NAMES.values() if "[CLS]" not in vocabulary and "<s>" in vocabulary else SPECIAL_TOKENS
    missing = [token for token in names if token not in vocabulary]
    if missing:
        raise BertlineError(
            f"{source}: the vocabulary has no {' '.join(missing)}; BERT needs {' '.join(names)}, add them"
        )
