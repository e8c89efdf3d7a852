"""Show a configuration's stages, which of them are finished, and estimates for the others from recorded runs.

example:
  python workflow/scripts/plan.py --configfile config/demo.yaml
"""

from collections.abc import Sequence

from tabulate import tabulate

from bertline.command_line import Settings, run_command
from bertline.files import CHECKOUT
from bertline.planning.changes import changes
from bertline.planning.estimate import estimates
from bertline.planning.expected import finetuning_estimates
from bertline.planning.progress import overview
from bertline.planning.resolve import plan_of_files
from bertline.settings.site import read_site

HEADERS = ["still to do", "jobs", "core-hours", "node-hours", "disk", "estimated by"]


def show_plan(configfile: Sequence[str], *, settings: Settings = (), site: str | None = None) -> None:
    """Show the plan of a configuration.

    Args:
        configfile: the configuration; a further file is merged over it.
        settings: replaced settings, PATH=VALUE.
        site: the cluster's site.yaml: processes per node, speed of a GPU.
    """
    plan = plan_of_files(configfile, settings)
    print(tabulate(overview(plan), headers=["run", "what", "folder", "state"]))
    if changed := changes(plan):
        print()
        print(tabulate(changed, headers=["changed since the last run", "from", "to"], disable_numparse=True))
    sizes = read_site(site, CHECKOUT / "config/site.schema.yaml") if site else None
    rows = [
        [
            left.what,
            "" if left.jobs is None else left.jobs,
            "" if left.core_hours is None else f"{left.core_hours:,.2f}",
            "" if left.node_hours is None else f"{left.node_hours:,.2f}",
            "" if left.size is None else f"{left.size / 1e9:,.3f} GB",
            left.basis,
        ]
        for left in [*estimates(plan, sizes), *finetuning_estimates(plan, sizes)]
    ]
    if rows:
        print()
        print(tabulate(rows, headers=HEADERS, disable_numparse=True))
        print("Estimates, not measurements; node-hours are of trainings, without waiting in queues.")


if __name__ == "__main__":
    run_command(show_plan, __doc__)
