"""The trigram baseline: a probability distribution, equal to a plain computation of the same smoothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from encoding_helpers import SPECIAL, VOCABULARY, make_dataset

from bertline.console import BertlineError
from bertline.encoding.dataset import open_dataset
from bertline.encoding.tokenizer import make_tokenizer
from bertline.encoding.trigram import BITS, fit, predict, trigram_cross_entropy

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/trigram_baseline.py"
WORDS = 6


def pack(text: list[int]) -> np.ndarray:
    """Packed trigrams of a text of words 0 to WORDS - 1, with WORDS outside it."""
    padded = np.array([WORDS, WORDS, *text], dtype=np.uint64)
    return padded[:-2] << np.uint64(2 * BITS) | padded[1:-1] << np.uint64(BITS) | padded[2:]


def plain_kneser_ney(text: list[int], discounts: list[list[float]]) -> dict[tuple[int, int, int], float]:
    """Every trigram's probability by the textbook's recursion, with dictionaries."""
    padded = [WORDS, WORDS, *text]
    counts: list[dict] = [Counter(zip(padded, padded[1:], padded[2:], strict=False))]
    for _ in range(2):
        counts.append(Counter(ngram[1:] for ngram in counts[-1]))
    by_context: list[dict] = []
    for table in counts:
        of_context: dict = defaultdict(dict)
        for ngram, count in table.items():
            of_context[ngram[:-1]][ngram[-1]] = count
        by_context.append(of_context)

    def probability(context: tuple[int, ...], word: int, level: int) -> float:
        if level == 3:
            return 1 / WORDS
        lower = probability(context[1:], word, level + 1)
        followers = by_context[level].get(context)
        if not followers:
            return lower
        of_count = discounts[2 - level]
        total = sum(followers.values())
        spare = sum(of_count[min(count, 3) - 1] for count in followers.values()) / total
        count = followers.get(word, 0)
        return (count - of_count[min(count, 3) - 1] if count else 0) / total + spare * lower

    contexts = [(a, b) for a in range(WORDS + 1) for b in range(WORDS + 1)]
    return {(*context, word): probability(context, word, 0) for context in contexts for word in range(WORDS)}


@pytest.fixture(scope="module")
def text() -> list[int]:
    random = np.random.default_rng(3)
    steps = random.choice([0, 1, 1, 2], 300)
    return (np.cumsum(steps) % (WORDS - 1)).tolist()  # the last word never occurs


def test_probabilities_are_those_of_a_plain_computation(text: list[int]) -> None:
    orders = fit(pack(text))
    plain = plain_kneser_ney(text, [order.discounts.tolist() for order in orders])
    keys = np.array([a << 2 * BITS | b << BITS | c for a, b, c in plain], dtype=np.uint64)
    assert predict(orders, keys, WORDS) == pytest.approx(list(plain.values()), rel=1e-12)


def test_probabilities_of_all_words_sum_to_one_in_any_context(text: list[int]) -> None:
    orders = fit(pack(text))
    for first in range(WORDS + 1):
        for second in range(WORDS + 1):
            context = first << 2 * BITS | second << BITS
            keys = np.array([context | word for word in range(WORDS)], dtype=np.uint64)
            probabilities = predict(orders, keys, WORDS)
            assert probabilities.sum() == pytest.approx(1)
            assert (probabilities > 0).all()


def test_discounts_are_chen_and_goodmans_where_the_counts_allow() -> None:
    # Unigrams in the lowest order: 10 seen once, 4 twice, 3 three times, 2 four times.
    counts = [1] * 10 + [2] * 4 + [3] * 3 + [4] * 2
    trigrams = np.concatenate([np.full(count, word, dtype=np.uint64) for word, count in enumerate(counts)])
    base = 10 / (10 + 2 * 4)
    expected = [1 - 2 * base * 4 / 10, 2 - 3 * base * 3 / 4, 3 - 4 * base * 2 / 3]
    assert fit(trigrams)[2].discounts == pytest.approx(expected)


def test_a_tiny_text_has_the_probabilities_computed_by_hand() -> None:
    """The published formulas: Chen and Goodman 1999, section 3, with the uniform distribution below the lowest order.

    Y = n1 / (n1 + 2 n2) and Dk = k - (k + 1) Y n(k+1) / nk, where nk n-grams have the count k; p = (c - D(c)) / sum c +
    (D1 N1 + D2 N2 + D3 N3) / sum c * p of the lower order. There an n-gram's count is that of the words before it. A
    discount for which the counts are lacking is a half.
    """
    a, b, c = 0, 1, 2
    half, third = Fraction(1, 2), Fraction(1, 3)
    orders = fit(pack([a, b, a, c, a, b]))
    # 6 trigrams once. Bigrams: b follows a after 2 words; 4 others have one word before: Y = 4 / (4 + 2), D1 = 1 -
    # 2 Y / 4. Words: a is behind 3 others, b and c behind one.
    expected = [[half] * 3, [2 * third, half, half], [half] * 3]
    assert [order.discounts.tolist() for order in orders] == [pytest.approx([*map(float, row)]) for row in expected]

    of_a = (3 - half) / 5 + 3 * half / 5 / WORDS
    of_b = of_c = (1 - half) / 5 + 3 * half / 5 / WORDS
    of_d = 3 * half / 5 / WORDS
    b_after_a = (2 - half) / 3 + (half + 2 * third) / 3 * of_b
    c_after_a = (1 - 2 * third) / 3 + (half + 2 * third) / 3 * of_c
    by_hand = {
        (c, a, b): (1 - half) / 1 + half / 1 * b_after_a,
        (b, a, c): (1 - half) / 1 + half / 1 * c_after_a,
        (b, a, b): half / 1 * b_after_a,  # a trigram that the text does not have
        (a, a, b): b_after_a,  # nor its context
        (a, b, a): (1 - half) / 1 + half / 1 * (1 - 2 * third + 2 * third * of_a),
        (3, 3, a): of_a,
        (3, 3, 3): of_d,
    }
    keys = np.array([one << 2 * BITS | two << BITS | word for one, two, word in by_hand], dtype=np.uint64)
    assert predict(orders, keys, WORDS) == pytest.approx([*map(float, by_hand.values())])


def unigram_discounts(*numbers: int) -> list[float]:
    """The discounts of a text in which so many words occur once, twice, and so on."""
    counts = np.repeat(np.arange(1, len(numbers) + 1), numbers)
    return fit(np.repeat(np.arange(len(counts), dtype=np.uint64), counts))[2].discounts.tolist()


def test_a_discount_is_neither_all_of_a_count_nor_nothing() -> None:
    """Or else a word that the text has, or all words that it does not have, might get no probability."""
    assert unigram_discounts(100, 1)[0] == 0.95  # Y = 100 / 102, D1 = 0.98
    assert unigram_discounts(100, 50, 1)[1] == 1.9  # Y = 1 / 2, D2 = 1.97
    assert unigram_discounts(100, 50, 50, 1)[2] == 2.85  # D3 = 2.96
    assert unigram_discounts(1, 50)[0] == 0.05  # Y = 1 / 101, D1 = 0.01
    assert unigram_discounts(50, 1, 50)[1] == 0.05  # D2 = -142


def test_where_counts_are_lacking_a_half_is_the_estimate() -> None:
    assert unigram_discounts(9) == [0.5, 0.5, 0.5]
    assert unigram_discounts(0, 4, 2, 1) == pytest.approx([0.5, 2 - 3 / 2 * 2 / 4, 3 - 4 / 2 * 1 / 2])  # Y = 1 / 2
    assert unigram_discounts(4, 0, 2, 1) == pytest.approx([0.5, 0.5, 3 - 4 * 1 / 2])  # Y = 1
    assert unigram_discounts(4, 2, 0, 1) == pytest.approx([1 - 2 / 2 * 2 / 4, 0.5, 0.5])


@pytest.mark.parametrize("share", [1, 0.999, 0.7, 0.3, 0])
def test_the_samples_that_are_trained_on_are_spread_evenly_over_the_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """As many as have the given number of tokens in the mean, but one at least; their text is not all of one corpus."""
    card = make_dataset(tmp_path)
    train, held_out = open_dataset(card, 64, "train"), open_dataset(card, 64, "held_out")
    read: list[np.ndarray] = []
    gather = train.gather
    monkeypatch.setattr(train, "gather", lambda samples: (read.append(samples), gather(samples))[1])
    tokens = int(train.lengths.sum())
    trigram_cross_entropy(train, held_out, positions_of(held_out), max_tokens=int(share * tokens))
    (samples,) = read
    assert len(samples) == max(1, int(share * tokens) * len(train) // tokens)
    gaps = np.diff([*samples, len(train)])
    assert samples[0] == 0
    assert gaps.max() - gaps.min() <= 1
    assert gaps.min() > 0


def positions_of(reader) -> list[tuple[int, np.ndarray]]:
    special = list(range(len(SPECIAL)))
    return [
        (sample, np.flatnonzero(~np.isin(reader.gather([sample]).tokens, special))[::5])
        for sample in range(len(reader))
    ]


def test_the_baseline_beats_guessing_and_is_the_same_each_time(tmp_path: Path) -> None:
    card = make_dataset(tmp_path)
    train, held_out = open_dataset(card, 64, "train"), open_dataset(card, 64, "held_out")
    positions = positions_of(held_out)
    first = trigram_cross_entropy(train, held_out, positions)
    assert first == trigram_cross_entropy(train, held_out, iter(positions))
    assert first["tokens"] == sum(len(at) for _, at in positions)
    words = train.card["tokenizer"]["vocab_size"] - len(SPECIAL)
    assert 0.5 < first["cross_entropy"] < np.log(words) - 0.2
    few = trigram_cross_entropy(train, held_out, positions, max_tokens=500)
    assert 200 < few["training_tokens"] < 600
    assert few["cross_entropy"] > first["cross_entropy"]
    with pytest.raises(BertlineError, match="no training or no held-out tokens"):
        trigram_cross_entropy(train, held_out, [])


def test_an_unknown_token_that_is_asked_for_is_a_word_of_the_model(tmp_path: Path) -> None:
    """Masks that another program made may be at [UNK]: the loss is that of a vocabulary with a word in its place."""
    losses = []
    for name, stop in (("known", "."), ("unknown", "[UNK]")):
        words = [word for word in VOCABULARY if word != "." or stop == "."]
        card = make_dataset(tmp_path / name, tokenizer=make_tokenizer(words, lowercase=True, source="the test"))
        train, held_out = open_dataset(card, 64, "train"), open_dataset(card, 64, "held_out")
        tokens = [held_out.gather([sample]).tokens for sample in range(len(held_out))]
        asked = [(sample, np.flatnonzero(ids == words.index(stop))) for sample, ids in enumerate(tokens)]
        assert sum(len(at) for _, at in asked) > 20
        losses.append(trigram_cross_entropy(train, held_out, asked)["cross_entropy"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


def test_context_does_not_reach_into_the_sample_before(tmp_path: Path) -> None:
    """The first word of a sample has [CLS] before it and nothing before that, wherever the sample is."""
    card = make_dataset(tmp_path)
    train, held_out = open_dataset(card, 64, "train"), open_dataset(card, 64, "held_out")
    one = np.array([1])
    alone = [trigram_cross_entropy(train, held_out, [(sample, one)])["cross_entropy"] for sample in (0, 1, 2)]
    together = trigram_cross_entropy(train, held_out, [(sample, one) for sample in (0, 1, 2)])
    assert together["cross_entropy"] == pytest.approx(np.mean(alone))


@pytest.mark.slow
def test_the_script_asks_for_the_trainers_held_out_positions(tmp_path: Path) -> None:
    from bertline.encoding.masking import held_out_positions

    card = make_dataset(tmp_path)
    command = [
        sys.executable,
        SCRIPT,
        "--dataset",
        card,
        "--sequence-length",
        "32",
        "--output",
        tmp_path / "trigram.json",
    ]
    subprocess.run(command, check=True)
    train, held_out = open_dataset(card, 32, "train"), open_dataset(card, 32, "held_out")
    expected = trigram_cross_entropy(train, held_out, held_out_positions(held_out))
    assert json.loads((tmp_path / "trigram.json").read_text()) == expected
    none = subprocess.run([*command, "--max-tokens", "0"], capture_output=True, text=True, check=False)
    assert (none.returncode, len(none.stderr.splitlines())) == (1, 1)
    assert "Must be > 0" in none.stderr
