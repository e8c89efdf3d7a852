"""Extract the articles of one part of a dump."""

from __future__ import annotations

import argparse
from typing import get_args

from bertline.console import HelpFormatter, run_command
from bertline.corpus.extract import extract_part
from bertline.corpus.wikitext_lines import ListItems


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/extract_part.py "
        "--part part-00000.xml.bz2 --processes 4 --output extracted/part-00000",
    )
    parser.add_argument("--part", required=True, help="a .xml.bz2 of pages-articles")
    parser.add_argument("--extractor", choices=["wikiextractor", "bertline"], default="wikiextractor")
    parser.add_argument(
        "--list-items",
        choices=get_args(ListItems),
        default="sentences",
        help="list items that bertline's own extractor keeps",
    )
    parser.add_argument("--processes", type=int, default=1, help="number for wikiextractor")
    parser.add_argument(
        "--slice",
        type=int,
        nargs=2,
        default=[0, 1],
        metavar=("NUMBER", "OF"),
        help="read only one slice, counted from 0, of this many",
    )
    parser.add_argument("--output", required=True, help="the folder to make")
    arguments = parser.parse_args()
    number, of = arguments.slice
    extract_part(
        arguments.part,
        arguments.output,
        arguments.processes,
        number=number,
        of=of,
        extractor=arguments.extractor,
        list_items=arguments.list_items,
    )


if __name__ == "__main__":
    run_command(main)
