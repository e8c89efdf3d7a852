"""Import and export of Hugging Face's layout: config.json, model.safetensors and the tokenizer's files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertline.console import BertlineError
from bertline.encoding.normalizer import removes_joiners, settings_of
from bertline.encoding.tokenizer import (
    BERT_MAX_WORD_LENGTH,
    add_template,
    is_byte_level,
    is_unigram,
    read_tokenizer,
    save_tokenizer,
    special_token_ids,
)
from bertline.files import write_folder_atomically, write_json
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface_config import HuggingFaceNames, names_of, read_configuration, unused_positions_of
from bertline.modeling.network_config import NetworkConfig
from bertline.modeling.pair_template import TYPES, has_token_types, mark_second_text
from bertline.modeling.vocabulary import MAX_PADDING, check_vocabulary, write_words
from bertline.modeling.weights import load_tensors, save_tensors
from bertline.results import paths
from bertline.tasks.task import Head

POSITIONS = "encoder.embeddings.position.weight"
# All that the commands write into a folder in this layout: they replace a folder that contains nothing else.
FILES = (*paths.FILES_OF_WEIGHTS, paths.FINETUNED_TASK, "README.md")
BUFFERS = (".position_ids", ".inv_freq")  # stored by some versions of transformers, which compute them
OF_ENCODER = re.compile(r"encoder\.(embeddings|layers|final_normalization)\.")


def export_huggingface(
    model_config: NetworkConfig, state_dict: Mapping[str, Tensor], tokenizer: Path, directory: Path
) -> None:
    """Write a directory that transformers loads without Bertline's code, complete or absent.

    Args:
        model_config: the network's shape.
        state_dict: of a `BertForPreTraining` and so on, in Bertline's names. The classes of transformers are
            `BertForPreTraining`, `ModernBertForMaskedLM` and `RobertaForMaskedLM`.
        tokenizer: the tokenizer.json, with `vocab_size` entries.
        directory: replaced if it exists, but refused if it contains anything else than `FILES`.
    """
    with write_folder_atomically(directory, replaces=FILES, sources=[tokenizer]) as aside:
        write_huggingface(model_config, state_dict, tokenizer, aside)


def write_huggingface(
    config: NetworkConfig,
    state_dict: Mapping[str, Tensor],
    tokenizer: Path,
    directory: Path,
    *,
    head: Head | None = None,
    labels: Sequence[str] = (),
    max_length: int | None = None,
    token_types: bool = True,
) -> None:
    """Write config.json, the weights and the tokenizer's files to an empty directory.

    Args:
        config: the network's shape.
        state_dict: in Bertline's names, of a network for pretraining or, with `head`, of a `TaskNetwork`.
        tokenizer: tokenizer.json or vocab.txt. With `head`, the network may have more rows than it has entries.
        directory: an empty one.
        head: of the `TaskNetwork`. The classes of transformers are `BertForSequenceClassification` and so on.
        labels: names of its classes; none for a regression and for answers.
        max_length: tokens to which transformers truncates an input; by default the network's positions.
        token_types: whether the second text of a pair has type 1, if the network has types.
    """
    limit, token_types = max_length or config.max_position_embeddings, token_types and has_token_types(config)
    identifiers = _write_tokenizer(tokenizer, config, directory, head, limit, token_types)
    content = config_json_of(config, identifiers, head, labels)
    weights = to_huggingface(config, state_dict, head, padding=content["pad_token_id"])
    save_tensors(directory / paths.WEIGHTS, weights)
    write_json(directory / paths.CONFIG, content)


def config_json_of(
    config: NetworkConfig, identifiers: Mapping[str, int], head: Head | None = None, labels: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the content of the config.json of a network with these special tokens, `head` and `labels`."""
    huggingface = names_of(config)
    content = {
        **dataclasses.asdict(config),
        **huggingface.config_json(config, identifiers),
        "model_type": huggingface.MODEL_TYPE,
        "pad_token_id": identifiers["[PAD]"],
        "dtype": "float32",
    }
    if head:
        content["architectures"] = [huggingface.TASKS[head][0]]
    if head == "sequence":
        content["problem_type"] = "single_label_classification" if labels else "regression"
    if labels or head == "sequence":
        names = labels or ("score",)
        content["id2label"] = {str(index): name for index, name in enumerate(names)}
        content["label2id"] = {name: index for index, name in enumerate(names)}
    return content


def to_huggingface(
    config: NetworkConfig, state_dict: Mapping[str, Tensor], head: Head | None = None, *, padding: int = 0
) -> dict[str, Tensor]:
    """Convert a state dict to Hugging Face's names, without padding rows. Names unknown to that layout are left out.

    `padding` is the id of [PAD], on which RoBERTa's numbers of positions depend.
    """
    huggingface = names_of(config)
    unused = huggingface.unused_positions({"pad_token_id": padding})
    weights: dict[str, Tensor] = {}
    for ours, theirs in _names(config, huggingface, head).items():
        if ours in state_dict:
            tensor = state_dict[ours]
            if ours in huggingface.PADDED:
                tensor = tensor[: config.vocab_size]
            if ours == POSITIONS:
                tensor = torch.cat([tensor.new_zeros(unused, tensor.shape[1]), tensor])
            weights |= dict(zip(theirs, tensor.chunk(len(theirs)), strict=True))
    return weights


def load_huggingface(directory: Path, head: Head | None = None) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """Read a BERT, a ModernBERT or a RoBERTa in Hugging Face's layout, with `head` the linear layer of that head, too.

    Returns its configuration and its weights in Bertline's names, the vocabulary padded; heads that the directory lacks
    are absent. Raises BertlineError for another network, an incomplete directory, or weights that are only a pickle.
    """
    config, path = read_configuration(directory / paths.CONFIG), directory / paths.WEIGHTS
    if not path.exists() and (directory / paths.PICKLE).exists():
        raise BertlineError(
            f"{path} does not exist, and {paths.PICKLE} is a pickle, which is not read; convert it: "
            f"python workflow/scripts/convert_weights.py {directory} --output another-folder"
        )
    unused = unused_positions_of(config, directory / paths.CONFIG)
    return config, from_huggingface(config, load_tensors(path), str(directory), head, unused_positions=unused)


def from_huggingface(
    config: NetworkConfig,
    weights: Mapping[str, Tensor],
    source: str,
    head: Head | None = None,
    *,
    unused_positions: int,
) -> dict[str, Tensor]:
    """Convert Hugging Face's weights to Bertline's names: float32, the vocabulary padded.

    Names of old versions are accepted, also of the output's bias, and other names outside the layers left out. `source`
    names the weights in errors, `unused_positions` is what the architecture's module returns for their config.json.
    Raises BertlineError, naming the weight, if one of the encoder is missing, for one of another shape than that in
    `config`, or with NaN or infinity, for one of a layer that the network does not have, and for an output matrix that
    is not the word embeddings.
    """
    huggingface = names_of(config)
    names = _names(config, huggingface, head)
    known = {part for parts in names.values() for part in parts}
    theirs: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        present = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        is_whole = present in known or present.startswith(f"{huggingface.ENCODER}.")
        present = present if is_whole else f"{huggingface.ENCODER}.{present}"
        if present in theirs and present in known:
            raise BertlineError(f"{source}: {present} is there twice, once under an old name; remove one")
        theirs[present] = tensor
    output_bias = weights.get(f"{huggingface.OUTPUT}.bias")
    if output_bias is not None:
        theirs.setdefault(huggingface.NAMES[huggingface.PADDED[1]], output_bias)
    ours = {}
    for name, (rows, *columns) in _shapes(config, head).items():
        missing = next((part for part in names.get(name, ("",)) if part not in theirs), None)
        if missing is not None:
            if OF_ENCODER.match(name):
                instead = _instead(missing, weights, huggingface.ENCODER)
                raise BertlineError(f"{source} lacks the weights {missing} of its configuration{instead}")
            continue
        found = [theirs[part] for part in names[name]]
        if name in huggingface.PADDED:
            rows = _checked_rows(found[0], config.vocab_size, "words", "vocab_size", source)
        elif name == POSITIONS and unused_positions:
            positions = config.max_position_embeddings + unused_positions
            rows = _checked_rows(found[0], positions, "positions", "max_position_embeddings", source)
        elif name.startswith("classifier."):
            rows = _rows(theirs.get(names["classifier.weight"][0], found[0]))  # whatever the number of outputs
        shape = (rows // len(found), *columns)
        parts = [_checked(tensor, part, shape, source) for part, tensor in zip(names[name], found, strict=True)]
        tensor = torch.cat(parts) if len(parts) > 1 else parts[0]
        if name == POSITIONS:
            tensor = tensor[unused_positions:]
        ours[name] = _pad(tensor, config) if name in huggingface.PADDED else tensor
    used = {part for name in ours for part in names[name]}
    _check_layers(config, [name for name in theirs if name not in used], source)
    _check_output(config, ours, weights, source)
    return ours


def _instead(missing: str, weights: Mapping[str, Tensor], encoder: str) -> str:
    """Return the end of a message on missing weights: what there is in their place, and what to do."""
    bare = missing.removeprefix(f"{encoder}.")
    same = next((name for name in weights if name.endswith(f".{bare}")), None)
    if same is not None:
        prefix = same.removesuffix(bare).removesuffix(f"{encoder}.")
        return f", but has {same}; remove the prefix {prefix} of its names"
    first = next(iter(weights), None)
    return f", its first weights are {first}; fetch it again" if first else ": it has none; fetch it again"


def _check_layers(config: NetworkConfig, unused: Sequence[str], source: str) -> None:
    """Raise BertlineError if an unused weight is one of a layer, without which the network computes something else."""
    layers = names_of(config).LAYERS
    others = [name for name in unused if name.startswith(f"{layers}.") and not name.endswith(BUFFERS)]
    numbers = [int(found[1]) for name in others if (found := re.match(rf"{re.escape(layers)}\.(\d{{1,9}})\.", name))]
    if (found_layers := 1 + max(numbers, default=0)) > config.num_hidden_layers:
        raise BertlineError(
            f"{source} has weights of {found_layers} layers, but num_hidden_layers of its configuration is "
            f"{config.num_hidden_layers}; correct it, or remove the weights of the others"
        )
    if others:
        raise BertlineError(
            f"{source}: {others[0]} is a weight that no layer of its configuration has, and a network with it cannot "
            "be read; choose other weights"
        )


def _check_output(
    config: NetworkConfig, ours: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: str
) -> None:
    """Raise BertlineError if `weights` have an output matrix or bias that is not the one in `ours` of the same use."""
    huggingface = names_of(config)
    for kind, used in zip(("weight", "bias"), huggingface.PADDED, strict=True):
        name = f"{huggingface.OUTPUT}.{kind}"
        if name in weights and used in ours:
            expected = ours[used][: config.vocab_size]
            if not torch.equal(_checked(weights[name], name, tuple(expected.shape), source), expected):
                raise BertlineError(
                    f"{source}: {name} is not {huggingface.NAMES[used]}, and a network in which they differ cannot be "
                    "read; choose other weights"
                )


def _shapes(config: NetworkConfig, head: Head | None) -> dict[str, torch.Size]:
    """Return the shapes of all weights in Bertline's names, of a head with one output. Allocates nothing."""
    architecture = architecture_of(config)
    with torch.device("meta"):
        networks = (architecture.pretraining(config), architecture.task_network(config, head or "sequence", 1))
    return {name: tensor.shape for network in networks for name, tensor in network.state_dict().items()}


def _checked(tensor: Tensor, name: str, shape: tuple[int, ...], source: str) -> Tensor:
    """Return a weight as float32. Raises BertlineError if it has another shape or type, or is not finite."""
    if tuple(tensor.shape) != shape:
        raise BertlineError(
            f"{source}: {name} has the shape {list(tensor.shape)}, its configuration implies {list(shape)}; "
            "fetch it again"
        )
    if tensor.layout != torch.strided or tensor.is_meta or not tensor.is_floating_point():
        kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise BertlineError(f"{source}: {name} is of type {kind}; only dense floating-point numbers can be read")
    size, stored = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
    if size > stored:
        raise BertlineError(f"{source}: {name} claims {size} bytes, of which {stored} are stored; fetch it again")
    tensor = tensor.float()
    if not tensor.isfinite().all():
        raise BertlineError(f"{source}: {name} contains NaN or infinity; choose other weights")
    return tensor


def _rows(tensor: Tensor) -> int:
    return len(tensor) if tensor.ndim else 0


def _checked_rows(tensor: Tensor, expected: int, what: str, key: str, source: str) -> int:
    if _rows(tensor) != expected:
        raise BertlineError(
            f"{source}: the weights have {_rows(tensor)} {what}, but {key} of its configuration is {expected}; the "
            "directory is damaged"
        )
    return expected


def _names(config: NetworkConfig, huggingface: HuggingFaceNames, head: Head | None) -> dict[str, tuple[str, ...]]:
    """Map Bertline's names, of which the network lacks some, to Hugging Face's names of their equal parts."""
    names: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in huggingface.NAMES.items()}
    if head:
        names |= {f"classifier.{kind}": (f"{huggingface.TASKS[head][1]}.{kind}",) for kind in ("weight", "bias")}
    for layer in range(config.num_hidden_layers):
        for ours, parts in huggingface.LAYER_NAMES.items():
            for kind in ("weight", "bias"):
                theirs = tuple(f"{huggingface.LAYERS}.{layer}.{part}.{kind}" for part in parts)
                names[f"encoder.layers.{layer}.{ours}.{kind}"] = theirs
    return names


def load_encoder(model: nn.Module, state_dict: Mapping[str, Tensor]) -> list[str]:
    """Load the weights of `state_dict` (Bertline's names) that `model` has, in place.

    Returns the names of the model's weights that are not in the state dict and keep their values: heads and the pooler.
    Raises BertlineError if a weight of the encoder is missing or a shape differs.
    """
    fitting = {}
    for name, tensor in model.state_dict().items():
        given = state_dict.get(name)
        if given is None and OF_ENCODER.match(name):
            raise BertlineError(f"initial weights: {name} is missing; start from weights of the same model")
        if given is not None and given.shape != tensor.shape:
            raise BertlineError(
                f"initial weights: {name} has shape {list(given.shape)} where the model has {list(tensor.shape)}; "
                "start from weights of the same model and vocabulary"
            )
        if given is not None:
            fitting[name] = given
    return model.load_state_dict(fitting, strict=False).missing_keys


def _pad(tensor: Tensor, config: NetworkConfig) -> Tensor:
    padding = tensor.new_zeros(config.padded_vocab_size - config.vocab_size, *tensor.shape[1:])
    return torch.cat([tensor, padding])


def _write_tokenizer(
    source: Path, config: NetworkConfig, directory: Path, head: Head | None, max_length: int, token_types: bool
) -> dict[str, int]:
    """Write the tokenizer's files, including vocab.txt for WordPiece; return its entries with their ids."""
    tokenizer = read_tokenizer(source)
    check_vocabulary(tokenizer, source, config.vocab_size, padding=MAX_PADDING if head else 0)
    identifiers = tokenizer.get_vocab()
    special = special_token_ids(tokenizer)
    if tokenizer.post_processor is None:
        add_template(tokenizer)
    if token_types:
        mark_second_text(tokenizer)
    save_tokenizer(tokenizer, directory / paths.TOKENIZER)
    names = {f"{token[1:-1].lower()}_token": tokenizer.id_to_token(index) for token, index in special.items()}
    shared = {
        "model_max_length": max_length,
        "model_input_names": [name for name in names_of(config).INPUTS if name != TYPES or token_types],
        **names,
    }
    if head:  # "[SEP]" in a text is text, as in training; a masked language model's user writes "[MASK]"
        shared["split_special_tokens"] = True
    if is_byte_level(tokenizer) or is_unigram(tokenizer):
        write_json(directory / paths.TOKENIZER_CONFIG, {"tokenizer_class": "PreTrainedTokenizerFast", **shared})
        return identifiers | special
    write_words(tokenizer, directory / "vocab.txt")
    normalizer = settings_of(tokenizer)
    # A BertTokenizer of transformers has its own limit and removes joiners, whatever tokenizer.json says.
    is_bert_tokenizer = tokenizer.model.max_input_chars_per_word == BERT_MAX_WORD_LENGTH and removes_joiners(tokenizer)
    settings = {
        "tokenizer_class": "BertTokenizer" if is_bert_tokenizer else "PreTrainedTokenizerFast",
        "do_lower_case": bool(normalizer.get("lowercase", False)),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": bool(normalizer.get("handle_chinese_chars", True)),
        **shared,
    }
    write_json(directory / paths.TOKENIZER_CONFIG, settings)
    return identifiers
