"""Ask the mirrors for the parts of a Wikimedia dump.

example:
  python workflow/scripts/list_parts.py --wiki enwiki --dump 20261101 \\
    --contact you@university.edu --mirrors https://dumps.wikimedia.org \\
    --output parts.json
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.corpus.wikimedia import list_parts
from bertline.files import write_json


def write_listing(wiki: str, dump: str, mirrors: list[str], output: Path, contact: str | None = None) -> None:
    """Write the listing of a dump.

    Args:
        wiki: the wiki's database name.
        dump: the dump's date.
        mirrors: URLs, or folders with a copy; tried in order.
        output: the listing to write.
        contact: an e-mail address or a URL; Wikimedia blocks requests without one.
    """
    write_json(output, list_parts(wiki, dump, mirrors, contact))


if __name__ == "__main__":
    run_command(write_listing, __doc__)
