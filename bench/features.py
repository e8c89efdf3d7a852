"""Compare the speed of feature extraction with transformers, alternating in one process.

    python bench/features.py texts.txt vocab.txt --threads 1

Both compute the last four layers of every token of the same texts (a line each, at most 128 tokens) and hold them as
float32 by text. transformers takes batches of 32 in the order of the file, each padded to its longest text; in each
precision, the faster of its sdpa and eager attention counts; bf16 is left out on a processor that is faster in fp32.
BERT-tiny has two layers. Times are processor times (on a GPU, wall times), rounds alternate after a warm-up, and a
ratio is that of the medians over the rounds. The last line is JSON.
"""

import functools
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from speeds import Work, describe_machine, precisions_of, speeds_of

from bertline.command_line import run_command
from bertline.encoding.tokenizer import save_tokenizer, special_token_ids, take_tokenizer
from bertline.files import read_json
from bertline.finetuning.features import features_of, load_encoder_of
from bertline.finetuning.sequences import Sequences
from bertline.finetuning.text_task import sequences_of_texts
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import config_from_dict
from bertline.training.distributed.claims import claim_device

LAYERS = (-1, -2, -3, -4)
BATCH, LENGTH = 32, 128
MODELS = Path(__file__).parents[1] / "config/models"


def theirs(
    model: transformers.PreTrainedModel,
    sequences: Sequences,
    layers: Sequence[int],
    padding: int,
    attention: str,
    dtype: torch.dtype | None,
) -> int:
    """Extract with transformers' network; return the number of texts."""
    model.set_attn_implementation(attention)
    found = []
    for start in range(0, len(sequences), BATCH):
        rows = range(start, min(start + BATCH, len(sequences)))
        texts = [sequences.tokens[sequences.offsets[row] : sequences.offsets[row + 1]] for row in rows]
        longest = max(map(len, texts))
        ids = np.array([np.pad(text, (0, longest - len(text)), constant_values=padding) for text in texts])
        mask = np.array([np.arange(longest) < len(text) for text in texts])
        given = {"input_ids": torch.from_numpy(ids).long(), "attention_mask": torch.from_numpy(mask).long()}
        given = {name: tensor.to(model.device) for name, tensor in given.items()}
        with torch.inference_mode(), torch.autocast(model.device.type, dtype, enabled=dtype is not None):
            states = model(**given, output_hidden_states=True).hidden_states
        arrays = [states[layer].float().cpu().numpy() for layer in layers]
        found += [[array[number, : len(text)].copy() for array in arrays] for number, text in enumerate(texts)]
    return len(found)


def main(
    texts: Path, vocabulary: Path, *, shape: str = "mini", count: int = 512, threads: int = 1, rounds: int = 5
) -> None:
    """Run the benchmark.

    Args:
        texts: a .txt with a text a line.
        vocabulary: a vocab.txt, such as that of BERT-base uncased.
        shape: of config/models/bert-*.json.
        count: number of texts, drawn at random.
        threads: of the CPU.
        rounds: of each side; the median counts.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    device, _claim = claim_device()
    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    drawn = np.random.default_rng(1).permutation(len(lines))[:count]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = take_tokenizer(vocabulary, lowercase=True)
        save_tokenizer(tokenizer, folder / "tokenizer.json")
        settings = {**read_json(MODELS / f"bert-{shape}.json"), "vocab_size": tokenizer.get_vocab_size()}
        network = architecture_of(config_from_dict(settings)).pretraining(config_from_dict(settings))
        export_huggingface(network.config, network.state_dict(), folder / "tokenizer.json", folder / "model")
        encoder, _ = load_encoder_of(folder / "model", LENGTH, device)
        model = transformers.AutoModel.from_pretrained(folder / "model").to(device).eval()
    sequences = sequences_of_texts("texts", [(lines[index],) for index in drawn], tokenizer, LENGTH)
    padding = special_token_ids(tokenizer)["[PAD]"]
    layers, precisions = LAYERS[: network.config.num_hidden_layers], precisions_of(device)

    def ours(precision: str) -> int:
        features_of(encoder, sequences, layers, padding, precision, pooling=None)
        return len(sequences)

    work: dict[str, Work] = {}
    for precision, dtype in precisions.items():
        work[f"ours {precision}"] = functools.partial(ours, precision)
        for attention in ("sdpa", "eager"):
            work[f"transformers {precision} {attention}"] = functools.partial(
                theirs, model, sequences, layers, padding, attention, dtype
            )
    speeds = speeds_of(work, rounds, device)
    median = {name: statistics.median(values) for name, values in speeds.items()}
    print(describe_machine(device, threads))
    print(f"BERT-{shape}, {len(sequences)} texts, mean length {sequences.lengths.mean():.0f}")
    for name, speed in median.items():
        print(f"  {name:28} {speed:12,.1f} texts/s")
    ratio = {
        name: median[f"ours {name}"] / max(median[f"transformers {name} {kind}"] for kind in ("sdpa", "eager"))
        for name in precisions
    }
    ratios = {f"features_{name}": round(value, 2) for name, value in ratio.items()}
    print(json.dumps({"device": str(device), "rounds": rounds, **ratios}))


if __name__ == "__main__":
    run_command(main, __doc__)
