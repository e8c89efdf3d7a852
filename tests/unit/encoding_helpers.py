"""Small shards, tokenizers and datasets for the tests of encoding, written without the code under test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from pyzstd import SeekableZstdFile
from tokenizers import Tokenizer

from bertline.corpus import shards as shards_module
from bertline.encoding.card import write_card
from bertline.encoding.encode_shard import encode_shard
from bertline.encoding.tokenizer import make_tokenizer, save_tokenizer
from bertline.files import Recipe

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "of", "a", "river", "town", "old", "bridge", "king", "sea", "stone", "green", "long", ".", ","]
PIECES = ["##s", "##ing", "##er", "##ly"]
VOCABULARY = [*SPECIAL, *WORDS, *PIECES]
FINGERPRINT = "0123456789abcdef"
OF_SAMPLES = {"passes": 1, "short_sequence_probability": 0.1}

Document = list[str]


def write_shard(path: Path, documents: Sequence[Document]) -> Path:
    """One sentence a line, an empty line after each document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("".join(f"{sentence}\n" for sentence in document) + "\n" for document in documents)
    with SeekableZstdFile(path, "w", max_frame_content_size=1 << 16) as file:
        file.write(text.encode("utf-8"))
    return path


def make_documents(count: int, seed: int, sentences: int = 12) -> list[Document]:
    """Sentences of three to fifteen words, some with an ending."""
    random = np.random.default_rng(seed)

    def word() -> str:
        ending = random.choice(["", "", "", "s", "ing", "er", "ly"])
        return str(random.choice(WORDS[:-2])) + str(ending)

    def sentence() -> str:
        return " ".join(word() for _ in range(random.integers(3, 16))) + " ."

    return [[sentence() for _ in range(random.integers(1, sentences + 1))] for _ in range(count)]


def write_plan(path: Path, shards: dict[str, list[tuple[str, int, int]]]) -> Path:
    """A plan from (corpus, corpus index, documents) of each shard; the places in the parts are made up."""
    entries = {
        shard: [
            {"corpus": corpus, "corpus_index": index, "part": "made-up.txt.zst", "ranges": [[0, documents, 0, 1]]}
            for corpus, index, documents in corpora
        ]
        for shard, corpora in shards.items()
    }
    names = dict(sorted((index, corpus) for corpora in shards.values() for corpus, index, _ in corpora))
    plan = {"corpora": [{"name": name} for name in names.values()], "shards": list(entries)}
    shards_module.write_plan(path, plan, sorted(entries.items()))
    return path


def make_dataset(
    folder: Path,
    *,
    pair_objective: str = "next_sentence",
    lengths: Sequence[int] = (32, 64),
    tokenizer: Tokenizer | None = None,
    sizes: Mapping[str, tuple[int, int]] = MappingProxyType({"00000": (20, 10), "00001": (15, 14), "held_out": (3, 2)}),
) -> Path:
    """A dataset of two corpora, by default two training shards and a held-out one; returns its dataset.json.

    `sizes` are the documents of each corpus in each shard.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer or make_tokenizer(VOCABULARY, lowercase=True, source="the test")
    save_tokenizer(made, folder / "tokenizer.json")
    write_plan(folder / "plan.jsonl", {name: [("news", 0, a), ("books", 1, b)] for name, (a, b) in sizes.items()})
    settings = {"seed": 12345, "pair_objective": pair_objective}
    names = {"fingerprint": FINGERPRINT, "fingerprint_without_lengths": "b" * 16}
    recipe = {**names, "settings": settings, "sequence_lengths": lengths}
    for seed, (name, (a, b)) in enumerate(sizes.items()):
        write_shard(folder / f"shards/{name}.txt.zst", make_documents(a + b, seed))
        encode_shard(Recipe({**recipe, "settings": {**settings, **OF_SAMPLES}}), name, folder)
    counts = {}
    news, books = (sum(size[corpus] for size in sizes.values()) for corpus in range(2))
    for corpus, kept in (("news", [news - news // 5, news // 5]), ("books", [books])):
        counts[corpus] = [folder / f"{corpus}-{number}.counts.json" for number in range(len(kept))]
        for path, number in zip(counts[corpus], kept, strict=True):
            dropped = {"too short": 3}
            path.write_text(json.dumps({"read": number + 3, "kept": number, "dropped": dropped, "characters": 100}))
    write_card(recipe, folder, counts)
    return folder / "dataset.json"
