"""Scores of rankings by trec_eval, a test of their differences over queries, and files of rankings.

As in trec_eval, candidates are ordered by their float32 score, and equal ones by descending id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytrec_eval
from scipy import stats

from bertline.console import BertlineError
from bertline.files import write_atomically
from bertline.finetuning.ranking.lists import Candidates, Qrels

MEASURES = {
    "mrr": "recip_rank",
    "map": "map",
    "ndcg_10": "ndcg_cut_10",
    "r_precision": "Rprec",
    "recall_10": "recall_10",
    "recall_100": "recall_100",
    "recall_1000": "recall_1000",
}
MEASURES_OF_TREC_EVAL = {"recip_rank", "map", "ndcg_cut.10", "Rprec", "recall.10,100,1000"}
RUN_NAME = "bertline"  # the last column of a TREC run


def measure(candidates: Candidates, scores: np.ndarray, qrels: Qrels, relevance_level: int) -> dict[str, np.ndarray]:
    """Score the ranking of the candidates of each judged query, in the order of `candidates`.

    Args:
        scores: float [N], of the candidates.
        relevance_level: the lowest grade that is relevant; NDCG's gains are the grades themselves.

    Returns `mrr_10` and the keys of `MEASURES`, each float64 [judged queries], between 0 and 1. `mrr_10` is 0 if
    none of the first ten passages is relevant.
    """
    names = ["mrr_10", *MEASURES]
    found: dict[str, list[float]] = {name: [] for name in names}
    for query, ids, of_query in _queries(candidates, scores):
        if query not in qrels:
            continue
        # A negative grade scores as 0 does, and trec_eval takes memory for the largest grade + 1: it crashes below -1.
        grades = {passage: max(grade, 0) for passage, grade in qrels[query].items()}
        evaluator = pytrec_eval.RelevanceEvaluator(
            {query: grades}, MEASURES_OF_TREC_EVAL, relevance_level=relevance_level
        )
        result = evaluator.evaluate({query: dict(zip(ids, map(float, of_query), strict=True))})[query]
        for name, measure_name in MEASURES.items():
            found[name].append(result[measure_name])
        found["mrr_10"].append(result["recip_rank"] if result["recip_rank"] >= 1 / 10 else 0.0)
    return {name: np.array(values) for name, values in found.items()}


def p_value(scores: np.ndarray, others: np.ndarray) -> float | None:
    """Return the p-value of a two-sided paired t-test over queries, float64 [Q] each.

    It is 1 for a single query or without a difference. It is None, undefined, if all queries have the same difference.
    """
    differences = scores - others
    if len(scores) < 2 or np.allclose(differences, 0, rtol=0, atol=1e-9):
        return 1.0
    if np.allclose(differences, differences[0], rtol=0, atol=1e-9):
        return None
    return float(stats.ttest_rel(scores, others).pvalue)


def check_judged(candidates: Candidates, qrels: Qrels, path: str) -> None:
    """Raise BertlineError if a judged query has no candidates in the file `path`."""
    absent = sorted(qrels.keys() - set(candidates.query_ids))
    if absent:
        more = f" (and {len(absent) - 1} more)" if absent[1:] else ""
        raise BertlineError(
            f"{path}: query {absent[0]}{more} is judged and has no candidates; add some, or remove its judgements"
        )


def write_rankings(candidates: Candidates, scores: np.ndarray, ranking: Path | None, run: Path | None) -> None:
    """Write the ranked candidates of each query.

    Args:
        scores: float32 [N].
        ranking: MS MARCO's file, lines of query, passage and rank, with tabs between.
        run: trec_eval's file, lines `query Q0 passage rank score bertline`.
    """
    if ranking is not None:
        with write_atomically(ranking) as temporary, temporary.open("w", encoding="utf-8") as file:
            for query, ids, _ in _queries(candidates, scores):
                file.writelines(f"{query}\t{one}\t{rank}\n" for rank, one in enumerate(ids, start=1))
    if run is not None:
        with write_atomically(run) as temporary, temporary.open("w", encoding="utf-8") as file:
            for query, ids, of_query in _queries(candidates, scores):
                ranked = enumerate(zip(ids, of_query, strict=True), start=1)
                file.writelines(f"{query} Q0 {one} {rank} {score:.9g} {RUN_NAME}\n" for rank, (one, score) in ranked)


def write_scores_of_queries(path: Path, query_ids: list[str], scores: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write a table: the measures of each judged query, by ranking, in the form of trec_eval's `-q`.

    scores: by ranking and measure, float [Q].
    """
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write("query\tranking\tmeasure\tscore\n")
        for place, query in enumerate(query_ids):
            for ranking, measures in scores.items():
                file.writelines(f"{query}\t{ranking}\t{name}\t{of[place]:.6f}\n" for name, of in measures.items())


def _queries(candidates: Candidates, scores: np.ndarray) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """Yield each query with its passages and their scores, float32, the best first."""
    for query, start, end in zip(candidates.query_ids, candidates.starts[:-1], candidates.starts[1:], strict=True):
        ids, of_query = candidates.passage_ids[start:end], scores[start:end].astype(np.float32)
        order = np.lexsort((ids, of_query))[::-1]
        yield query, [one.decode() for one in ids[order]], of_query[order]
