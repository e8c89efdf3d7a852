"""Removal of the lock that a killed Snakemake leaves in its folder."""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from bertline.console import BertlineError
from bertline.files import CHECKOUT

LOCKS = Path(".snakemake/locks")
SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")  # that snakemake finds itself
SCRIPT = Path("workflow/scripts/unlock.py")


def unlock(configfile: Sequence[str]) -> None:
    """Clear the lock of this folder, and exit. A snakemake on another machine is not noticed.

    Raises BertlineError if a snakemake runs here, or if another user locked it.

    Args:
        configfile: paths of the configuration.
    """
    if (running := _running_snakemake()) is not None:
        raise BertlineError(f"snakemake runs here as process {running}; stop it first, or let it finish")
    if (owner := _other_owner()) is not None:
        raise BertlineError(
            f"{owner} has locked this folder, whose processes you may not see; ask them whether their snakemake still "
            f"runs, and to run {_command()}"
        )
    print(f"no snakemake of this folder runs on {socket.gethostname()}; other machines are not checked", flush=True)
    found = any(Path(name).exists() for name in SNAKEFILES)
    snakefile = [] if found else ["--snakefile", str(CHECKOUT / "workflow/Snakefile")]
    done = subprocess.run(["snakemake", "--unlock", *snakefile, "--configfile", *configfile], check=False)  # noqa: S603, S607
    sys.exit(done.returncode)


def explain_lock() -> str:
    """Return the error message for a locked folder."""
    if (running := _running_snakemake()) is not None:
        return f"snakemake already runs in this folder, as process {running}; wait for it, or stop it first"
    if (owner := _other_owner()) is not None:
        return f"{owner} has locked this folder; wait until their snakemake ends, or use a folder of your own"
    return (
        "a snakemake on another machine has locked this folder, or one that was killed; wait for the first, or clear "
        f"the lock of the second by {_command()}"
    )


def _command() -> str:
    """Return the command that clears the lock of this folder, which need not be the checkout."""
    if SCRIPT.exists():
        return "`make unlock`"
    library, script = shlex.quote(str(CHECKOUT / "src")), shlex.quote(str(CHECKOUT / SCRIPT))
    return f"`PYTHONPATH={library} python {script} --configfile CONFIG`"


def _other_owner() -> str | None:
    """Return the name of another user who locked this folder."""
    for lock in LOCKS.glob("*.lock"):
        with suppress(FileNotFoundError):  # its snakemake has just ended
            owner = lock.stat().st_uid
            if os.getuid() not in (0, owner):  # root sees all processes
                return _name_of(owner)
    return None


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in a container
        return f"user {user}"


def _running_snakemake() -> int | None:
    """Return the number of another process of Snakemake on this machine that works in this folder."""
    here, own = os.getcwd(), {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = [os.path.basename(word) for word in process.info["cmdline"] or []]
        # Anywhere, as in `python -X dev -m snakemake`: an error costs a look at the process, a removed lock a training.
        # Framework builds on macOS run as Python.
        is_snakemake = "snakemake" in words and words[0].lower().startswith(("python", "pypy", "snakemake"))
        is_one = process.info["cwd"] == here and is_snakemake
        # Those of single jobs take no lock, and a job in Slurm's queue may outlive the snakemake that submitted it.
        if is_one and "--nolock" not in words and process.info["pid"] not in own:
            return int(process.info["pid"])
    return None
