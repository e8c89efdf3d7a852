"""The slice of MS MARCO in the test data, divided by query into files for training and for scoring.

All of its passages are judged relevant to one of its 22 queries. So the candidates of a query are all passages of its
part, in random order, and no passage is in both parts. Eleven queries are too few to learn from that words of a query
return in its answer: words of training passages are further queries (an inverse cloze task, Lee et al. 2019, arXiv
1906.00300).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

TRAIN_QUERIES = 11
DRAWN_QUERIES_PER_PASSAGE = 8
WORDS = (3, 9)  # of a drawn query, the latter excluded
OTHER_PASSAGES = 4  # of each passage that is relevant to a query of the slice
TASK = {
    "batch_size": 16,
    "learning_rate": 1.0e-3,
    "warmup": 0.1,
    "precision": "fp32",
    "max_sequence_length": 96,
    "max_query_length": 24,
}


def write_slice(test_data: Path, folder: Path, *, seed: int = 1) -> dict[str, Any]:
    """Write the lists of both parts into `folder`; return an `evaluation.ranking` entry."""
    source, generator = test_data / "msmarco", np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    texts = dict(line.split("\t", 1) for line in (source / "collection.tsv").read_text().splitlines())
    queries = dict(line.split("\t", 1) for line in (source / "queries.tsv").read_text().splitlines())
    grades: dict[str, dict[str, int]] = {}
    for line in (source / "qrels.tsv").read_text().splitlines():
        query, _, passage, grade = line.split()
        grades.setdefault(query, {})[passage] = int(grade)
    order = generator.permutation(sorted(queries)).tolist()
    parts = {"train": order[:TRAIN_QUERIES], "dev": order[TRAIN_QUERIES:]}

    pools = {part: sorted({passage for query in ids for passage in grades[query]}) for part, ids in parts.items()}
    triples, drawn = [], []
    for query in parts["train"]:
        others = sorted(set(pools["train"]) - grades[query].keys())
        for passage in grades[query]:
            triples += [f"{query}\t{passage}\t{other}\n" for other in generator.choice(others, OTHER_PASSAGES)]
    for passage in pools["train"]:
        words = texts[passage].split()
        for number in range(DRAWN_QUERIES_PER_PASSAGE):
            name = f"drawn-{passage}-{number}"
            length = min(len(words), int(generator.integers(*WORDS)))
            chosen = np.sort(generator.choice(len(words), length, replace=False))
            drawn.append(f"{name}\t{' '.join(words[place] for place in chosen)}\n")
            triples.append(f"{name}\t{passage}\t{generator.choice(pools['train'])}\n")
    candidates, qrels = [], []
    for query in parts["dev"]:
        candidates += [f"{query}\t{passage}\n" for passage in generator.permutation(pools["dev"])]
        qrels += [f"{query}\t0\t{passage}\t{grade}\n" for passage, grade in grades[query].items()]
    files = {
        "train_queries": [*(f"{query}\t{queries[query]}\n" for query in parts["train"]), *drawn],
        "train_triples": list(generator.permutation(triples)),
        "dev_queries": [f"{query}\t{queries[query]}\n" for query in parts["dev"]],
        "dev_candidates": candidates,
        "dev_qrels": qrels,
    }
    for name, lines in files.items():
        (folder / f"{name}.tsv").write_text("".join(lines))
    lists = {
        part: {name.split("_")[1]: str(folder / f"{name}.tsv") for name in files if name.startswith(part)}
        for part in parts
    }
    return {"collection": str(source / "collection.tsv"), "relevance_level": 2, "metric": "map", **lists}


def write_weights(folder: Path, vocabulary: Path) -> None:
    """Write a small BERT in which equal words attend to each other, as they do after pretraining.

    Queries and keys begin near the identity ("mimetic" initialization, Trockman and Kolter 2023, arXiv 2305.09828): no
    pretrained weights are needed, and minutes suffice.
    """
    import torch
    import transformers

    torch.manual_seed(1)
    words = [word for word in vocabulary.read_text(encoding="utf-8").split("\n") if word]
    size = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.08}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **size, **settings))
    with torch.no_grad():
        model.embeddings.position_embeddings.weight.mul_(0.1)
        model.embeddings.token_type_embeddings.weight.mul_(0.5)
        for layer in model.encoder.layer:
            for projection in (layer.attention.self.query, layer.attention.self.key):
                projection.weight.copy_(torch.eye(128) + 0.02 * torch.randn(128, 128))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def configuration(test_data: Path, folder: Path) -> dict[str, Any]:
    """Return a configuration that ranks the slice with both objectives; weights and lists are written into `folder`."""
    write_weights(folder / "weights", test_data / "vocab/bert-base-uncased-vocab.txt")
    data = write_slice(test_data, folder / "lists")
    tasks = {
        "pairwise": {**TASK, "objective": "pairwise", "training_examples": 3200},
        "pointwise": {**TASK, "objective": "pointwise", "training_examples": 12800},
    }
    return {
        "evaluation": {"ranking": dict.fromkeys(tasks, data)},
        "runs": {"slice": {"pretrained": str(folder / "weights"), "finetune": {"ranking": tasks}}},
    }
