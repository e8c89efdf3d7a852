"""Agreement of a network's vocabulary with a tokenizer's."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from bertline.console import BertlineError

# Some models have more embedding rows than words: they pad to a multiple of up to 128, which suits matrix units.
MAX_PADDING = 127


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
        weights: the folder with its weights, whose vocab.txt, if there is one, must number the words in the same way.
        padding: how many rows more than entries there may be.
        advice: what to do, the last part of the message.
    """
    entries = tokenizer.get_vocab()
    needed = 1 + max(entries.values(), default=-1)
    if not 0 <= rows - needed <= padding:
        raise BertlineError(f"{source} has {needed} entries where {weights} has {rows}; {advice}")
    path = Path(weights, "vocab.txt")
    if not path.exists():
        return
    for number, word in enumerate(path.read_text(encoding="utf-8").removesuffix("\n").split("\n")):
        if entries.get(word) != number:
            found = entries.get(word, "none")
            raise BertlineError(f"{path}: '{word}' is entry {number}, but {found} of {source}; {advice}")
