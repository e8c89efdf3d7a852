"""From site.yaml to the resources of jobs, in the words of Snakemake's Slurm executor. Without a site they are empty."""

import sys

from bertline.cluster import placement, slurm
from bertline.console import BertlineError
from bertline.settings.site import read_site

# The Slurm profile sets it. No setting of the configuration: it alters no result.
site_file = config.pop("site", None)
try:
    SITE = site_file and read_site(
        site_file, workflow.source_path("../../config/site.schema.yaml")
    )
except BertlineError as error:
    sys.exit(f"error: {error}")


def phase_size(field, elsewhere):
    """A resource of a phase's job: of its size by site.yaml, or what it is elsewhere."""

    def value(wildcards):
        return getattr(size_of(wildcards), field) if SITE else elsewhere

    return value


def size_of(wildcards):
    return SITE.size(plan.phases[wildcards.phase]["phase"])


def phase_threads(wildcards):
    """On one machine all its cores: nothing else, on its GPUs neither, then runs beside a training."""
    if SITE:
        return size_of(wildcards).cpus_per_node
    return workflow.resource_settings.cores or 16


def phase_resource(name):
    """A resource of a phase's job on Slurm. A job that still trains the phase, for a snakemake that died, comes first."""

    def value(wildcards):
        comment = f"rule_pretrain_phase_wildcards_{wildcards.phase}"
        return placement.slurm_resources(
            size_of(wildcards), slurm.numbers_of_jobs(comment)
        )[name]

    return value


def phase_additional_nodes(wildcards):
    """Nodes of other kinds, for launch.py."""
    return placement.additional_nodes_option(size_of(wildcards)) if SITE else ""


def phase_trainer_options(wildcards):
    return (
        "--load-balancing measured"
        if SITE and size_of(wildcards).additional_nodes
        else ""
    )


ALL_JOBS = {"slurm_account": SITE.account, "qos": SITE.qos} if SITE else {}
CPU_JOB = {**ALL_JOBS, "slurm_partition": SITE.partitions["cpu"]} if SITE else {}
# Of such jobs a few make one Slurm job, which is as large as one of them: see the profile.
GROUPED_JOB = {**CPU_JOB, "one_after_the_other": 1} if SITE else {}
GPU_JOB = (
    {
        **ALL_JOBS,
        "slurm_partition": SITE.partitions["gpu"],
        "constraint": SITE.constraint,
        # Else the executor takes Slurm's tasks for tasks of each GPU.
        "tasks_per_gpu": 0,
    }
    if SITE
    else {}
)
FINETUNING_JOB = {**GPU_JOB, "gres": "gpu:1"} if SITE else {}
PHASE_JOB = (
    {
        **GPU_JOB,
        "slurm_partition": phase_size("partition", None),
        "constraint": phase_size("constraint", None),
        **{
            name: phase_resource(name)
            for name in ("gres", "mpi", "tasks", "cpus_per_task", "slurm_extra")
        },
    }
    if SITE
    else {}
)
