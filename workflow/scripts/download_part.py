"""Download one part of a dump: resume an interrupted download, and verify size and checksum."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.download import download
from bertline.corpus.wikimedia import part_to_download


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/download_part.py --listing parts.json --part part-00000 "
        "--mirrors https://dumps.wikimedia.org --contact you@university.edu --output part-00000.xml.bz2",
    )
    parser.add_argument("--listing", required=True, help="the parts.json that list_parts.py wrote")
    parser.add_argument("--part", required=True, help="the part's name in the listing")
    parser.add_argument("--mirrors", required=True, nargs="+", help="URLs, or folders with a copy; tried in order")
    parser.add_argument("--contact", help="an e-mail address or a URL; Wikimedia blocks requests without one")
    parser.add_argument("--output", required=True, help="the file to write")
    arguments = parser.parse_args()
    sources, expected = part_to_download(arguments.listing, arguments.part, arguments.mirrors)
    download(sources, arguments.output, expected, contact=arguments.contact)


if __name__ == "__main__":
    run_command(main)
