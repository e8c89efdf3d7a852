"""A folder with a small RoBERTa and its byte-level BPE, as transformers saves them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizer

SIZE = 320
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "initializer_range": 0.2,
}
POSITIONS = 64
TEXTS = ("The river was born where the élan is deep .", "who died in p3 and n4 was born in p5 ?")


def train_vocabulary(texts: Iterable[str] = TEXTS) -> RobertaTokenizer:
    """Train byte-level BPE with RoBERTa's ids: <s> 0, <pad> 1, </s> 2, <unk> 3, <mask> the last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - 1,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()
    vocabulary["<mask>"] = len(vocabulary)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return RobertaTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in merges])


def write_roberta(folder: Path, *, seed: int = 1, texts: Iterable[str] = TEXTS) -> RobertaForMaskedLM:
    """Write a RoBERTa with random weights, large enough that a wrong one shows in the logits; return it."""
    tokenizer = train_vocabulary(texts)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS + 2, **SHAPE)
    model = RobertaForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model
