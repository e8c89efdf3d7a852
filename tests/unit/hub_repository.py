"""A stand-in for the Hub on this machine that a model can be pushed to and loaded from.

Written after the requests that `huggingface_hub` 2.4 makes without xet; the real Hub was never asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from hub_server import Answers, serving
from huggingface_hub.utils.sha import git_hash

Json = dict[str, Any]
LARGE = ".safetensors"
TOKEN = "hf_of_the_test"  # noqa: S105


class Hub:
    """The server's state.

    Attributes:
        commits: the files of each commit.
        refs: the commits of branches and tags, by their full names such as refs/heads/main.
        private: of the only repository, None until it is made.
        requests: method and path of each request.
        refuse: a function of method and path that returns the status of a refusal, or 0.
    """

    def __init__(self, repository: str) -> None:
        self.repository, self.address = repository, ""
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, str] = {}
        self.large: dict[str, bytes] = {}
        self.private: bool | None = None
        self.requests: list[tuple[str, str]] = []
        self.refuse: Callable[[str, str], int] = lambda method, path: 0

    @property
    def writes(self) -> list[str]:
        """The paths of all requests that were not for reading."""
        return [path for method, path in self.requests if method not in ("GET", "HEAD")]

    @property
    def revisions(self) -> dict[str, str]:
        """The commits of branches and tags by their short names."""
        return {name.split("/", 2)[2]: commit for name, commit in self.refs.items()}

    def files(self, revision: str) -> dict[str, bytes] | None:
        """The files of a branch, a tag or a commit."""
        return self.commits.get(self.revisions.get(revision, revision))

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        parent = self.refs.get(f"refs/heads/{branch}", "")
        content = json.dumps([parent, len(self.commits), sorted((name, oid(name, files[name])) for name in files)])
        commit = hashlib.sha1(content.encode()).hexdigest()  # noqa: S324
        self.commits[commit] = files
        self.refs[f"refs/heads/{branch}"] = commit
        return commit

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the JSON content that answer a request."""
        if path == "/api/whoami-v2":
            return 200, {"name": "user", "type": "user"}
        if path == "/api/validate-yaml":
            return 200, {}
        if path == "/api/repos/create":
            if self.private is not None:
                return 409, {"error": "exists", "url": f"{self.address}/{self.repository}"}
            self.private = json.loads(body).get("visibility") == "private"
            self.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
            return 200, {"url": f"{self.address}/{self.repository}"}
        if self.private is None:
            return 404, None
        if path.endswith("/info/lfs/objects/batch"):
            return 200, {"transfer": "basic", "objects": [self.upload_of(one) for one in json.loads(body)["objects"]]}
        action, _, rest = path.removeprefix(f"/api/models/{self.repository}").strip("/").partition("/")
        return self.of_repository(method, action, unquote(rest.partition("/")[0]), body)

    def of_repository(self, method: str, action: str, name: str, body: bytes) -> tuple[int, Any]:
        files = self.files(name or "main")
        if action in ("", "revision") and files is not None:
            siblings = [{"rfilename": file} for file in files]
            sha = self.revisions.get(name or "main", name)
            return 200, {"id": self.repository, "sha": sha, "private": self.private, "siblings": siblings, "tags": []}
        if action == "refs":
            entries = [
                {"name": ref.split("/", 2)[2], "ref": ref, "targetCommit": commit} for ref, commit in self.refs.items()
            ]
            kinds = {"branches": "refs/heads/", "tags": "refs/tags/"}
            found = {kind: [one for one in entries if one["ref"].startswith(start)] for kind, start in kinds.items()}
            return 200, {**found, "converts": []}
        if action == "branch" and method == "DELETE":
            del self.refs[f"refs/heads/{name}"]
            return 200, None
        if action in ("branch", "tag"):
            made = f"refs/heads/{name}" if action == "branch" else f"refs/tags/{json.loads(body)['tag']}"
            if made in self.refs:
                return 409, {"error": f"{made} exists"}
            start = json.loads(body).get("startingPoint", "main") if action == "branch" else name
            self.refs[made] = self.revisions.get(start, start)
            return 200, None
        if files is None:
            return 404, None
        if action == "tree":
            return 200, [entry_of(file, content) for file, content in files.items()]
        if action == "preupload":
            return 200, {"files": [self.mode_of(one["path"], files) for one in json.loads(body)["files"]]}
        if action == "commit":
            return self.take_commit(name, files, [json.loads(line) for line in body.splitlines()])
        return 404, None

    def upload_of(self, wanted: Json) -> Json:
        href = f"{self.address}/large/{wanted['oid']}"
        return wanted | ({} if wanted["oid"] in self.large else {"actions": {"upload": {"href": href}}})

    def mode_of(self, path: str, files: dict[str, bytes]) -> Json:
        mode = "lfs" if path.endswith(LARGE) else "regular"
        known = {"oid": oid(path, files[path])} if path in files else {}
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, **known}

    def take_commit(self, branch: str, files: dict[str, bytes], lines: list[Json]) -> tuple[int, Any]:
        header, *operations = ((line["key"], line["value"]) for line in lines)
        if header[1].get("parentCommit", self.revisions[branch]) != self.revisions[branch]:
            return 412, {"error": "A commit has happened since"}
        files = dict(files)
        for key, value in operations:
            if key == "deletedFile":
                del files[value["path"]]
            else:
                large = key == "lfsFile"
                files[value["path"]] = self.large[value["oid"]] if large else base64.b64decode(value["content"])
        commit = self.commit(branch, files)
        return 200, {"commitUrl": f"{self.address}/{self.repository}/commit/{commit}", "commitOid": commit}


def oid(name: str, content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if name.endswith(LARGE) else git_hash(content)


def entry_of(name: str, content: bytes) -> Json:
    large = {"lfs": {"oid": oid(name, content), "size": len(content), "pointerSize": 130}}
    own = large if name.endswith(LARGE) else {}
    return {"type": "file", "path": name, "size": len(content), "oid": git_hash(content), **own}


@contextmanager
def serve_hub(repository: str) -> Iterator[Hub]:
    """Serve an empty Hub, on which `repository` can be made, while the block lasts."""
    hub = Hub(repository)

    class Handler(Answers):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            hub.requests.append((self.command, path))
            if refused := hub.refuse(self.command, path):
                return self.answer(refused, b"", {"X-Error-Message": "this is refused"})
            if path.startswith("/large/"):
                hub.large[path.removeprefix("/large/")] = body
                return self.answer(200, b"", {})
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
            if match := re.fullmatch(f"/{hub.repository}/resolve/([^/]*)/(.*)", path):
                return self.answer_content(unquote(match[1]), unquote(match[2]))
            status, content = hub.answer(self.command, path, body)
            if status == 404:
                return self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
            return self.answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})

        do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

        def answer_content(self, revision: str, name: str) -> None:
            content = (hub.files(revision) or {}).get(name)
            if content is None:
                return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            commit = hub.revisions.get(revision, revision)
            return self.answer(200, content, {"ETag": f'"{oid(name, content)}"', "X-Repo-Commit": commit})

    with serving(Handler) as address:
        hub.address = address
        yield hub
