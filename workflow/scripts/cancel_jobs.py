#!/usr/bin/env python3
"""Wait beside snakemake, and cancel what it sent to LSF, Cobalt or PBS and is not over when it ends, as after Ctrl-C.

The executor's own way (cluster-generic 1.0.9) forgets the jobs that it is just asking after, and gives their scheduler
two seconds. When snakemake is killed, this ends as well and its jobs go on.
"""

import argparse
import os
import signal
import subprocess
from pathlib import Path

from schedulers import scheduler_here

from bertline.console import HelpFormatter, run_command


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/cancel_jobs.py & exec snakemake",
    ).parse_args()
    # Ctrl-C reaches this as well; snakemake says when it is time.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    snakemake = os.getppid()
    scheduler = scheduler_here()
    scheduler.ended.mkdir(parents=True, exist_ok=True)
    sent = Path(scheduler.logs, f"sent-{os.getpid()}").absolute()
    sent.touch()
    # submit_job.py finds it in SNAKEMAKE_CLUSTER_SIDECAR_VARS and adds its jobs.
    print(sent, flush=True)
    told = None
    while told is None and os.getppid() == snakemake:
        told = signal.sigtimedwait([signal.SIGTERM], 5)
    numbers = [number for number in sent.read_text().split() if not (scheduler.ended / number).exists()]
    if told and numbers:
        subprocess.run([scheduler.cancel, *numbers], capture_output=True, check=False)  # noqa: S603
    sent.unlink()


if __name__ == "__main__":
    run_command(main)
