"""Inputs that the graph makes, and which of them a finished result still needs."""

import functools

# An input that was left out, by each of the existing outputs that were made of it.
LEFT_OUT = {}


def made_of(function, wildcard, outputs):
    """Return a function for a rule's input: what `function` of planning/inputs.py returns, if the graph makes it.

    Once all `outputs` exist, absent files are none of the inputs: Snakemake would make them, and then the outputs again,
    which have the same fingerprint. So a dataset may be deleted, or get another length, after a training on it. If the
    outputs are forced, all are inputs.
    """

    def files(wildcards):
        found = function(plan, wildcards[wildcard])
        made = inputs.made(plan, [found] if isinstance(found, str) else found)
        exist = [file for file in made if os.path.exists(file)]
        paths_of_outputs = [path.format(**dict(wildcards.items())) for path in outputs]
        model = paths.FINETUNED_MODEL.format(finetuning=wildcards[wildcard])
        if (
            exist == made
            or is_forced(paths_of_outputs[0], wildcards)
            or not all(map(os.path.exists, paths_of_outputs))
            or (wildcard == "finetuning" and model in models_to_make_again())
        ):
            return made
        absent = next(file for file in made if file not in exist)
        LEFT_OUT.update(dict.fromkeys(paths_of_outputs, absent))
        return exist

    return files


def is_forced(output, wildcards):
    """Return whether Snakemake runs the job of an existing `output` again: with --forceall, --forcerun or --force."""
    settings = workflow.dag_settings
    # Snakemake's own jobs on a cluster have --force, and name the job.
    if settings.forceall or (settings.forcetargets and settings.target_jobs):
        return True
    forced = {*settings.forcerun, *(settings.targets if settings.forcetargets else ())}
    return any(
        not forced.isdisjoint([rule.name, *rule.expand_output(wildcards)[0]])
        for rule in workflow.rules
        if forced and rule.is_producer(output)
    )


@functools.cache
def models_to_make_again():
    """Return the deleted models of fine-tunings that the plan or a file on the command line needs."""
    dag, scheduling = workflow.dag_settings, workflow.scheduling_settings
    given = {
        *dag.targets,
        *dag.until,
        *(scheduling.prioritytargets if scheduling else ()),
    }
    needed = {*inputs.models_to_make_again(plan), *given}
    return {file for file in needed if not os.path.exists(file)}
