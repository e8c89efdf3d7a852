"""Download a file of a fine-tuning task's data, directly or from the task's official archive.

example:
  python workflow/scripts/download_evaluation.py --url https://host/CoLA.zip \\
    --member CoLA/dev.tsv --output dev.tsv
"""

from bertline.command_line import run_command
from bertline.corpus.download import download_file

if __name__ == "__main__":
    run_command(download_file, __doc__)
