"""Start a job's ranks on one node, or become one of them.

launch.py runs this through srun, mpirun, ssh, a scheduler or a Pod; a person, through Open MPI's mpirun.

example:
  mpirun --host node1:8,node2:8 --bind-to none \\
    python workflow/scripts/start_ranks.py --within-mpirun node1 29500 \\
    -- workflow/scripts/pretrain.py --help
"""

from bertline.cluster.starter import start_ranks
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(start_ranks, __doc__)
