"""Import and export of Hugging Face's layout: config.json, model.safetensors and the tokenizer's files.

The modules layout_bert and layout_modern define the names and keys of each architecture.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.encoding.tokenizer import is_byte_level, special_token_ids
from bertline.files import read_json, write_folder_atomically, write_json, write_text
from bertline.modeling.architectures import ARCHITECTURES, Layout, architecture_of
from bertline.modeling.configuration import NetworkConfig
from bertline.modeling.vocabulary import check_vocabulary
from bertline.modeling.weights import load_tensors, save_tensors
from bertline.results.paths import WEIGHTS

OF_ENCODER = re.compile(r"(bert|encoder)\.(embeddings|layers|final_normalization)\.")


def export_huggingface(
    model_config: NetworkConfig,
    state_dict: Mapping[str, Tensor],
    tokenizer_json: Path | str,
    directory: Path | str,
) -> None:
    """Write a directory that transformers loads without Bertline's code, complete or absent.

    Args:
        model_config: the network's shape.
        state_dict: of a `BertForPreTraining` or `ModernForPreTraining`, in Bertline's names. The corresponding classes
            of transformers are `BertForPreTraining` and `ModernBertForMaskedLM`.
        tokenizer_json: a `tokenizers` file with `vocab_size` entries.
        directory: replaced if it exists.
    """
    directory = Path(directory)
    layout = architecture_of(model_config).layout
    with write_folder_atomically(directory) as aside:
        identifiers = _write_tokenizer(Path(tokenizer_json), model_config, layout, aside)
        save_tensors(aside / WEIGHTS, to_huggingface(model_config, state_dict))
        write_json(aside / "config.json", layout.config_json(model_config, identifiers))


def to_huggingface(config: NetworkConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert a state dict to Hugging Face's names, without padding rows. Names unknown to that layout are left out."""
    layout = architecture_of(config).layout
    weights: dict[str, Tensor] = {}
    for ours, theirs in layout.names_of(config).items():
        if ours in state_dict:
            tensor = state_dict[ours]
            if ours in layout.PADDED:
                tensor = tensor[: config.vocab_size]
            weights |= dict(zip(theirs, tensor.chunk(len(theirs)), strict=True))
    return weights


def load_huggingface(directory: Path | str) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """Read a BERT or a ModernBERT in Hugging Face's layout.

    Returns its configuration and its weights in Bertline's names, the vocabulary padded; heads that the directory lacks
    are absent. Raises BertlineError if the directory is neither, is incomplete or has its weights only as a pickle.
    """
    directory = Path(directory)
    config = read_configuration(directory)
    return config, from_huggingface(config, _read_weights(directory), str(directory))


def from_huggingface(config: NetworkConfig, weights: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Convert Hugging Face's weights to Bertline's names: float32, the vocabulary padded.

    Names of old versions are accepted, unknown names left out. `source` names the weights in errors. Raises
    BertlineError if the vocabulary's size differs from that in `config`.
    """
    layout = architecture_of(config).layout
    theirs = {layout.present_name(name): tensor.float() for name, tensor in weights.items()}
    ours = {}
    for name, parts in layout.names_of(config).items():
        if all(part in theirs for part in parts):
            tensor = torch.cat([theirs[part] for part in parts]) if len(parts) > 1 else theirs[parts[0]]
            ours[name] = _pad(tensor, config, source) if name in layout.PADDED else tensor
    return ours


def read_configuration(directory: Path | str) -> NetworkConfig:
    """Return the network that a directory's config.json describes. Raises BertlineError if it is not supported."""
    directory = Path(directory)
    given = read_json(directory / "config.json")
    layouts = {architecture.layout.MODEL_TYPE: architecture.layout for architecture in ARCHITECTURES.values()}
    layout = layouts.get(given.get("model_type", "bert"))
    if layout is None:
        raise BertlineError(
            f"{directory / 'config.json'}: model_type is {given['model_type']!r}, only {' and '.join(layouts)} can be "
            "read; name a directory with one of them"
        )
    return layout.config_of(directory / "config.json", given)


def load_encoder(model: nn.Module, state_dict: Mapping[str, Tensor]) -> list[str]:
    """Load the weights of `state_dict` (Bertline's names) that `model` has, in place.

    Returns the names of the model's weights that are not in the state dict and keep their values: heads and the pooler.
    Raises BertlineError if a weight of the encoder is missing or a shape differs.
    """
    wanted = model.state_dict()
    missing = [name for name in wanted if name not in state_dict]
    for name in missing:
        if OF_ENCODER.match(name):
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


def _pad(tensor: Tensor, config: NetworkConfig, source: str) -> Tensor:
    if tensor.shape[0] != config.vocab_size:
        raise BertlineError(
            f"{source}: the weights have {tensor.shape[0]} words, but vocab_size of its configuration is "
            f"{config.vocab_size}; the directory is damaged"
        )
    padding = tensor.new_zeros(config.padded_vocab_size - config.vocab_size, *tensor.shape[1:])
    return torch.cat([tensor, padding])


def _read_weights(directory: Path) -> dict[str, Tensor]:
    path = directory / WEIGHTS
    if not path.exists():
        if (directory / "pytorch_model.bin").exists():
            raise BertlineError(
                f"{path} does not exist, and pytorch_model.bin is a pickle, which is not read; convert it: "
                f"python workflow/scripts/convert_weights.py {directory} --output another-folder"
            )
        raise BertlineError(f"{path} does not exist; save the model as safetensors")
    return load_tensors(path)


def _write_tokenizer(tokenizer_json: Path, config: NetworkConfig, layout: Layout, directory: Path) -> dict[str, int]:
    """Write the tokenizer's files, including vocab.txt for WordPiece; return its entries with their ids."""
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_json))
    except Exception as error:  # the tokenizers package raises nothing more specific
        raise BertlineError(f"{tokenizer_json} is not a tokenizer of the tokenizers package ({error})") from None
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    check_vocabulary(tokenizer, tokenizer_json, config.vocab_size)
    identifiers = dict(vocabulary)
    special = special_token_ids(tokenizer)
    for token in ("[PAD]", "[CLS]", "[SEP]"):
        if token not in special:
            raise BertlineError(f"{tokenizer_json} has no entry {token}; name a BERT tokenizer")
    if tokenizer.post_processor is None:
        ends = [(token, special[token]) for token in ("[CLS]", "[SEP]")]
        tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
        )
    write_text(directory / "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")
    names = {f"{token[1:-1].lower()}_token": tokenizer.id_to_token(index) for token, index in special.items()}
    shared = {"model_max_length": config.max_position_embeddings, "model_input_names": list(layout.INPUTS), **names}
    if is_byte_level(tokenizer):
        write_json(directory / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **shared})
        return identifiers | special
    write_text(directory / "vocab.txt", "".join(f"{token}\n" for token, _ in vocabulary))
    normalizer = json.loads(tokenizer.to_str()).get("normalizer") or {}
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": bool(normalizer.get("lowercase", False)),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": bool(normalizer.get("handle_chinese_chars", True)),
        **shared,
    }
    write_json(directory / "tokenizer_config.json", settings)
    return identifiers
