"""Train a tokenizer, WordPiece or byte-level BPE, on a sample of the training shards.

example:
  python workflow/scripts/train_tokenizer.py \\
    --recipe results/recipes/0123456789abcdef.json --output tokenizer.json
"""

from pathlib import Path

from bertline.console import run_command
from bertline.encoding.tokenizer import save_tokenizer
from bertline.encoding.vocabulary import train_byte_level, train_wordpiece
from bertline.files import read_json
from bertline.results import paths

TRAINERS = {"wordpiece": train_wordpiece, "bpe": train_byte_level}


def train(recipe: Path, output: Path) -> None:
    """Train the tokenizer of a dataset on its shards.

    Args:
        recipe: of the dataset.
        output: the tokenizer.json to write.
    """
    dataset = read_json(recipe)
    names = [f"{number:05d}" for number in range(dataset["settings"]["shards"])]
    shards = [Path(paths.DATASET_SHARD.format(dataset=dataset["fingerprint"], shard=name)) for name in names]
    settings, seed = dataset["settings"]["tokenizer"], dataset["settings"]["seed"]
    train_kind = TRAINERS[settings["train"]]
    tokenizer = train_kind(shards, vocab_size=settings["vocab_size"], lowercase=settings["lowercase"], seed=seed)
    save_tokenizer(tokenizer, output)


if __name__ == "__main__":
    run_command(train, __doc__)
