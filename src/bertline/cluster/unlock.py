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
    here = os.getcwd()
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = [os.path.basename(word) for word in process.info["cmdline"] or []]
        # Those of single jobs take no lock, and a job in Slurm's queue may outlive the snakemake that submitted it.
        if process.info["cwd"] == here and "snakemake" in words[:4] and "--nolock" not in words:
            raise BertlineError(
                f"snakemake runs here as process {process.info['pid']}; stop it first, or let it finish"
            )
    subprocess.run(["snakemake", "--unlock", "--configfile", *configfile], check=True)  # noqa: S603, S607
