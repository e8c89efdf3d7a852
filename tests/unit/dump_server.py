"""A web server on this machine that misbehaves as configured."""

from __future__ import annotations

import re
import socketserver
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CUT = "cut"  # close the connection after half of what was asked for
IGNORE_RANGE = "ignore range"  # send everything, with status 200
CUT_AND_IGNORE_RANGE = "cut and ignore range"
ENDLESS = "endless"  # send zeros without stating a length, as long as the client listens


@dataclass
class Misbehaving:
    """Content of the server, its way to answer, and the requests that it got."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    # By path: what happens at the next requests, one after the other; a status, a status with headers, "headers" and
    # more headers for the file, or one of the words above. Then the server is well-behaved.
    faults: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"{self.address}{path}"


@contextmanager
def serve(certificate: Path | None = None) -> Iterator[Misbehaving]:
    """Run the server while the block lasts, over https with the key and certificate of a file."""
    state = Misbehaving()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append((self.path, dict(self.headers)))
            faults = state.faults[self.path]
            fault = faults.pop(0) if faults else None
            if isinstance(fault, int):
                fault = (fault, {})
            more_headers = fault[1] if isinstance(fault, tuple) and fault[0] == "headers" else {}
            if isinstance(fault, tuple) and not more_headers:
                return self.answer(fault[0], fault[1], b"")
            content = state.files.get(self.path)
            if content is None:
                return self.answer(404, {}, b"")
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(wanted[1]) if wanted and fault not in (IGNORE_RANGE, CUT_AND_IGNORE_RANGE) else 0
            if start >= len(content) > 0:
                return self.answer(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
            cut = fault in (CUT, CUT_AND_IGNORE_RANGE)
            if start:
                headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
                return self.answer(206, headers, content[start:], cut=cut)
            if fault == ENDLESS:
                return self.send_zeros()
            return self.answer(200, more_headers, content, cut=cut)

        def send_zeros(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            with suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))

        def answer(self, status: int, headers: dict[str, str], body: bytes, cut: bool = False) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.address = f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serve_bytes(answer: bytes) -> Iterator[str]:
    """Answer every request with these bytes, whatever HTTP says of them; yields the address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            with suppress(OSError):
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
