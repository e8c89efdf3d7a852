"""A conda with what Snakemake asks of it: `info`, `config --get`, `env create`, `clean` and an activation script.

There are no channels: an environment is a virtual environment of this Python that sees the packages installed here, and
pip finds in them what the environment file asks for, in exactly the versions that it names, or fails. As conda does,
it runs pip in the folder of the file that it was given.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import yaml

ACTIVATE = 'export CONDA_PREFIX="$1" PATH="$1/bin:$PATH"\n'


def install(folder: Path) -> Path:
    """Put conda into `folder`; returns the folder to have on the PATH."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(ACTIVATE)
    (programs / "conda").write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} "$@"\n')
    (programs / "conda").chmod(0o755)
    return programs


def create(file: Path, prefix: Path) -> None:
    """Make an environment of a file in the format of `conda env create`."""
    dependencies = yaml.safe_load(file.read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    venv.create(prefix, symlinks=True)
    # Not that folder's own .pth files: an editable bertline is not seen through it.
    here = sysconfig.get_path("purelib")
    Path(sysconfig.get_path("purelib", vars={"base": str(prefix)}), "installed.pth").write_text(f"{here}\n")
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix="condaenv.", suffix=".requirements.txt") as listed:
        listed.write("\n".join(pip))
        listed.flush()
        options = ["install", "-U", "-r", listed.name, "--exists-action=b"]
        environment = {**os.environ, "PIP_NO_INDEX": "1"}
        done = subprocess.run([prefix / "bin/python", "-m", "pip", *options], cwd=file.parent, env=environment)
    sys.exit(done.returncode)


def main() -> None:
    folder, *arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print("conda 26.1.0")
    elif arguments[0] == "info":
        print(json.dumps({"conda_prefix": folder, "platform": "linux-64"}))
    elif arguments[0] == "config":
        print(json.dumps({"get": {"channel_priority": "strict"}}))
    elif arguments[:2] == ["env", "create"]:
        parser = argparse.ArgumentParser()
        parser.add_argument("--file", type=Path)
        parser.add_argument("--prefix", type=Path)
        given, _ = parser.parse_known_args(arguments[2:])
        create(given.file, given.prefix)
    elif arguments[0] != "clean":
        sys.exit(f"not known here: conda {' '.join(arguments)}")


if __name__ == "__main__":
    main()
