"""Features: hidden states of a BERT or a ModernBERT for new texts, one vector per token or pooled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from bertline.console import BertlineError, progress
from bertline.encoding.tokenizer import find_tokenizer, read_tokenizer, special_token_ids
from bertline.finetuning.batches import evaluation_batches, pad
from bertline.finetuning.examples import read_texts
from bertline.finetuning.feature_files import OUTPUTS, Pooling, open_feature_file
from bertline.finetuning.prediction import check_ids, set_token_types
from bertline.finetuning.prediction_files import check_output
from bertline.finetuning.prediction_options import check_inputs_of_features, check_named_columns
from bertline.finetuning.sequences import Sequences
from bertline.finetuning.tables import read_lines
from bertline.finetuning.text_task import sequences_of_texts
from bertline.modeling.architectures import architecture_of
from bertline.modeling.encoder import Encoder
from bertline.modeling.huggingface import load_encoder, load_huggingface
from bertline.results import paths
from bertline.settings.configuration import defaults_of
from bertline.training.objective import AUTOCAST, prepare_precision

SEPARATOR = " ||| "  # between the two texts of a pair
BATCH_TOKENS = 4096
CHUNK_BYTES = 1 << 28  # of the features that are held until they are written
MAX_CHUNK = 16_384


def extract_features(
    model: Path,
    inputs: Sequence[Path],
    output: Path,
    *,
    layers: Sequence[int],
    pooling: Pooling | None,
    columns: Sequence[str],
    max_sequence_length: int,
    precision: str,
    device: torch.device | None = None,
) -> int:
    """Write the features of all inputs, in order.

    Args:
        model: a folder in Hugging Face's layout; heads are ignored.
        inputs: .txt with a text, or a pair separated by ` ||| `, on each line; or .tsv, .csv, .jsonl, .parquet.
        output: a .jsonl in Google's format, a .parquet, or an .h5; see docs/fine-tuning.md.
        layers: -1 is the last layer, 0 the embeddings. The default, the last four, is all layers of a smaller network.
        pooling: one vector per input: that of [CLS], or the mean over all its tokens; None for one per token.
        columns: of the texts in tables.
        max_sequence_length: longer inputs are truncated at their end.
        precision: fp32, tf32, bf16 or fp16.
        device: that computes; None for the CPU.

    Returns the number of inputs. Raises BertlineError for a bad file, layer or model.
    """
    if output.suffix.lower() not in OUTPUTS:
        raise BertlineError(f"{output}: given '{output.suffix}', allowed are {', '.join(OUTPUTS)}")
    check_output(output, inputs)
    check_inputs_of_features(inputs)
    device = device or torch.device("cpu")
    prepare_precision(precision, device)
    encoder, tokenizer = load_encoder_of(model, max_sequence_length, device)
    depth = len(encoder.layers)
    if list(layers) == defaults_of("features")["layers"]:  # the last four; a small network has fewer
        layers = layers[:depth]
    if not layers:
        raise BertlineError("layers: given none; name one or more, such as -1 for the last")
    if len(set(layers)) < len(layers):
        raise BertlineError(f"layers: given {', '.join(map(str, layers))}; name each once")
    if not 1 <= len(columns) <= 2:
        raise BertlineError(f"columns: given {', '.join(columns)}, allowed are one or two: a text or a pair")
    check_named_columns("features", columns, inputs)
    for layer in layers:
        if not -depth - 1 <= layer <= depth:
            raise BertlineError(f"layers: given {layer}, allowed for {model} are -{depth + 1} to {depth}")
    per_input = 4 * encoder.config.hidden_size * len(layers) * (1 if pooling else max_sequence_length)
    chunk = min(MAX_CHUNK, max(1, CHUNK_BYTES // per_input))
    texts = progress(
        (text for path in inputs for text in _read(path, columns)), description="extracting", unit="inputs"
    )
    done, iterator = 0, iter(texts)
    padding = special_token_ids(tokenizer)["[PAD]"]
    with open_feature_file(output, tokenizer, layers, pooling) as write:
        while given := list(islice(iterator, chunk)):
            sequences = sequences_of_texts("inputs", given, tokenizer, max_sequence_length)
            write(done, sequences, features_of(encoder, sequences, layers, padding, precision, pooling))
            done += len(given)
        if done == 0:
            raise BertlineError(f"{', '.join(map(str, inputs))}: no input; name files with at least one")
    return done


def features_of(
    encoder: Encoder, sequences: Sequences, layers: Sequence[int], padding: int, precision: str, pooling: Pooling | None
) -> list[np.ndarray]:
    """Return the vectors of each layer: float32 [tokens, H], pooled [N, H]; `padding` is the id of [PAD]."""
    device = next(encoder.parameters()).device
    rows_of_all = len(sequences) if pooling else len(sequences.tokens)
    found = [np.empty((rows_of_all, encoder.config.hidden_size), dtype=np.float32) for _ in layers]
    for rows in evaluation_batches(sequences.lengths, BATCH_TOKENS):
        states = hidden_states(encoder, *pad(sequences, rows, padding, device), layers, precision)
        for result, state in zip(found, states, strict=True):
            for row, of_row in zip(rows, state, strict=True):
                begin, end = sequences.offsets[row], sequences.offsets[row + 1]
                vectors = of_row[: end - begin]
                if pooling:
                    result[row] = vectors[0] if pooling == "cls" else vectors.mean(axis=0)
                else:
                    result[begin:end] = vectors
    return found


@torch.inference_mode()
def hidden_states(
    encoder: Encoder,
    input_ids: Tensor,
    token_type_ids: Tensor,
    attention_mask: Tensor | None,
    layers: Sequence[int],
    precision: str,
) -> list[np.ndarray]:
    """Return the hidden states of `layers`, float32 [B, S, H] each; other arguments as in the encoder's `forward`.

    The last layer's are those after the final normalisation, if the network has one.
    """
    states: dict[int, Tensor] = {}

    def keep(number: int) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, inputs, output: states.update({number: output})

    depth, dtype = len(encoder.layers), AUTOCAST[precision]
    with ExitStack() as hooks:
        for number, module in enumerate([encoder.embeddings, *encoder.layers]):
            handle = module.register_forward_hook(keep(number))
            hooks.callback(handle.remove)
        with torch.autocast(input_ids.device.type, dtype, enabled=dtype is not None):
            states[depth] = encoder(input_ids, token_type_ids, attention_mask)
    return [states[layer % (depth + 1)].float().cpu().numpy() for layer in layers]


def load_encoder_of(folder: Path, max_sequence_length: int, device: torch.device) -> tuple[Encoder, Tokenizer]:
    """Load the encoder and the tokenizer of a folder in Hugging Face's layout. Raises BertlineError if it cannot."""
    if not (folder / paths.CONFIG).exists():
        raise BertlineError(f"{folder}/config.json does not exist; name the folder of a model")
    config, weights = load_huggingface(folder)
    if max_sequence_length > config.max_position_embeddings:
        raise BertlineError(
            f"max_sequence_length: given {max_sequence_length}, allowed for {folder} is at most "
            f"{config.max_position_embeddings}"
        )
    network = architecture_of(config).task_network(config, "tokens", 2)  # an encoder without a pooler
    load_encoder(network, weights)
    tokenizer = read_tokenizer(find_tokenizer(folder))
    check_ids(folder, tokenizer, config.vocab_size)
    set_token_types(network.encoder, folder, tokenizer)
    return network.encoder.to(device).eval(), tokenizer


def _read(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    if path.suffix.lower() == ".txt":
        for _, line in read_lines(path):
            first, separator, second = line.strip().rpartition(SEPARATOR)  # the last one, as Google's program does
            yield (first, second) if separator else (second,)
    else:
        yield from read_texts(path, columns)
