"""Start a job's ranks on one node, or become one of them: launch.py has srun, ssh and schedulers run this.

By hand it is the program of Open MPI's mpirun.

example:
  mpirun --host a:8,b:8 python workflow/scripts/start_ranks.py \\
    --within-mpirun a 29500 -- workflow/scripts/pretrain.py --help
"""

from bertline.cluster.starter import start_ranks
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(start_ranks, __doc__)
