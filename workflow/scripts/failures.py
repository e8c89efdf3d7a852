"""Print why each job failed that did not succeed later."""

import argparse
import sys
from pathlib import Path

from bertline.cluster.failures import read_reasons
from bertline.console import HelpFormatter, run_command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/failures.py .snakemake/log/last.log",
    )
    parser.add_argument("log", type=Path, help="a log of snakemake's")
    print(*read_reasons([parser.parse_args().log]), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    run_command(main)
