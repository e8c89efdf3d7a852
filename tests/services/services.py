"""A real PostgreSQL and a real MLflow server on loopback, for as long as a test needs them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
import requests


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Poll until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {seconds:g} seconds")
        time.sleep(0.2)


def _postgresql_program(name: str) -> str:
    """Debian keeps them out of PATH, in a folder of each version."""
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt install postgresql")
    return found


@contextmanager
def postgresql() -> Iterator[str]:
    """A new, empty database; gives its address for MLflow."""
    initdb, pg_ctl = _postgresql_program("initdb"), _postgresql_program("pg_ctl")
    # PostgreSQL refuses to run as root; Debian's package brings a user for it, who cannot enter pytest's folders.
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    with TemporaryDirectory(prefix="bertline-postgresql-") as folder:
        if as_user:
            shutil.chown(folder, "postgres")
        data, port = f"{folder}/data", free_port()

        def run(*command: str) -> None:
            subprocess.run([*as_user, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL)

        run(initdb, "--pgdata", data, "--username", "bertline", "--auth", "trust", "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        run(pg_ctl, "--pgdata", data, "--log", f"{folder}/log", "--wait", "--options", options, "start")
        try:
            yield f"postgresql+psycopg2://bertline@127.0.0.1:{port}/postgres"
        finally:
            run(pg_ctl, "--pgdata", data, "--wait", "--mode", "immediate", "stop")


class MlflowServer:
    """`mlflow server` over a store; can be killed and started again on the same port."""

    def __init__(
        self, folder: Path, backend: str, options: Sequence[str], environment: Mapping[str, str], python: str
    ) -> None:
        self.folder, self.backend, self.port = folder, backend, free_port()
        self.options, self.environment, self.python = options, environment, python
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self.python, "-m", "mlflow", "server", "--backend-store-uri", self.backend]
        command += ["--artifacts-destination", str(self.folder / "artifacts"), "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *self.options]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # five more processes
        environment |= self.environment
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        wait_until(self._answers, "an answer of the MLflow server")

    def kill(self) -> None:
        """At once, with its workers, as a machine that loses its power."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.uri}/health", timeout=5).ok
        except requests.RequestException:
            return False


Fault = Literal["", "error", "slow", "lost"]


def token_front(uri: str, token: str) -> AbstractContextManager[str]:
    """Serve an MLflow server as a web server that asks for a token; gives its address."""
    return faulty_front(uri, lambda _: "", f"Bearer {token}")


@contextmanager
def faulty_front(uri: str, fault_of: Callable[[str], Fault], authorization: str | None = None) -> Iterator[str]:
    """Serve an MLflow server with faults; gives its address.

    Args:
        uri: of the server.
        fault_of: what happens to a request for a path: none, an error of the server, an answer after a second, or the
            loss of the answer to what was done.
        authorization: the header that every request must have.
    """

    class Front(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if authorization is not None and self.headers.get("Authorization") != authorization:
                return self.send(401, b"<html>\n<head><title>401 Authorization Required</title></head>\n</html>\n")
            match fault_of(self.path):
                case "error":
                    return self.send(500, b"Internal Server Error")
                case "slow":
                    time.sleep(1)
                case "lost":
                    self.pass_on(body)
                    return self.connection.close()
            response = self.pass_on(body)
            return self.send(response.status_code, response.content)

        def pass_on(self, body: bytes) -> requests.Response:
            headers = {key: self.headers[key] for key in ("Content-Type",) if key in self.headers}
            return requests.request(self.command, uri + self.path, data=body, headers=headers, timeout=60)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as front:
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{front.server_port}"
        front.shutdown()


@contextmanager
def mlflow_server(
    folder: Path,
    backend: str,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[MlflowServer]:
    """Start a server of the `mlflow` that is installed for `python`, and kill it in the end."""
    server = MlflowServer(folder, backend, options, environment or {}, python)
    server.start()
    try:
        yield server
    finally:
        server.kill()
