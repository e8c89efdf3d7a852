"""Ask the mirrors for the parts of a Wikimedia dump."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.wikimedia import list_parts
from bertline.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/list_parts.py "
        "--wiki enwiki --dump 20261101 --contact you@university.edu "
        "--mirrors https://dumps.wikimedia.org --output parts.json",
    )
    parser.add_argument("--wiki", required=True, help="the wiki's database name")
    parser.add_argument("--dump", required=True, help="the dump's date")
    parser.add_argument("--mirrors", required=True, nargs="+", help="URLs, or folders with a copy; tried in order")
    parser.add_argument("--contact", help="an e-mail address or a URL; Wikimedia blocks requests without one")
    parser.add_argument("--output", required=True, help="the listing to write")
    arguments = parser.parse_args()
    listing = list_parts(arguments.wiki, arguments.dump, arguments.mirrors, arguments.contact)
    write_json(arguments.output, listing)


if __name__ == "__main__":
    run_command(main)
