"""Download a file of a fine-tuning task's data, directly or from the task's official archive.

example:
  python workflow/scripts/download_evaluation.py --url https://host/CoLA.zip \\
    --member CoLA/dev.tsv --output dev.tsv
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.corpus.download import Expected, download, download_member


def download_evaluation(
    url: str, output: Path, sha256: str | None = None, member: str | None = None, contact: str | None = None
) -> None:
    """Download a file.

    Args:
        url: of the file, or of the archive that contains it.
        output: the file to write.
        sha256: of the file at the URL.
        member: the file's path in the archive.
        contact: an e-mail address or a URL, for the User-Agent.
    """
    if member:
        download_member([url], member, output, Expected(sha256=sha256), contact=contact)
    else:
        download([url], output, Expected(sha256=sha256), contact=contact)


if __name__ == "__main__":
    run_command(download_evaluation, __doc__)
