"""Clear the lock that a killed snakemake left, after making sure that none lives in this folder."""

import argparse
import os
import subprocess

import psutil

from bertline.console import BertlineError, HelpFormatter, run_command


def living_snakemakes() -> list[int]:
    """Process ids of every snakemake whose working directory is this one, but not of those that run one job of it.

    These take no lock, and a job in Slurm's queue may well outlive the snakemake that sent it.
    """
    here, living = os.getcwd(), []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = [os.path.basename(word) for word in process.info["cmdline"] or []]
        if process.info["cwd"] == here and "snakemake" in words[:4] and "--nolock" not in words:
            living.append(process.info["pid"])
    return living


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/unlock.py --configfile config/demo.yaml",
    )
    parser.add_argument("--configfile", required=True)
    arguments = parser.parse_args()
    living = living_snakemakes()
    if living:
        raise BertlineError(f"snakemake runs here as process {living[0]}; stop it first, or let it finish")
    subprocess.run(["snakemake", "--unlock", "--configfile", arguments.configfile], check=True)  # noqa: S603, S607


if __name__ == "__main__":
    run_command(main)
