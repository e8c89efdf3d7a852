"""Convert texts, archives of texts and tables to documents, and count those dropped."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.cleaning_steps import STEPS
from bertline.corpus.tables import add_column_arguments, columns_of
from bertline.corpus.text_files import read_files


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/read_files.py "
        "--files texts/*.txt.gz --source thesis "
        "--documents documents/part-00000.jsonl.zst --counts documents/part-00000.counts.json",
    )
    parser.add_argument("--files", required=True, nargs="+", help="in this order; /./ marks the start of ids")
    parser.add_argument("--source", required=True, help="name of the source, stored in every document")
    parser.add_argument("--encoding", default="utf-8", help="of texts and CSV")
    parser.add_argument("--separator", help="a line between two documents; without it, a text is one document")
    parser.add_argument("--unpack-ratio", type=float, default=100.0, help="archives with a higher ratio are refused")
    add_column_arguments(parser)
    parser.add_argument("--minimum-characters", type=int, default=1, help="shorter documents are dropped")
    parser.add_argument(
        "--steps", nargs="*", choices=list(STEPS), default=[], help="cleaning steps, in the order given"
    )
    parser.add_argument("--documents", required=True, help="the .jsonl.zst to write")
    parser.add_argument("--counts", required=True, help="the .counts.json to write")
    arguments = parser.parse_args()
    read_files(
        arguments.files,
        arguments.documents,
        arguments.counts,
        source=arguments.source,
        encoding=arguments.encoding,
        separator=arguments.separator,
        minimum_characters=arguments.minimum_characters,
        steps=arguments.steps,
        columns=columns_of(arguments),
        unpack_ratio=arguments.unpack_ratio,
    )


if __name__ == "__main__":
    run_command(main)
