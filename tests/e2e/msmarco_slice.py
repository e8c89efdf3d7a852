"""The slice of MS MARCO in the test data, divided by query into files for training and for scoring.

All of its passages are judged relevant to one of its 22 queries. So the candidates of a query are its relevant passages
and those of the other queries of the same part: no passage is in both parts. As 14 queries are too few to learn from
that words of a query return in its answer, words of training passages are further queries (an inverse cloze task, Lee
et al. 2019, arXiv 1906.00300).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

TRAIN_QUERIES = 14
DRAWN_QUERIES_PER_PASSAGE = 8
CANDIDATES = 100  # of each query of the dev set that are not relevant to it
RELEVANCE = 2  # of TREC's grades, "highly relevant"


def write_slice(test_data: Path, folder: Path, *, seed: int = 1) -> dict[str, dict[str, str]]:
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
            triples += [f"{query}\t{passage}\t{other}\n" for other in generator.choice(others, 4)]
    for passage in pools["train"]:
        words = texts[passage].split()
        for number in range(DRAWN_QUERIES_PER_PASSAGE):
            name = f"drawn-{passage}-{number}"
            length = min(len(words), int(generator.integers(3, 9)))
            chosen = np.sort(generator.choice(len(words), length, replace=False))
            drawn.append(f"{name}\t{' '.join(words[place] for place in chosen)}\n")
            triples.append(f"{name}\t{passage}\t{generator.choice(pools['train'])}\n")
    candidates, qrels = [], []
    for query in parts["dev"]:
        relevant = [passage for passage, grade in grades[query].items() if grade >= RELEVANCE]
        others = sorted(set(pools["dev"]) - grades[query].keys())
        given = [*generator.choice(relevant, min(20, len(relevant)), replace=False), *generator.choice(others, CANDIDATES, replace=False)]
        candidates += [f"{query}\t{passage}\n" for passage in generator.permutation(given)]
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
    return {"collection": str(source / "collection.tsv"), **lists}
