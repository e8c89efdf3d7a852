"""Print the progress of each run: step, speed, time left, last checkpoint, trainer, and jobs in Slurm's queue.

example:
  python workflow/scripts/status.py --configfile config/demo.yaml
"""

from collections.abc import Sequence

from tabulate import tabulate

from bertline.cluster import slurm
from bertline.command_line import Settings, run_command
from bertline.planning.progress import PhaseStatus, overview, phase_statuses
from bertline.planning.resolve import plan_of_files

HEADERS = ["run", "what", "state", "step", "steps/s", "time left", "last checkpoint", "where"]
JOB_HEADERS = ["job", "state", "reason", "rule and wildcards", "restarts"]


def print_status(configfile: Sequence[str], *, settings: Settings = ()) -> None:
    """Print the progress of the runs of a configuration.

    Args:
        configfile: the configuration; a further file is merged over it.
        settings: replaced settings, PATH=VALUE.
    """
    plan = plan_of_files(configfile, settings)
    statuses = {(status.run, status.phase): status for status in phase_statuses(plan)}
    rows = []
    for run, what, folder, state in overview(plan):
        status = statuses.get((run, what))
        rows.append(phase_row(status, folder) if status else [run, what, state, "", "", "", "", folder])
    print(tabulate(rows, headers=HEADERS, disable_numparse=True))
    jobs = slurm.jobs_of_this_folder()
    if jobs:
        print()
        columns = [
            [job.number, job.state, job.reason, job.comment.replace("_wildcards_", "  "), job.restarts] for job in jobs
        ]
        print(tabulate(columns, headers=JOB_HEADERS, disable_numparse=True))


def phase_row(status: PhaseStatus, folder: str) -> list[str]:
    speed = f"{status.steps_per_second:.3g}" if status.state == "trains" and status.steps_per_second else ""
    saved = "" if status.saved_ago is None else f"step {status.saved_step}, {status.saved_ago} ago"
    step = f"{status.step} of {status.steps}"
    return [
        status.run,
        status.phase,
        status.state,
        step,
        speed,
        str(status.time_left or ""),
        saved,
        status.owner or folder,
    ]


if __name__ == "__main__":
    run_command(print_status, __doc__)
