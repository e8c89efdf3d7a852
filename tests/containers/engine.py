"""Containers of the image that `make test-containers` built, run as docs/containers.md recommends."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

# The same options for Docker and Podman.
HARDENED = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp", "--network=none"]


def engine() -> list[str]:
    """Return the command of Docker or Podman; skips the test without it or without an image."""
    words = shlex.split(os.environ.get("ENGINE", "docker"))
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    if "BERTLINE_IMAGE" not in os.environ:
        pytest.skip("BERTLINE_IMAGE does not name an image; `make test-containers` builds one")
    return words


def user() -> str:
    """Return a user that is neither root nor the image's own."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else "12345:12345"


def start(data: Path, *command: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start `command` in a container that has the folder `data`; both streams are in `.stdout`."""
    data.mkdir(exist_ok=True)
    data.chmod(0o777)
    run = [*engine(), "run", "--rm", *HARDENED, "--user", user(), f"--volume={data}:/data", *options]
    return subprocess.Popen(
        [*run, os.environ["BERTLINE_IMAGE"], *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(data: Path, *command: str, status: int = 0, options: tuple[str, ...] = ()) -> str:
    """Run `command` in a container, check its exit status, and return its output."""
    started = start(data, *command, options=options)
    printed, _ = started.communicate()
    assert started.returncode == status, printed[-6000:]
    return printed
