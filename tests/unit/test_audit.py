"""Whether PyPI's data on vulnerabilities can be asked for, before CI audits the packages."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("audit", ROOT / "envs/audit.py")
assert SPEC is not None
audit = importlib.util.module_from_spec(SPEC)
assert SPEC.loader is not None
SPEC.loader.exec_module(audit)


@contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b'{"vulnerabilities": []}', None),
        (404, b'{"message": "Not Found"}', "HTTP Error 404"),
        (200, b"<html>a mirror</html>", "no data on vulnerabilities"),
        (200, b'{"info": {}}', "no data on vulnerabilities"),
        (200, b"[]", "no data on vulnerabilities"),
        (200, b"\xff", "no data on vulnerabilities"),
    ],
)
def test_only_an_answer_with_vulnerabilities_counts_as_one(status: int, body: bytes, reason: str | None) -> None:
    with serving(status, body) as address:
        found = audit.reason_not_to_ask(address)
    assert (found is None) == (reason is None)
    assert reason is None or reason in found
    assert found is None or "\n" not in found


def test_a_server_that_does_not_answer_is_a_reason() -> None:
    assert "refused" in audit.reason_not_to_ask("http://127.0.0.1:9")


@pytest.mark.parametrize("answer", [b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_an_answer_that_is_no_http_or_breaks_off_is_a_reason(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        found = audit.reason_not_to_ask(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert found is not None
    assert "\n" not in found


def test_ci_audits_the_packages_or_says_why_not(tmp_path: Path) -> None:
    """The line of .ci/run, with a `make` that only says its target."""
    (line,) = [line for line in (ROOT / ".ci/run").read_text().splitlines() if "envs/audit.py" in line]
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python, make = tmp_path / ".venv/bin/python", tmp_path / "make"
    make.write_text('#!/bin/sh\necho "made $1"\n')
    make.chmod(0o755)
    for probe, printed in (("exit 0", "made audit\n"), ("echo no route >&2; exit 1", "skipped: no route\n")):
        python.write_text(f'#!/bin/sh\n[ "$*" = "envs/audit.py --probe" ] || exit 2\n{probe}\n')
        python.chmod(0o755)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"PATH=$PWD:$PATH; {line}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == printed


@pytest.mark.parametrize("identifiers", [[], ["PYSEC-2026-1"], ["PYSEC-2026-1", "PYSEC-2026-2"]])
def test_the_audit_fails_with_the_lines_of_its_problems(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], identifiers: list[str]
) -> None:
    """Of every lock, with what pip-audit itself answers, whatever its status."""
    vulnerabilities = [{"id": name, "aliases": [], "fix_versions": ["2"]} for name in identifiers]
    report = json.dumps({"dependencies": [{"name": "tiny", "version": "1", "vulns": vulnerabilities}]})

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked = {path.name for path in (ROOT / "envs/lock").glob("*.txt")}
        assert {Path(word).name for word in command if word.startswith("--requirement=")} == asked
        assert {"--require-hashes", "--disable-pip"} <= set(command)
        return subprocess.CompletedProcess(command, returncode=0, stdout=report, stderr="")

    monkeypatch.setattr(audit.subprocess, "run", run)
    if not identifiers:
        audit.main()
        assert capsys.readouterr().out == "No known vulnerability in 1 packages\n"
        return
    with pytest.raises(SystemExit) as ended:
        audit.main()
    assert ended.value.code == "\n".join(f"error: tiny 1 has {name}; fixed in 2" for name in identifiers)
