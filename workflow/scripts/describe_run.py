"""Write what a run consists of: names, fingerprints, folders."""

import argparse
import json

from bertline.console import HelpFormatter, run_command
from bertline.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog='example: python workflow/scripts/describe_run.py --record \'{"run": "demo"}\' --output record.json',
    )
    parser.add_argument("--record", type=json.loads, required=True, help="the record as JSON")
    parser.add_argument("--output", required=True, help="the file to write")
    arguments = parser.parse_args()
    write_json(arguments.output, arguments.record)


if __name__ == "__main__":
    run_command(main)
