#!/usr/bin/env python3
"""Run a job of Snakemake in the first Pod of an Indexed Job, and the ranks that it needs in the other Pods.

example:
  python workflow/scripts/run_in_pod.py --script logs/kubernetes/job/job.sh \\
    --folder logs/kubernetes/job
"""

import os
import signal

if __name__ == "__main__":
    # Process 1 of a container ignores a signal without a handler, and the imports take a while. 75: to be run again.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))

from bertline.cluster.pods import run_in_pod
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(run_in_pod, __doc__)
