"""Start a trainer's processes: here, through srun as one task per rank, or on each node of a job of PBS, LSF or Cobalt.

Every process gets torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
The exit status is that of the first process that failed. In a cluster job the trainer stops before the walltime ends,
and a Slurm job is then requeued; after three attempts without progress it fails.
"""

import argparse
import sys
from pathlib import Path

from bertline.cluster.launcher import launch, launch_on_this_node
from bertline.cluster.ranks import NodeRanks
from bertline.cluster.srun import become_rank
from bertline.console import HelpFormatter, run_command

EXAMPLE = """example:
  python workflow/scripts/launch.py --nodes 1 --processes-per-node 2 workflow/scripts/pretrain.py --help"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("--nodes", type=int, default=1, help="more than one only inside a job of a scheduler")
    parser.add_argument("--processes-per-node", type=int, default=1, help="one per GPU")
    parser.add_argument(
        "--additional-nodes",
        default="",
        metavar="NODESxPROCESSES,...",
        help="nodes of other kinds in the same Slurm job, and processes per node",
    )
    parser.add_argument("--threads", type=int, default=1, help="of a node, divided among its processes")
    parser.add_argument(
        "--checkpoints", type=Path, metavar="FOLDER", help="folder in which progress is read and attempts are counted"
    )
    parser.add_argument("--attempt", type=int, default=1, help="1 for a start by the user, which resets the count")
    parser.add_argument(
        "--minutes-to-save",
        type=float,
        default=5.0,
        help="time between the trainer's stop and the end of the job's walltime",
    )
    parser.add_argument("--options", default="", help="further options of the script, as one shell word")
    parser.add_argument("--within-srun", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--on-node", nargs=3, metavar=("NODE", "ADDRESS", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script [arguments]")
    given = parser.parse_args()
    script = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not script or given.nodes < 1 or given.processes_per_node < 1:
        parser.error("a script, and at least one node and process, are needed")
    if given.within_srun:
        become_rank(script, given.processes_per_node)
    if given.on_node:
        node, address, port = given.on_node
        ranks = NodeRanks(given.nodes, given.processes_per_node, address, int(port), int(node))
        sys.exit(launch_on_this_node(script, ranks))
    status = launch(
        script,
        [sys.executable, __file__],
        nodes=given.nodes,
        processes_per_node=given.processes_per_node,
        additional_nodes=given.additional_nodes,
        threads=given.threads,
        checkpoints=given.checkpoints,
        attempt=given.attempt,
        minutes_to_save=given.minutes_to_save,
        options=given.options,
    )
    sys.exit(status)


if __name__ == "__main__":
    run_command(main)
