#!/usr/bin/env python3
"""Print whether a Job of Kubernetes is running, or ended in success or failed, as the executor cluster-generic asks.

example:
  python workflow/scripts/kubernetes_status.py bertline-encode-shard-1a2b3c4d
"""

from bertline.cluster.kubernetes import job_status
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(job_status, __doc__)
