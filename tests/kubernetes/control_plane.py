"""A real API server of Kubernetes with etcd and the controllers of Jobs, without nodes.

The programs are those of the folder KUBEBUILDER_ASSETS (kube-apiserver, etcd, kubectl, as of controller-runtime's
envtest) and kube-controller-manager beside them.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

PROGRAMS = ("kube-apiserver", "etcd", "kube-controller-manager", "kubectl")
CONTROLLERS = (
    *("job-controller", "garbage-collector-controller", "serviceaccount-controller"),
    *("namespace-controller", "ttl-after-finished-controller"),
)
NAMESPACE = "training"
# The account whose rights are those of deploy/kubernetes/submitter.
SUBMITTER = f"system:serviceaccount:{NAMESPACE}:bertline-submitter"


def missing_programs() -> list[str]:
    """Return the programs that are not in KUBEBUILDER_ASSETS."""
    folder = os.environ.get("KUBEBUILDER_ASSETS", "")
    return [name for name in PROGRAMS if not folder or shutil.which(name, path=folder) is None]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class ControlPlane:
    """The processes, a client of theirs with all rights, and kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.assets = Path(os.environ["KUBEBUILDER_ASSETS"])
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the processes, and wait until the server is ready."""
        folder = self.folder
        etcd, peers, self.port = free_ports(3)
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", SUBMITTER)}
        groups = {"admin": "system:masters", SUBMITTER: "system:serviceaccounts"}
        lines = [f'{token},{name},{name},"{groups[name]}"' for name, token in self.tokens.items()]
        (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (folder / "accounts.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        self._run(
            "etcd",
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--cert-dir={folder}/certificates",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder}/accounts.key",
            f"--service-account-key-file={folder}/accounts.key",
        )
        self.session = requests.Session()
        self.session.trust_env = False  # a bundle of certificates in the environment would replace `verify`
        self.session.headers["Authorization"] = f"Bearer {self.tokens['admin']}"
        self.session.verify = str(folder / "certificates/apiserver.crt")
        self.until(self._is_ready, "API server", seconds=180)
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('admin')}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={folder}/accounts.key",
        )

    def _run(self, program: str, *options: str) -> None:
        with (self.folder / f"{program}.log").open("w") as log:
            started = subprocess.Popen([self.assets / program, *options], cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(started)

    def _is_ready(self) -> bool:
        try:
            return self.session.get(f"https://127.0.0.1:{self.port}/readyz", timeout=5).ok
        except (requests.RequestException, OSError):  # or its certificate is not there yet
            return False

    def until(self, holds: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
        """Wait until it holds; return what `holds` returns."""
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            ended = [process.args for process in self.processes if process.poll() is not None]
            assert not ended, f"{ended} ended; see {self.folder}"
            assert time.monotonic() < deadline, f"no {what} after {seconds} s"
            time.sleep(0.1)
        return found

    def kubeconfig(self, user: str) -> Path:
        """Write a configuration of kubectl for a user."""
        path = self.folder / f"{user.rpartition(':')[2]}.kubeconfig"
        server = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self.folder / "certificates/apiserver.crt"),
        }
        context = {"cluster": "test", "user": user, "namespace": NAMESPACE}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def kubectl(self, *arguments: str, given: Any = None, check: bool = True) -> str:
        """Run kubectl with all rights; `given` are objects for its standard input."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": given}) if given is not None else None
        command = [str(self.assets / "kubectl"), f"--kubeconfig={self.kubeconfig('admin')}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout if check else done.stdout + done.stderr

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> requests.Response:
        """Call the API: a path as in namespaces/training/pods."""
        address = f"https://127.0.0.1:{self.port}/api/v1/{path}"
        return self.session.request(
            method,
            address,
            data=json.dumps(body) if body is not None else None,
            headers={"Content-Type": kind},
            timeout=30,
        )

    def job(self, name: str) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "job", name, "-o", "json"))

    def pods(self) -> list[dict[str, Any]]:
        return self.call("GET", f"namespaces/{NAMESPACE}/pods").json()["items"]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(30)
