"""Compare site.yaml with the partitions and accounts of the Slurm cluster. Snakemake does so at every start."""

import argparse

from bertline.cluster.site_check import check_site
from bertline.console import HelpFormatter, run_command
from bertline.settings.site import read_site


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/check_site.py site.yaml",
    )
    parser.add_argument("site", help="the site file")
    site = read_site(parser.parse_args().site, "config/site.schema.yaml")
    check_site(site, status_command=None)
    print(f"{site.path}: partitions, account and sizes exist")


if __name__ == "__main__":
    run_command(main)
