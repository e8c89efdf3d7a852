"""From site.yaml to the resources of jobs, in the words of Snakemake's Slurm executor. Without a site they are empty."""

from bertline.site import read_site

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


def phase_gpus(wildcards):
    """GPUs of each node; for unlike nodes the sbatch options say it of each kind."""
    size = size_of(wildcards)
    return (
        f"gpu:{size.gpus_per_node}" if size.gpus_per_node and not size.beside else None
    )


def phase_mpi(wildcards):
    """What makes the executor leave the start of processes to launch.py: only wanted on several nodes."""
    return "srun" if size_of(wildcards).on_several_nodes else None


def phase_tasks(wildcards):
    """One a rank; on one node launch.py starts the ranks itself."""
    size = size_of(wildcards)
    return sum(kind.processes for kind in size.kinds) if size.on_several_nodes else None


def phase_cpus_per_task(wildcards):
    size = size_of(wildcards)
    return size.cpus_per_gpu if size.on_several_nodes else size.cpus_per_node


def phase_sbatch_options(wildcards):
    """Ranks evenly on the nodes, and behind the job of a snakemake that died, if one still trains this phase."""
    size = size_of(wildcards)
    options = []
    earlier = slurm_queue.jobs_of(f"rule_pretrain_phase_wildcards_{wildcards.phase}")
    if earlier:
        options.append(f"--dependency=afterany:{':'.join(earlier)}")
    if size.beside:
        options += [geometry(size), *(f": {component(kind)}" for kind in size.beside)]
    elif size.on_several_nodes:
        options.append(f"--ntasks-per-node={size.processes_per_node}")
    return " ".join(options) or None


def geometry(kind):
    """Ranks and GPUs of a kind of nodes. The executor refuses the long forms of what it sets itself."""
    options = f"-n{kind.processes} --ntasks-per-node={kind.processes_per_node}"
    return options + (
        f" --gpus-per-node={kind.gpus_per_node}" * bool(kind.gpus_per_node)
    )


def component(kind):
    """Further nodes of a heterogeneous job; account, memory and walltime it has from the first ones."""
    options = [f"-N{kind.nodes}", f"-p{kind.partition}", f"-c{kind.cpus_per_gpu}"]
    if kind.constraint:
        options.append(f"-C{shlex.quote(kind.constraint)}")
    return " ".join([*options, geometry(kind)])


def phase_beside(wildcards):
    """Other kinds of nodes, for launch.py."""
    kinds = size_of(wildcards).beside if SITE else ()
    return ",".join(f"{kind.nodes}x{kind.processes_per_node}" for kind in kinds)


def phase_trainer_options(wildcards):
    return "--load-balancing measured" if SITE and size_of(wildcards).beside else ""


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
        "gres": phase_gpus,
        "mpi": phase_mpi,
        "tasks": phase_tasks,
        "cpus_per_task": phase_cpus_per_task,
        "slurm_extra": phase_sbatch_options,
    }
    if SITE
    else {}
)
