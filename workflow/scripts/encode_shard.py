"""Encode one shard: its text once to token ids, and these to samples for every sequence length.

example:
  python workflow/scripts/encode_shard.py --shard 00000 \\
    --recipe results/recipes/0123456789abcdef.json \\
    --directory results/datasets/0123456789abcdef
"""

from pathlib import Path

from bertline.console import run_command
from bertline.encoding.encoder import encode_shard
from bertline.files import read_json
from bertline.results import paths

SETTINGS = ("seed", "pair_objective", "passes", "short_sequence_probability")


def encode(recipe: Path, shard: str, directory: Path) -> None:
    """Encode a shard.

    Args:
        recipe: of the dataset.
        shard: 00000, 00001, ... or held_out; its name also seeds the random choices.
        directory: the dataset's folder with tokenizer.json, plan.json and shards/; receives seq{length}/{shard}.h5.
    """
    dataset = read_json(recipe)
    encode_shard(
        directory / paths.SHARD.format(shard=shard),
        directory / paths.TOKENIZER,
        directory / paths.PLAN,
        {
            length: directory / paths.SAMPLES.format(length=length, shard=shard)
            for length in dataset["sequence_lengths"]
        },
        shard_name=shard,
        fingerprint=dataset["fingerprint"],
        **{key: dataset["settings"][key] for key in SETTINGS},
    )


if __name__ == "__main__":
    run_command(encode, __doc__)
