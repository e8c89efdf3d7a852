"""Show what a configuration asks for, what of it is finished, and what the rest takes by what is on record."""

import argparse

from tabulate import tabulate

from bertline.configuration import read_yaml
from bertline.console import HelpFormatter, run_command
from bertline.estimate import estimates
from bertline.overview import overview
from bertline.plan import make_plan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/show_plan.py --configfile config/demo.yaml",
    )
    parser.add_argument("--configfile", required=True)
    arguments = parser.parse_args()
    plan = make_plan(read_yaml(arguments.configfile), "config/config.schema.yaml", "config/models")
    print(tabulate(overview(plan), headers=["run", "what", "folder", "state"]))
    rows = [
        [
            left.what,
            left.jobs,
            "?" if left.hours is None else f"{left.hours:,.2f}",
            "?" if left.size is None else f"{left.size / 1e9:,.3f} GB",
        ]
        for left in estimates(plan)
    ]
    if rows:
        print()
        print(tabulate(rows, headers=["still to do", "jobs", "core- or GPU-hours", "disk"], disable_numparse=True))
        print("By the benchmarks and trainings on record here; ? where there is none alike.")


if __name__ == "__main__":
    run_command(main)
