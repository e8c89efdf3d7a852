"""Download a book of Project Gutenberg from a mirror, and record its checksum.

example:
  python workflow/scripts/download_book.py --book 1342 \\
    --mirrors https://aleph.pglaf.org \\
    --contact you@university.edu --output resources/gutenberg/1342.txt
"""

from bertline.command_line import run_command
from bertline.corpus.books import download_book

if __name__ == "__main__":
    run_command(download_book, __doc__)
