"""MLflow's pages on this machine, for one user, kept up to date while trainings run."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
import requests
import tenacity
from cyclopts import Parameter
from cyclopts.validators import Number

from bertline.console import BertlineError, handle_signals, without_credentials
from bertline.files import CHECKOUT
from bertline.results.records import runs_in
from bertline.tracking.following import check_interval
from bertline.tracking.store import check_server, default_tracking_uri, follow, host_and_port, initialise, is_sqlite

USER = "bertline"
MAX_PORT = 65535
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
SECONDS_TO_END = 10.0
SECONDS_BETWEEN_LOOKS = 0.5
# The cache spares the server a slow hash per request.
ACCOUNTS = """[mlflow]
default_permission = MANAGE
database_uri = sqlite:///{folder}/accounts.db
admin_username = {user}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 3600
"""


def open_ui(
    port: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_PORT))] = 5000,
    *,
    every: float = 15.0,
    password: bool = True,
) -> None:
    """Start MLflow's server and, once it answers, open it in a browser; Ctrl-C, SIGTERM or SIGHUP ends both.

    If MLFLOW_TRACKING_URI is a server or another database than SQLite, nothing is started, and it is kept up to date.

    Args:
        port: of the server, which listens on this machine only.
        every: seconds between updates from the journals of all runs in results/, also of those that begin later.
        password: new at every start, and part of the address that is printed. Without one, everybody with an account
            on this machine can read, change and delete the runs.
    """
    uri = default_tracking_uri()
    check_interval(every)
    runs_in(["results/runs"])
    handle_signals((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
    if not is_sqlite(uri):
        host_and_port(uri)  # refuses an address of which a part of the password would be shown
        print(f"MLflow: {without_credentials(uri)}   (kept up to date from here; Ctrl-C ends it)", flush=True)
        check_server(uri)
        follow(["results/runs"], uri, every)
        return
    _check_port(port)
    initialise(uri)  # a new file is damaged if the server and the follower create its tables at once
    with TemporaryDirectory(prefix="bertline-ui-") as folder:  # of this user only
        secret = secrets.token_urlsafe(16) if password else None
        server = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
        server += ["--host", "127.0.0.1", "--port", str(port), *(["--app-name", "basic-auth"] if password else [])]
        follower = [str(CHECKOUT / "workflow/scripts/track.py"), "results/runs", "--follow", str(every)]
        with (
            _running(server, _environment(Path(folder), secret)) as serving,
            _running([sys.executable, *follower], {}) as following,
            suppress(KeyboardInterrupt),
        ):
            _wait_for_answer(serving, port)
            address = f"http://{f'{USER}:{secret}@' if secret else ''}127.0.0.1:{port}"
            print(f"MLflow: {address}   (runs are under Model training; Ctrl-C ends it)", flush=True)
            _open(address, Path(folder))
            _wait_for_end(serving, following)
            raise _ended(serving)


def _check_port(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        other = port + 1 if port < MAX_PORT else port - 1
        raise BertlineError(f"port {port} {reason}; choose another one: make ui PORT={other}") from None


def _environment(folder: Path, secret: str | None) -> dict[str, str]:
    # Its job runners serve features that bertline does not use, and take five more processes.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    if secret is None:
        return environment
    accounts = folder / "accounts.ini"
    accounts.write_text(ACCOUNTS.format(folder=folder, user=USER))
    return environment | {
        "MLFLOW_AUTH_CONFIG_PATH": str(accounts),
        "MLFLOW_AUTH_ADMIN_PASSWORD": secret,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
    }


@contextmanager
def _running(command: Sequence[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process while the block lasts, then end it and all processes that it started."""
    # In a session of its own: Ctrl-C reaches this process only, which ends the others.
    process = subprocess.Popen(command, env=os.environ | environment, start_new_session=True)  # noqa: S603
    try:
        yield process
    finally:
        family = []
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            family = [parent, *parent.children(recursive=True)]
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.terminate()
        for one in psutil.wait_procs(family, timeout=SECONDS_TO_END)[1]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def _wait_for_answer(server: subprocess.Popen[bytes], port: int) -> None:
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((requests.ConnectionError, requests.Timeout)),
        wait=tenacity.wait_fixed(0.2),
        stop=lambda _: server.poll() is not None,
        reraise=True,
    )
    with requests.Session() as session:
        session.trust_env = False  # no proxy leads to this machine
        try:
            retrying(session.get, f"http://127.0.0.1:{port}/health", timeout=30)
        except (requests.ConnectionError, requests.Timeout):
            raise _ended(server) from None


def _wait_for_end(server: subprocess.Popen[bytes], follower: subprocess.Popen[bytes]) -> None:
    """Wait until the server has ended; print one line if the follower ends before it."""
    while server.poll() is None and follower.poll() is None:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if server.poll() is None:
        line = f"MLflow no longer gets new points: the process that sends them ended with status {follower.returncode}"
        print(f"{line}; see what it printed above, and start this again", flush=True)
    server.wait()


def _ended(server: subprocess.Popen[bytes]) -> BertlineError:
    return BertlineError(f"MLflow's server ended with status {server.returncode}; see what it printed above")


def _open(address: str, folder: Path) -> None:
    """Open the address by a file that only this user can read: other users see a browser's command line.

    Not without a screen: `webbrowser` then finds a browser that takes the terminal.
    """
    if sys.platform != "darwin" and not any(map(os.environ.get, SCREENS)):
        return
    page = folder / "open.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">')
    webbrowser.open(page.as_uri())
