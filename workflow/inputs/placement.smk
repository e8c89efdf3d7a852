"""Resources of jobs for Snakemake's Slurm executor, from site.yaml. Without a site they are empty."""

import sys

from bertline.cluster import placement, slurm
from bertline.console import exit_on_errors
from bertline.settings.site import read_site
from snakemake_logger_plugin_bertline import LogHandler

# Set by the Slurm profile. Not a setting of the configuration, because it does not affect results.
site_file = config.pop("site", None)
with exit_on_errors():
    SITE = site_file and read_site(
        site_file, workflow.source_path("../../config/site.schema.yaml")
    )


# The display of this run on the terminal; none if Snakemake prints its own log, and none in the jobs of a cluster.
DISPLAY = next(
    (
        handler.display
        for handler in workflow.logger_manager.get_log_handlers()
        if isinstance(handler, LogHandler)
    ),
    None,
)


def check_site_is_named():
    """Stop where --config on the command line has replaced that of the profile, and with it the name of the site file."""
    given = workflow.config_settings.config_args
    settings = workflow.executor_settings
    submits = hasattr(settings, "status_command") or getattr(
        settings, "submit_cmd", None
    )
    if submits and given and not any(entry.startswith("site=") for entry in given):
        sys.exit(
            "error: --config replaces that of the profile, which names your site file; add site=site.yaml, or site= for none"
        )


def launch(script_and_options):
    """Return the shell line of a rule that starts processes, with the resources of `launched`."""
    # Slurm and a terminal's Ctrl-C signal every process of a job to stop: the shell and tee wait for the trainer, which
    # saves. An ignored SIGINT would be ignored by all children as they start, a trapped one is not. Snakemake deletes the
    # log before every attempt; the one next to the checkpoints contains them all.
    parts = (
        "trap '' TERM; trap : INT; mkdir -p {params.folder:q}/checkpoints;",
        run_script("launch.py --nodes {resources.launched_nodes}"),
        "--processes-per-node {resources.processes_per_node} --threads {threads} --hosts={resources.hosts:q}",
        "--additional-nodes={resources.additional_nodes:q} --bind {resources.bind:q} --attempt {resources.attempt}",
        "--checkpoints {params.folder:q}/checkpoints --minutes-to-save {resources.minutes_to_save} --launcher {resources.launcher:q}",
        "--options={resources.trainer_options:q} --",
        SCRIPTS + script_and_options,
        "2>&1 | tee -i -a {log:q} {params.folder:q}/checkpoints/training.log",
        # The display of a run on a terminal has the losses instead.
        "> /dev/null" if DISPLAY else "",
    )
    return " ".join(parts)


def from_site(size_of, field, elsewhere):
    """Return a function for a resource of a job: a field of its size in site.yaml, or `elsewhere` without a site."""

    def value(wildcards):
        given = getattr(size_of(wildcards), field) if SITE else None
        return elsewhere if given is None else given

    return value


def launched(size_of, *, micro_batch_tokens, mem_mb, runtime):
    """Return the resources of a rule that starts processes, by site.yaml or a profile. They do not affect any result.

    Args:
        size_of: function of the wildcards that returns the size of the job in site.yaml.
        micro_batch_tokens, mem_mb, runtime: without a site.
    """

    def nodes(wildcards):
        # Left out if it is 1: jobs that share a Slurm job would request the sum.
        several = SITE and size_of(wildcards).on_several_nodes
        return size_of(wildcards).nodes if several else None

    def additional_nodes(wildcards):
        return placement.additional_nodes_option(size_of(wildcards)) if SITE else ""

    def trainer_options(wildcards):
        return "--load-balancing measured" if additional_nodes(wildcards) else ""

    return {
        **slurm_job(size_of),
        "nodes": nodes,
        "launched_nodes": from_site(size_of, "nodes", 1),
        "processes_per_node": from_site(size_of, "processes_per_node", 1),
        "additional_nodes": additional_nodes,
        # Hosts on which ssh or mpirun starts the processes, as in a,b; empty: those of the job.
        "hosts": "",
        "launcher": "ssh",
        # Cores and memory of each process: those of a socket or of a NUMA node, or none.
        "bind": from_site(size_of, "bind", "none"),
        # A number or, in pretraining, auto or nothing.
        "micro_batch_tokens": from_site(
            size_of, "micro_batch_tokens", micro_batch_tokens
        ),
        # Site-specific options of the script, such as --compile and --activation-checkpointing.
        "trainer_options": trainer_options,
        # Time before the end of a job's walltime, for the current step and for saving.
        "minutes_to_save": 5,
        "attempt": lambda wildcards, attempt: attempt,
        # Constant over attempts, since the memory of a training does not grow.
        "mem_mb": from_site(size_of, "memory_mb", mem_mb),
        "runtime": from_site(size_of, "walltime", runtime),
    }


def size_of_phase(wildcards):
    return SITE.size(plan.phases[wildcards.phase]["phase"])


def size_of_finetuning(wildcards):
    return SITE.finetuning_size(plan.finetunings[wildcards.finetuning]["task"])


def phase_threads(wildcards):
    """Return the cores of a phase's job; on a single machine all, so that nothing else runs during a training."""
    if SITE:
        return size_of_phase(wildcards).cpus_per_node
    return workflow.resource_settings.cores or 16


def slurm_job(size_of):
    """Return the resources of a job for Snakemake's Slurm executor; {} without a site."""
    if not SITE:
        return {}

    def by_slurm(name):
        def value(wildcards):
            # A phase's job waits for the phase's jobs of an ended snakemake; fine-tunings wait by their lock.
            phase = getattr(wildcards, "phase", None)
            earlier = phase and slurm.numbers_of_jobs(
                f"rule_pretrain_phase_wildcards_{phase}"
            )
            return placement.slurm_resources(size_of(wildcards), earlier or ())[name]

        return value

    names = ("gres", "mpi", "tasks", "cpus_per_task", "slurm_extra")
    return {
        **GPU_JOB,
        "slurm_partition": from_site(size_of, "partition", None),
        "constraint": from_site(size_of, "constraint", None),
        **{name: by_slurm(name) for name in names},
    }


# Of a group's jobs one runs at a time. Here and not in a profile, whose resources do not reach the snakemake within a job,
# which has all cores of its node.
resource_scopes:
    one_after_the_other="local",


workflow.register_resource("one_after_the_other", 1)
CPU_JOB = GROUPED_JOB = PREDICTION_JOB = FINETUNING_JOB = {}
if SITE:
    ALL_JOBS = {
        "slurm_account": SITE.account,
        "qos": SITE.qos,
        **{f"grid_engine_{key}": name for key, name in SITE.grid_engine.items()},
    }
    CPU_JOB = {**ALL_JOBS, "slurm_partition": SITE.partitions["cpu"]}
    # A few such jobs form one job of the size of one of them: see the profile.
    GROUPED_JOB = {**CPU_JOB, "one_after_the_other": 1}
    GPU_JOB = {
        **ALL_JOBS,
        "slurm_partition": SITE.partitions["gpu"],
        "constraint": SITE.constraint,
        # Otherwise the executor takes Slurm's tasks for tasks per GPU.
        "tasks_per_gpu": 0,
    }
    # On a site whose fine-tunings have no GPU, predictions have none.
    HAS_GPU = SITE.finetunings["default"].gpus_per_node > 0
    PREDICTION_JOB = {**GPU_JOB, "gres": "gpu:1"} if HAS_GPU else GPU_JOB
    FINETUNING_JOB = {"one_after_the_other": 1}
