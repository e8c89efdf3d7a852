#!/usr/bin/env python3
"""Submit one of Snakemake's jobs to Kubernetes, and print the name of its Job. Only snakemake calls this.

example, as snakemake calls it:
  python workflow/scripts/kubernetes_submit.py \\
    --manifests deploy/kubernetes/graph jobscript.sh
"""

from bertline.cluster.kubernetes import submit_job
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(submit_job, __doc__)
