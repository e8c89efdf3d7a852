"""Comparison of a model, as transformers loads it from a folder or a Hub, with what Bertline's network computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer
from bertline.finetuning.batches import pad
from bertline.finetuning.prediction import load_finetuned
from bertline.finetuning.sequences import make_sequences, tokenize
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import load_huggingface
from bertline.modeling.weights import load_tensors
from bertline.results import paths

LOADER = Path(__file__).with_name("hub_load.py")
TOLERANCE = 1e-4
TEXTS, WORDS = 4, 6


def compare_logits(
    folder: Path, repository: str | None = None, revision: str = "", *, endpoint: str, is_finetuned: bool
) -> None:
    """Load a model with transformers in a separate process, into an empty cache, and compare its logits.

    Args:
        folder: the local model, in Hugging Face's layout, whose logits Bertline's network computes.
        repository, revision: what transformers loads, user/name and a commit; None for the local model, offline.
        endpoint: the Hub's address.
        is_finetuned: whether it has the head of a task.

    Raises BertlineError if it cannot be loaded, or if a logit differs from the local one by more than 1e-4.
    """
    where = str(folder) if repository is None else f"{repository} at {revision}"
    texts = sample_texts(folder / paths.TOKENIZER)
    with tempfile.TemporaryDirectory() as temporary:
        given, output = Path(temporary, "texts.json"), Path(temporary, "logits.safetensors")
        given.write_text(json.dumps(texts), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if "OFFLINE" not in name}
        environment |= {"HF_ENDPOINT": endpoint, "HF_HUB_CACHE": temporary, "HF_XET_CACHE": f"{temporary}/xet"}
        if repository is None:
            environment["HF_HUB_OFFLINE"] = "1"
        source = [str(folder.resolve()), "main"] if repository is None else [repository, revision]
        command = [sys.executable, "-I", str(LOADER), *source, str(given), str(output)]
        done = subprocess.run(  # noqa: S603
            command, env=environment, cwd=temporary, capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            if repository is None:
                raise BertlineError(f"{where}: transformers cannot load it: {reason[:300]}; nothing was sent")
            raise BertlineError(
                f"{where} was pushed but cannot be loaded: {reason[:300]}; load it by hand, and push again"
            )
        loaded = load_tensors(output)
    differences = [
        float((tensor - loaded[name]).abs().max())
        if name in loaded and tensor.shape == loaded[name].shape
        else float("inf")
        for name, tensor in local_logits(folder, texts, is_finetuned=is_finetuned).items()
    ]
    if not all(difference <= TOLERANCE for difference in differences):
        if repository is None:
            raise BertlineError(
                f"{where}: the logits of transformers differ from Bertline's by {max(differences):.2g}, allowed is "
                f"{TOLERANCE}; compare the packages' versions with envs/lock; nothing was sent"
            )
        raise BertlineError(
            f"{where}: its logits differ from those of {folder} by {max(differences):.2g}, allowed is {TOLERANCE}; do "
            "not use it: compare its files with the local ones, and push again"
        )


def sample_texts(tokenizer: Path) -> list[list[str]]:
    """Return a few texts of words from the whole vocabulary, and a pair of texts."""
    vocabulary = read_tokenizer(tokenizer)
    size = vocabulary.get_vocab_size()
    identifiers = [index * size // (TEXTS * WORDS) for index in range(TEXTS * WORDS)]
    texts = [vocabulary.decode(identifiers[number::TEXTS]) for number in range(TEXTS)]
    return [*([text] for text in texts), texts[:2]]


def local_logits(folder: Path, texts: list[list[str]], *, is_finetuned: bool) -> dict[str, Tensor]:
    """Return the logits of Bertline's network for each text, named and shaped as those of hub_load.py."""
    tokenizer, compute = read_tokenizer(folder / paths.TOKENIZER), _task_logits if is_finetuned else _pretraining_logits
    tokens = [tokenize(tokenizer, given) for given in texts]
    joined = (make_sequences([(given[0], given[1] if given[1:] else None)], tokenizer) for given in tokens)
    inputs = [pad(sequences, np.arange(1), 0, torch.device("cpu"))[:2] for sequences in joined]
    with torch.inference_mode():
        return {
            f"{number}.{index}": tensor
            for number, outputs in enumerate(compute(folder, inputs))
            for index, tensor in enumerate(outputs)
        }


def _task_logits(folder: Path, inputs: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, ...]]:
    network = load_finetuned(folder).network
    outputs = [network(ids, types, None) for ids, types in inputs]
    return [logits.unbind(-1) if network.kind == "answer" else (logits,) for logits in outputs]


def _pretraining_logits(folder: Path, inputs: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, ...]]:
    config, weights = load_huggingface(folder)
    network = architecture_of(config).pretraining(config).eval()
    network.load_state_dict(weights, strict=False)
    computed = []
    for ids, types in inputs:
        words, pairs = network(ids, types, None, torch.arange(ids.shape[1]))
        computed.append((words[None, :, : config.vocab_size], *([] if pairs is None else [pairs])))
    return computed
