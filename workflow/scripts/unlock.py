"""Clear the lock of a killed snakemake, after checking that none runs in this folder."""

import argparse

from bertline.cluster.unlock import unlock
from bertline.console import HelpFormatter, run_command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/unlock.py --configfile config/demo.yaml",
    )
    parser.add_argument("--configfile", required=True)
    unlock(parser.parse_args().configfile)


if __name__ == "__main__":
    run_command(main)
