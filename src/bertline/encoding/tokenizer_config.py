"""The settings next to a tokenizer of BERT: tokenizer_config.json, which transformers follows, as well."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.normalizer import settings_of
from bertline.files import Json, read_object, read_text
from bertline.results import paths

BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
GENERAL_CLASS = "PreTrainedTokenizerFast"  # which follows tokenizer.json alone
MODERN = "modernbert"  # with this model_type, transformers takes the general class, whatever the settings name
DEFAULTS: Json = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}


def read_settings(tokenizer: Path) -> Json:
    """Return the settings next to a tokenizer's file, with the defaults of transformers.

    Raises BertlineError for one that is neither true nor false.
    """
    beside = _beside(tokenizer)
    settings = DEFAULTS | (read_object(beside) if beside.exists() else {})
    for key, default in DEFAULTS.items():
        given = settings[key]
        if not isinstance(given, bool) and not (given is None and default is None):
            raise BertlineError(f"{beside}: {key}: given {str(given)[:80]!r}, allowed are true and false; correct it")
    return settings


def settings_for(vocabulary: Path, *, lowercase: bool | None, strip_accents: bool | None) -> Json:
    """Return the settings of a vocab.txt: those given, as in Google's BERT, or without `lowercase` those next to it.

    Raises BertlineError if a given setting does not mean the same as the file next to it.
    """
    stated = read_settings(vocabulary)
    settings = {key: stated[key] for key in DEFAULTS} if lowercase is None else DEFAULTS | {"do_lower_case": lowercase}
    if strip_accents is not None:
        settings["strip_accents"] = strip_accents
    if not _beside(vocabulary).exists():
        return settings
    wanted, theirs = _meaning_of(settings), _meaning_of(stated)
    for key, value in wanted.items():
        if value != theirs[key]:
            raise BertlineError(
                f"{vocabulary}: {'lowercase' if key == 'do_lower_case' else key} is {str(value).lower()}, but "
                f"{paths.TOKENIZER_CONFIG} next to it means {key}: {str(theirs[key]).lower()}; give the same, or move "
                "it to a folder without that file"
            )
    return settings


def check_case(vocabulary: Path) -> None:
    """Raise BertlineError if a vocab.txt for lowercase text has words in upper case, unless it has settings next to it.

    Markers are no words: `[CLS]`, or `<S>` in Google's Chinese BERT.
    """
    words = [] if _beside(vocabulary).exists() else read_text(vocabulary).split("\n")
    for word in words:
        if word != word.lower() and not word.startswith(("[", "<")):
            raise BertlineError(
                f"{vocabulary} has words in upper case, such as '{word}'; give --no-lowercase, or lowercase: false"
            )


def check_class(vocabulary: Path) -> None:
    """Raise BertlineError for a vocab.txt of another class of transformers, which may divide text in another way."""
    given, allowed = read_settings(vocabulary).get("tokenizer_class"), (*BERT_CLASSES, GENERAL_CLASS)
    if given not in (None, *allowed):
        raise BertlineError(
            f"{_beside(vocabulary)}: tokenizer_class is {str(given)[:80]!r}, but of a vocab.txt only "
            f"{', '.join(allowed)} can be read; choose another model"
        )


def check_agreement(path: Path, tokenizer: Tokenizer) -> None:
    """Raise BertlineError if transformers would read the tokenizer.json `path` with other settings than it has.

    A class of BERT takes them from tokenizer_config.json, or else from its defaults.
    """
    if not _beside(path).exists() or not _is_of_bert(path):
        return
    inside = settings_of(tokenizer)
    ours = _meaning_of(
        {
            "do_lower_case": inside.get("lowercase", True),
            "strip_accents": inside.get("strip_accents"),
            "tokenize_chinese_chars": inside.get("handle_chinese_chars", True),
        }
    )
    for key, value in _meaning_of(read_settings(path)).items():
        if value != ours[key]:
            raise BertlineError(
                f"{_beside(path)}: {key} means {str(value).lower()}, but {path.name} has {str(ours[key]).lower()}; "
                "transformers follows the former; make them equal"
            )


def _meaning_of(settings: Json) -> dict[str, bool]:
    """Return the settings, with `strip_accents` None as `do_lower_case`."""
    strips = settings["strip_accents"]
    return {key: settings[key] for key in DEFAULTS} | {
        "strip_accents": settings["do_lower_case"] if strips is None else strips
    }


def _beside(tokenizer: Path) -> Path:
    return tokenizer.with_name(paths.TOKENIZER_CONFIG)


def _is_of_bert(path: Path) -> bool:
    """Return whether transformers reads the tokenizer.json with a class of BERT."""
    config = path.with_name(paths.CONFIG)
    network = read_object(config).get("model_type") if config.exists() else None
    named = read_object(_beside(path)).get("tokenizer_class")
    return network != MODERN and (named in BERT_CLASSES or (named is None and network == "bert"))
