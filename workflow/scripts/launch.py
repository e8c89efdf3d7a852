"""Start a trainer's processes: here, through srun, on each node of another scheduler's job, or on a list of hosts.

Every process gets torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
The exit status is that of the first process that failed. In a cluster job the trainer stops before the walltime ends,
and a Slurm job of Snakemake's executor is then requeued; after three attempts without progress it fails.

example:
  python workflow/scripts/launch.py --processes-per-node 2 -- \\
    workflow/scripts/pretrain.py --help
  python workflow/scripts/launch.py --hosts node1,node2:4 -- \\
    workflow/scripts/pretrain.py --help
"""

from bertline.cluster.launcher import launch
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(launch, __doc__)
