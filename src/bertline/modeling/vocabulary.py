"""Agreement of a network's vocabulary with a tokenizer's, and its vocab.txt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.normalizer import settings_of
from bertline.encoding.tokenizer import find_tokenizer, read_tokenizer
from bertline.files import write_text
from bertline.results import paths

# Some models have more embedding rows than words: they pad to a multiple of up to 128, which suits matrix units.
MAX_PADDING = 127
# Of a dataset whose tokenizer is not that of the weights that a phase starts from.
ADVICE = "build the dataset with the tokenizer of the weights (tokenizer: {file: ...})"


def check_vocabulary(
    tokenizer: Tokenizer,
    source: Path | str,
    rows: int,
    weights: Path | str = "the model",
    *,
    padding: int = 0,
    advice: str = "name the tokenizer that the model was made with",
) -> None:
    """Raise BertlineError unless the rows of a network's word embeddings are the entries of a tokenizer.

    Args:
        tokenizer, source: the tokenizer and its file.
        rows: the network's vocab_size.
        weights: the folder with its weights, whose tokenizer, if there is one, must divide text in the same way.
        padding: how many rows more than entries there may be.
        advice: what to do, the last part of the message.
    """
    needed = 1 + max(tokenizer.get_vocab().values(), default=-1)
    if not 0 <= rows - needed <= padding:
        raise BertlineError(f"{source} has {needed} entries where {weights} has {rows}; {advice}")
    if any(Path(weights, name).exists() for name in paths.TOKENIZER_FILES):
        _check_equal(tokenizer, source, find_tokenizer(Path(weights)), advice)


def write_words(tokenizer: Tokenizer, path: Path) -> None:
    """Write a tokenizer's entries as a vocab.txt, one a line in the order of their ids."""
    entries = tokenizer.get_vocab()
    write_text(path, "".join(f"{word}\n" for word in sorted(entries, key=lambda word: entries[word])))


def _check_equal(tokenizer: Tokenizer, source: Path | str, path: Path, advice: str) -> None:
    """Raise BertlineError unless the file `path`, in a folder with weights, describes the same tokenizer."""
    theirs = read_tokenizer(path)
    entries = tokenizer.get_vocab()
    for word, number in sorted(theirs.get_vocab().items(), key=lambda pair: pair[1]):
        if entries.get(word) != number:
            found = entries.get(word, "none")
            raise BertlineError(f"{path}: '{word}' is entry {number}, but {found} of {source}; {advice}")
    if _division(theirs) != _division(tokenizer):
        raise BertlineError(f"{path} has the entries of {source}, but divides words otherwise; {advice}")
    # A vocab.txt by itself has no settings.
    if path.suffix != ".json" and not path.with_name(paths.TOKENIZER_CONFIG).exists():
        return
    there, here = _settings(theirs), _settings(tokenizer)
    for key in sorted({*there, *here}):
        if there.get(key) != here.get(key):
            raise BertlineError(
                f"{path.parent}: its tokenizer has {key}: {_shown(there.get(key))}, and {source} "
                f"{_shown(here.get(key))}; {advice}"
            )


def _division(tokenizer: Tokenizer) -> Any:
    """Return what else divides text into entries: the pre-tokenizer and, of BPE, merges, or, of Unigram, scores."""
    described = json.loads(tokenizer.to_str())
    model = described["model"]
    return described["pre_tokenizer"], model["type"], model.get("merges"), model["type"] == "Unigram" and model["vocab"]


def _settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the settings of the tokenizer's normalizer; accents are stripped by default if text is lowercased."""
    settings = settings_of(tokenizer)
    if settings.get("strip_accents", False) is None:
        settings = {**settings, "strip_accents": settings["lowercase"]}
    return settings


def _shown(value: Any) -> str:
    return json.dumps(value)[:80]
