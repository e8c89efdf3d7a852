"""Ranking as a prepared task: a network scores a query with each of its candidates."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import separators_in_pair, special_token_ids
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.ranking.bm25 import bm25_scores
from bertline.finetuning.ranking.collection import Collection, open_collection
from bertline.finetuning.ranking.evaluation import (
    check_judged,
    measure,
    p_value,
    write_rankings,
    write_scores_of_queries,
)
from bertline.finetuning.ranking.lists import (
    Candidates,
    Qrels,
    labelled_candidates,
    read_candidates,
    read_judgements,
    read_triples,
    sample_triples,
)
from bertline.finetuning.ranking.pairs import Pairs
from bertline.finetuning.ranking.texts import Texts, read_texts
from bertline.tasks.lengths import room_for_passage

logger = logging.getLogger(__name__)


def prepare_ranking(
    table: Mapping[str, Any], data: Mapping[str, str], settings: Mapping[str, Any], tokenizer: Tokenizer
) -> PreparedTask:
    """Prepare a ranking task of the collection that `tokenize_collection` made.

    Args:
        table: `relevance_level` and `metric`, as in the configuration.
        data: `collection`, `train_queries` and `train_triples`, or `train_qrels` and `train_candidates`, or
            `train_tfrecords`; `dev_queries`, `dev_candidates` and `dev_qrels`, or `dev_tfrecords`; perhaps
            `test_queries` and `test_candidates`.
        settings: those of the recipe, and the seed.

    Raises BertlineError for a bad file.
    """
    collection = open_collection(Path(data["collection"]), tokenizer)
    metric, pairwise = table["metric"], settings["objective"] == "pairwise"
    train, targets = _training_examples(data, collection, settings, tokenizer, table["relevance_level"])
    dev = _dev_set(table, data, collection, settings, tokenizer)
    for name, pairs in (("train", train), ("dev", dev.pairs)):
        _report_cut_off(name, pairs, settings["max_query_length"])
    predicted = [PredictedSet("dev", dev.pairs, partial(_evaluate, dev.candidates, dev.qrels, table, dev.baselines))]
    if "test_queries" in data:
        predicted.append(_test_set(data, collection, settings, tokenizer))
    return PreparedTask(
        head="sequence",
        outputs=1 if pairwise else 2,
        primary=metric,
        train=train,
        train_targets=targets,
        predicted=tuple(predicted),
        baselines={name: 100.0 * float(scores[metric].mean()) for name, scores in dev.baselines.items()},
        examples={
            "passages": len(collection.passages),
            "train": len(train),
            "dev_queries": len(dev.candidates.query_ids),
            "dev_candidates": len(dev.candidates),
            "dev_judged_queries": len(dev.qrels),
            "dev_queries_without_candidates": dev.unranked,
            "dev_padding": dev.candidates.padding,
        },
        labels=() if pairwise else ("0", "1"),
    )


class DevSet(NamedTuple):
    """Candidates with judgements, and their inputs.

    Attributes:
        baselines: scores of each judged query by the names of a baseline and of a measure, float64 [queries].
        unranked: number of queries without candidates.
    """

    candidates: Candidates
    qrels: Qrels
    pairs: Pairs
    baselines: dict[str, dict[str, np.ndarray]]
    unranked: int


def _dev_set(
    table: Mapping[str, Any],
    data: Mapping[str, str],
    collection: Collection,
    settings: Mapping[str, Any],
    tokenizer: Tokenizer,
) -> DevSet:
    level = table["relevance_level"]
    bm25: dict[str, dict[str, np.ndarray]] = {}  # needs the whole collection, which records are not
    unranked = 0
    if "dev_tfrecords" in data:
        queries, passages, labels = _open_records(data, "dev_tfrecords", tokenizer)
        candidates, qrels = labelled_candidates(Path(data["dev_tfrecords"]), queries, labels, level)
        pairs = join(queries, passages, candidates, settings, tokenizer)
    else:
        queries = read_texts(Path(data["dev_queries"]), tokenizer)
        candidates = read_candidates(Path(data["dev_candidates"]), queries, collection.passages)
        qrels = read_judgements(Path(data["dev_qrels"]), queries, collection.passages, level)
        check_judged(candidates, qrels, data["dev_candidates"])
        pairs = join(queries, collection.passages, candidates, settings, tokenizer)
        unranked = len(queries) - len(candidates.query_ids)
        scores = bm25_scores(pairs, collection.document_frequency)
        bm25 = {"bm25": measure(candidates, scores, qrels, level)}
    logger.info(
        "dev: %d queries with %d candidates, %d of them judged; %d queries have no candidates, and %d lines padding",
        len(candidates.query_ids),
        len(candidates),
        len(qrels),
        unranked,
        candidates.padding,
    )
    baselines = {**bm25, "candidates": measure(candidates, _given_order(candidates), qrels, level)}
    return DevSet(candidates, qrels, pairs, baselines, unranked)


def _test_set(
    data: Mapping[str, str], collection: Collection, settings: Mapping[str, Any], tokenizer: Tokenizer
) -> PredictedSet:
    queries = read_texts(Path(data["test_queries"]), tokenizer)
    candidates = read_candidates(Path(data["test_candidates"]), queries, collection.passages)
    inputs = join(queries, collection.passages, candidates, settings, tokenizer)
    report("test", queries, candidates, inputs, settings["max_query_length"])
    return PredictedSet("test", inputs, partial(_write_test, candidates))


def report(name: str, queries: Texts, candidates: Candidates, pairs: Pairs, max_query_length: int) -> None:
    """Log the numbers of candidates without judgements, and of what is left out or cut off."""
    logger.info(
        "%s: %d queries with %d candidates; %d queries have no candidates, and %d lines padding",
        name,
        len(candidates.query_ids),
        len(candidates),
        len(queries) - len(candidates.query_ids),
        candidates.padding,
    )
    _report_cut_off(name, pairs, max_query_length)


def _report_cut_off(name: str, pairs: Pairs, max_query_length: int) -> None:
    queries, passages = pairs.cut_off()
    if queries or passages:
        logger.info(
            "%s: of %d inputs, %d queries are longer than max_query_length %d and %d passages than the rest; "
            "their ends are cut off",
            name,
            pairs.passage_rows.size,
            queries,
            max_query_length,
            passages,
        )


def scores_of(outputs: np.ndarray) -> np.ndarray:
    """Return the score of each candidate, float32 [N], from the outputs [N, 1] or the logits of two classes [N, 2].

    The difference of two logits orders candidates as the logarithm of the probability of class 1 does.
    """
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]


def join(
    queries: Texts, passages: Texts, candidates: Candidates, settings: Mapping[str, Any], tokenizer: Tokenizer
) -> Pairs:
    """Return the inputs of all candidates."""
    return _pairs(queries, passages, candidates.query_rows, candidates.passage_rows[:, None], settings, tokenizer)


def _pairs(
    queries: Texts,
    passages: Texts,
    query_rows: np.ndarray,
    passage_rows: np.ndarray,
    settings: Mapping[str, Any],
    tokenizer: Tokenizer,
) -> Pairs:
    special, longest_query = special_token_ids(tokenizer), settings["max_query_length"]
    between = separators_in_pair(tokenizer)
    return Pairs(
        queries,
        passages,
        query_rows,
        passage_rows,
        max_query=longest_query - 2,
        max_passage=room_for_passage(settings["max_sequence_length"], longest_query, 2 + between),
        begin=special["[CLS]"],
        end=special["[SEP]"],
        between=between,
    )


def _training_examples(
    data: Mapping[str, str], collection: Collection, settings: Mapping[str, Any], tokenizer: Tokenizer, level: int
) -> tuple[Pairs, np.ndarray]:
    """Return the training examples, and their targets: classes, or 0 for pairs, whose first passage is relevant."""
    limit, pairwise = settings["training_examples"], settings["objective"] == "pairwise"
    if "train_tfrecords" in data:
        if pairwise:
            raise BertlineError("objective: pairwise needs train.triples or train.qrels, not train.tfrecords")
        queries, passages, all_labels = _open_records(data, "train_tfrecords", tokenizer)
        labels = all_labels[:limit]
        rows = np.arange(len(labels), dtype=np.int32)
        return _pairs(queries, passages, rows, rows[:, None], settings, tokenizer), labels
    queries, passages = read_texts(Path(data["train_queries"]), tokenizer), collection.passages
    if "train_triples" in data:
        # A triple is one example of a pairwise loss, and two of a pointwise one.
        triples = limit if limit is None or pairwise else (limit + 1) // 2
        query_rows, passage_rows = read_triples(Path(data["train_triples"]), queries, passages, triples)
    else:
        query_rows, passage_rows = sample_triples(
            Path(data["train_qrels"]),
            read_candidates(Path(data["train_candidates"]), queries, passages),
            queries,
            passages,
            relevance_level=level,
            negatives=settings["negatives"],
            seed=settings["seed"],
        )
    if pairwise:
        query_rows, passage_rows = query_rows[:limit], passage_rows[:limit]
        return _pairs(queries, passages, query_rows, passage_rows, settings, tokenizer), np.zeros(
            len(query_rows), np.uint8
        )
    query_rows, passage_rows = np.repeat(query_rows, 2)[:limit], passage_rows.reshape(-1, 1)[:limit]
    targets = (np.arange(len(query_rows)) % 2 == 0).astype(np.uint8)
    return _pairs(queries, passages, query_rows, passage_rows, settings, tokenizer), targets


def _open_records(data: Mapping[str, str], key: str, tokenizer: Tokenizer) -> tuple[Texts, Texts, np.ndarray]:
    """Return the queries, the passages and the labels of the TFRecord files `key`."""
    records = open_collection(Path(data[key]), tokenizer)
    if records.queries is None or records.labels is None:
        raise BertlineError(f"{data[key]} is not made of TFRecord files; name them as {key.replace('_', '.')}")
    return records.queries, records.passages, np.asarray(records.labels)


def _given_order(candidates: Candidates) -> np.ndarray:
    """Return scores that keep the candidates of each query in their order."""
    return -np.arange(len(candidates), dtype=np.float64) + np.repeat(candidates.starts[:-1], np.diff(candidates.starts))


def _evaluate(
    candidates: Candidates,
    qrels: Qrels,
    table: Mapping[str, Any],
    baselines: Mapping[str, Mapping[str, np.ndarray]],
    outputs: np.ndarray,
) -> Evaluation:
    scores = scores_of(outputs)
    measures, metric = measure(candidates, scores, qrels, table["relevance_level"]), table["metric"]

    def write(folder: Path) -> None:
        write_rankings(candidates, scores, folder / "ranking.tsv", folder / "run.trec")
        judged = [query for query in candidates.query_ids if query in qrels]
        write_scores_of_queries(folder / "queries.tsv", judged, {"network": measures, **baselines})

    return Evaluation(
        {name: 100.0 * float(values.mean()) for name, values in measures.items()},
        write,
        {
            f"p_value_{name}": value
            for name, of in baselines.items()
            if (value := p_value(measures[metric], of[metric])) is not None
        },
    )


def _write_test(candidates: Candidates, outputs: np.ndarray) -> Evaluation:
    scores = scores_of(outputs)
    return Evaluation(
        {}, lambda folder: write_rankings(candidates, scores, folder / "ranking_test.tsv", folder / "run_test.trec")
    )
