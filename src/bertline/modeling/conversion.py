"""Conversion of Google's TensorFlow checkpoints and of PyTorch pickles to Hugging Face's layout, and the reverse."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.normalizer import removes_joiners, settings_of
from bertline.encoding.tokenizer import (
    BERT_MAX_WORD_LENGTH,
    find_tokenizer,
    is_byte_level,
    is_unigram,
    read_tokenizer,
    save_tokenizer,
    take_tokenizer,
)
from bertline.encoding.tokenizer_config import check_case
from bertline.files import check_replaceable, write_folder_atomically, write_json
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import FILES, from_huggingface, load_huggingface, to_huggingface, write_huggingface
from bertline.modeling.huggingface_config import (
    check_head,
    head_of,
    labels_of,
    max_length_of,
    read_configuration,
    unused_positions_of,
)
from bertline.modeling.network_config import BertConfig, NetworkConfig
from bertline.modeling.pair_template import uses_token_types
from bertline.modeling.tensorflow_checkpoint import names_in_checkpoint, read_checkpoint, write_checkpoint
from bertline.modeling.vocabulary import MAX_PADDING, check_vocabulary, write_words
from bertline.results import paths
from bertline.tasks.task import Head

logger = logging.getLogger(__name__)

# The linear layers of Google's run_classifier.py and run_squad.py, and their names in transformers.
HEADS = {
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
# Errors for damaged files: torch.load raises the error of the operation at which it stops.
PICKLE_ERRORS = (
    *(pickle.UnpicklingError, RuntimeError, EOFError, OSError, struct.error, AssertionError, MemoryError),
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError),
)


def convert_weights(source: Path, output: Path, *, lowercase: bool | None = None) -> None:
    """Write a directory in Hugging Face's layout, complete or absent.

    Args:
        source: a folder with a TensorFlow checkpoint (`*.ckpt*.index`), `bert_config.json` and `vocab.txt`, as Google
            released BERT, or fine-tuned by its run_classifier.py or run_squad.py; or with `pytorch_model.bin`,
            `config.json` and a tokenizer. Only tensors are read from the pickle: one that would run code is refused.
        output: the directory to write; one that contains nothing but a model is replaced.
        lowercase: whether vocab.txt is lowercase; by default, what another file in its folder specifies.

    Raises BertlineError for a folder that contains neither, or whose files do not match.
    """
    check_replaceable(output, FILES, [source])
    if not source.is_dir():
        what = "is not a folder" if source.exists() else "does not exist"
        raise BertlineError(f"{source} {what}; name a folder with a TensorFlow checkpoint or {paths.PICKLE}")
    found = sorted(source.glob(paths.TENSORFLOW_INDEX))
    if not found and not (source / paths.PICKLE).exists():
        raise BertlineError(
            f"{source} contains neither {paths.TENSORFLOW_INDEX} nor {paths.PICKLE}; name a folder with one of them"
        )
    if found[1:]:
        names = ", ".join(path.name for path in found)
        raise BertlineError(f"{source} has several checkpoints ({names}); leave one of them in the folder")
    index = found[0] if found else None
    described = source / (paths.CONFIG if index is None else "bert_config.json")
    config = read_configuration(described)
    theirs = _of_pickle(source / paths.PICKLE) if index is None else _of_tensorflow(index.with_suffix(""))
    unused = unused_positions_of(config, described)
    head = head_of(config, described) if index is None else _head_of_tensorflow(theirs)
    weights = from_huggingface(config, theirs, str(source), head, unused_positions=unused)
    if head is not None:
        _check_complete(config, head, weights, source)
    outputs = len(weights["classifier.weight"]) if head else 0
    if head == "sequence":
        check_head(described, outputs)
    labels, tokenizer = labels_of(described, head, outputs), _tokenizer(source, lowercase)
    # Google pads none of its vocabularies: a shorter vocab.txt is damaged.
    is_exact = head is None and (index is not None or config.vocab_size % 8 != 0)
    check_vocabulary(
        *(tokenizer, find_tokenizer(source), config.vocab_size, described),
        padding=0 if is_exact else MAX_PADDING,
        advice="fetch them again",
    )
    if head is None:
        config = dataclasses.replace(config, vocab_size=_used_words(config, tokenizer, source))
    limit = int(min(max_length_of(source), config.max_position_embeddings))
    types = head is None or uses_token_types(source, tokenizer, config)
    with TemporaryDirectory() as folder:
        tokenizer_json = Path(folder) / paths.TOKENIZER
        save_tokenizer(tokenizer, tokenizer_json)
        with write_folder_atomically(output, replaces=FILES, sources=[source]) as aside:
            write_huggingface(
                config,
                weights,
                tokenizer_json,
                aside,
                head=head,
                labels=labels,
                max_length=limit,
                token_types=types,
            )


def _used_words(config: NetworkConfig, tokenizer: Tokenizer, source: Path) -> int:
    """Return the number of a tokenizer's entries, after which the rows of the word embeddings are left out.

    A dataset has the size of its tokenizer, and a phase starts only from weights of this size.
    """
    entries = 1 + max(tokenizer.get_vocab().values())
    if entries < config.vocab_size:
        logger.info(
            "%s: the word embeddings have %d rows for %d entries; the others are left out",
            *(source, config.vocab_size, entries),
        )
    return entries


def _check_complete(config: NetworkConfig, head: Head, weights: Mapping[str, Tensor], source: Path) -> None:
    """Raise BertlineError if a fine-tuned network lacks weights, for which transformers would draw random ones."""
    with torch.device("meta"):
        network = architecture_of(config).task_network(config, head, 1)
    missing = next((name for name in network.state_dict() if name not in weights), None)
    if missing is not None:
        raise BertlineError(f"{source} lacks the weights {missing} of its fine-tuned network; fetch it again")


def _head_of_tensorflow(weights: Mapping[str, Tensor]) -> Head | None:
    """Return the head that a TensorFlow checkpoint has; None if it is pretrained.

    Its configuration does not name one. A network that tags tokens has no pooler, as in transformers.
    """
    if HEADS["cls/squad/output_weights"] in weights:
        return "answer"
    if HEADS["output_weights"] not in weights:
        return None
    head: Head = "sequence" if "bert.pooler.dense.weight" in weights else "tokens"
    logger.info(
        "its linear layer is taken for one of %s", "texts" if head == "sequence" else "tokens: it has no pooler"
    )
    return head


def _of_tensorflow(prefix: Path) -> dict[str, Tensor]:
    """Return the weights by their names in transformers. Raises BertlineError for a network of other code."""
    names = names_in_checkpoint(prefix)
    if not any(name.startswith("bert/encoder/layer_") for name in names):
        first = [name[:100] for name in names if not name.startswith("bert/embeddings/")][:3]
        raise BertlineError(
            f"{prefix}.index has no bert/encoder/layer_0, but {', '.join(first) or 'nothing'}: this is not a BERT of "
            "Google's TensorFlow 1 code; choose one, or weights of PyTorch"
        )
    weights, found = {}, set(names)
    wanted = {name for name in names if name.startswith(("bert/", "cls/")) or name in HEADS}
    wanted = {name for name in wanted if name.rpartition("/")[0] not in found}  # others are an optimizer's, of a weight
    for name, values in read_checkpoint(prefix, wanted):
        tensor = torch.from_numpy(np.array(values, dtype=np.float32))
        is_kernel = name.endswith("/kernel") and tensor.ndim == 2
        weights[_name(name)] = tensor.T.contiguous() if is_kernel else tensor
    return weights


def _name(name: str) -> str:
    """Map `bert/encoder/layer_0/output/dense/kernel` to `bert.encoder.layer.0.output.dense.weight`, and so on."""
    if name in HEADS:
        return HEADS[name]
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    name = re.sub(r"/(kernel|gamma|output_weights)$", "/weight", name)
    name = re.sub(r"/(beta|output_bias)$", "/bias", name)
    name = re.sub(r"_embeddings$", "_embeddings/weight", name)
    return name.replace("/", ".")


# Keys of Google's bert_config.json.
GOOGLE_KEYS = (
    *("attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size", "initializer_range"),
    *("intermediate_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers", "type_vocab_size"),
    "vocab_size",
)
# Google's code computes "gelu" by tanh, as others do "gelu_new".
GOOGLE_ACTIVATIONS = {"gelu_new": "gelu", "gelu": "gelu", "relu": "relu"}
GOOGLE_EPSILON = 1e-12  # whatever bert_config.json states
GOOGLE_MAX_WORD_LENGTH = 200  # characters; transformers has 100, in its conversions of Google's releases as well
GOOGLE_FILES = ("bert_model.ckpt.*", "bert_config.json", "vocab.txt")


def export_tensorflow(model: Path, output: Path) -> None:
    """Write a BERT as Google released it: bert_model.ckpt.*, bert_config.json, vocab.txt; complete or absent.

    Args:
        model: a folder in Hugging Face's layout, pretrained or fine-tuned.
        output: the folder to write; one that contains nothing but such files is replaced.

    Raises BertlineError for a network that Google's code does not have, a tokenizer that is not WordPiece or has other
    entries than the weights, and weights that are damaged, incomplete or not those of their configuration.
    """
    config = read_configuration(model / paths.CONFIG)
    if type(config) is not BertConfig:
        raise BertlineError(f"{model} is not a BERT; only BERT has a TensorFlow checkpoint of Google's names")
    vocabulary = find_tokenizer(model)
    tokenizer = read_tokenizer(vocabulary)
    if is_byte_level(tokenizer) or is_unigram(tokenizer):
        raise BertlineError(
            f"{vocabulary} is not WordPiece, which Google's code needs; choose a model with a vocab.txt"
        )
    described = model / paths.CONFIG
    check_vocabulary(tokenizer, vocabulary, config.vocab_size, described, padding=MAX_PADDING, advice="get them again")
    head = head_of(config, described)
    _, weights = load_huggingface(model, head)
    if head is not None:
        _check_complete(config, head, weights, model)
    else:
        config = dataclasses.replace(config, vocab_size=_used_words(config, tokenizer, model))
    tensors = {}
    for name, tensor in to_huggingface(config, weights, head).items():
        theirs = _name_in_tensorflow(name)
        tensors[theirs] = tensor.numpy().T if theirs.endswith("/kernel") else tensor.numpy()
    with write_folder_atomically(output, replaces=GOOGLE_FILES, sources=[model]) as folder:
        write_checkpoint(folder / "bert_model.ckpt", tensors)
        settings = dataclasses.asdict(config) | {"hidden_act": GOOGLE_ACTIVATIONS[config.hidden_act]}
        kept = (*GOOGLE_KEYS, *(["layer_norm_eps"] if config.layer_norm_eps != GOOGLE_EPSILON else []))
        write_json(folder / "bert_config.json", {key: settings[key] for key in kept})
        write_words(tokenizer, folder / "vocab.txt")
    if config.hidden_act == "gelu":
        logger.info(
            "%s: Google's code computes gelu by its tanh approximation, this network by erf: outputs differ a little",
            output,
        )
    if config.layer_norm_eps != GOOGLE_EPSILON:
        logger.warning(
            "%s: Google's code normalises with an epsilon of %g, and this network with %g, which bert_config.json "
            "states for other programs: the outputs of Google's code differ",
            output,
            GOOGLE_EPSILON,
            config.layer_norm_eps,
        )
    _warn_of_other_tokens(tokenizer, output)


def _warn_of_other_tokens(tokenizer: Tokenizer, output: Path) -> None:
    """Warn if Google's code, which only has `do_lower_case`, divides text otherwise than the model's tokenizer."""
    settings, longest = settings_of(tokenizer), tokenizer.model.max_input_chars_per_word
    lowercase = bool(settings.get("lowercase"))
    logger.info("%s: read it with --do_lower_case=%s", output, lowercase)
    strips, differing = settings.get("strip_accents"), []
    if strips is not None and bool(strips) != lowercase:
        theirs, ours = ("strips", "keeps") if lowercase else ("keeps", "strips")
        differing.append(f"{theirs} accents with this setting, and the model's tokenizer {ours} them: accented words")
    if not removes_joiners(tokenizer):
        differing.append("removes joiners (U+200C, U+200D), and the model's tokenizer keeps them: words with joiners")
    if not settings.get("handle_chinese_chars", True):
        differing.append("divides Chinese text into characters, and the model's tokenizer does not: Chinese text")
    if longest not in (BERT_MAX_WORD_LENGTH, GOOGLE_MAX_WORD_LENGTH):
        differing.append(
            f"takes words of more than {GOOGLE_MAX_WORD_LENGTH} characters for [UNK], and the model's tokenizer those "
            f"of more than {longest}: words between"
        )
    for difference in differing:
        logger.warning("%s: Google's code %s get other tokens", output, difference)


def _name_in_tensorflow(name: str) -> str:
    """Map `bert.encoder.layer.0.output.dense.weight` to `bert/encoder/layer_0/output/dense/kernel`, and so on.

    The linear layers of tasks are those of Google's run_classifier.py and run_squad.py.
    """
    of_heads = {theirs: google for google, theirs in HEADS.items()}
    if name in of_heads:
        return of_heads[name]
    name = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name)
    name = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", name)
    name = re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", name)
    name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
    name = re.sub(r"^cls\.predictions\.bias$", "cls.predictions.output_bias", name)
    name = re.sub(r"^cls\.seq_relationship\.weight$", "cls.seq_relationship.output_weights", name)
    name = re.sub(r"^cls\.seq_relationship\.bias$", "cls.seq_relationship.output_bias", name)
    return re.sub(r"\.weight$", ".kernel", name).replace(".", "/")


def _of_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except PICKLE_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise BertlineError(f"{path} is not a file of tensors alone ({reason}); fetch it as safetensors") from None
    if not isinstance(content, Mapping):
        raise BertlineError(f"{path} holds no table of tensors by name; fetch it as safetensors")
    tensors = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
    nested = next((name for name, value in content.items() if isinstance(value, Mapping) and value), None)
    if not tensors and nested is not None:
        raise BertlineError(f"{path} holds no tensors, but a table '{nested}'; save the table of the tensors alone")
    return tensors


def _tokenizer(source: Path, lowercase: bool | None) -> Tokenizer:
    path = find_tokenizer(source)
    if path.suffix == ".json" or path.with_name(paths.TOKENIZER_CONFIG).exists():
        tokenizer = read_tokenizer(path)
        if lowercase is not None and settings_of(tokenizer).get("lowercase", lowercase) != lowercase:
            raise BertlineError(
                f"{source}: its tokenizer's files say {'cased' if lowercase else 'lowercase'}; leave out "
                f"--{'' if lowercase else 'no-'}lowercase, or remove them and keep vocab.txt"
            )
        return tokenizer
    if lowercase is None:
        raise BertlineError(
            f"{path} does not specify its case; give --lowercase for an uncased model, --no-lowercase for a cased one"
        )
    tokenizer = take_tokenizer(path, lowercase=lowercase)
    if lowercase:
        check_case(path)
    return tokenizer
