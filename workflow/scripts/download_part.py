"""Download one part of a dump: resume an interrupted download, and verify size and checksum.

example:
  python workflow/scripts/download_part.py --listing parts.json \\
    --part part-00000 --mirrors https://dumps.wikimedia.org \\
    --contact you@university.edu --output part-00000.xml.bz2
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.corpus.download import download
from bertline.corpus.wikimedia import part_to_download


def download_part(listing: Path, part: str, mirrors: list[str], output: Path, contact: str | None = None) -> None:
    """Download a part.

    Args:
        listing: the parts.json that list_parts.py wrote.
        part: the part's name in the listing.
        mirrors: URLs, or folders with a copy; tried in order.
        output: the file to write.
        contact: an e-mail address or a URL; Wikimedia blocks requests without one.
    """
    sources, expected = part_to_download(listing, part, mirrors)
    download(sources, output, expected, contact=contact)


if __name__ == "__main__":
    run_command(download_part, __doc__)
