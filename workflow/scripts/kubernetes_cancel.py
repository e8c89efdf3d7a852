#!/usr/bin/env python3
"""Wait for the end of the snakemake that started this, and delete its unfinished Jobs of Kubernetes.

example:
  snakemake --cluster-generic-sidecar-cmd workflow/scripts/kubernetes_cancel.py
"""

from bertline.cluster.kubernetes import cancel_jobs_at_the_end
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(cancel_jobs_at_the_end, __doc__)
