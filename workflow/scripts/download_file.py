"""Download a file of a corpus, or of a fine-tuning task's data from the task's archive, and verify its checksum.

example:
  python workflow/scripts/download_file.py --url https://host/book.txt \\
    --sha256 DIGEST --contact you@university.edu --output book.txt
  python workflow/scripts/download_file.py --url https://host/CoLA.zip \\
    --member CoLA/dev.tsv --output dev.tsv
"""

from bertline.command_line import run_command
from bertline.corpus.download import download_file

if __name__ == "__main__":
    run_command(download_file, __doc__)
