"""What stops a real run before its first job, and what a dry one tells."""

import atexit

from bertline.cluster.site_check import check_site


def refuse_wrong_site():
    """Stop a real run whose site.yaml asks for what the Slurm cluster does not have."""
    settings = workflow.executor_settings
    try:
        if SITE and hasattr(settings, "status_command"):
            check_site(SITE, status_command=settings.status_command)
    except BertlineError as error:
        sys.exit(f"error: {error}")


def phase_names():
    return {phase["phase"] for phase in plan.phases.values()}


def refuse_missing_inputs():
    """Stop a real run, not a dry one, while files that the configuration names are absent."""
    if plan.problems:
        first, *others = plan.problems
        plan.problems.clear()
        sys.exit(f"error: {first}" + (f" (and {len(others)} more)" if others else ""))


def tell_warnings():
    """Before the first job of a real run; of tasks, the failed jobs of rule task_without_data say it again at its end."""
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def tell_missing_inputs():
    if workflow.dag is None:  # --lint and its like
        return
    for problem in plan.problems:
        print(f"before a real run: {problem}", file=sys.stderr)
    if workflow.dryrun:
        tell_warnings()


# A dry run calls no handler of Snakemake's, and lists jobs by the thousand: below them, this is read.
if workflow.is_main_process:
    atexit.register(tell_missing_inputs)


# One site file may serve several configurations, so this is no error.
if SITE and workflow.is_main_process:
    for name in sorted(SITE.phases.keys() - {"default", *phase_names()}):
        print(
            f"{SITE.path}: phases.{name}: no run here has a phase of this name",
            file=sys.stderr,
        )
