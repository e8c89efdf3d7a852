"""A stand-in for the Hugging Face Hub on this machine, with as much of its interface as reading a dataset takes.

Written after the requests that `datasets` 5.2 and `huggingface_hub` 2.4 make; the real Hub was never asked.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Answers(BaseHTTPRequestHandler):
    """Answers to requests, without a log."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests on this machine while the block lasts; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serve_dataset(dataset: str, revision: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a folder as a dataset at one revision while the block lasts; yield the address and the paths asked for."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    asked: list[str] = []

    class Handler(Answers):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            if path == f"/api/datasets/{dataset}/revision/{revision}":
                siblings = [{"rfilename": name} for name in files]
                self.answer_json({"id": dataset, "sha": revision, "siblings": siblings, "tags": [], "downloads": 0})
            elif match := re.fullmatch(f"/api/datasets/{dataset}/tree/{revision}/?(.*)", path):
                self.answer_json(list(tree(match[1])))
            elif (match := re.fullmatch(f"/datasets/{dataset}/resolve/{revision}/(.*)", path)) and match[1] in files:
                self.answer_file((folder / match[1]).read_bytes())
            else:
                known = path.startswith(f"/datasets/{dataset}/resolve/{revision}/")
                self.answer(404, b"", {"X-Error-Code": "EntryNotFound" if known else "RevisionNotFound"})

        do_HEAD = do_GET

        def answer_json(self, content: Any) -> None:
            self.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

        def answer_file(self, content: bytes) -> None:
            headers = {"ETag": '"0"', "X-Repo-Commit": revision, "Accept-Ranges": "bytes"}
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if not wanted:
                return self.answer(200, content, headers)
            first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
            stated = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
            return self.answer(206, content[first : last + 1], headers | stated)

    def tree(under: str) -> Iterator[dict[str, Any]]:
        folders = {name.rpartition("/")[0] for name in files} - {""}
        for name in files:
            if name.rpartition("/")[0] == under:
                yield {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": "0" * 40}
        for name in sorted(folders if not under else ()):
            yield {"type": "directory", "path": name, "size": 0, "oid": "0" * 40}

    with serving(Handler) as address:
        yield address, asked
