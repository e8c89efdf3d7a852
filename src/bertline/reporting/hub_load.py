"""A program that loads a model from a folder or a Hub with only transformers and saves its logits, for comparison.

    python -I hub_load.py repository revision texts.json logits.safetensors

It imports nothing of Bertline: a model that loads here loads anywhere. Output tensors are named {text}.{output}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file


def save_logits(repository: str, revision: str, texts: Path, output: Path) -> None:
    """Save the logits of each text, or pair of texts, of a JSON list of lists, computed one by one in float32."""
    config = transformers.AutoConfig.from_pretrained(repository, revision=revision)
    network = getattr(transformers, config.architectures[0])
    model = network.from_pretrained(repository, revision=revision, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(repository, revision=revision)
    logits: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        for number, given in enumerate(json.loads(texts.read_text(encoding="utf-8"))):
            outputs = model(**tokenizer(*given, return_tensors="pt")).to_tuple()
            logits |= {f"{number}.{index}": tensor.contiguous() for index, tensor in enumerate(outputs)}
    save_file(logits, output)


if __name__ == "__main__":
    save_logits(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
