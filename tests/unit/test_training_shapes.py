"""Shapes of micro-batches: little padding, few shapes, and the same losses whichever is chosen."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_dataset import MODEL, recipe, write_dataset

from bertline.encoding.masking import Masking
from bertline.training.data.batches import evaluation_batch, of_rank
from bertline.training.data.collation import idle_micro_batch, micro_batches
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import MAX_WIDTHS, Batching, fix_shapes, row_shape
from bertline.training.data.splitting import split
from bertline.training.initial import make_model
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.objective import compute_loss, make_loss_fn

MASKING = Masking(0.15)
SAMPLES = 20_000


def reader_of(lengths, mask_counts=None):
    return SimpleNamespace(lengths=np.asarray(lengths, dtype=np.uint16), mask_counts=mask_counts)


def batch_of(reader, samples):
    return evaluation_batch(np.asarray(samples), reader.lengths, MASKING, reader.mask_counts)


def short(random, length):
    return random.integers(8, 41, SAMPLES)


def documents(random, length):
    """Of mean 144 at 512, as short articles are."""
    return np.clip(random.lognormal(4.6, 0.8, SAMPLES), 8, length)


def mostly_full(random, length):
    return np.where(random.random(SAMPLES) < 0.8, length, random.integers(5, length + 1, SAMPLES))


@pytest.mark.parametrize("size", [4096, 16384])
@pytest.mark.parametrize("fixed", [False, True], ids=["free", "fixed"])
@pytest.mark.parametrize(
    ("lengths", "length", "packed", "most"),
    [
        (documents, 128, False, 1.06),
        (documents, 512, False, 1.13),
        (mostly_full, 128, False, 1.05),
        (mostly_full, 512, False, 1.06),
        (short, 128, True, 1.04),
        (short, 512, True, 1.04),
        (documents, 128, True, 1.02),
        (documents, 512, True, 1.02),
        (mostly_full, 128, True, 1.02),
        (mostly_full, 512, True, 1.02),
    ],
)
def test_little_padding_is_computed(lengths, length, packed, most, fixed, size):
    random = np.random.default_rng(1)
    reader = reader_of(lengths(random, length).astype(int))
    typical = batch_of(reader, np.arange(SAMPLES))
    batching = Batching(length, 32768 // length, packed=packed)
    if fixed:
        batching = fix_shapes(batching, reader, MASKING, typical, samples=size)
        assert len(batching.shapes) <= (2 if packed else MAX_WIDTHS)
    for _ in range(3):
        batch = batch_of(reader, random.choice(SAMPLES, size))
        parts = split(batch, batching)
        computed = sum(tokens_of(part, packed) for part in parts)
        assert computed / batch.lengths.sum() < most


def tokens_of(part, packed):
    if part.shape is not None:
        return part.shape.tokens
    lengths = part.batch.lengths
    return int(lengths.sum()) if packed else len(lengths) * -(-int(lengths.max()) // 8) * 8


def test_sequences_that_fill_no_micro_batch_exactly_are_packed_all_the_same():
    reader = reader_of(np.full(SAMPLES, 500))
    batch = batch_of(reader, np.arange(4096))
    batching = fix_shapes(Batching(512, 64, packed=True), reader, MASKING, batch, samples=4096)
    parts = split(batch, batching)
    assert batch.lengths.sum() / sum(part.shape.tokens for part in parts) > 0.97


LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=200)


@given(
    lengths=LENGTHS,
    expected=LENGTHS,
    rows=st.integers(1, 40),
    ranks=st.integers(1, 4),
    packed=st.booleans(),
    fixed=st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_every_sample_has_a_place_whatever_was_expected(lengths, expected, rows, ranks, packed, fixed):
    """Shapes are chosen by the lengths of other samples: those in `expected`."""
    reader = reader_of([*lengths, *expected])
    batch = batch_of(reader, np.arange(len(lengths)))
    batching = Batching(64, rows, packed=packed)
    if fixed:
        typical = batch_of(reader, len(lengths) + np.arange(len(expected)))
        batching = fix_shapes(batching, reader, MASKING, typical, samples=len(expected))
    seen = []
    for rank in range(ranks):
        for part in split(of_rank(batch, rank, [1.0] * ranks), batching):
            assert len(part.batch.samples) > 0
            assert tokens_of(part, packed) <= max(batching.tokens, 64)
            seen += part.batch.samples.tolist()
            if fixed:
                shape = part.shape
                assert shape in batching.shapes
                assert len(part.batch.samples) <= shape.sequences
                assert part.batch.lengths.max() <= shape.length
                assert part.batch.masked_counts.sum() <= shape.predictions
                assert not packed or part.batch.lengths.sum() <= shape.tokens
    assert sorted(seen) == list(range(len(lengths)))


def test_packed_micro_batches_have_places_for_all_masks():
    """Static masks may be many more than those of the samples that the shapes were chosen by."""
    lengths = np.full(64, 32)
    few, many = np.full(64, 1), np.full(64, 9)
    reader = reader_of(lengths, few)
    batching = fix_shapes(Batching(64, 8, packed=True), reader, MASKING, batch_of(reader, np.arange(64)), samples=64)
    batch = batch_of(reader_of(lengths, many), np.arange(64))
    parts = split(batch, batching)
    assert sorted(sample for part in parts for sample in part.batch.samples.tolist()) == list(range(64))
    for part in parts:
        assert part.batch.masked_counts.sum() <= part.shape.predictions


def test_packed_micro_batches_have_places_for_all_sequences():
    """Sequences may be many more, and shorter, than those that the shapes were chosen by."""
    reader = reader_of([*[64] * 64, *[8] * 300])
    typical, batch = batch_of(reader, np.arange(64)), batch_of(reader, 64 + np.arange(300))
    batching = fix_shapes(Batching(64, 8, packed=True), reader, MASKING, typical, samples=64)
    parts = split(batch, batching)
    assert sorted(sample for part in parts for sample in part.batch.samples.tolist()) == list(range(64, 364))
    assert all(len(part.batch.samples) <= part.shape.sequences for part in parts)


@pytest.mark.parametrize(("samples", "eighths"), [(64, [8]), (57, [8]), (56, [1] * 7), (72, [8, 1]), (9, [1, 1])])
def test_what_full_packed_micro_batches_leave_is_in_small_ones_if_these_compute_less(samples, eighths):
    reader = reader_of(np.full(SAMPLES, 512))
    typical = batch_of(reader, np.arange(SAMPLES))
    batching = fix_shapes(Batching(512, 64, packed=True), reader, MASKING, typical, samples=4096)
    parts = split(batch_of(reader, np.arange(samples)), batching)
    assert [8 * part.shape.tokens // batching.tokens for part in parts] == eighths


def test_packed_micro_batches_have_the_same_mixture_of_lengths():
    random = np.random.default_rng(2)
    reader = reader_of(documents(random, 512).astype(int))
    batch = batch_of(reader, np.arange(4096))
    parts = split(batch, Batching(512, 64, packed=True))
    for counts in ([len(part.batch.samples) for part in parts], [part.batch.masked_counts.sum() for part in parts]):
        assert max(counts) <= 1.05 * min(counts) + 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    card = write_dataset(tmp_path_factory.mktemp("data") / "dataset", samples=600, length=64)
    return open_training_data(card, 64, torch.device("cpu"))


def settings_of(**changes):
    model = {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model["num_hidden_layers"] = 1
    return {**recipe(**{"sequence_length": 64, "global_batch_size": 600} | changes), "model": model}


@pytest.fixture(scope="module")
def model(data):
    torch.manual_seed(3)
    return make_model(settings_of(), data).eval()


def losses_of(loss_fn, made, data):
    return torch.stack(compute_loss(loss_fn, made, seed=1, masking=MASKING, vocabulary=data.vocabulary)).double()


@given(samples=st.lists(st.integers(0, 399), min_size=1, max_size=60), rows=st.integers(1, 20), packed=st.booleans())
@settings(deadline=None, max_examples=40)
def test_fixed_shapes_give_the_same_losses(data, model, samples, rows, packed):
    batch = batch_of(data.train, samples)
    free = Batching(64, rows, packed=packed)
    fixed = fix_shapes(free, data.train, MASKING, batch_of(data.train, np.arange(400)), samples=400)
    loss_fn = make_loss_fn(model, precision="fp32", compiled=False)
    with torch.no_grad():
        found = [
            torch.stack([losses_of(loss_fn, made, data) for made in micro_batches(batch, data.train, batching)]).sum(0)
            for batching in (Batching(64, 60), free, fixed)
        ]
        idle = losses_of(loss_fn, idle_micro_batch(batch, data.train, fixed), data)
    for others in found[1:]:
        torch.testing.assert_close(others, found[0], rtol=1e-5, atol=1e-4)
    assert not idle.any()


@pytest.mark.slow
def test_programs_of_all_shapes_are_made_once_and_none_is_replaced_by_eager_mode(data, model, monkeypatch):
    """More than the 8 that PyTorch allows by default; with a compiler that only traces."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    batching = Batching(64, 4, shapes=tuple(row_shape(4, width, data.train, MASKING) for width in range(12, 65, 4)))
    batch = batch_of(data.train, np.arange(len(data.train)))
    compiled = make_loss_fn(model, precision="fp32", compiled=True)
    eager = make_loss_fn(model, precision="fp32", compiled=False)
    with torch.no_grad():
        made = list(micro_batches(batch, data.train, batching))
        assert len({micro.input_ids.shape for micro in made}) > 10
        found = [losses_of(compiled, micro, data) for micro in made]
        with torch.compiler.set_stance("fail_on_recompile"):
            again = [losses_of(compiled, micro, data) for micro in made]
        expected = [losses_of(eager, micro, data) for micro in made]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(again, expected, rtol=1e-5, atol=1e-4)
    torch._dynamo.reset()


@pytest.mark.parametrize("packed", [False, True])
def test_shapes_are_a_function_of_the_data_and_few_for_a_small_batch_or_a_short_phase(data, packed):
    def shapes(**changes):
        return fix_shapes_of_phase(Batching(64, 40, packed=packed), data, settings_of(**changes), 2).shapes

    many = shapes(steps=10_000)
    assert many == shapes(steps=10_000)
    assert len(many) > 1
    assert len(shapes(steps=10_000, global_batch_size=8)) == (2 if packed else 1)
    # Of 20 steps, a program would not win back the time in which it is compiled; and none is without the largest.
    assert shapes(steps=20) in (many[-1:], shapes(steps=1))
    assert [shape.length for shape in shapes(steps=20)] == [64]
