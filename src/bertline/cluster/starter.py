"""Starter of a job's ranks on one node: what srun, mpirun, ssh, a scheduler or a Pod runs there for the launcher."""

from __future__ import annotations

import sys
from typing import NoReturn

from cyclopts.types import NonNegativeInt, PositiveInt

from bertline.cluster.binding import Bind
from bertline.cluster.processes import wait_for_all
from bertline.cluster.ranks import NodeRanks, Program, become_rank_of_mpirun, become_rank_of_srun, check_script
from bertline.console import BertlineError


def start_ranks(
    *script: str,
    on_node: tuple[int, int, str, int] | None = None,
    within_srun: bool = False,
    within_mpirun: tuple[str, int] | None = None,
    processes_per_node: PositiveInt = 1,
    port: NonNegativeInt = 0,
    launch_node: str = "",
    bind: Bind = "none",
    while_connected: bool = False,
) -> NoReturn:
    """Start the ranks of a node, or become one rank, and exit with their status. One of the first three is needed.

    Args:
        script: after `--`, a Python script and its arguments.
        on_node: start all ranks of this node: the first one's number, the number of all, and the address and port of
            rank 0.
        within_srun: this process is a task of srun, and becomes a rank.
        within_mpirun: this process is a task of Open MPI's mpirun, and becomes a rank; the address and port of rank 0.
        processes_per_node: ranks on this node; not used within mpirun.
        port: of rank 0 within srun; 0 for one by the job's number.
        launch_node: the name of the node of rank 0 within srun, for its address where Slurm has only a loopback one.
        bind: cores and memory of each process: those of its socket or its NUMA node, with numactl.
        while_connected: with `on_node`, read signals for the ranks from standard input, and end them when it ends.

    Raises:
        SystemExit: with the exit status of the first rank that failed, or 0.
        BertlineError: without such an option, or outside a task of srun or mpirun.
    """
    check_script(script)
    command = list(script)
    if within_srun:
        become_rank_of_srun(command, processes_per_node, bind, port, launch_node)
    if within_mpirun:
        become_rank_of_mpirun(command, *within_mpirun, bind)
    if on_node is None:
        raise BertlineError("give --on-node, --within-srun or --within-mpirun; launch.py starts all ranks of a job")
    first, world_size, address, rank_0_port = on_node
    ranks = NodeRanks(first, processes_per_node, world_size, address, rank_0_port)
    sys.exit(
        wait_for_all(
            ranks.start(Program(command, bind=bind)), includes_all_ranks=False, while_connected=while_connected
        )
    )
