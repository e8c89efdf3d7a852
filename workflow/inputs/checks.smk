"""Checks before the first job of a real run, output of a dry run, and handlers for the start and the end."""

import atexit
import time
from contextlib import suppress
from functools import partial

from bertline.cluster import failures
from bertline.cluster.site_check import check_site
from bertline.cluster.slurm_submission import use_waiting_sbatch
from bertline.cluster.walltimes import longest_jobs
from bertline.console import BertlineError
from bertline.encoding.advice import warnings_in
from bertline.planning import job_names
from bertline.reporting.terminal import summary

# Machines of one cluster may differ by this much.
CLOCK_SKEW_SECONDS = 60


def check_cluster():
    """Stop a real run whose site.yaml requests what the Slurm cluster does not have."""
    settings = workflow.executor_settings
    if SITE and hasattr(settings, "status_command"):
        phases = (entry["phase"] for entry in plan.phases.values())
        tasks = (entry["task"] for entry in plan.finetunings.values())
        check_site(
            SITE.only_used(phases, tasks),
            status_command=settings.status_command,
            jobs=longest_jobs(workflow),
        )
        use_waiting_sbatch(CHECKOUT / "workflow/slurm")


def check_inputs():
    """Stop a real run, not a dry one, if files that the configuration names are absent."""
    if plan.problems:
        first, *others = plan.problems
        plan.problems.clear()
        sys.exit(f"error: {first}" + (f" (and {len(others)} more)" if others else ""))


def check_inputs_left_out():
    """Stop before Snakemake deletes outputs to make them again without their inputs, for a reason of its own."""
    for job in workflow.dag.needrun_jobs():
        if files := [file for file in job.output if file in LEFT_OUT]:
            # Each output may have the marker of an interrupted job, a model that was deleted as well.
            sys.exit(
                f"error: Snakemake would delete {files[0]} to make it again, perhaps because it was interrupted at the end of "
                f"the job, but {LEFT_OUT[files[0]]} is absent; to keep it, give the same command "
                f"`--cleanup-metadata {' '.join(job.output)}` once, or `--forcerun {files[0]}` to make both again"
            )


def check_exports():
    """Stop if a layout is requested for samples of sentence order: its labels mean something else."""
    ordered = {
        key: entry["name"]
        for key, entry in plan.built_datasets.items()
        if entry["settings"]["pair_objective"] == "sentence_order"
    }
    for job in workflow.dag.needrun_jobs() if ordered else ():
        if (
            job.rule.name in ("export_nvidia", "export_gpauloski")
            and job.wildcards.dataset in ordered
        ):
            sys.exit(
                f"error: {job.output[0]}: datasets.{ordered[job.wildcards.dataset]}.pair_objective is sentence_order, which "
                "this layout does not have; export a dataset with another one"
            )


def check_disk():
    """Stop a real run where Snakemake would end in a traceback, or delete what a job has just made."""
    jobs = list(workflow.dag.needrun_jobs())
    written = [file for job in jobs for file in (*job.output, *job.log) if file]
    folders = {
        next(parent for parent in Path(file).parents if parent.exists())
        for file in written
    }
    always = ("results", "resources", "logs", "benchmarks", "results/recipes")
    of_runs = (paths.RUN.format(run=run) for run in plan.runs)
    folders |= {*map(Path, always), *map(Path, of_runs)}
    for folder in sorted(folder for folder in folders if folder.is_dir()):
        if not os.access(folder, os.W_OK | os.X_OK):
            sys.exit(
                f"error: {folder} cannot be written; allow it, or mount its disk for writing"
            )
    now = time.time()
    inputs = {file for job in jobs for file in job.input}
    for file in sorted(file for file in inputs if os.path.exists(file)):
        ahead = os.path.getmtime(file) - now
        if ahead > CLOCK_SKEW_SECONDS:
            sys.exit(
                f"error: {file} is from a time {ahead / 3600:,.1f} hours ahead of this machine's clock; set the clock right, "
                "or, if it is right, give the files its time: find resources results -exec touch --no-dereference {} +"
            )


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


# Not an error, because one site file may serve several configurations.
if SITE and workflow.is_main_process:
    known = {phase["phase"] for phase in plan.phases.values()}
    for name in sorted(SITE.phases.keys() - {"default", *known}):
        print(
            f"{SITE.path}: phases.{name}: no run here has a phase of this name",
            file=sys.stderr,
        )
    known = {finetuning["task"] for finetuning in plan.finetunings.values()}
    for name in sorted(SITE.finetunings.keys() - {"default", *known}):
        tasks = f"its tasks are {', '.join(sorted(known))}" if known else "it has none"
        print(
            f"{SITE.path}: finetunings.{name}: no run here has this task; {tasks}",
            file=sys.stderr,
        )


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
        check_inputs()
        check_inputs_left_out()
        check_disk()
        check_cluster()
        print_warnings()
        write_links(plan, existing_only=False)
        recipes.write_recipes(plan)
        write_plan_file(plan, config, schema)


# Snakemake (9.27) misses outputs downstream of a job that runs again while its dependents do not.
onsuccess:
    shutil.rmtree(failures.UNFINISHED, ignore_errors=True)
    absent = [
        file
        for job in workflow.dag.targetjobs
        for file in job.output or job.input
        if not Path(file).exists()
    ]
    if absent:
        sys.exit(
            f"error: {absent[0]} is still to be made; run the same command again"
        )
    # Links into a report were left until it exists. Another snakemake, of other settings, may have changed others.
    with exit_on_errors():
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
