"""Weights to and from Hugging Face's BERT layout: config.json, model.safetensors and the tokenizer's files."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.files import fsync_directory, read_json, write_json, write_text
from bertline.modeling.bert import BertConfig
from bertline.modeling.weights import load_tensors, save_tensors

# Our names and Hugging Face's, apart from what is split, tied or padded. {} is the number of a layer.
NAMES = {
    "bert.embeddings.word.weight": "bert.embeddings.word_embeddings.weight",
    "bert.embeddings.position.weight": "bert.embeddings.position_embeddings.weight",
    "bert.embeddings.token_type.weight": "bert.embeddings.token_type_embeddings.weight",
    "bert.embeddings.normalization.weight": "bert.embeddings.LayerNorm.weight",
    "bert.embeddings.normalization.bias": "bert.embeddings.LayerNorm.bias",
    "bert.pooler.weight": "bert.pooler.dense.weight",
    "bert.pooler.bias": "bert.pooler.dense.bias",
    "masked_language_head.dense.weight": "cls.predictions.transform.dense.weight",
    "masked_language_head.dense.bias": "cls.predictions.transform.dense.bias",
    "masked_language_head.normalization.weight": "cls.predictions.transform.LayerNorm.weight",
    "masked_language_head.normalization.bias": "cls.predictions.transform.LayerNorm.bias",
    "masked_language_head.bias": "cls.predictions.bias",
    "pair_head.weight": "cls.seq_relationship.weight",
    "pair_head.bias": "cls.seq_relationship.bias",
}
LAYER_NAMES = {
    "attention_output": "attention.output.dense",
    "attention_normalization": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_normalization": "output.LayerNorm",
}
PADDED = ("bert.embeddings.word.weight", "masked_language_head.bias")


def export_huggingface(
    model_config: BertConfig,
    state_dict: Mapping[str, Tensor],
    tokenizer_json: Path | str,
    directory: Path | str,
) -> None:
    """Write a directory that `transformers.BertForPreTraining.from_pretrained` loads; complete or absent.

    Parameters
    ----------
    model_config: the network's shape.
    state_dict: of a `BertForPreTraining`, in our names.
    tokenizer_json: a `tokenizers` file with as many entries as the network has words.
    directory: written anew; what was there is replaced.
    """
    directory = Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".part", dir=directory.parent))
    try:
        padding_id = _write_tokenizer(Path(tokenizer_json), model_config, aside)
        save_tensors(aside / "model.safetensors", to_huggingface(model_config, state_dict))
        write_json(aside / "config.json", _huggingface_config(model_config, padding_id))
        aside.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        aside.rename(directory)
        fsync_directory(directory.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def to_huggingface(config: BertConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict in Hugging Face's names: qkv split, padding rows cut off. Names unknown to it are left out."""
    weights = {}
    for ours, theirs in _names(config).items():
        if ours in state_dict:
            tensor = state_dict[ours]
            weights[theirs] = tensor[: config.vocab_size] if ours in PADDED else tensor
    for layer in range(config.num_hidden_layers):
        for kind in ("weight", "bias"):
            parts = state_dict[f"bert.layers.{layer}.qkv.{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                weights[f"bert.encoder.layer.{layer}.attention.self.{name}.{kind}"] = part
    return weights


def load_huggingface(directory: Path | str) -> tuple[BertConfig, dict[str, Tensor]]:
    """Read a BERT in Hugging Face's layout.

    Returns its configuration and its weights in our names, the vocabulary padded; heads that the directory lacks are
    absent. Raises BertlineError where the directory is no BERT, is incomplete or holds its weights only as a pickle.
    """
    directory = Path(directory)
    config = _read_config(directory / "config.json")
    theirs = _read_weights(directory)
    weights = {}
    for our_name, their_name in _names(config).items():
        if their_name in theirs:
            tensor = theirs[their_name]
            weights[our_name] = _pad(tensor, config) if our_name in PADDED else tensor
    for layer in range(config.num_hidden_layers):
        for kind in ("weight", "bias"):
            stem = f"bert.encoder.layer.{layer}.attention.self"
            parts = [theirs.get(f"{stem}.{name}.{kind}") for name in ("query", "key", "value")]
            present = [part for part in parts if part is not None]
            if len(present) == len(parts):
                weights[f"bert.layers.{layer}.qkv.{kind}"] = torch.cat(present)
    return config, weights


def load_encoder(model: nn.Module, state_dict: Mapping[str, Tensor]) -> list[str]:
    """Load the weights of `state_dict` (our names) that fit `model`, in place.

    Returns the names of the model's weights that the state dict lacks and that therefore keep their values: heads and
    the pooler. Raises BertlineError when a weight of the encoder is missing or a shape differs.
    """
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state_dict]
    for name in missing:
        if name.startswith(("bert.embeddings.", "bert.layers.")):
            raise BertlineError(f"initial weights: {name} is missing; start from weights of the same model")
    fitting = {}
    for name, tensor in wanted.items():
        if name not in missing:
            given = state_dict[name]
            if given.shape != tensor.shape:
                raise BertlineError(
                    f"initial weights: {name} has shape {list(given.shape)} where the model has {list(tensor.shape)}; "
                    "start from weights of the same model and vocabulary"
                )
            fitting[name] = given
    model.load_state_dict(fitting, strict=False)
    return missing


def _names(config: BertConfig) -> dict[str, str]:
    names = dict(NAMES)
    for layer in range(config.num_hidden_layers):
        for ours, theirs in LAYER_NAMES.items():
            for kind in ("weight", "bias"):
                names[f"bert.layers.{layer}.{ours}.{kind}"] = f"bert.encoder.layer.{layer}.{theirs}.{kind}"
    return names


def _pad(tensor: Tensor, config: BertConfig) -> Tensor:
    if tensor.shape[0] != config.vocab_size:
        raise BertlineError(
            f"initial weights: {tensor.shape[0]} words in model.safetensors but vocab_size {config.vocab_size} in "
            "config.json; the directory is damaged"
        )
    padding = tensor.new_zeros(config.padded_vocab_size - config.vocab_size, *tensor.shape[1:])
    return torch.cat([tensor, padding])


def _huggingface_config(config: BertConfig, padding_id: int) -> dict[str, Any]:
    return {
        **config.to_dict(),
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "pad_token_id": padding_id,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def _read_config(path: Path) -> BertConfig:
    given = read_json(path)
    expected = {"model_type": "bert", "position_embedding_type": "absolute", "is_decoder": False}
    for key, value in expected.items():
        if given.get(key, value) != value:
            raise BertlineError(f"{path}: {key} is {given[key]!r}, only {value!r} can be read; name a BERT directory")
    known = BertConfig.__dataclass_fields__
    return BertConfig.from_dict({key: value for key, value in given.items() if key in known})


def _read_weights(directory: Path) -> dict[str, Tensor]:
    path = directory / "model.safetensors"
    if not path.exists():
        reason = (
            " (pytorch_model.bin is a pickle and is not read)" if (directory / "pytorch_model.bin").exists() else ""
        )
        raise BertlineError(f"{path} does not exist{reason}; save the model as safetensors")
    renamed = {}
    for name, tensor in load_tensors(path).items():
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        if name.startswith(("embeddings.", "encoder.", "pooler.")):  # an encoder saved without heads
            name = f"bert.{name}"
        renamed[name] = tensor.float()
    return renamed


def _write_tokenizer(tokenizer_json: Path, config: BertConfig, directory: Path) -> int:
    """Write the tokenizer's three files; returns the id of [PAD]."""
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_json))
    except Exception as error:  # the tokenizers package raises nothing more specific
        raise BertlineError(f"{tokenizer_json} is not a tokenizer of the tokenizers package ({error})") from None
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if [identifier for _, identifier in vocabulary] != list(range(config.vocab_size)):
        raise BertlineError(
            f"{tokenizer_json} has {len(vocabulary)} entries where the model has {config.vocab_size}; "
            "name the tokenizer that the model was trained with"
        )
    identifiers = dict(vocabulary)
    for token in ("[PAD]", "[CLS]", "[SEP]"):
        if token not in identifiers:
            raise BertlineError(f"{tokenizer_json} has no entry {token}; name a BERT tokenizer")
    if tokenizer.post_processor is None:
        ends = [(token, identifiers[token]) for token in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
        )
    write_text(directory / "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")
    write_text(directory / "vocab.txt", "".join(f"{token}\n" for token, _ in vocabulary))
    normalizer = json.loads(tokenizer.to_str()).get("normalizer") or {}
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": bool(normalizer.get("lowercase", False)),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": bool(normalizer.get("handle_chinese_chars", True)),
        "model_max_length": config.max_position_embeddings,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
    }
    write_json(directory / "tokenizer_config.json", settings)
    return identifiers["[PAD]"]
