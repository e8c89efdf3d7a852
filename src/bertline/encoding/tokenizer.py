"""BERT's tokenizer as a Hugging Face `tokenizers` file: made from a vocabulary or taken from elsewhere, checked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from bertline.console import BertlineError
from bertline.files import write_text

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"


def make_tokenizer(vocabulary: Iterable[str], *, lowercase: bool, source: str) -> Tokenizer:
    """BERT's normaliser, pre-tokenizer and WordPiece over `vocabulary`, whose order gives the ids.

    `source` names the vocabulary in errors. Raises BertlineError when a special token is missing or a token stands
    twice.
    """
    ids: dict[str, int] = {}
    for token in vocabulary:
        if token in ids:
            raise BertlineError(f"{source}: the token '{token}' stands in lines {ids[token] + 1} and {len(ids) + 1}")
        ids[token] = len(ids)
    _check_special_tokens(ids, source)
    model = models.WordPiece(
        ids,
        unk_token="[UNK]",  # noqa: S106 - not a password
        continuing_subword_prefix=CONTINUATION_PREFIX,
        max_input_chars_per_word=100,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = bert_normalizer(lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION_PREFIX)
    return _with_special_tokens(tokenizer)


def bert_normalizer(lowercase: bool) -> normalizers.BertNormalizer:
    """Google's: control characters out, spaces around Chinese characters; accents go with the upper case."""
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lowercase
    )


def take_tokenizer(path: Path | str, *, lowercase: bool) -> Tokenizer:
    """The tokenizer of a `vocab.txt` (one token a line) or of a `tokenizer.json`, which says its case itself."""
    path = Path(path)
    if path.suffix == ".json":
        return _with_special_tokens(load_tokenizer(path))
    text = _read_text(path).replace("\r\n", "\n")
    return make_tokenizer(text.removesuffix("\n").split("\n"), lowercase=lowercase, source=str(path))


def load_tokenizer(path: Path | str) -> Tokenizer:
    """Load and check a tokenizer.json, so that it reads plain text: a literal `[SEP]` is three words, never a token.

    Raises BertlineError when the file is not a WordPiece tokenizer of BERT's kind or lacks a special token.
    """
    text = _read_text(Path(path))
    try:
        description = json.loads(text)
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception for whatever it does not understand
        raise BertlineError(f"{path} is not a tokenizer.json of Hugging Face's tokenizers ({error})") from None
    for part, kind in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer"), ("model", "WordPiece")):
        given = (description.get(part) or {}).get("type")
        if given != kind:
            raise BertlineError(f"{path}: its {part} is {given}; name a tokenizer of BERT's kind, whose is {kind}")
    if description["model"]["continuing_subword_prefix"] != CONTINUATION_PREFIX:
        raise BertlineError(f"{path}: its words do not continue with '{CONTINUATION_PREFIX}', as BERT's do")
    _check_special_tokens(description["model"]["vocab"], str(path))
    for token in description["added_tokens"]:
        if not token["special"] or description["model"]["vocab"].get(token["content"]) != token["id"]:
            raise BertlineError(f"{path}: '{token['content']}' is added outside its WordPiece vocabulary; put it there")
    if sorted(description["model"]["vocab"].values()) != list(range(len(description["model"]["vocab"]))):
        raise BertlineError(f"{path}: the ids of its vocabulary have gaps; number them from 0 without any")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path | str) -> None:
    """Write tokenizer.json: the same tokenizer gives the same bytes."""
    write_text(path, tokenizer.to_str(pretty=True) + "\n")


def special_token_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of [PAD] [UNK] [CLS] [SEP] [MASK]."""
    return {token: index for token in SPECIAL_TOKENS if (index := tokenizer.token_to_id(token)) is not None}


def continuations(tokenizer: Tokenizer) -> np.ndarray:
    """Which ids continue a word (`##ing`): bool [vocabulary]."""
    tokens = tokenizer.get_vocab(with_added_tokens=False)
    continues = np.zeros(len(tokens), dtype=bool)
    for token, index in tokens.items():
        continues[index] = token.startswith(CONTINUATION_PREFIX) and len(token) > len(CONTINUATION_PREFIX)
    return continues


def _with_special_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Mark the special tokens as such and add BERT's template, for the programs that read the export."""
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    ids = special_token_ids(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    tokenizer.encode_special_tokens = True
    return tokenizer


def _check_special_tokens(vocabulary: Iterable[str], source: str) -> None:
    missing = [token for token in SPECIAL_TOKENS if token not in vocabulary]
    if missing:
        raise BertlineError(
            f"{source}: the vocabulary has no {' '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}, add them"
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; name a vocab.txt or a tokenizer.json") from None
    except UnicodeDecodeError:
        raise BertlineError(f"{path} is not UTF-8; name a vocab.txt or a tokenizer.json") from None
