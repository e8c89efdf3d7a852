"""Handlers for the start and the end of a run, and what is printed then, or after a dry run."""

import atexit
from contextlib import suppress
from functools import partial

from bertline.cluster import failures
from bertline.cluster.site_check import check_site
from bertline.cluster.slurm_submission import use_waiting_sbatch
from bertline.cluster.walltimes import longest_jobs
from bertline.console import BertlineError
from bertline.encoding.advice import warnings_in
from bertline.planning import checks, job_names
from bertline.reporting.terminal import summary


def check_cluster():
    """Stop a real run whose site.yaml requests what the Slurm cluster does not have."""
    settings = workflow.executor_settings
    if SITE and hasattr(settings, "status_command"):
        phases = (entry["phase"] for entry in plan.phases.values())
        tasks = (entry["task"] for entry in plan.finetunings.values())
        check_site(
            SITE.only_used(phases, tasks, predicts=bool(plan.predictions)),
            status_command=settings.status_command,
            jobs=longest_jobs(workflow),
        )
        use_waiting_sbatch(CHECKOUT / "workflow/slurm")


def print_warnings():
    """Print warnings before the first job; for tasks, the failed jobs of rule task_without_data repeat them at the end."""
    for warning in plan.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def print_warnings_of_datasets():
    """Print the warnings in the cards of finished datasets."""
    cards = {
        entry["name"]: plan.dataset_file(key, paths.CARD)
        for key, entry in plan.datasets.items()
    }
    for warning in warnings_in(cards):
        print(f"warning: {warning}", file=sys.stderr)


def print_results():
    """Print the scores of all runs if the report of them was requested, and the paths of models and report."""
    page, requested = targets.report_page(plan), workflow.dag.targetjobs
    requests = any(page in job.input or page in job.output for job in requested)
    if not (requests and Path(page).exists()):
        return
    latest = Path(paths.REPORT.format(fingerprint="latest"), "index.html")
    # At the end of the process, nothing may be raised.
    try:
        print(summary(targets.of_runs(paths.RECORD, plan.runs), report=latest))
    except (BertlineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)


def print_missing_inputs():
    if workflow.dag is None:  # with --lint and the like
        return
    for problem in plan.problems:
        print(f"before a real run: {problem}", file=sys.stderr)
    if workflow.dryrun:
        print_warnings()


# A dry run calls no handlers and may list thousands of jobs: this output goes below them.
if workflow.is_main_process:
    atexit.register(print_missing_inputs)


if SITE and workflow.is_main_process:
    for line in checks.unused_sizes(plan, SITE):
        print(line, file=sys.stderr)


if DISPLAY:
    # Jobs, which read this file, too, do not need these.
    from bertline.planning.expected import ExpectedTimes
    from snakemake_logger_plugin_bertline.schedule import remaining_jobs

    DISPLAY.describe_jobs(
        partial(job_names.job_name, plan),
        partial(job_names.job_progress, plan),
        ExpectedTimes(plan, SITE),
        partial(remaining_jobs, workflow),
    )


onstart:
    with exit_on_errors():
        checks.check_named_files(plan)
        checks.check_inputs_left_out(workflow.dag.needrun_jobs(), LEFT_OUT)
        checks.check_disk(plan, workflow.dag.needrun_jobs())
        check_cluster()
        print_warnings()
        remove_old_links(plan)
        write_links(plan, existing_only=False)
        recipes.write_recipes(plan)
        write_plan_file(plan, config, schema)


onsuccess:
    shutil.rmtree(failures.UNFINISHED, ignore_errors=True)
    with exit_on_errors():
        checks.check_made(workflow.dag.targetjobs)
        # Links into a report were left until it exists. Another snakemake, of other settings, may have changed others.
        write_links(plan, existing_only=True)
    print_warnings_of_datasets()
    atexit.register(print_results)  # below Snakemake's own output


# Repeats the reason of each failure below Snakemake's own output.
onerror:
    if DISPLAY:
        DISPLAY.stop()
    with suppress(BertlineError):  # which the next run reports
        write_links(plan, existing_only=True)  # to the report of what was made
    print_warnings_of_datasets()
    reasons = failures.read_reasons([Path(path) for path in log])
    # After Ctrl-C on a cluster, no job has failed.
    print(*reasons, sep="\n", file=sys.stderr)
    if reasons and not Path(targets.report_page(plan)).exists():
        # A second Ctrl-C ends the report, which nobody waits for then.
        with suppress(KeyboardInterrupt):
            failures.report_what_succeeded(
                targets.of_runs(paths.RECORD, plan.runs),
                targets.scores(plan.finetunings),
            )


# In a module, Snakemake leaves these to the Snakefile that uses it; one with handlers of its own calls bertline.onstart().
if not workflow.modifier.is_main_snakefile():
    workflow._onstart = onstart.func
    workflow._onsuccess = onsuccess.func
    workflow._onerror = onerror.func
