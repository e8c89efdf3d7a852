"""Resources of jobs for Snakemake's Slurm executor, from site.yaml. Without a site they are empty."""

import sys

from bertline.cluster import placement, slurm
from bertline.console import BertlineError
from bertline.settings.site import read_site

# Set by the Slurm profile. Not a setting of the configuration, because it does not affect results.
site_file = config.pop("site", None)
try:
    SITE = site_file and read_site(
        site_file, workflow.source_path("../../config/site.schema.yaml")
    )
except BertlineError as error:
    sys.exit(f"error: {error}")


def phase_size(field, elsewhere):
    """Return a function for a resource of a phase's job: from its size in site.yaml, or `elsewhere` without a site."""

    def value(wildcards):
        given = getattr(size_of(wildcards), field) if SITE else None
        return elsewhere if given is None else given

    return value


def size_of(wildcards):
    return SITE.size(plan.phases[wildcards.phase]["phase"])


def phase_threads(wildcards):
    """Return the cores of a phase's job; on a single machine all, so that nothing else runs during a training."""
    if SITE:
        return size_of(wildcards).cpus_per_node
    return workflow.resource_settings.cores or 16


def phase_resource(name):
    """Return a function for a resource of a phase's Slurm job, which waits for the phase's jobs of an ended snakemake."""

    def value(wildcards):
        comment = f"rule_pretrain_phase_wildcards_{wildcards.phase}"
        earlier = slurm.numbers_of_jobs(comment)
        return placement.slurm_resources(size_of(wildcards), earlier)[name]

    return value


def phase_additional_nodes(wildcards):
    """Return the nodes of other kinds, for launch.py."""
    return placement.additional_nodes_option(size_of(wildcards)) if SITE else ""


def phase_trainer_options(wildcards):
    has_unlike_nodes = SITE and size_of(wildcards).additional_nodes
    return "--load-balancing measured" if has_unlike_nodes else ""


CPU_JOB = GROUPED_JOB = FINETUNING_JOB = PHASE_JOB = {}
if SITE:
    ALL_JOBS = {"slurm_account": SITE.account, "qos": SITE.qos}
    CPU_JOB = {**ALL_JOBS, "slurm_partition": SITE.partitions["cpu"]}
    # A few such jobs form one Slurm job of the size of one of them: see the profile.
    GROUPED_JOB = {**CPU_JOB, "one_after_the_other": 1}
    GPU_JOB = {
        **ALL_JOBS,
        "slurm_partition": SITE.partitions["gpu"],
        "constraint": SITE.constraint,
        # Otherwise the executor takes Slurm's tasks for tasks per GPU.
        "tasks_per_gpu": 0,
    }
    FINETUNING_JOB = {**GPU_JOB, "gres": "gpu:1"}
    by_slurm = ("gres", "mpi", "tasks", "cpus_per_task", "slurm_extra")
    PHASE_JOB = {
        **GPU_JOB,
        "slurm_partition": phase_size("partition", None),
        "constraint": phase_size("constraint", None),
        **{name: phase_resource(name) for name in by_slurm},
    }
