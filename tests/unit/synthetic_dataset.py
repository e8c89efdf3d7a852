"""A small encoded dataset, made up for tests: sequences of a language whose next word mostly follows from the last."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bertline.encoding.layout import LAYOUT_VERSION, write_samples
from bertline.files import sha256_of_file, write_json

SPECIAL_TOKEN_IDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
VOCAB_SIZE, WORDS = 75, 70
CONTINUATIONS = 10  # so many words at the end of the vocabulary continue the one before
FINGERPRINT = "d" * 16
MODEL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def write_tokenizer(path: Path, *, reversed_words: bool = False, vocab_size: int = VOCAB_SIZE) -> None:
    words = [f"word{number}" for number in range(vocab_size - len(SPECIAL_TOKEN_IDS))]
    entries = [*SPECIAL_TOKEN_IDS, *(reversed(words) if reversed_words else words)]
    vocabulary = {word: index for index, word in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL_TOKEN_IDS))
    tokenizer.save(str(path))


def write_dataset(
    folder: Path,
    *,
    samples: int = 120,
    held_out: int = 24,
    length: int = 32,
    reversed_words: bool = False,
    vocab_size: int = VOCAB_SIZE,
    words: int = WORDS,
    fingerprint: str = FINGERPRINT,
    draw_length: Callable[[np.random.Generator], int] | None = None,
) -> Path:
    """Write tokenizer.json, two shards, a held-out shard and dataset.json; returns the last one's path.

    Args:
        words: of the vocabulary that the text uses, the first ones.
        draw_length: of a sample in tokens, 9 or more; None for all lengths alike.
    """
    draw_length = draw_length or (lambda random: int(random.integers(9, length + 1)))
    folder.mkdir(parents=True)
    write_tokenizer(folder / "tokenizer.json", reversed_words=reversed_words, vocab_size=vocab_size)
    digest = sha256_of_file(folder / "tokenizer.json")
    random = np.random.default_rng(1)
    entries: dict[str, list[dict[str, Any]]] = {"train": [], "held_out": []}
    for shard, count in (("00000", samples // 3), ("00001", samples - samples // 3), ("held_out", held_out)):
        drawn = [_sample(random, draw_length(random) - 3, words) for _ in range(count)]
        path = folder / f"seq{length}" / f"{shard}.h5"
        labels = np.array([label for _, _, label in drawn], dtype=np.int64)
        write_samples(
            path,
            {
                "input_ids": [ids for ids, _, _ in drawn],
                "sample_offsets": [np.cumsum([0, *(len(ids) for ids, _, _ in drawn)])],
                "second_segment_start": [np.array([start for _, start, _ in drawn])],
                "next_sentence_labels": [labels],
                "document_index": [np.zeros(count, dtype=np.int64)],
                "corpus_index": [np.zeros(count, dtype=np.int64)],
            },
            samples=count,
            tokens=sum(len(ids) for ids, _, _ in drawn),
            attributes={
                "fingerprint": fingerprint,
                "shard": shard,
                "sequence_length": length,
                "pair_objective": "next_sentence",
                "seed": 1,
                "tokenizer_sha256": digest,
                "vocab_size": vocab_size,
                "cls_id": 2,
                "sep_id": 3,
                "documents": 1,
                "documents_of_corpora": [1],
                "sentences": count,
                "text_tokens": 0,
                "unknown_tokens": 0,
                "unplaced_tokens": 0,
                "samples_with_random_next": int(labels.sum()),
                "samples_without_partner": 0,
            },
        )
        entry = {
            "file": f"seq{length}/{shard}.h5",
            "samples": count,
            "tokens": sum(len(ids) for ids, _, _ in drawn),
            "sha256": sha256_of_file(path),
        }
        entries["held_out" if shard == "held_out" else "train"].append(entry)
    card = {
        "layout_version": LAYOUT_VERSION,
        "fingerprint": fingerprint,
        "settings": {"pair_objective": "next_sentence"},
        "tokenizer": {
            "file": "tokenizer.json",
            "sha256": digest,
            "vocab_size": vocab_size,
            "special_tokens": SPECIAL_TOKEN_IDS,
            "continuation_bitmap": continuation_bitmap(vocab_size),
        },
        "corpora": [],
        "sequence_lengths": {str(length): entries},
    }
    write_json(folder / "dataset.json", card)
    return folder / "dataset.json"


def continuation_bitmap(vocab_size: int) -> str:
    flags = np.arange(vocab_size) >= vocab_size - CONTINUATIONS
    return base64.b64encode(np.packbits(flags, bitorder="little").tobytes()).decode()


def _sample(random: np.random.Generator, count: int, words: int) -> tuple[np.ndarray, int, int]:
    """Ids of `count` words with their special tokens, where segment B starts, and whether B is random."""
    first, label = count // 2, int(random.integers(2))
    start, continued = random.integers(words, size=2)
    segment = (start + 3 * np.arange(count)) % words
    if label:
        segment[first:] = (continued + 5 * np.arange(count - first)) % words
    segment = np.where(random.random(count) < 0.1, random.integers(words, size=count), segment) + 5
    return np.concatenate([[2], segment[:first], [3], segment[first:], [3]]), first + 2, label


def recipe(**changes: Any) -> dict[str, Any]:
    """A recipe for `write_dataset`; keyword arguments replace settings."""
    return {
        "fingerprint": "a" * 16,
        "dataset": FINGERPRINT,
        "dataset_without_lengths": "b" * 16,
        "model": MODEL,
        "seed": 42,
        "phase": "phase1",
        "initial_weights": None,
        "settings": {
            "sequence_length": 32,
            "global_batch_size": 16,
            "steps": 30,
            "batch_size_warmup": None,
            "optimizer": "lamb",
            "lamb_variant": "nvidia",
            "muon": {"momentum": 0.95, "nesterov": True, "weight_decay": 0.1, "learning_rate_ratio": 1.0},
            "lion": {"betas": [0.9, 0.99]},
            "sgd": {"momentum": 0.9},
            "soap": {"betas": [0.95, 0.95], "epsilon": 1e-8, "basis_interval": 10, "largest_side": 10000},
            "shampoo": {
                "betas": [0.9, 0.999],
                "epsilon": 1e-8,
                "factor_epsilon": 1e-12,
                "root_interval": 10,
                "largest_side": 10000,
            },
            "kfac": None,
            "learning_rate": 0.02,
            "learning_rate_scaling": "none",
            "base_batch_size": None,
            "schedule": "polynomial",
            "schedule_steps": None,
            "polynomial_from": "start",
            "power": 0.5,
            "end_learning_rate": 0,
            "decay": 0.1,
            "warmup": 0.1,
            "weight_decay": 0.01,
            "betas": [0.9, 0.999],
            "epsilon": 1e-6,
            "max_gradient_norm": 1.0,
            "masking": {"probability": 0.15, "max_predictions": None, "whole_word": False, "mask_only": False},
            "corpus_weights": {},
            "packing": False,
            "precision": "fp32",
            "carry_over": "weights+moments",
            "publish_best_every": None,
            **changes,
        },
    }
