"""Download a file of a fine-tuning task's data, directly or from the task's official archive."""

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.download import Expected, download, download_member


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/download_evaluation.py --url https://host/CoLA.zip "
        "--member CoLA/dev.tsv --output dev.tsv",
    )
    parser.add_argument("--url", required=True, help="of the file, or of the archive that contains it")
    parser.add_argument("--sha256", help="of the file at the URL")
    parser.add_argument("--member", help="the file's path in the archive")
    parser.add_argument("--contact", help="an e-mail address or a URL, for the User-Agent")
    parser.add_argument("--output", required=True, help="the file to write")
    arguments = parser.parse_args()
    urls, expected = [arguments.url], Expected(sha256=arguments.sha256)
    if arguments.member:
        download_member(urls, arguments.member, arguments.output, expected, contact=arguments.contact)
    else:
        download(urls, arguments.output, expected, contact=arguments.contact)


if __name__ == "__main__":
    run_command(main)
