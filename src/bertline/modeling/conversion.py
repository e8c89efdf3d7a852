"""Conversion of Google's TensorFlow checkpoints and of PyTorch pickles to Hugging Face's layout."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.tokenizer import find_tokenizer, read_tokenizer, save_tokenizer, take_tokenizer
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import OF_ENCODER, export_huggingface, from_huggingface, read_configuration
from bertline.modeling.tensorflow_checkpoint import read_checkpoint

PICKLE = "pytorch_model.bin"


def convert_weights(source: Path, output: Path, *, lowercase: bool | None = None) -> None:
    """Write a directory in Hugging Face's layout, complete or absent.

    Args:
        source: a folder with a TensorFlow checkpoint (`*.ckpt.index`), `bert_config.json` and `vocab.txt`, as Google
            released BERT; or with `pytorch_model.bin`, `config.json` and a tokenizer. Only tensors are read from the
            pickle: one that would run code is refused.
        lowercase: whether vocab.txt is lowercase; None where another file in its folder specifies that.

    Raises BertlineError for a folder that contains neither, or whose files do not match.
    """
    if source.resolve() == output.resolve():
        raise BertlineError(f"{output}: the output is the source; name another folder")
    index = next(iter(sorted(source.glob("*.ckpt.index"))), None)
    if index is not None:
        config = read_configuration(source / "bert_config.json")
        theirs = _of_tensorflow(index.with_suffix(""))
    elif (source / PICKLE).exists():
        config = read_configuration(source / "config.json")
        theirs = _of_pickle(source / PICKLE)
    else:
        raise BertlineError(f"{source} contains neither *.ckpt.index nor {PICKLE}; name a folder with one of them")
    weights = from_huggingface(config, theirs, str(source))
    with torch.device("meta"):
        network = architecture_of(config).pretraining(config)
    for name in network.state_dict():
        if OF_ENCODER.match(name) and name not in weights:
            raise BertlineError(f"{source} lacks the weights {name} of its configuration; fetch it again")
    with TemporaryDirectory() as folder:
        tokenizer_json = Path(folder) / "tokenizer.json"
        save_tokenizer(_tokenizer(source, lowercase), tokenizer_json)
        export_huggingface(config, weights, tokenizer_json, output)


def _of_tensorflow(prefix: Path) -> dict[str, Tensor]:
    """Return the weights by their names in transformers, without the optimizer's variables."""
    weights = {}
    for name, values in read_checkpoint(prefix):
        if name.startswith(("bert/", "cls/")) and "adam_" not in name:
            tensor = torch.from_numpy(np.array(values, dtype=np.float32))
            weights[_name(name)] = tensor.T.contiguous() if name.endswith("/kernel") else tensor
    return weights


def _name(name: str) -> str:
    """Map `bert/encoder/layer_0/output/dense/kernel` to `bert.encoder.layer.0.output.dense.weight`, and so on."""
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    name = re.sub(r"/(kernel|gamma|output_weights)$", "/weight", name)
    name = re.sub(r"/(beta|output_bias)$", "/bias", name)
    name = re.sub(r"_embeddings$", "_embeddings/weight", name)
    return name.replace("/", ".")


def _of_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise BertlineError(f"{path} is not a file of tensors alone ({reason}); fetch it as safetensors") from None
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _tokenizer(source: Path, lowercase: bool | None) -> Tokenizer:
    path = find_tokenizer(source)
    if path.suffix == ".json" or path.with_name("tokenizer_config.json").exists():
        return read_tokenizer(path)
    if lowercase is None:
        raise BertlineError(
            f"{path} does not specify its case; give --lowercase for an uncased model, --no-lowercase for a cased one"
        )
    tokenizer = take_tokenizer(path, lowercase=lowercase)
    upper = next((word for word in tokenizer.get_vocab() if word[0] != "[" and word != word.lower()), None)
    if lowercase and upper is not None:
        raise BertlineError(f"{path} has words in upper case, such as '{upper}'; give --no-lowercase")
    return tokenizer
