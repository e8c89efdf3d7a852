"""Targets by the path that a person reads: results/runs/demo/phase1 asks for what this link leads to."""

from bertline.planning import names


def makes(file):
    return any(rule.is_producer(file) for rule in workflow.rules)


def named_files(given):
    """Return what Snakemake is to be asked for, given targets of the command line."""
    rules = [rule.name for rule in workflow.rules if not rule.has_wildcards()]
    known = [rule.name for rule in workflow.rules if rule.has_wildcards()]
    return {
        file
        for name in given
        for file in (
            [name] if name in known else names.files_of_name(plan, name, rules, makes)
        )
    }


def with_named_files(prepare_dag):
    """Return Snakemake's function that prepares the graph, called with the names of the command line resolved.

    Snakemake resolves none itself: a link that exists would be an input without a rule, and nothing to be done.
    """

    def prepare(*arguments, **options):
        try:
            for option in ("targets", "forcerun", "until", "omit_from"):
                given = getattr(workflow.dag_settings, option)
                setattr(workflow.dag_settings, option, named_files(given))
        except BertlineError as error:
            sys.exit(f"error: {error}")
        return prepare_dag(*arguments, **options)

    return prepare


if workflow.is_main_process:
    workflow._prepare_dag = with_named_files(workflow._prepare_dag)
