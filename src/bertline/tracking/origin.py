"""Owner and origin of MLflow runs, so that several people can use one store.

An origin is the folder results/ of one project. Its id is a file in this folder, so that it goes with a copy or a move.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import secrets
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import fsync_directory, read_text, write_text
from bertline.results import paths


def read_origin() -> str:
    """Return the id of the results in the working directory; make it if it is absent.

    Of several processes that make it at once all return the same. Raises BertlineError for a damaged file.
    """
    path = Path(paths.ORIGIN)
    if not path.exists():
        _make(path)
    origin = read_text(path).strip()
    if not re.fullmatch("[0-9a-f]{32}", origin):
        raise BertlineError(
            f"{path} is not 32 hexadecimal digits; restore it, or delete it and MLflow gets new runs of all results"
        )
    return origin


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    origin = secrets.token_hex(16)
    temporary = path.with_name(f".{path.name}.{origin}.part")
    write_text(temporary, f"{origin}\n")
    try:
        os.link(temporary, path)  # unlike a rename it fails if another process was first
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)


def place() -> str:
    """Return the machine and the working directory."""
    return f"{platform.node()}:{Path.cwd()}"


def owner() -> str:
    """Return the user's name: that on an MLflow server with passwords, else that on this machine."""
    try:
        return os.environ.get("MLFLOW_TRACKING_USERNAME") or getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
