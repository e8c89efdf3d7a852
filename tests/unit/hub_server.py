"""A stand-in for the Hugging Face Hub on this machine, with the part of its interface that reading a dataset needs.

Written after the requests that `datasets` 5.2 and `huggingface_hub` 2.4 make; the real Hub was never asked.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from huggingface_hub.utils.sha import git_hash


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
        """Print nothing."""


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


@dataclass
class ServedModel:
    """A model at one commit, and what was asked for.

    Attributes:
        files: their content, by name; weights are stored as Git LFS does.
        requests: path and Range of each request.
        cut: names of files of which half of what is asked for arrives, once, and then nothing.
        token: that requests must have; None for a public model.
        told: the commit that the server names; None for the one asked for.
        stopped: names of files that are refused for now; a cut file is one of them.
    """

    repository: str
    revision: str
    files: dict[str, bytes]
    address: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
    token: str | None = None
    told: str | None = None
    stopped: set[str] = field(default_factory=set)

    @property
    def fetched(self) -> list[str]:
        """The names of the files asked for."""
        start = f"/{self.repository}/resolve/{self.revision}/"
        return [path.removeprefix(start) for path, _ in self.requests if path.startswith(start)]

    def description(self) -> dict[str, Any]:
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            for name, content in self.files.items()
        ]
        for entry in siblings:
            if str(entry["rfilename"]).endswith((".safetensors", ".bin")):
                content = self.files[str(entry["rfilename"])]
                digest = hashlib.sha256(content).hexdigest()
                entry |= {"lfs": {"sha256": digest, "size": len(content), "pointerSize": 130}}
        return {"id": self.repository, "sha": self.told or self.revision, "siblings": siblings, "tags": []}


@contextmanager
def serve_model(repository: str, revision: str, folder: Path) -> Iterator[ServedModel]:
    """Serve a folder as a model at one commit while the block lasts."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    model = ServedModel(repository, revision, files)

    class Handler(Answers):
        def do_GET(self) -> None:
            path, asked = self.path.partition("?")[0], self.headers.get("Range")
            model.requests.append((path, asked))
            api, start = f"/api/models/{repository}", f"/{repository}/resolve/{revision}/"
            if model.token and self.headers.get("Authorization") != f"Bearer {model.token}":
                self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
            elif path == f"{api}/revision/{revision}":
                self.answer(200, json.dumps(model.description()).encode(), {"Content-Type": "application/json"})
            elif (name := path.removeprefix(start)) in model.files:
                self.answer_part(name, asked)
            else:
                known = path.startswith((f"{api}/", f"/{repository}/"))
                self.answer(404, b"", {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})

        do_HEAD = do_GET

        def answer_part(self, name: str, asked: str | None) -> None:
            if name in model.stopped:
                return self.answer(503, b"", {})
            content = model.files[name]
            first = int(asked[6:-1]) if asked else 0
            if first >= len(content):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            rest, headers = content[first:], {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
            if name not in model.cut:
                return self.answer(206 if asked else 200, rest, headers if asked else {})
            model.cut.remove(name)
            model.stopped.add(name)
            self.answer(206 if asked else 200, rest[: len(rest) // 2], {"Content-Length": str(len(rest))})
            self.close_connection = True

    with serving(Handler) as model.address:
        yield model
