"""Conversion of the size of a phase's jobs to resources of Snakemake's Slurm executor and a launcher option."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from bertline.settings.site import Nodes, Size


def slurm_resources(size: Size, earlier_jobs: Sequence[str]) -> dict[str, str | int | None]:
    """Return the resources gres, mpi, tasks, cpus_per_task and slurm_extra of a phase's job; None omits one.

    Args:
        size: of the job.
        earlier_jobs: numbers of jobs of an ended snakemake that still train the phase; the new job waits for them.
    """
    options = []
    if earlier_jobs:
        options.append(f"--dependency=afterany:{':'.join(earlier_jobs)}")
    if size.additional_nodes:
        options += [_geometry(size), *(f": {_component(kind)}" for kind in size.additional_nodes)]
    elif size.on_several_nodes:
        options.append(f"--ntasks-per-node={size.processes_per_node}")
    return {
        # For nodes of several kinds, sbatch options specify the GPUs of each kind.
        "gres": f"gpu:{size.gpus_per_node}" if size.gpus_per_node and not size.additional_nodes else None,
        # Lets the launcher, not the executor, start the processes.
        "mpi": "srun" if size.on_several_nodes else None,
        # One per rank; on one node, the launcher is the only task and starts the ranks.
        "tasks": sum(kind.processes for kind in size.kinds) if size.on_several_nodes else None,
        "cpus_per_task": size.cpus_per_gpu if size.on_several_nodes else size.cpus_per_node,
        "slurm_extra": " ".join(options) or None,
    }


def _geometry(kind: Nodes) -> str:
    """Return sbatch's options for ranks and GPUs. The executor rejects the long forms of those that it sets itself."""
    options = f"-n{kind.processes} --ntasks-per-node={kind.processes_per_node}"
    return options + f" --gpus-per-node={kind.gpus_per_node}" * bool(kind.gpus_per_node)


def _component(kind: Nodes) -> str:
    """Return sbatch's options for further nodes of a heterogeneous job; account and walltime are the first nodes'."""
    options = [f"-N{kind.nodes}", f"-p{_quoted(kind.partition)}", f"-c{kind.cpus_per_gpu}"]
    if kind.constraint:
        options.append(f"-C{_quoted(kind.constraint)}")
    return " ".join([*options, _geometry(kind)])


def _quoted(name: str) -> str:
    """Return a name for a shell, in which the executor finds no option that it sets itself, as -J in HPC-Jupiter."""
    return shlex.quote(name).replace("-", "-''")


def additional_nodes_option(size: Size) -> str:
    """Return nodes and processes per node of the additional kinds, for the launcher."""
    return ",".join(f"{kind.nodes}x{kind.processes_per_node}" for kind in size.additional_nodes)
