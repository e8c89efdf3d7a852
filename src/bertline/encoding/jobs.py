"""The jobs that make the tokenizer, the samples and the card of a dataset's recipe; each is a script of its own."""

from __future__ import annotations

from pathlib import Path

from bertline.corpus.removal import overlap_template
from bertline.corpus.sources import files_of_dataset
from bertline.encoding.card import write_card
from bertline.encoding.encoder import encode_shard
from bertline.encoding.tokenizer import save_tokenizer
from bertline.encoding.vocabulary import train_byte_level, train_wordpiece
from bertline.files import Recipe
from bertline.results import paths

TRAINERS = {"wordpiece": train_wordpiece, "bpe": train_byte_level}
SETTINGS_OF_SAMPLES = ("seed", "pair_objective", "passes", "short_sequence_probability")


def train_tokenizer(recipe: Recipe, output: Path) -> None:
    """Train the tokenizer of a dataset on its shards.

    Args:
        recipe: of the dataset.
        output: the tokenizer.json to write.
    """
    settings, tokenizer = recipe["settings"], recipe["settings"]["tokenizer"]
    names = [f"{number:05d}" for number in range(settings["shards"])]
    shards = [Path(paths.DATASET_SHARD.format(dataset=recipe["fingerprint"], shard=name)) for name in names]
    chosen = {"vocab_size": tokenizer["vocab_size"], "lowercase": tokenizer["lowercase"], "seed": settings["seed"]}
    save_tokenizer(TRAINERS[tokenizer["train"]](shards, **chosen), output)


def encode_shard_of_dataset(recipe: Recipe, shard: str, directory: Path) -> None:
    """Encode a shard for every sequence length.

    Args:
        recipe: of the dataset.
        shard: 00000, 00001, ... or held_out; its name also seeds the random choices.
        directory: the dataset's folder with tokenizer.json, plan.json and shards/; receives seq{length}/{shard}.h5.
    """
    lengths = recipe["sequence_lengths"]
    encode_shard(
        directory / paths.SHARD.format(shard=shard),
        directory / paths.TOKENIZER,
        directory / paths.PLAN,
        {length: directory / paths.SAMPLES.format(length=length, shard=shard) for length in lengths},
        shard_name=shard,
        fingerprint=recipe["fingerprint"],
        **{key: recipe["settings"][key] for key in SETTINGS_OF_SAMPLES},
    )


def write_dataset_card(recipe: Recipe, directory: Path) -> None:
    """Write the card of a dataset.

    Args:
        recipe: of the dataset.
        directory: the dataset's folder with plan.json, tokenizer.json and seq{length}/{shard}.h5.
    """
    overlap = None
    if recipe["settings"]["evaluation_overlap"] != "ignore":
        overlap = files_of_dataset(recipe, overlap_template(recipe))
    write_card(
        directory,
        directory / paths.PLAN,
        fingerprint=recipe["fingerprint"],
        settings=recipe["settings"],
        sequence_lengths=recipe["sequence_lengths"],
        counts=files_of_dataset(recipe, paths.COUNTS),
        overlap=overlap,
        sources=recipe["sources"],
    )
