"""Small fine-tunings: a tokenizer, files of the tasks, and recipes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bertline.encoding.tokenizer import make_tokenizer, save_tokenizer

Json = dict[str, Any]
MODEL = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
NAMES = [f"n{index}" for index in range(12)]
PLACES = [f"p{index}" for index in range(12)]
WORDS = ["was", "born", "in", "and", "died", "where", "who", *NAMES, *PLACES]


def write_tokenizer(path: Path) -> Path:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "?", *WORDS]
    save_tokenizer(make_tokenizer(vocabulary, lowercase=True, source="the test"), path)
    return path


def write_cola(path: Path, examples: int = 32) -> Path:
    """Sentences of random words of different lengths, with random labels: nothing to learn but themselves."""
    generator = np.random.default_rng(1)
    rows = []
    for _ in range(examples):
        words = generator.choice(WORDS, size=generator.integers(6, 15))
        rows.append(f"t\t{generator.integers(2)}\t\t{' '.join(words)}\n")
    path.write_text("".join(rows))
    return path


def write_squad(path: Path, *, version_2: bool = False) -> Path:
    generator = np.random.default_rng(2)
    paragraphs = []
    for index in range(16):
        name = NAMES[index % 12]
        birth, death = generator.choice(PLACES, size=2, replace=False)
        context = f"{name} was born in {birth} and {name} died in {death} ."
        questions: list[Json] = []
        for verb, answer in (("was born", birth), ("died", death)):
            impossible = version_2 and verb == "died"
            given = [] if impossible else [{"text": answer, "answer_start": context.index(answer)}]
            identity = f"{index}-{verb}"
            question = {"id": identity, "question": f"where {verb} ?", "answers": given, "is_impossible": impossible}
            questions.append(question)
        paragraphs.append({"context": context, "qas": questions})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def recipe_for(task: str, file: Path, **changes: Any) -> Json:
    settings = {
        "epochs": 4,
        "batch_size": 8,
        "learning_rate": 2e-3,
        "learning_rate_scaling": "none",
        "base_batch_size": None,
        "synchronise": True,
        "workers": 2,
        "warmup": 0.1,
        "weight_decay": 0.01,
        "layerwise_decay": 1.0,
        "precision": "fp32",
        "max_sequence_length": 32,
        "patience": None,
    }
    if task.startswith("squad"):
        settings |= {"doc_stride": 8, "max_query_length": 8, "max_answer_length": 4}
    else:
        settings["predict_test"] = False
    return {
        "fingerprint": "0123456789abcdef",
        "task": task,
        "seed": changes.pop("seed", 1),
        "start": "random",
        "model": MODEL | changes.pop("model", {}),
        "initial_weights": changes.pop("initial_weights", None),
        "data": {"train": str(file), "dev": str(file)},
        "settings": settings | changes,
    }


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def write_conll(path: Path) -> Path:
    generator = np.random.default_rng(3)
    sentences = []
    for _ in range(24):
        name, place = generator.choice(NAMES), generator.choice(PLACES)
        sentences.append(f"{name} B-PER\nwas O\nborn O\nin O\n{place} B-LOC\n")
    path.write_text("\n".join(sentences))
    return path
