"""Convert the extracted articles of one part to documents, and count those dropped."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.clean import clean_part
from bertline.corpus.cleaning_steps import STEPS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/clean_part.py "
        "--extracted extracted/part-00000 --source enwiki-20261101 --steps headings symbols "
        "--documents documents/part-00000.jsonl.zst --counts documents/part-00000.counts.json",
    )
    parser.add_argument("--extracted", required=True, help="the folder that extract_part.py made")
    parser.add_argument("--source", required=True, help="name of the source, stored in every document")
    parser.add_argument("--minimum-characters", type=int, default=200, help="shorter articles are dropped")
    parser.add_argument(
        "--steps", nargs="*", choices=list(STEPS), default=[], help="cleaning steps, in the order given"
    )
    parser.add_argument("--documents", required=True, help="the .jsonl.zst to write")
    parser.add_argument("--counts", required=True, help="the .counts.json to write")
    arguments = parser.parse_args()
    clean_part(
        arguments.extracted,
        arguments.documents,
        arguments.counts,
        source=arguments.source,
        minimum_characters=arguments.minimum_characters,
        steps=arguments.steps,
    )


if __name__ == "__main__":
    run_command(main)
