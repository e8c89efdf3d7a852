#!/usr/bin/env python3
"""Run a job of Snakemake in the first Pod of an Indexed Job, and the ranks that it needs in the other Pods.

example:
  python workflow/scripts/run_in_pod.py --script logs/kubernetes/job/job.sh \\
    --folder logs/kubernetes/job
"""

from bertline.cluster.pods import run_in_pod
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(run_in_pod, __doc__)
