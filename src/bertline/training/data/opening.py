"""Training data: both splits of a dataset, its vocabulary, and whether it has sentence pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from bertline.console import BertlineError
from bertline.encoding.dataset import SampleReader, open_dataset
from bertline.encoding.masking import Vocabulary
from bertline.files import sha256_of_file
from bertline.results.paths import HELD_OUT
from bertline.training.data.mixture import Mixture, Weights, make_mixture


@dataclass(frozen=True)
class TrainingData:
    """A dataset opened for one sequence length."""

    train: SampleReader
    mixture: Mixture | None  # None: every epoch visits every sample once
    held_out: SampleReader
    vocabulary: Vocabulary
    vocab_size: int
    has_pairs: bool
    tokenizer_json: Path
    tokenizer_sha256: str
    digest: str  # of dataset.json, which contains the digests of all files

    @property
    def samples_per_epoch(self) -> int:
        """The number of positions of an epoch in the order of samples."""
        return len(self.train) if self.mixture is None else int(self.mixture.slots.sum())


def open_training_data(
    card_json: Path, sequence_length: int, device: torch.device, corpus_weights: Weights | None = None
) -> TrainingData:
    """Open the dataset described by `card_json`; `corpus_weights` are those of `make_mixture`, None or empty for none.

    Raises BertlineError if it has no samples of this length, or lacks a corpus that the weights name.
    """
    train = open_dataset(card_json, sequence_length, "train")
    if not len(train):
        raise BertlineError(f"{card_json}: there are no samples of length {sequence_length}; encode more text")
    tokenizer = train.card["tokenizer"]
    mixture = None
    if corpus_weights:
        corpora = [corpus["name"] for corpus in train.card["corpora"]]
        mixture = make_mixture(corpora, train.corpora(), train.lengths, corpus_weights)
    return TrainingData(
        train=train,
        mixture=mixture,
        held_out=open_dataset(card_json, sequence_length, HELD_OUT),
        vocabulary=Vocabulary.of_card(train.card, device),
        vocab_size=tokenizer["vocab_size"],
        has_pairs=train.card["settings"].get("pair_objective", "next_sentence") != "none",
        tokenizer_json=card_json.parent / tokenizer["file"],
        tokenizer_sha256=tokenizer["sha256"],
        digest=sha256_of_file(card_json),
    )
