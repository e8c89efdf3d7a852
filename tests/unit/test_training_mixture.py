"""Corpora mixed by weight: a pure function of (seed, position), and each sample gets its share."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from encoding_helpers import make_dataset, make_documents, write_shard
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_dataset import recipe
from training_processes import Trainer

from bertline.console import BertlineError
from bertline.encoding.vocabulary import train_byte_level
from bertline.training.data.mixture import make_mixture
from bertline.training.data.opening import open_training_data

NAMES = ("wikipedia", "books", "thesis")
WEIGHTS = st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 3.7])
CORPUS_INDEX = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30)), min_size=1, max_size=6).map(
    lambda runs: np.repeat([corpus for corpus, _ in runs], [size for _, size in runs]).astype(np.uint8)
)


@settings(max_examples=150, deadline=None)
@given(
    corpus_index=CORPUS_INDEX, weights=st.tuples(WEIGHTS, WEIGHTS, WEIGHTS), seed=st.integers(0, 2**40),
    epochs=st.integers(1, 4),
)  # fmt: skip
def test_every_sample_is_visited_floor_or_ceil_of_its_share_in_every_epoch(corpus_index, weights, seed, epochs):
    sizes = np.bincount(corpus_index, minlength=3)
    places = [round(size * weight) for size, weight in zip(sizes.tolist(), weights, strict=True)]
    if not sum(places):
        return
    blocks = np.split(corpus_index, [len(corpus_index) // 3, len(corpus_index) // 2])
    mixture = make_mixture(NAMES, blocks, np.ones(len(corpus_index), np.uint16), dict(zip(NAMES, weights, strict=True)))
    samples, visits = mixture.samples_at(np.arange(epochs * sum(places)), seed=seed)
    assert len({*zip(samples.tolist(), visits.tolist(), strict=True)}) == len(samples)
    # In each epoch alone, and in all of them together.
    for many, found in [(1, part) for part in np.split(samples, epochs)] + [(epochs, samples)]:
        counts = np.bincount(found, minlength=len(corpus_index))
        for corpus in np.unique(corpus_index):
            share = many * places[corpus] / sizes[corpus]
            of_corpus = counts[corpus_index == corpus]
            assert of_corpus.sum() == many * places[corpus]
            assert set(of_corpus.tolist()) <= {math.floor(share), math.ceil(share)}


def test_a_position_has_the_same_sample_however_it_is_requested():
    corpus_index = np.repeat([0, 1, 0], [50, 30, 20]).astype(np.uint8)
    mixture = make_mixture(NAMES[:2], [corpus_index], np.ones(100, np.uint16), {"books": 2.5})
    together, visits = mixture.samples_at(np.arange(400), seed=5)
    for position in (0, 144, 145, 399):
        alone, visit = mixture.samples_at(np.array([position]), seed=5)
        assert (alone[0], visit[0]) == (together[position], visits[position])
    other, _ = mixture.samples_at(np.arange(145), seed=6)
    for shuffled in (together[145:290], other, np.arange(145)):
        assert (together[:145] == shuffled).sum() < 15


def test_tokens_say_how_many_of_them_an_epoch_holds():
    corpus_index = np.repeat([0, 1], [40, 60]).astype(np.uint8)
    lengths = np.where(corpus_index == 0, 100, 50)
    mixture = make_mixture(NAMES[:2], [corpus_index], lengths, {"wikipedia": {"tokens": 10_000}})
    samples, _ = mixture.samples_at(np.arange(160), seed=1)
    assert lengths[samples][corpus_index[samples] == 0].sum() == 10_000
    assert (corpus_index[samples] == 1).sum() == 60


def test_tokens_of_a_corpus_without_samples_change_nothing():
    """Such as one that is so small that all of it is in the other split."""
    corpus_index = np.repeat([0, 2], [40, 60]).astype(np.uint8)
    lengths = np.full(100, 50)
    without, given = (
        make_mixture(NAMES, [corpus_index], lengths, weights).samples_at(np.arange(200), seed=1)
        for weights in ({}, {"books": {"tokens": 1000}})
    )
    np.testing.assert_array_equal(given, without)


def test_the_order_of_a_known_seed_never_changes():
    corpus_index = np.repeat([0, 1], [1000, 500]).astype(np.uint8)
    mixture = make_mixture(NAMES[:2], [corpus_index], np.ones(1500, np.uint16), {"books": 3.0})
    samples, visits = mixture.samples_at(np.array([0, 1, 2, 2499, 2500, 10**6]), seed=42)
    assert (samples.tolist(), visits.tolist()) == ([204, 1056, 863, 1115, 1234, 1349], [0, 1, 0, 2, 5, 1200])


def test_names_that_are_not_there_and_weights_that_leave_nothing_are_one_line():
    corpus_index = np.zeros(3, np.uint8)
    with pytest.raises(BertlineError, match="given 'news', allowed are wikipedia"):
        make_mixture(NAMES[:1], [corpus_index], np.ones(3, np.uint16), {"news": 2})
    with pytest.raises(BertlineError, match="corpus_weights: leave no sample"):
        make_mixture(NAMES[:1], [corpus_index], np.ones(3, np.uint16), {"wikipedia": 0})


def test_a_corpus_of_which_a_small_weight_leaves_nothing_is_reported(caplog):
    corpus_index = np.repeat([0, 1, 2], [1000, 40, 40]).astype(np.uint8)
    for small in (0.01, {"tokens": 3}):
        caplog.clear()
        make_mixture(NAMES, [corpus_index], np.full(1080, 10), {NAMES[1]: small, NAMES[2]: 0})
        assert caplog.messages == [
            f"corpus_weights: {NAMES[1]}: given {small} leaves an epoch none of its 40 samples; raise it, or set 0"
        ]


@pytest.mark.parametrize("tokenizer", ["wordpiece", "bpe"])
def test_pretraining_runs_on_mixed_corpora_of_ordered_pairs(tmp_path, tokenizer):
    made = None
    if tokenizer == "bpe":
        shard = write_shard(tmp_path / "sample.txt.zst", make_documents(50, 9))
        made = train_byte_level([shard], vocab_size=300, lowercase=True, strip_accents=None, seed=1)
    card = make_dataset(tmp_path / "dataset", pair_objective="sentence_order", tokenizer=made)
    masking = {"probability": 0.15, "max_predictions": None, "whole_word": True, "mask_only": False}
    given = recipe(
        steps=4, global_batch_size=8, corpus_weights={"books": 2.5, "news": {"tokens": 500}}, masking=masking
    )
    given["dataset"] = json.loads(card.read_text())["fingerprint"]
    trainer = Trainer(given, card, tmp_path / "phase", log_every=1)
    assert trainer.finish() == 0, trainer.log.read_text()
    points = [json.loads(line)["metrics"] for line in (tmp_path / "phase/metrics.jsonl").read_text().splitlines()]
    assert any(point.get("train/pair_loss", 0) > 0.3 for point in points)
    data = open_training_data(card, 32, torch.device("cpu"), given["settings"]["corpus_weights"])
    assert points[-1]["train/epoch"] == pytest.approx(4 * 8 / data.mixture.slots.sum())
    wrong = Trainer(recipe(corpus_weights={"nothing": 1}), card, tmp_path / "other")
    assert wrong.finish() != 0
    assert "given 'nothing', allowed are news, books" in wrong.log.read_text()
