"""A synthetic dataset with the length distribution of Wikipedia, so that the benchmark needs no other file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from steps import write_dataset

VOCAB_SIZE, TINY_VOCAB_SIZE = 30522, 1000
WORDS = 500  # distinct words of the text: few enough to be learned in minutes
# Quantiles, in steps of 1/32, of the lengths of English Wikipedia's samples of at most 512 tokens: mean 256, and 23
# percent of 512. From the histogram of 16,279,552 samples published with Krell et al. 2021 (arXiv 2107.02027).
LENGTHS_AT_512 = (
    5, 31, 39, 46, 53, 60, 67, 75, 84, 94, 105, 117, 131, 147, 164, 183, 204, 227, 253, 282, 314, 350, 390, 434, 484,
    512, 512, 512, 512, 512, 512, 512, 512,
)  # fmt: skip
# For samples of at most 128 tokens from Bertline's encoder: mean 121 on the English sample
# (bench/results/train-cpu.txt).
FULL_AT_128, SHORTEST_AT_128 = 0.85, 32
SHORTEST = 12  # required by `write_dataset` for two segments


def write_samples_like_wikipedia(folder: Path, sequence_length: int, samples: int, *, tiny: bool) -> Path:
    """Write an encoded dataset of one sequence length; return its dataset.json."""
    return write_dataset(
        folder,
        samples=samples,
        held_out=max(8, samples // 50),
        length=sequence_length,
        vocab_size=TINY_VOCAB_SIZE if tiny else VOCAB_SIZE,
        words=WORDS,
        draw_length=_drawer(sequence_length),
    )


def _drawer(sequence_length: int) -> Callable[[np.random.Generator], int]:
    if sequence_length > 128:
        quantiles = np.linspace(0, 1, len(LENGTHS_AT_512))
        scale = sequence_length / 512
        return lambda random: max(SHORTEST, round(scale * np.interp(random.random(), quantiles, LENGTHS_AT_512)))

    def draw(random: np.random.Generator) -> int:
        shortest = max(SHORTEST, SHORTEST_AT_128 * sequence_length // 128)
        return sequence_length if random.random() < FULL_AT_128 else int(random.integers(shortest, sequence_length))

    return draw
