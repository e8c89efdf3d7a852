"""Clear the lock of a killed snakemake, after checking that none runs in this folder.

example:
  python workflow/scripts/unlock.py --configfile config/demo.yaml
"""

from bertline.cluster.unlock import unlock
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(unlock, __doc__)
