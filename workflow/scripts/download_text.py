"""Download a file of a corpus, and verify its checksum.

example:
  python workflow/scripts/download_text.py --url https://host/book.txt \\
    --sha256 DIGEST --contact you@university.edu --output book.txt
"""

from bertline.command_line import run_command
from bertline.corpus.download import download_file

if __name__ == "__main__":
    run_command(download_file, __doc__)
