"""Show a configuration's stages, which of them are finished, and estimates for the others from recorded runs."""

import argparse

from tabulate import tabulate

from bertline.console import HelpFormatter, run_command
from bertline.planning.estimate import estimates
from bertline.planning.progress import overview
from bertline.planning.resolve import make_plan
from bertline.settings.configuration import read_yaml
from bertline.settings.site import read_site

HEADERS = ["still to do", "jobs", "core-hours", "node-hours", "disk", "estimated by"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/show_plan.py --configfile config/demo.yaml",
    )
    parser.add_argument("--configfile", required=True)
    parser.add_argument("--site", help="the cluster's site.yaml: processes per node, speed of a GPU")
    arguments = parser.parse_args()
    site = read_site(arguments.site, "config/site.schema.yaml") if arguments.site else None
    plan = make_plan(read_yaml(arguments.configfile), "config/config.schema.yaml", "config/models")
    print(tabulate(overview(plan), headers=["run", "what", "folder", "state"]))
    rows = [
        [
            left.what,
            "" if left.jobs is None else left.jobs,
            "" if left.core_hours is None else f"{left.core_hours:,.2f}",
            "" if left.node_hours is None else f"{left.node_hours:,.2f}",
            "" if left.size is None else f"{left.size / 1e9:,.3f} GB",
            left.basis,
        ]
        for left in estimates(plan, site)
    ]
    if rows:
        print()
        print(tabulate(rows, headers=HEADERS, disable_numparse=True))
        print("Estimates, not measurements; node-hours of training only, without evaluation and waiting in queues.")


if __name__ == "__main__":
    run_command(main)
