"""The types of tokens that a tokenizer gives to two texts, and those that transformers gives to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from bertline.console import BertlineError
from bertline.encoding.tokenizer import find_tokenizer, separators_in_pair, special_token_ids
from bertline.encoding.tokenizer_config import BERT_CLASSES
from bertline.files import Json, read_object
from bertline.modeling.huggingface_config import names_of
from bertline.modeling.network_config import NetworkConfig
from bertline.results import paths

TYPES = "token_type_ids"


def has_token_types(config: NetworkConfig) -> bool:
    """Return whether a network distinguishes two texts. A BERT from elsewhere may have one type of tokens."""
    return TYPES in names_of(config).INPUTS and getattr(config, "type_vocab_size", 2) > 1


def uses_token_types(folder: Path, tokenizer: Tokenizer, config: NetworkConfig) -> bool:
    """Return whether transformers, for the tokenizer in a network's folder, gives the second text of a pair type 1.

    Raises BertlineError if it gives types otherwise than for the whole second text with its [SEP].
    """
    if not has_token_types(config):
        return False
    path = folder / paths.TOKENIZER_CONFIG
    given = read_object(path) if path.exists() else {}
    # Classes of BERT have a template of their own, and give types unless the settings exclude them.
    is_of_bert = given.get("tokenizer_class") in (None, *BERT_CLASSES)
    inputs = given.get("model_input_names", [TYPES] if is_of_bert else [])
    if not isinstance(inputs, list):
        raise BertlineError(f"{path}: model_input_names is not a list; correct it")
    if TYPES not in inputs:
        return False
    types = _types(tokenizer)
    if is_of_bert or types == _types_of_bert(tokenizer):
        return True
    if any(types):
        raise BertlineError(
            f"{find_tokenizer(folder)}: its template for two texts does not give type 1 to the second text and its "
            "last separator; correct it as the network was trained, or choose another model"
        )
    return False


def mark_second_text(tokenizer: Tokenizer) -> None:
    """Change a template for two texts so that it gives type 1 to the second one, as in training; ids stay."""
    if _types(tokenizer) == _types_of_bert(tokenizer):
        return
    special, between = special_token_ids(tokenizer), separators_in_pair(tokenizer)
    first, last = (str(tokenizer.id_to_token(special[token])) for token in ("[CLS]", "[SEP]"))
    template: processors.PostProcessor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {' '.join([last] * between)} $B:1 {last}:1",
        special_tokens=[(first, special["[CLS]"]), (last, special["[SEP]"])],
    )
    trimming = [part for part in _parts(json.loads(tokenizer.to_str())["post_processor"]) if part.get("trim_offsets")]
    if trimming:  # places in a text exclude the space before a word
        prefix = trimming[0].get("add_prefix_space", True)
        template = processors.Sequence([processors.ByteLevel(trim_offsets=True, add_prefix_space=prefix), template])
    tokenizer.post_processor = template


def _types(tokenizer: Tokenizer) -> list[int]:
    return list(tokenizer.encode("a", "a").type_ids)


def _types_of_bert(tokenizer: Tokenizer) -> list[int]:
    length = len(tokenizer.encode("a", add_special_tokens=False).ids)
    return [0] * (1 + length + separators_in_pair(tokenizer)) + [1] * (length + 1)


def _parts(processor: Any) -> Iterator[Json]:
    """Yield a post-processor, or the parts of a sequence of them."""
    if processor:
        yield processor
        for part in processor.get("processors", []):
            yield from _parts(part)
