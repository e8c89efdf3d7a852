"""Write dataset.json: a dataset's sources, the documents dropped, and its files with their digests."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.card import write_card
from bertline.files import read_json


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/write_dataset_card.py results/datasets/0123456789abcdef "
        "--plan plan.json --fingerprint 0123456789abcdef --recipe results/recipes/0123456789abcdef.json "
        "--sequence-lengths 128 512 --counts wikipedia documents/*.counts.json",
    )
    parser.add_argument("directory", type=Path, help="the dataset's folder: tokenizer.json, seq{length}/{shard}.h5")
    parser.add_argument("--plan", type=Path, required=True, metavar="JSON", help="the plan of its shards")
    parser.add_argument("--fingerprint", required=True, help="of the dataset")
    parser.add_argument(
        "--recipe",
        type=Path,
        required=True,
        metavar="JSON",
        help="the dataset's settings, and the sources of its corpora: their fingerprints, settings and licences",
    )
    parser.add_argument("--sequence-lengths", type=int, nargs="+", required=True, metavar="TOKENS")
    parser.add_argument(
        "--counts",
        nargs="+",
        action="append",
        required=True,
        metavar=("CORPUS", "COUNTS_JSON"),
        help="a corpus and the counts.json of all its parts; once for each corpus",
    )
    parser.add_argument(
        "--overlap",
        nargs="+",
        action="append",
        metavar=("CORPUS", "JSON"),
        help="a corpus and the output of find_overlap.py for all its parts; once for each corpus",
    )
    arguments = parser.parse_args()
    recipe = read_json(arguments.recipe)
    write_card(
        arguments.directory,
        arguments.plan,
        fingerprint=arguments.fingerprint,
        settings=recipe["settings"],
        sequence_lengths=arguments.sequence_lengths,
        counts=_by_corpus(arguments.counts),
        overlap=_by_corpus(arguments.overlap) if arguments.overlap else None,
        sources=recipe.get("sources", {}),
    )


def _by_corpus(options: list[list[str]]) -> dict[str, list[Path]]:
    return {name: [Path(path) for path in paths] for name, *paths in options}


if __name__ == "__main__":
    run_command(main)
