"""Targets by their readable paths: results/runs/demo/phase1 requests the result to which this link leads."""

from bertline.cluster.unlock import explain_lock
from bertline.planning import names
from bertline.planning.requested import files_of_names, records_of_names


def makes(file):
    return any(rule.is_producer(file) for rule in workflow.rules)


def named_files(given):
    """Return the targets to request from Snakemake, given targets of the command line."""
    every = {rule.name for rule in workflow.rules}
    whole = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    asked = files_of_names(plan, set(given) - every, whole, makes)
    return {*asked, *every.intersection(given)}


def steps_to_keep():
    return {
        (phase, step) for phase in plan.checkpoints for step in plan.checkpoints[phase]
    }


def pass_on_steps():
    """Pass to cluster jobs, as an argument, the checkpoints that were requested by name."""
    added = sorted(steps_to_keep() - STEPS_OF_CONFIGURATION)
    settings = workflow.config_settings
    if added:
        given = [f"{overrides.KEEP}={phase}-{step}" for phase, step in added]
        settings.config_args = [*(settings.config_args or ()), *given]


def with_named_files(prepare_dag):
    """Return Snakemake's function that prepares the graph, called with the names of the command line resolved.

    Snakemake resolves none itself: a link that exists would be an input without a rule, and nothing to be done.
    """

    def prepare(*arguments, **options):
        check_site_is_named()
        # Links follow the configuration even when no job has to run, as after a setting was changed back. While rules are
        # read, `dryrun` is not set yet.
        with exit_on_errors():
            if workflow.dryrun:
                check_links(plan)
            else:
                write_links(plan, existing_only=True)
            records = records_of_names(plan, workflow.dag_settings.targets)
            for option in ("targets", "forcerun", "until", "omit_from"):
                given = getattr(workflow.dag_settings, option)
                setattr(workflow.dag_settings, option, named_files(given))
            workflow.dag_settings.targets |= set(records)
            pass_on_steps()
            return prepare_dag(*arguments, **options)

    return prepare


def with_explained_lock(build_dag):
    """Return Snakemake's function that builds the graph, after which it takes the folder's lock."""

    def build(*arguments, **options):
        with exit_on_errors():
            build_dag(*arguments, **options)
            keep_locks_of_others(workflow.persistence)
            checks.check_layouts(plan, workflow.dag.needrun_jobs())
            if not runs_jobs():
                return
            if workflow.execution_settings.lock and workflow.persistence.locked:
                sys.exit(f"error: {explain_lock()}")
            # No handler is called if nothing is to be done. Recipes of other stages serve to start these by hand.
            if not any(workflow.dag.needrun_jobs()):
                remove_old_links(plan)
                recipes.write_recipes(plan)
                atexit.register(print_results)

    return build


def keep_locks_of_others(persistence):
    """Let Snakemake remove only its own lock at its end, as it removes those of all that run in the folder.

    `--unlock` builds no graph, and clears all.
    """

    def delete_own_locks():
        for file in persistence._lockfile.values():
            Path(file).unlink(missing_ok=True)
        persistence._lockfile.clear()

    if hasattr(persistence, "_lockfile"):  # not with Snakemake's records in a database
        persistence._delete_locks = delete_own_locks


def runs_jobs():
    """Return whether Snakemake is to run jobs: not for a dry run, and not to print the graph or the like."""
    return workflow.executor_plugin is not None and not workflow.dryrun


STEPS_OF_CONFIGURATION = steps_to_keep()
with exit_on_errors():
    for phase, step in overrides.steps_to_keep(arguments):
        plan.checkpoints.setdefault(phase, set()).add(step)

if workflow.is_main_process:
    workflow._prepare_dag = with_named_files(workflow._prepare_dag)
    workflow._build_dag = with_explained_lock(workflow._build_dag)
