"""Start a trainer's processes: here, through srun as one task per rank, or on each node of a job of PBS, LSF or Cobalt.

Every process gets torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
The exit status is that of the first process that failed. In a cluster job the trainer stops before the walltime ends,
and a Slurm job is then requeued; after three attempts without progress it fails.

example:
  python workflow/scripts/launch.py --processes-per-node 2 -- \\
    workflow/scripts/pretrain.py --help
"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from bertline.cluster.launcher import launch, launch_on_this_node
from bertline.cluster.ranks import NodeRanks, become_rank
from bertline.command_line import run_command
from bertline.console import BertlineError

Internal = Parameter(show=False)


def start(
    *script: str,
    nodes: PositiveInt = 1,
    processes_per_node: PositiveInt = 1,
    additional_nodes: str = "",
    threads: PositiveInt = 1,
    checkpoints: Path | None = None,
    attempt: int = 1,
    minutes_to_save: float = 5.0,
    options: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    within_srun: Annotated[bool, Internal] = False,
    on_node: Annotated[tuple[int, str, int] | None, Internal] = None,
) -> None:
    """Start the processes.

    Args:
        script: after `--`, a Python script and its arguments.
        nodes: more than one only inside a job of a scheduler.
        processes_per_node: one per GPU.
        additional_nodes: nodes of other kinds in the same Slurm job, and processes per node, as in 1x2,4x8.
        threads: of a node, divided among its processes.
        checkpoints: folder in which progress is read and attempts are counted.
        attempt: 1 for a start by the user, which resets the count.
        minutes_to_save: time between the trainer's stop and the end of the job's walltime.
        options: further options of the script, as one shell word.
        within_srun: this process is a task of srun, and becomes a rank.
        on_node: this process starts the ranks of a node: its number, and the address and port of rank 0.
    """
    if not script:
        raise BertlineError("no script is given; put it and its arguments after `--`")
    if within_srun:
        become_rank(list(script), processes_per_node)
    if on_node:
        node, address, port = on_node
        sys.exit(launch_on_this_node(list(script), NodeRanks(nodes, processes_per_node, address, port, node)))
    status = launch(
        list(script),
        [sys.executable, __file__],
        nodes=nodes,
        processes_per_node=processes_per_node,
        additional_nodes=additional_nodes,
        threads=threads,
        checkpoints=checkpoints,
        attempt=attempt,
        minutes_to_save=minutes_to_save,
        options=options,
    )
    sys.exit(status)


if __name__ == "__main__":
    run_command(start, __doc__)
