"""Downloads as the graph does them, from a server on this machine."""

from __future__ import annotations

import bz2
import copy
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, run_snakemake

pytestmark = pytest.mark.slow

PARTS = {f"samplewiki-20260101-pages-articles{n}.xml-p{n}p{n}.bz2": bz2.compress(b"part %d" % n) for n in range(1, 5)}
LISTED = {
    name: {"size": len(content), "sha1": hashlib.sha1(content).hexdigest()}  # noqa: S324
    for name, content in PARTS.items()
}
STATUS = {"jobs": {"articlesdump": {"status": "done", "files": LISTED}}}


class Crowd:
    """A server of a dump that answers for a part when more than two are asked for at a time, or after a second."""

    def __init__(self) -> None:
        self.address, self.connections, self.most = "", 0, 0
        self.lock, self.crowded = threading.Lock(), threading.Event()

    def content_of(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name == "dumpstatus.json":
            return json.dumps(STATUS).encode()
        with self.lock:
            self.connections += 1
            self.most = max(self.most, self.connections)
            if self.connections > 2:
                self.crowded.set()
        self.crowded.wait(1)
        return PARTS[name]


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    state = Crowd()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = state.content_of(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.path.endswith(".bz2"):
                with state.lock:
                    state.connections -= 1
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


def test_a_dump_is_never_fetched_over_more_than_two_connections(
    workflow_folder: Path, crowd: Crowd, sample: Path
) -> None:
    """Not even without a profile, with a core for each part."""
    config = copy.deepcopy(SMALL_CONFIG) | {"mirrors": [crowd.address], "contact": "someone@university.edu"}
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(config))
    shutil.copytree(sample, workflow_folder / "resources/sample")
    run_snakemake(workflow_folder, "download", "--cores", "4", "--configfile", "small.yaml")
    fetched = sorted((workflow_folder / "resources/wikimedia").rglob("*.bz2"))
    assert [path.read_bytes() for path in fetched] == list(PARTS.values())
    assert crowd.most <= 2
