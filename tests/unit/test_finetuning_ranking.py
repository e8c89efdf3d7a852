"""Ranking: collections, lists of ids, inputs, objectives, and the scores of trec_eval."""

from __future__ import annotations

import gzip
import json
import math
import warnings
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest
import torch
from finetuning_helpers import recipe_for, write_cola, write_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from ranking_files import SETTINGS, TABLE, data_of, ranking_recipe, tokenized, tokenizer_of, write_files

from bertline.console import BertlineError
from bertline.files import Recipe
from bertline.finetuning.losses import loss_of, targets_of
from bertline.finetuning.prediction import FinetunedModel, load_finetuned
from bertline.finetuning.prediction_files import predict_files
from bertline.finetuning.ranking import bm25, lists, reranking, texts
from bertline.finetuning.ranking.bm25 import bm25_scores
from bertline.finetuning.ranking.collection import open_collection, tokenize_collection
from bertline.finetuning.ranking.evaluation import measure, p_value, write_rankings
from bertline.finetuning.ranking.lines import read_fields
from bertline.finetuning.ranking.lists import Candidates, read_candidates
from bertline.finetuning.ranking.reranking import rank_files
from bertline.finetuning.ranking.task import join, prepare_ranking, scores_of
from bertline.finetuning.ranking.texts import read_texts
from bertline.finetuning.train import finetune
from bertline.finetuning.trial import random_task


def prepared(data: dict[str, str], folder: Path, table: dict[str, Any] = TABLE, **settings: Any) -> Any:
    return prepare_ranking(table, data, {**SETTINGS, "seed": 1, **settings}, tokenizer_of(folder))


def words_of(folder: Path, ids: np.ndarray) -> str:
    return " ".join(tokenizer_of(folder).id_to_token(int(one)) for one in ids)


def input_of(task: Any, folder: Path, row: int) -> str:
    taken = task.train.take(np.array([row]))
    return words_of(folder, taken.tokens[: taken.offsets[1]])


@pytest.mark.parametrize("objective", ["pointwise", "pairwise"])
def test_a_network_learns_to_put_the_relevant_passage_first(tmp_path: Path, objective: str) -> None:
    data = data_of(tmp_path)
    recipe = ranking_recipe(data, objective=objective)
    metrics = finetune(recipe, tmp_path / "tokenizer.json", tmp_path / "out")
    assert metrics["scores"]["mrr_10"] > 95 > 60 > metrics["baselines"]["candidates"]
    assert metrics["primary"] == "mrr_10"
    assert metrics["p_value_candidates"] < 0.001
    best = [line.split("\t") for line in (tmp_path / "out/ranking.tsv").read_text().splitlines()]
    relevant = dict(line.split("\t")[::2] for line in Path(data["dev_qrels"]).read_text().splitlines())
    first = {query: passage for query, passage, rank in best if rank == "1"}
    assert sum(first[query] == relevant[query] for query in relevant) >= 11


def test_the_run_file_scores_the_same_when_trec_eval_reads_it(tmp_path: Path) -> None:
    import pytrec_eval

    data = data_of(tmp_path)
    metrics = finetune(ranking_recipe(data, epochs=1), tmp_path / "tokenizer.json", tmp_path / "out")
    with (tmp_path / "out/run.trec").open() as file:
        run = pytrec_eval.parse_run(file)
    with Path(data["dev_qrels"]).open() as file:
        qrels = pytrec_eval.parse_qrel(file)
    of_queries = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg_cut.10", "recip_rank"}).evaluate(run)
    for name, theirs in (("map", "map"), ("ndcg_10", "ndcg_cut_10"), ("mrr", "recip_rank")):
        mean = 100 * sum(scores[theirs] for scores in of_queries.values()) / len(of_queries)
        assert metrics["scores"][name] == pytest.approx(mean)
    # MS MARCO's own script reads ranks, not scores.
    ranks = [line.split("\t") for line in (tmp_path / "out/ranking.tsv").read_text().splitlines()]
    reciprocal = [
        1 / int(rank) for query, passage, rank in ranks if qrels[query].get(passage, 0) > 0 and int(rank) <= 10
    ]
    assert metrics["scores"]["mrr_10"] == pytest.approx(100 * sum(reciprocal) / len(qrels))


GRADES = st.lists(st.integers(-4, 3), min_size=1, max_size=30)


@given(GRADES, st.data())
def test_measures_are_those_of_their_definitions(grades: list[int], data: st.DataObject) -> None:
    """Grades may be negative, some judged passages are not ranked, and scores may be equal."""
    ranked = data.draw(st.integers(1, len(grades)))
    scores = np.array(data.draw(st.lists(st.integers(0, 9), min_size=ranked, max_size=ranked)), dtype=np.float64)
    level = data.draw(st.integers(1, 3))
    ids = np.array([f"p{place:02d}" for place in range(ranked)], dtype=np.bytes_)
    rows = np.arange(ranked, dtype=np.int32)
    candidates = Candidates(["q"], np.array([0, ranked]), np.zeros_like(rows), rows, ids, 0)
    qrels = {"q": {f"p{place:02d}": grade for place, grade in enumerate(grades)}}
    found = {name: values[0] for name, values in measure(candidates, scores, qrels, level).items()}

    of_ranks = [grades[place] for place in sorted(range(ranked), key=lambda place: (-scores[place], -place))]
    hits = [rank for rank, grade in enumerate(of_ranks, start=1) if grade >= level]
    relevant = sum(grade >= level for grade in grades)
    gain, ideal = (
        sum(max(grade, 0) / math.log2(rank + 1) for rank, grade in enumerate(one[:10], start=1))
        for one in (of_ranks, sorted(grades, reverse=True))
    )
    assert found["mrr"] == pytest.approx(1 / hits[0] if hits else 0)
    assert found["mrr_10"] == pytest.approx(1 / hits[0] if hits and hits[0] <= 10 else 0)
    assert found["map"] == pytest.approx(sum(n / rank for n, rank in enumerate(hits, 1)) / relevant if hits else 0)
    assert found["ndcg_10"] == pytest.approx(gain / ideal if ideal else 0)
    assert found["r_precision"] == pytest.approx(sum(rank <= relevant for rank in hits) / relevant if hits else 0)
    assert found["recall_10"] == pytest.approx(sum(rank <= 10 for rank in hits) / relevant if hits else 0)


def test_two_rankings_are_compared_by_a_paired_test() -> None:
    # Student 1908, "The probable error of a mean", the hours of sleep of ten patients: t = 4.0621, p = 0.00283.
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    assert p_value(first, second) == pytest.approx(0.00283, abs=1e-5)
    assert p_value(first, first) == 1
    assert p_value(np.array([0.3]), np.array([0.5])) == 1  # a single query
    assert p_value(first, first + 0.1) is None  # the test is undefined without variance


def test_a_pairwise_step_is_timed_with_both_passages() -> None:
    settings = {"batch_size": 3, "max_sequence_length": 40, "max_query_length": 12, "objective": "pairwise"}
    task = random_task("sequence", settings, vocab_size=100)
    inputs = task.train.take(np.arange(3))
    assert inputs.lengths.tolist() == [40] * 6
    assert task.train.lengths.tolist() == [80] * 3
    assert (inputs.second_segment_start == 12).all()
    outputs = torch.zeros((6, task.outputs))
    loss = loss_of(task.head, outputs, targets_of(task, np.arange(3)), None)
    assert loss.item() == pytest.approx(3 * math.log(2))
    pointwise = random_task("sequence", {**settings, "objective": "pointwise"}, vocab_size=100)
    assert pointwise.train.take(np.arange(3)).lengths.tolist() == [40] * 3


@pytest.mark.parametrize("size", [bm25.SLICE, 7])
def test_bm25_is_that_of_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(bm25, "SLICE", size)
    data = data_of(tmp_path)
    with Path(data["dev_queries"]).open("a") as file:
        file.write("twice\twas n1 n1 born born ?\n")
    with Path(data["dev_candidates"]).open("a") as file:
        file.writelines(f"twice\tp{passage:03d}\n" for passage in range(20))
    tokenizer = tokenizer_of(tmp_path)
    collection, queries = (
        open_collection(Path(data["collection"]), tokenizer),
        read_texts(Path(data["dev_queries"]), tokenizer),
    )
    candidates = read_candidates(Path(data["dev_candidates"]), queries, collection.passages)
    ours = bm25_scores(
        join(queries, collection.passages, candidates, SETTINGS, tokenizer), collection.document_frequency
    )

    def tokens_of(texts: Any, row: int) -> list[str]:
        return [str(token) for token in texts.tokens[texts.offsets[row] : texts.offsets[row + 1]]]

    library = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    library.index([tokens_of(collection.passages, row) for row in range(len(collection.passages))], show_progress=False)
    theirs = [
        library.get_scores(tokens_of(queries, query))[passage]
        for query, passage in zip(candidates.query_rows, candidates.passage_rows, strict=True)
    ]
    assert np.ptp(ours) > 0
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_an_input_is_a_query_and_a_passage_of_limited_lengths(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    row = prepared(data, tmp_path)
    assert input_of(row, tmp_path, 0).startswith("[CLS] where was n0 born ? [SEP] n0 was born in p")
    assert input_of(row, tmp_path, 0).endswith(". [SEP]")
    # A query of six tokens with [CLS] and [SEP], then the rest for a passage with [SEP].
    cut = input_of(prepared(data, tmp_path, max_query_length=6, max_sequence_length=10), tmp_path, 0)
    assert cut == "[CLS] where was n0 born [SEP] n0 was born [SEP]"


def test_lengths_offsets_and_segments_are_those_of_the_inputs(tmp_path: Path) -> None:
    task = prepared(data_of(tmp_path), tmp_path)
    rows = np.array([3, 0, 5])
    taken = task.train.take(rows)
    np.testing.assert_array_equal(taken.lengths, task.train.lengths[rows])
    assert task.train.offsets[-1] == task.train.lengths.sum()
    separator = tokenizer_of(tmp_path).token_to_id("[SEP]")
    for place in range(len(rows)):
        one = taken.tokens[taken.offsets[place] : taken.offsets[place + 1]]
        assert list(one).index(separator) + 1 == taken.second_segment_start[place]


def test_pointwise_examples_alternate_between_relevant_and_other_passages(tmp_path: Path) -> None:
    task = prepared(data_of(tmp_path), tmp_path)
    for row in range(10):
        assert ("was born in" in input_of(task, tmp_path, row).split("[SEP]")[1]) == bool(task.train_targets[row])
    assert targets_of(task, np.array([0, 1])).tolist() == [1, 0]


def test_the_pairwise_loss_is_that_of_ranknet(tmp_path: Path) -> None:
    """Burges et al. 2005: log(1 + exp(s_other - s_relevant)); the passages of an example are in one batch."""
    task = prepared(data_of(tmp_path), tmp_path, objective="pairwise")
    rows = np.array([4, 2])
    taken = task.train.take(rows)
    texts = [words_of(tmp_path, taken.tokens[a:b]) for a, b in zip(taken.offsets, taken.offsets[1:], strict=False)]
    assert ["was born in" in text.split("[SEP]")[1] for text in texts] == [True, False, True, False]
    scores = torch.tensor([[0.3], [-1.0], [2.0], [2.5]])
    expected = math.log1p(math.exp(-1.0 - 0.3)) + math.log1p(math.exp(2.5 - 2.0))
    assert float(loss_of("sequence", scores, targets_of(task, rows), None)) == pytest.approx(expected)


def test_candidates_are_ordered_by_the_logarithm_of_the_probability_of_relevance() -> None:
    logits = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    of_class_1 = torch.log_softmax(logits.double(), dim=1)[:, 1]
    assert np.argsort(scores_of(logits.numpy())).tolist() == of_class_1.argsort().tolist()


def test_drawn_negatives_are_a_function_of_the_seed_and_never_relevant(tmp_path: Path) -> None:
    data = data_of(tmp_path, train="qrels")

    def drawn(seed: int) -> list[list[int]]:
        return prepared(data, tmp_path, seed=seed, negatives=3, objective="pairwise").train.passage_rows.tolist()

    assert drawn(1) == drawn(1) != drawn(2)
    relevant = {int(line.split("\t")[2][1:]) for line in Path(data["train_qrels"]).read_text().splitlines()}
    assert all(first in relevant and second not in relevant for first, second in drawn(1))
    assert len(drawn(1)) == 12 * 3


def test_a_relevant_passage_is_trained_on_with_different_negatives(tmp_path: Path) -> None:
    """A query's candidates are eight; which ones are drawn does not depend on other queries."""
    data = data_of(tmp_path, train="qrels")
    Path(data["train_qrels"]).write_text("q1\t0\tp009\t1\nq1\t0\tp013\t1\nq3\t0\tp030\t1\n")

    def drawn(negatives: int) -> list[tuple[int, list[int]]]:
        rows = prepared(data, tmp_path, negatives=negatives, objective="pairwise").train.passage_rows
        groups = rows.reshape(-1, negatives, 2)
        assert (groups[:, :, 0] == groups[:, :1, 0]).all()
        return [(int(group[0, 0]), group[:, 1].tolist()) for group in groups]

    for negatives in (2, 5, 6):
        found = drawn(negatives)
        assert [relevant for relevant, _ in found] == [9, 13, 30]
        assert all(len(set(others)) == negatives for _, others in found), found
    assert sorted(drawn(6)[0][1]) == [8, 10, 11, 12, 14, 15]  # q1 has 6 others
    assert drawn(5)[0][1] != drawn(5)[1][1]
    assert len(drawn(20)[0][1]) == 20  # more than there are
    together = drawn(4)[2]
    Path(data["train_qrels"]).write_text("q3\t0\tp030\t1\n")
    assert drawn(4) == [together]


def test_a_single_negative_is_the_one_that_finished_trainings_have(tmp_path: Path) -> None:
    data = data_of(tmp_path, train="qrels")
    Path(data["train_qrels"]).write_text("q1\t0\tp009\t1\nq1\t0\tp013\t1\nq3\t0\tp030\t1\n")
    rows = prepared(data, tmp_path, negatives=1, objective="pairwise").train.passage_rows
    assert rows.tolist() == [[9, 12], [13, 10], [30, 27]]


def test_queries_with_as_many_candidates_draw_negatives_of_other_places(tmp_path: Path) -> None:
    data = data_of(tmp_path, train="qrels")
    train = prepared(data, tmp_path, negatives=3, objective="pairwise").train
    lists: dict[str, list[int]] = {}
    for line in Path(data["train_candidates"]).read_text().splitlines():
        query, passage = line.split("\t")
        lists.setdefault(query, []).append(int(passage[1:]))
    drawn: dict[int, list[int]] = {}
    for query, (relevant, other) in zip(train.query_rows, train.passage_rows, strict=True):
        others = [passage for passage in lists[f"q{query}"] if passage != relevant]
        drawn.setdefault(int(query), []).append(others.index(other))
    assert len(drawn) == 12
    assert len({tuple(places) for places in drawn.values()}) > 6


@pytest.fixture
def graded(tmp_path: Path) -> tuple[dict[str, str], dict[str, int], dict[str, int]]:
    """Data whose judgements have grade 2 for the relevant passages, and grade 1 for one ranked before or after.

    Returns the data, and each query's passage of grade 2 and of grade 1, by number.
    """
    data = data_of(tmp_path, train="qrels")
    relevant, related, lines = {}, {}, []
    for line in Path(data["dev_qrels"]).read_text().splitlines():
        query, _, passage, _ = line.split("\t")
        first = 8 * int(query[1:])
        relevant[query] = int(passage[1:])
        related[query] = first if relevant[query] > first else first + 1
        lines += [f"{query}\t0\tp{related[query]:03d}\t1\n", f"{query}\t0\t{passage}\t2\n"]
    Path(data["dev_qrels"]).write_text("".join(lines))
    return data, relevant, related


LEVEL_2 = {**TABLE, "relevance_level": 2}


def test_only_grades_of_the_relevance_level_are_trained_on_as_relevant(
    tmp_path: Path, graded: tuple[dict[str, str], dict[str, int], dict[str, int]]
) -> None:
    data, relevant, related = graded
    for table, expected in ((LEVEL_2, [relevant]), (TABLE, [relevant, related])):
        rows = prepared(data, tmp_path, table, negatives=20, objective="pairwise").train.passage_rows
        assert set(rows[:, 0].tolist()) == {passage for one in expected for passage in one.values()}
    # One of a lower grade may be drawn as the other passage, one of the level not.
    _, other = prepared(data, tmp_path, LEVEL_2, negatives=20, objective="pairwise").train.passage_rows.T
    assert set(other.tolist()) & set(related.values())
    assert not set(other.tolist()) & set(relevant.values())


def test_only_grades_of_the_relevance_level_are_scored_as_relevant(
    tmp_path: Path, graded: tuple[dict[str, str], dict[str, int], dict[str, int]]
) -> None:
    data, relevant, _ = graded
    ranks: dict[str, list[int]] = {}
    for line in Path(data["dev_candidates"]).read_text().splitlines():
        query, passage = line.split("\t")
        ranks.setdefault(query, []).append(int(passage[1:]))
    expected = 100 * np.mean([1 / (1 + ranks[query].index(passage)) for query, passage in relevant.items()])
    task = prepared(data, tmp_path, LEVEL_2)
    assert task.baselines["candidates"] == pytest.approx(expected)
    logits = np.zeros((len(task.dev.inputs), 2), dtype=np.float32)
    logits[:, 1] = -np.arange(len(logits))  # the order of the candidates again
    assert task.dev.evaluate(logits).scores["mrr_10"] == pytest.approx(expected)


def test_scores_of_queries_are_in_the_order_of_the_candidates_and_p_is_of_the_main_score(
    tmp_path: Path, graded: tuple[dict[str, str], dict[str, int], dict[str, int]]
) -> None:
    data, relevant, related = graded
    qrels = tmp_path / "reversed.tsv"
    qrels.write_text("".join(Path(data["dev_qrels"]).read_text().splitlines(keepends=True)[::-1]))
    task = prepared({**data, "dev_qrels": str(qrels)}, tmp_path, {**TABLE, "metric": "map"})
    evaluation = task.dev.evaluate(np.random.default_rng(1).normal(size=(96, 2)).astype(np.float32))
    evaluation.write_predictions(tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "queries.tsv").read_text().splitlines()[1:]]
    scores: dict[tuple[str, str], dict[str, float]] = {}
    for query, ranking, name, score in rows:
        scores.setdefault((ranking, name), {})[query] = float(score)
    first = {query: min(relevant[query], related[query]) % 8 + 1 for query in relevant}
    assert list(scores["candidates", "mrr"]) == [f"q{query}" for query in range(12)]
    assert scores["candidates", "mrr"] == {query: pytest.approx(1 / first[query], abs=1e-6) for query in first}
    ours, theirs = (np.array(list(scores[ranking, "map"].values())) for ranking in ("network", "candidates"))
    assert evaluation.details["p_value_candidates"] == pytest.approx(p_value(ours, theirs), rel=1e-3)


def test_a_passage_of_a_lower_grade_than_the_relevance_level_has_to_be_in_the_collection(
    tmp_path: Path, graded: tuple[dict[str, str], dict[str, int], dict[str, int]]
) -> None:
    """NDCG counts grades below the level."""
    data, _, _ = graded
    qrels = tmp_path / "absent.tsv"
    qrels.write_text(f"{Path(data['dev_qrels']).read_text()}q0\t0\tp998\t0\nq0\t0\tp999\t1\n")
    with pytest.raises(BertlineError, match=r"line 26: passage 'p999' is not in the collection"):
        prepared({**data, "dev_qrels": str(qrels)}, tmp_path, LEVEL_2)


@pytest.mark.parametrize("part", ["dev", "train"])
def test_judgements_of_other_queries_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str) -> None:
    data = data_of(tmp_path, train="qrels")
    qrels = tmp_path / "more.tsv"
    qrels.write_text(f"{Path(data['dev_qrels']).read_text()}Q0\t0\tp000\t1\nq99\t0\tp000\t1\n")
    caplog.set_level("INFO")
    prepared({**data, f"{part}_qrels": str(qrels)}, tmp_path)
    assert f"{qrels}: 2 judgements of other queries are left out" in caplog.messages
    caplog.clear()
    prepared(data, tmp_path)
    assert not any("of other queries" in message for message in caplog.messages)


def test_queries_without_candidates_are_counted(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    queries = tmp_path / "more.tsv"
    queries.write_text(f"{Path(data['dev_queries']).read_text()}q99\twhere was n1 born ?\n")
    examples = prepared({**data, "dev_queries": str(queries)}, tmp_path).examples
    assert (examples["dev_queries"], examples["dev_queries_without_candidates"]) == (12, 1)
    assert prepared(data, tmp_path).examples["dev_queries_without_candidates"] == 0


def test_training_examples_are_the_first_of_the_file(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    whole, part = prepared(data, tmp_path), prepared(data, tmp_path, training_examples=7)
    assert len(part.train) == len(part.train_targets) == 7
    assert [input_of(part, tmp_path, row) for row in range(7)] == [input_of(whole, tmp_path, row) for row in range(7)]
    assert len(prepared(data, tmp_path, training_examples=5, objective="pairwise").train) == 5
    data = data_of(tmp_path, train="qrels")
    whole, part = (prepared(data, tmp_path, training_examples=limit, objective="pairwise") for limit in (None, 5))
    assert len(part.train_targets) == 5
    assert part.train.passage_rows.tolist() == whole.train.passage_rows[:5].tolist()


FORMS = {
    "pairs": "{query}\t{passage}\n",
    "ranked": "{query}\t{passage}\t{rank}\n",
    "top1000": "{query}\t{passage}\ta query\ta passage\n",
    "trec": "{query} Q0 {passage} {rank} {score} name\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_candidates_are_read_in_their_published_forms(tmp_path: Path, form: str) -> None:
    files = write_files(tmp_path, queries=2, candidates=3)
    tokenizer = tokenizer_of_collection(tmp_path, files)
    path = tmp_path / "given.gz"
    with gzip.open(path, "wt") as file:
        given = [("q1", "p004"), ("q0", "p000"), ("q1", "p005"), ("q0", "p002"), ("q0", "00000000")]
        lines = [
            FORMS[form].format(query=query, passage=passage, rank=rank, score=-rank)
            for rank, (query, passage) in enumerate(given, start=1)
        ]
        # With ranks or scores, the order of lines does not matter within a query.
        file.writelines([lines[2], lines[3], lines[0], lines[1], lines[4]] if form in ("ranked", "trec") else lines)
    queries = read_texts(Path(files["queries"]), tokenizer)
    found = read_candidates(path, queries, open_collection(tmp_path / "tokenized-collection", tokenizer).passages)
    assert found.query_ids == ["q1", "q0"]
    assert found.passage_ids.tolist() == [b"p004", b"p005", b"p000", b"p002"]
    assert found.starts.tolist() == [0, 2, 4]
    assert found.padding == 1


def read_numbered(folder: Path, lines: str) -> Candidates:
    """Read candidates of queries and passages whose ids are numbers from 0, as MS MARCO's are."""
    files = {"collection": "was born in p", "queries": "where was n"}
    for name, text in files.items():
        (folder / f"{name}.tsv").write_text("".join(f"{number}\t{text}{number}\n" for number in range(10)))
    tokenizer = tokenizer_of_collection(folder, {"collection": str(folder / "collection.tsv")})
    (folder / "given.tsv").write_text(lines)
    passages = open_collection(folder / "tokenized-collection", tokenizer).passages
    return read_candidates(folder / "given.tsv", read_texts(folder / "queries.tsv", tokenizer), passages)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1\t5\ta query\ta text\n1\t0\t6\t1\n", "given.tsv: line 2: it looks like a judgement"),
        ("1 0 5 1\n", "given.tsv: line 1: it looks like a judgement"),
        ("1 Q0 5 -1\n", "given.tsv: line 1: it looks like a judgement"),
        # Triples: with an example for each relevant passage, and with several.
        ("1\t5\t7\n2\t6\t8\n3\t4\t1\n", "given.tsv: of most queries no candidate has rank 0 or 1"),
        ("1\t5\t7\n1\t5\t8\n", "given.tsv: of most queries no candidate has rank 0 or 1"),
        # Judgements of three columns, and scores.
        ("1\t5\t1\n1\t6\t1\n", "given.tsv: two candidates of query 1 have rank 1"),
        ("1\t5\t1\n1\t5\t1\n", "given.tsv: passage 5 is twice among the candidates of query 1"),
        ("1\t5\t12.5\n", "given.tsv: line 1: it has to be a query, a passage and perhaps a rank, a whole number"),
        ("1\t5\t-3\n", "given.tsv: line 1: it has to be a query, a passage and perhaps a rank, a whole number"),
        # A rank is a number of the usual digits.
        ("1\t5\t1_0\n", "given.tsv: line 1: it has to be a query, a passage and perhaps a rank, a whole number"),
        ("1\t5\t\u0663\n", "given.tsv: line 1: it has to be a query, a passage and perhaps a rank, a whole number"),
        # Lines of two forms have no common order.
        ("1\t5\t1\n1\t0\n", "given.tsv: line 2: 2 columns, the lines before have 3; give all lines the same form"),
        ("1 Q0 5 1 9 x\n1 0\n", "given.tsv: line 2: 2 columns, the lines before have 6; give all lines the same form"),
    ],
)
def test_judgements_triples_and_scores_are_not_taken_for_candidates(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(BertlineError, match=message):
        read_numbered(tmp_path, lines)


@pytest.mark.parametrize(
    "lines",
    [
        "1\t0\twhere is 5\t5\n1\t5\twhere is 5\there\n",  # top1000.dev
        "1\t0\tborn\tin 1990\n1\t5\tborn\t1\n",
        "1\t0\t1\t25.2500\n1\t5\t2\t7.0000\n",  # of ColBERT: a rank and a score
        "1\t5\t2\n1\t0\t1\n",
        "1 5 1\n1 0 0\n",
        "1\t5\t2.0\n1\t0\t1.0\n",
        "1\t5\t40\n1\t0\t20\n2\t5\t1\n",  # the first ones of a query were left out
        "1 Q0 0 1 9 x\n1 Q0 5 1 8 x\n",
    ],
)
def test_passage_0_and_ranks_with_gaps_are_candidates(tmp_path: Path, lines: str) -> None:
    assert read_numbered(tmp_path, lines).passage_ids.tolist()[:2] == [b"0", b"5"]


def test_padding_is_counted_in_every_chunk_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in (1, 2, 4096):
        monkeypatch.setattr(lists, "CHUNK", chunk)
        found = read_numbered(tmp_path, "1\t00000000\n1\t5\n2\t00000000\n1\t3\n2\t4\n")
        assert (found.passage_ids.tolist(), found.padding) == ([b"5", b"3", b"4"], 2)


def test_a_passage_may_have_the_id_of_padding(tmp_path: Path) -> None:
    files = write_files(tmp_path, queries=1, candidates=2)
    Path(files["collection"]).write_text("p000\twas born\n00000000\tdied\n")
    tokenizer = tokenizer_of_collection(tmp_path, files)
    passages = open_collection(tmp_path / "tokenized-collection", tokenizer).passages
    (tmp_path / "given").write_text("q0\t00000000\nq0\tp000\n")
    found = read_candidates(tmp_path / "given", read_texts(Path(files["queries"]), tokenizer), passages)
    assert (found.passage_ids.tolist(), found.padding) == ([b"00000000", b"p000"], 0)


def test_a_text_has_as_many_tokens_as_any_network_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setattr(texts, "MAX_TOKENS", 3)
    (tmp_path / "texts.tsv").write_text("a\twas born\nb\twas born in\nc\twas born in p1\n")
    assert np.diff(read_texts(tmp_path / "texts.tsv", tokenizer_of(tmp_path)).offsets).tolist() == [2, 3, 3]
    assert [texts.dtype_for(2**16), texts.dtype_for(2**16 + 1)] == [np.uint16, np.uint32]


@pytest.mark.parametrize("score", ["1e39", "-1e400", "nan", "inf", "1_0", "\u0663", "high"])
def test_a_score_that_trec_eval_does_not_read_is_one_line(tmp_path: Path, score: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BertlineError, match=rf"line 2: score '{score}', allowed are numbers of float32; correct"):
            read_numbered(tmp_path, f"1 Q0 0 1 3.4028235E+38 x\n1 Q0 5 2 {score} x\n")


def tokenizer_of_collection(folder: Path, files: dict[str, str]) -> Any:
    tokenized(folder, files["collection"])
    return tokenizer_of(folder)


BAD = {
    "candidates": [
        ("", "contains no candidate"),
        ("q0\tp999\n", "line 1: passage 'p999' is not in the collection"),
        ("q9999\tp000\n", "line 1: query 'q9999' is not in the queries"),
        ("q0\tp000\nq0\tp000\n", "passage p000 is twice among the candidates of query q0"),
        ("q0\tp000\n", r"query q1 \(and 10 more\) is judged and has no candidates"),
        ("q0\n", "line 1: it has to be a query"),
        ("q0\tp000\tfirst\n", "line 1: it has to be a query"),
        ("q0\tQ0\tp000\t1\tnan\n", "line 1: it has to be a query.* or a line of a TREC run"),
    ],
    "qrels": [
        ("q0\t0\tp000\tyes\n", "line 1: it has to be a query, 0, a passage and a whole number"),
        ("q0\t0\tp000\t1\nq0\t0\tp001\t1001\n", "line 2: grade 1001, allowed are at most 1000; lower the grades"),
        ("q0\t0\tp000\t1\nq0\t0\tp000\t0\n", "line 2: passage p000 is judged twice for query q0"),
        ("other\t0\tp000\t1\n", "none of the queries is judged"),
        ("q1\t0\tp000\t1\nq0 \t0\tp000\t1\n", "line 2: the id 'q0 ' is empty, contains white space"),
        ("q1\t0\tp000\t1\nq0\t0\t p000\t0\n", "line 2: the id ' p000' is empty, contains white space"),
        ("q0\t0\tp000\t0\n", "no passage has a grade of at least 1; lower relevance_level"),
        ("q0\t0\tp000\t1\nq0\t0\tp999\t1\n", "line 2: passage 'p999' is not in the collection"),
    ],
    "queries": [
        ("q0\ta\nq0\tb\n", "lines 1 and 2 have the same id 'q0'"),
        ("q0\n", "line 1: no tab"),
        ("q0\twhere was n0\nborn and died ?\n", "line 2: no tab"),
        ("\n", "line 1: empty"),
        ("q0\ta\rq1\tb\r", "lines end with CR, as on an old Mac; convert the file"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "message"), [(kind, *bad) for kind, all_bad in BAD.items() for bad in all_bad]
)
def test_a_bad_file_is_one_line(tmp_path: Path, kind: str, text: str, message: str) -> None:
    data = data_of(tmp_path)
    bad = tmp_path / "bad.tsv"
    bad.write_text(text)
    with pytest.raises(BertlineError, match=message) as caught:
        prepared({**data, f"dev_{kind}": str(bad)}, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(bad) in str(caught.value)


@pytest.mark.parametrize("tfrecords", [False, True])
def test_a_folder_in_the_place_of_a_file_is_one_line(tmp_path: Path, *, tfrecords: bool) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BertlineError, match="folder is a folder; put the task's file there"):
        tokenized(tmp_path, str(tmp_path / "folder"), tfrecords=tfrecords)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no passage"),
        ("a\tone\nb\ttwo\na\tthree\n", "lines 1 and 3 have the same id 'a'"),
        ("a b\tone\n", "line 1: the id 'a b'"),
        ("a\n", "line 1: no tab"),
        (
            "a\tone\nb\ttwo\nwas born again\n",
            "line 3: no tab: it has to be an id, a tab and a text without a line break",
        ),
    ],
)
def test_a_bad_collection_leaves_nothing_behind(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.tsv").write_text(text)
    with pytest.raises(BertlineError, match=message):
        tokenized(tmp_path, str(tmp_path / "bad.tsv"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tsv", "tokenizer.json"]


def test_a_collection_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    data = data_of(tmp_path)
    card = Path(data["collection"], "collection.json")
    card.write_text(json.dumps({**json.loads(card.read_text()), "vocab_size": 9}))
    with pytest.raises(BertlineError, match="is tokenized with 9 tokens"):
        prepared(data, tmp_path)


def test_a_collection_is_the_same_bytes_again(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    write_tokenizer(tmp_path / "tokenizer.json")
    contents = []
    for name in ("first", "second"):
        recipe = Recipe({"fingerprint": "0" * 16, "source": files["collection"], "tfrecords": False})
        tokenize_collection(recipe, tmp_path / "tokenizer.json", tmp_path / name)
        contents.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]


def test_a_folder_of_the_user_s_does_not_become_a_collection(tmp_path: Path) -> None:
    files, tokenizer = write_files(tmp_path), write_tokenizer(tmp_path / "tokenizer.json")
    recipe = Recipe({"fingerprint": "0" * 16, "source": files["collection"], "tfrecords": False})
    for _ in range(2):  # its own is replaced
        tokenize_collection(recipe, tokenizer, tmp_path / "out")
    (tmp_path / "out/thesis.txt").touch()
    for output, message in (
        (tmp_path / "out", r"contains thesis\.txt, which would be deleted"),
        (tmp_path, "the output contains the source"),
    ):
        with pytest.raises(BertlineError, match=message):
            tokenize_collection(recipe, tokenizer, output)


@pytest.mark.parametrize(("objective", "suffix"), [("pointwise", ".trec"), ("pairwise", ".tsv")])
def test_a_kept_model_ranks_new_candidates_as_it_did_in_training(tmp_path: Path, objective: str, suffix: str) -> None:
    data = data_of(tmp_path)
    recipe = ranking_recipe(data, objective=objective, epochs=1)
    finetune(recipe, tmp_path / "tokenizer.json", tmp_path / "out")
    model = load_finetuned(tmp_path / "out/huggingface")
    files = [tmp_path / f"{name}.tsv" for name in ("collection", "queries", "candidates")]
    assert rank_files(model, *files, tmp_path / f"new/again{suffix}") == 96
    expected = tmp_path / ("out/run.trec" if suffix == ".trec" else "out/ranking.tsv")
    assert (tmp_path / f"new/again{suffix}").read_text() == expected.read_text()
    files[2].write_text("q0\tp999\n")
    with pytest.raises(BertlineError, match="'p999' is not in the collection"):
        rank_files(model, *files, tmp_path / f"new/other{suffix}")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"again{suffix}"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("query\tpassage\nwhere was n0 born ?\tn0 was born in p1 .\n")
    with pytest.raises(BertlineError, match=r"the model ranks passages for queries; use workflow/scripts/rank.py"):
        predict_files(model, [pairs], tmp_path / "new/pairs.jsonl", columns=("query", "passage"))


def test_a_model_of_another_task_is_refused_and_one_that_names_no_task_ranks(tmp_path: Path) -> None:
    """CoLA's second class is that of a grammatical sentence, and RTE's that of one that does not follow."""
    data_of(tmp_path)
    recipe = recipe_for("cola", write_cola(tmp_path / "cola.tsv"), epochs=1)
    finetune(recipe, tmp_path / "tokenizer.json", tmp_path / "out")
    files = [tmp_path / f"{name}.tsv" for name in ("collection", "queries", "candidates")]
    model = tmp_path / "out/huggingface"
    with pytest.raises(
        BertlineError,
        match=r"^model: it was trained for glue/cola and does not rank passages; name a model of a ranking$",
    ):
        rank_files(load_finetuned(model), *files, tmp_path / "run.trec")
    (model / "task.json").write_text('{"settings": {"max_sequence_length": 32, "max_query_length": 8}}')
    assert rank_files(load_finetuned(model), *files, tmp_path / "run.trec") == 96


@pytest.fixture
def ranker(tmp_path: Path) -> tuple[FinetunedModel, list[Path]]:
    """A model of a ranking, and a collection, queries and candidates."""
    data = data_of(tmp_path)
    finetune(ranking_recipe(data, epochs=1, training_examples=8), tmp_path / "tokenizer.json", tmp_path / "out")
    files = [tmp_path / f"{name}.tsv" for name in ("collection", "queries", "candidates")]
    return load_finetuned(tmp_path / "out/huggingface"), files


def test_what_a_killed_ranking_left_is_removed(
    tmp_path: Path, ranker: tuple[FinetunedModel, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next one, as other unfinished outputs are; and by pruning, which finds it by its name."""
    unfinished: list[Path] = []

    def score(outputs: np.ndarray) -> np.ndarray:
        unfinished.extend((tmp_path / "new").iterdir())
        return scores_of(outputs)

    monkeypatch.setattr(reranking, "scores_of", score)
    for _ in range(2):
        rank_files(ranker[0], *ranker[1], tmp_path / "new/run.trec")
        unfinished[0].mkdir(exist_ok=True)
    assert all(fnmatch(path.name, ".*.part") for path in unfinished if path.name != "run.trec")
    assert len(unfinished) == 3  # with the first run
    rank_files(ranker[0], *ranker[1], tmp_path / "new/run.trec")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.trec"]


def test_files_are_read_before_the_collection_if_they_can_be(
    tmp_path: Path, ranker: tuple[FinetunedModel, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection takes minutes to tokenize."""
    monkeypatch.delattr(reranking, "write_collection")
    model, (collection, queries, candidates) = ranker
    with pytest.raises(BertlineError, match=r"typo\.tsv does not exist"):
        rank_files(model, collection, queries, tmp_path / "typo.tsv", tmp_path / "run.trec")
    queries.write_text("q0\n")
    with pytest.raises(BertlineError, match=r"queries\.tsv: line 1: no tab"):
        rank_files(model, collection, queries, candidates, tmp_path / "run.trec")


def test_a_model_of_more_than_two_classes_does_not_rank(
    tmp_path: Path, ranker: tuple[FinetunedModel, list[Path]]
) -> None:
    model, files = ranker
    model.network.classifier = torch.nn.Linear(model.network.classifier.in_features, 3)
    with pytest.raises(BertlineError, match=r"^model: more than two classes do not rank passages; name a model of a"):
        rank_files(model, *files, tmp_path / "run.trec")


def test_what_is_cut_off_or_left_out_of_new_candidates_is_reported(
    tmp_path: Path, ranker: tuple[FinetunedModel, list[Path]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model, files = ranker
    with files[1].open("a") as file:
        file.write("more\twhere was n1 born ?\n")
    files[2].write_text("q0\tp000\nq0\t00000000\nq1\tp001\n")
    told = "2 queries with 2 candidates; 11 queries have no candidates, and 1 lines padding"
    cut_off = "of 2 inputs, 2 queries are longer than max_query_length 6 and 2 passages than the rest"
    model.settings.update(max_query_length=6, max_sequence_length=10)
    rank_files(model, *files, tmp_path / "run.trec")
    assert f"{files[2]}: {told}" in caplog.messages
    assert f"{files[2]}: {cut_off}; their ends are cut off" in caplog.messages
    caplog.clear()
    data = {**data_of(tmp_path / "again"), "test_queries": str(files[1]), "test_candidates": str(files[2])}
    prepared(data, tmp_path, max_query_length=6, max_sequence_length=10)
    assert f"test: {told}" in caplog.messages
    assert f"test: {cut_off}; their ends are cut off" in caplog.messages


def candidates_of(query_ids: list[str], passages: int) -> Candidates:
    """Each query with the same passages."""
    rows = np.arange(passages * len(query_ids), dtype=np.int32)
    ids = np.array([f"p{row % passages}" for row in rows], dtype=np.bytes_)
    return Candidates(query_ids, np.arange(len(query_ids) + 1) * passages, rows // passages, rows % passages, ids, 0)


def test_equal_scores_are_ordered_as_trec_eval_does(tmp_path: Path) -> None:
    candidates, scores = candidates_of(["q"], 4), np.array([0.5, 1.0 + 1e-9, 1.0, 1.0])  # of float32, three are equal
    write_rankings(candidates, scores, tmp_path / "ranking.tsv", tmp_path / "run.trec")
    assert (tmp_path / "ranking.tsv").read_text() == "q\tp3\t1\nq\tp2\t2\nq\tp1\t3\nq\tp0\t4\n"
    assert (tmp_path / "run.trec").read_text().splitlines()[0] == "q Q0 p3 1 1 bertline"
    assert measure(candidates, scores, {"q": {"p1": 1}}, 1)["mrr"].tolist() == [pytest.approx(1 / 3)]


def test_scores_in_a_run_file_have_all_their_digits(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    write_rankings(candidates_of(["q"], 1000), scores, None, tmp_path / "run.trec")
    written = [np.float32(line.split()[4]) for line in (tmp_path / "run.trec").read_text().splitlines()]
    assert written == sorted(scores.tolist(), reverse=True)


@pytest.mark.parametrize(("rank", "score"), [(10, 0.1), (11, 0.0)])
def test_mrr_10_ends_after_the_tenth_passage(rank: int, score: float) -> None:
    found = measure(candidates_of(["q"], 12), -np.arange(12.0), {"q": {f"p{rank - 1}": 1}}, 1)
    assert found["mrr_10"].tolist() == [pytest.approx(score)]
    assert found["mrr"].tolist() == [pytest.approx(1 / rank)]


def test_only_judged_queries_are_scored() -> None:
    candidates = candidates_of(["a", "b", "c"], 2)
    found = measure(candidates, np.array([1.0, 0, 1, 0, 0, 1]), {"c": {"p0": 1}, "a": {"p0": 1}}, 1)
    assert found["map"].tolist() == [1.0, 0.5]


def test_an_example_of_two_passages_takes_the_memory_of_both(tmp_path: Path) -> None:
    """Batches for a GPU are limited by padded tokens."""
    task = prepared(data_of(tmp_path), tmp_path, objective="pairwise")
    for row in range(5):
        assert task.train.lengths[row] == 2 * task.train.take(np.array([row])).lengths.max()


def test_a_packed_file_unpacks_to_a_limited_multiple_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "queries.tsv.gz"
    path.write_bytes(gzip.compress(b"q1\twhere was Ada born ?\n" * 1_000_000))
    with pytest.raises(BertlineError, match=r"queries\.tsv\.gz unpacks to more than 100 times its size; if it is not"):
        for _ in read_fields(path):
            pass
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BertlineError, match=r"queries\.tsv\.gz is damaged or truncated .*; replace it"):
        list(read_fields(path))


def test_a_run_is_in_the_order_of_trec_eval(tmp_path: Path) -> None:
    """Scores are float32 there, and equal ones are ordered by the id, the last first."""
    import pytrec_eval

    files = write_files(tmp_path, queries=2, candidates=3)
    tokenizer = tokenizer_of_collection(tmp_path, files)
    run = {"p000": 1.0, "p002": 1.0, "p001": 20.00000001, "p004": 20.0, "p003": 3.0}
    path = tmp_path / "run.trec"
    path.write_text("".join(f"q0 Q0 {passage} 1 {score} x\n" for passage, score in run.items()))
    queries = read_texts(Path(files["queries"]), tokenizer)
    found = read_candidates(path, queries, open_collection(tmp_path / "tokenized-collection", tokenizer).passages)
    assert [one.decode() for one in found.passage_ids] == ["p004", "p001", "p003", "p002", "p000"]
    given = np.arange(5, 0, -1, dtype=np.float32)
    for relevant in run:
        theirs = pytrec_eval.RelevanceEvaluator({"q0": {relevant: 1}}, {"recip_rank"}).evaluate({"q0": run})
        ours = measure(found, given, {"q0": {relevant: 1}}, 1)["mrr"]
        assert ours.tolist() == [pytest.approx(theirs["q0"]["recip_rank"])]


def test_queries_that_leave_no_room_for_a_passage_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        BertlineError, match="max_query_length: given 64, which leaves no room for a passage in max_sequence_length 64"
    ):
        prepared(data_of(tmp_path), tmp_path, max_query_length=64, max_sequence_length=64)


def test_passages_without_a_token_score_nothing(tmp_path: Path) -> None:
    files = write_files(tmp_path, queries=2, candidates=3)
    tokenizer = tokenizer_of_collection(tmp_path, files)
    Path(tmp_path / "empty.tsv").write_text("p000\t\np001\t\n")
    tokenized(tmp_path, str(tmp_path / "empty.tsv"))
    queries = read_texts(Path(files["queries"]), tokenizer)
    collection = open_collection(tmp_path / "tokenized-empty", tokenizer)
    (tmp_path / "candidates").write_text("q0\tp000\nq0\tp001\n")
    candidates = read_candidates(tmp_path / "candidates", queries, collection.passages)
    pairs = join(queries, collection.passages, candidates, SETTINGS, tokenizer)
    assert bm25_scores(pairs, collection.document_frequency).tolist() == [0, 0]


def test_queries_and_passages_that_are_cut_off_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = data_of(tmp_path, train="qrels")
    caplog.set_level("INFO")
    prepared(data, tmp_path, max_query_length=6, max_sequence_length=10)
    told = "queries are longer than max_query_length 6 and {0} passages than the rest; their ends are cut off"
    assert f"train: of 24 inputs, 24 {told.format(24)}" in caplog.messages
    assert f"dev: of 96 inputs, 96 {told.format(96)}" in caplog.messages
    caplog.clear()
    prepared(data, tmp_path, max_query_length=20, max_sequence_length=64)
    assert not any("cut off" in message for message in caplog.messages)
    prepared(data, tmp_path, max_query_length=7, max_sequence_length=14)  # exactly
    assert not any("cut off" in message for message in caplog.messages)
    prepared(data, tmp_path, max_query_length=7, max_sequence_length=13)
    assert "dev: of 96 inputs, 0 queries are longer than max_query_length 7 and 96 passages" in caplog.text


def test_a_passage_that_is_judged_twice_is_not_trained_on_twice(tmp_path: Path) -> None:
    data = data_of(tmp_path, train="qrels")
    qrels = tmp_path / "twice.tsv"
    lines = Path(data["train_qrels"]).read_text().splitlines(keepends=True)
    qrels.write_text("".join([*lines, lines[0]]))
    with pytest.raises(
        BertlineError, match=r"twice\.tsv: line 13: passage p\d+ is judged twice for query q0; remove one"
    ):
        prepared({**data, "train_qrels": str(qrels)}, tmp_path)
