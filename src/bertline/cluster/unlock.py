"""Removal of the lock that a killed Snakemake leaves in its folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import psutil

from bertline.console import BertlineError


def unlock(configfile: Sequence[str]) -> None:
    """Clear the lock of this folder. Raises BertlineError if a snakemake runs here.

    Args:
        configfile: paths of the configuration.
    """
    running = _running_snakemakes()
    if running:
        raise BertlineError(f"snakemake runs here as process {running[0]}; stop it first, or let it finish")
    subprocess.run(["snakemake", "--unlock", "--configfile", *configfile], check=True)  # noqa: S603, S607


def _running_snakemakes() -> list[int]:
    """Return the process ids of every snakemake whose working directory is this one, except those of single jobs.

    These take no lock, and a job in Slurm's queue may outlive the snakemake that submitted it.
    """
    here, running = os.getcwd(), []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = [os.path.basename(word) for word in process.info["cmdline"] or []]
        if process.info["cwd"] == here and "snakemake" in words[:4] and "--nolock" not in words:
            running.append(process.info["pid"])
    return running
