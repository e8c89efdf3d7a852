"""Download a file of a fine-tuning task's data, by itself or out of the task's official archive."""

import argparse
import json

from bertline.console import HelpFormatter, run_command
from bertline.corpus.download import Expected, download, download_member


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog='example: python workflow/scripts/download_evaluation.py --source \'{"url": "https://host/CoLA.zip", '
        '"member": "CoLA/dev.tsv"}\' --output dev.tsv',
    )
    parser.add_argument("--source", required=True, type=json.loads, help="JSON: url, and sha256 and member if any")
    parser.add_argument("--contact", help="an e-mail address or a URL, for the User-Agent")
    parser.add_argument("--output", required=True, help="the file to write")
    arguments = parser.parse_args()
    source = arguments.source
    expected = Expected(sha256=source.get("sha256"))
    if "member" in source:
        download_member([source["url"]], source["member"], arguments.output, expected, contact=arguments.contact)
    else:
        download([source["url"]], arguments.output, expected, contact=arguments.contact)


if __name__ == "__main__":
    run_command(main)
