"""Write dataset.json: a dataset's sources, the documents dropped, and its files with their digests.

example:
  python workflow/scripts/write_dataset_card.py \\
    --recipe results/recipes/0123456789abcdef.json \\
    --directory results/datasets/0123456789abcdef
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.removal import overlap_template
from bertline.corpus.sources import files_of_dataset
from bertline.encoding.card import write_card
from bertline.files import read_json
from bertline.results import paths


def write_dataset_card(recipe: Path, directory: Path) -> None:
    """Write the card of a dataset.

    Args:
        recipe: of the dataset.
        directory: the dataset's folder with plan.json, tokenizer.json and seq{length}/{shard}.h5.
    """
    dataset = read_json(recipe)
    counts, overlap = files_of_dataset(dataset, paths.COUNTS), None
    if dataset["settings"]["evaluation_overlap"] != "ignore":
        overlap = files_of_dataset(dataset, overlap_template(dataset))
    write_card(
        directory,
        directory / paths.PLAN,
        fingerprint=dataset["fingerprint"],
        settings=dataset["settings"],
        sequence_lengths=dataset["sequence_lengths"],
        counts=counts,
        overlap=overlap,
        sources=dataset["sources"],
    )


if __name__ == "__main__":
    run_command(write_dataset_card, __doc__)
