"""Masking: exact counts, the published proportions, and the same result wherever a sequence is in its batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from synthetic_dataset import SPECIAL_TOKEN_IDS, VOCAB_SIZE, continuation_bitmap, write_dataset

from bertline.console import BertlineError
from bertline.encoding.dataset import open_dataset
from bertline.encoding.hashing import mix_integers, mix_tensor
from bertline.encoding.masking import (
    HELD_OUT_MASKING,
    IGNORED,
    Masking,
    TokenPositions,
    Vocabulary,
    count_masked,
    held_out_positions,
    held_out_samples,
    mask_tokens,
)
from bertline.splitmix import mix

CARD = {
    "tokenizer": {
        "vocab_size": VOCAB_SIZE,
        "special_tokens": SPECIAL_TOKEN_IDS,
        "continuation_bitmap": continuation_bitmap(VOCAB_SIZE),
    }
}
VOCABULARY = Vocabulary.of_card(CARD)


def random_rows(count: int, length: int = 64) -> tuple[torch.Tensor, np.ndarray]:
    random = np.random.default_rng(3)
    lengths = random.integers(4, length + 1, count)
    rows = random.integers(5, VOCAB_SIZE, (count, length))
    rows[:, 0] = SPECIAL_TOKEN_IDS["[CLS]"]
    rows[np.arange(count), lengths - 1] = SPECIAL_TOKEN_IDS["[SEP]"]
    rows[np.arange(count), lengths // 2] = SPECIAL_TOKEN_IDS["[SEP]"]
    rows[np.arange(length) >= lengths[:, None]] = SPECIAL_TOKEN_IDS["[PAD]"]
    return torch.from_numpy(rows), lengths


def mask(
    rows, counts, *, samples=None, epoch=0, seed=7, masking=HELD_OUT_MASKING, token_positions=None, predictions=None
):
    """Masked ids, and positions and labels without the ignored ones."""
    samples = torch.arange(len(counts)) if samples is None else samples
    masked, flat, labels = mask_tokens(
        rows,
        token_positions or positions_of(rows),
        torch.as_tensor(counts),
        samples,
        torch.full_like(samples, epoch),
        predictions=int(sum(counts)) if predictions is None else predictions,
        masking=masking,
        seed=seed,
        vocabulary=VOCABULARY,
    )
    return masked, flat[labels != IGNORED], labels[labels != IGNORED]


def positions_of(rows):
    count, length = rows.shape
    return TokenPositions(
        torch.arange(count).repeat_interleave(length), torch.arange(length).repeat(count), torch.arange(count) * length
    )


def test_both_hashes_give_the_same_bits():
    values = np.random.default_rng(1).integers(0, 2**64, 1000, dtype=np.uint64)
    assert (mix_tensor(torch.from_numpy(values.view(np.int64))).numpy().view(np.uint64) == mix(values)).all()
    # The first output of the reference SplitMix64 for seed 0.
    assert int(mix(np.zeros(1, dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF
    assert mix_integers(1, 2) != mix_integers(2, 1)


def test_exactly_the_rounded_share_is_masked_and_never_a_special_token():
    rows, lengths = random_rows(500)
    counts = count_masked(lengths, Masking(0.15))
    assert counts.tolist() == [max(1, round(0.15 * length)) for length in lengths.tolist()]
    masked, flat, labels = mask(rows, counts)
    assert np.array_equal(np.bincount(flat // 64, minlength=500), counts)
    assert (flat.diff() > 0).all()
    assert (labels >= 5).all()
    assert torch.equal(labels, rows.flatten()[flat])
    untouched = torch.ones(rows.numel(), dtype=torch.bool)
    untouched[flat] = False
    assert torch.equal(masked.flatten()[untouched], rows.flatten()[untouched])


def test_predictions_are_limited():
    counts = count_masked(np.array([10, 128, 512]), Masking(0.15, 20))
    assert counts.tolist() == [2, 19, 20]


def test_replacements_follow_the_published_proportions():
    rows, lengths = random_rows(20_000)
    masked, flat, labels = mask(rows, count_masked(lengths, Masking(0.15)))
    result = masked.flatten()[flat]
    share = (result == SPECIAL_TOKEN_IDS["[MASK]"]).double().mean()
    kept = (result == labels).double().mean()
    assert abs(share - 0.8) < 0.005
    # A random word is the old one by chance in one of 70 cases.
    assert abs(kept - (0.1 + 0.1 / 70)) < 0.004
    random = result[(result != 4) & (result != labels)]
    assert (random >= 5).all()
    by_word = torch.bincount(random, minlength=VOCAB_SIZE)[5:].double()
    assert ((by_word - by_word.mean()) ** 2 / by_word.mean()).sum() < 120  # chi squared, 69 degrees of freedom


def test_every_position_is_masked_equally_often():
    rows = torch.full((20_000, 22), 9)
    rows[:, 0], rows[:, -1] = 2, 3
    _, flat, _ = mask(rows, np.full(20_000, 3))
    by_position = torch.bincount(flat % 22, minlength=22)[1:-1].double()
    assert ((by_position - 3000) ** 2 / 3000).sum() < 44  # chi squared, 19 degrees of freedom


def test_the_mask_belongs_to_the_sample_not_to_the_batch():
    rows, lengths = random_rows(20)
    counts = count_masked(lengths, Masking(0.15))
    masked, _, _ = mask(rows, counts)
    alone, _, _ = mask(rows[7:8, : lengths[7]], counts[7:8], samples=torch.tensor([7]))
    assert torch.equal(alone[0], masked[7, : lengths[7]])


@pytest.mark.parametrize("change", [{"epoch": 1}, {"seed": 8}, {"samples": torch.arange(20, 40)}])
def test_epoch_seed_and_sample_give_other_positions(change):
    rows = torch.full((20, 64), 9)
    counts = np.full(20, 10)
    _, before, _ = mask(rows, counts)
    _, after, _ = mask(rows, counts, **change)
    assert len(set(before.tolist()) & set(after.tolist())) < 80  # 31 expected by chance of 200


def test_packed_sequences_are_masked_as_rows_are():
    rows, lengths = random_rows(30)
    counts = count_masked(lengths, Masking(0.15))
    masked, flat, _ = mask(rows, counts)
    inside = torch.arange(64) < torch.from_numpy(lengths)[:, None]
    whole = positions_of(rows)
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)[:-1]]))
    packed = TokenPositions(whole.sequence[inside.flatten()], whole.position[inside.flatten()], starts)
    packed_masked, packed_flat, _ = mask(
        rows[inside], counts, token_positions=packed, predictions=int(counts.sum()) + 5
    )
    assert torch.equal(packed_masked, masked[inside])
    assert len(packed_flat) == len(flat)


def test_whole_words_are_masked_with_all_their_pieces_but_the_last():
    rows, lengths = random_rows(400)
    counts = count_masked(lengths, Masking(0.15))
    _, flat, _ = mask(rows, counts, masking=Masking(0.15, whole_word=True))
    assert np.array_equal(np.bincount(flat // 64, minlength=400), counts)
    chosen = torch.zeros(rows.numel(), dtype=torch.bool)
    chosen[flat] = True
    chosen, ids = chosen.view(rows.shape), rows
    torn = torch.zeros(400, dtype=torch.int64)
    continues = (ids[:, 1:] >= 65) & (ids[:, :-1] >= 5)  # a piece behind a word or another piece
    torn += (continues & (chosen[:, 1:] != chosen[:, :-1])).sum(1)
    assert torn.max() == 1
    assert 0 < (torn == 1).double().mean() < 0.3
    # Masking single tokens tears apart many more.
    _, flat, _ = mask(rows, counts)
    chosen = torch.zeros(rows.numel(), dtype=torch.bool)
    chosen[flat] = True
    chosen = chosen.view(rows.shape)
    assert (continues & (chosen[:, 1:] != chosen[:, :-1])).sum() > 2 * torn.sum()


def test_mask_only_replaces_every_chosen_token():
    rows, lengths = random_rows(50)
    masked, flat, _ = mask(rows, count_masked(lengths, Masking(0.4)), masking=Masking(0.4, mask_only=True))
    assert (masked.flatten()[flat] == SPECIAL_TOKEN_IDS["[MASK]"]).all()


def test_a_row_of_too_few_words_masks_all_of_them():
    rows = torch.tensor([[2, 9, 1, 1, 3]])
    _, flat, labels = mask(rows, [3])
    assert flat.tolist() == [1]
    assert labels.tolist() == [9]


def test_a_row_without_predictions_is_left_as_it_is():
    rows, lengths = random_rows(3)
    counts = count_masked(lengths, Masking(0.15))
    counts[[0, 2]] = 0
    _, flat, _ = mask(rows, counts)
    assert len(flat) == counts[1]
    assert (flat // rows.shape[1] == 1).all()


def test_held_out_positions_are_those_of_evaluation(tmp_path):
    reader = open_dataset(write_dataset(tmp_path / "dataset"), 32, "held_out")
    positions = dict(held_out_positions(reader))
    assert list(positions) == list(range(24))
    counts = count_masked(reader.lengths, HELD_OUT_MASKING)
    for sample, chosen in positions.items():
        assert len(chosen) == counts[sample]
        assert (reader.gather([sample]).tokens[chosen] >= 5).all()


def test_a_large_held_out_set_is_sampled_evenly():
    chosen = held_out_samples(25_000)
    assert len(chosen) == 10_000
    assert set(np.diff(chosen).tolist()) == {2, 3}
    assert (chosen[0], chosen[-1]) == (0, 24_997)
    assert held_out_samples(7).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_a_vocabulary_without_mask_is_refused():
    card = {"tokenizer": {"vocab_size": 9, "special_tokens": {"[PAD]": 0}, "continuation_bitmap": ""}}
    with pytest.raises(BertlineError, match=r"no \[MASK\]"):
        Vocabulary.of_card(card)
