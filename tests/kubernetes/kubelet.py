"""A stand-in for a cluster's nodes: it runs the Pods of an API server as processes of this machine.

Each Pod has a network, process and mount namespace of its own: an address, process 1, this machine's root file system
as its image, read-only, the volumes of its claims, its user, and no capabilities. It is started, signalled and ended as
the kubelet does, with the variables of its ConfigMaps, Secrets and fields; Services without an address give names.
There is no image, no scheduler that counts resources, and no NetworkPolicy is enforced. It needs root.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from control_plane import NAMESPACE, ControlPlane

NODE = "node-of-the-test"
PODS = f"namespaces/{NAMESPACE}/pods"
MERGE = "application/merge-patch+json"
IMAGE_ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONPATH": "/bertline/src",
    "OMP_NUM_THREADS": "1",
}
# Sets up the root file system, then becomes the container's process.
ENTER = """set -e
hostname {hostname}
ip link set lo up
mount -t tmpfs none {root}
mkdir {root}/upper {root}/work {root}/root
mount -t overlay none -o lowerdir=/,upperdir={root}/upper,workdir={root}/work {root}/root
r={root}/root
chmod 711 $r/root
{mounts}
mount --bind {hosts} $r/etc/hosts
mount -t proc none $r/proc
mount --bind /dev $r/dev
{devices}
mount -o remount,ro $r
exec chroot $r setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs \\
    --bounding-set=-all --inh-caps=-all env -i {environment} sh -c 'cd "$0" && exec "$@"' {directory} {command}
"""


def is_possible() -> bool:
    """Return whether namespaces and network devices can be made here."""
    if os.geteuid() != 0:
        return False
    trial = ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c"]
    script = "mount -t tmpfs none /mnt && ip link add b0 type bridge && setpriv --no-new-privs true"
    return subprocess.run([*trial, script], capture_output=True, check=False).returncode == 0


class Running:
    """A Pod that was started."""

    def __init__(self, pod: dict[str, Any], process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.name, self.process, self.address, self.log = pod["metadata"]["name"], process, address, log
        self.killed_at: float | None = None

    def signal(self, number: int) -> None:
        """Signal process 1 of the container."""
        for child in psutil.Process(self.process.pid).children() if self.process.poll() is None else []:
            child.send_signal(number)


class Kubelet:
    """Runs Pods until `stop`.

    Args:
        plane: the API server.
        claims: folder of each PersistentVolumeClaim.
        image: folders that are mounted into every container, as if they were in its image, by their path there.
    """

    def __init__(self, plane: ControlPlane, folder: Path, claims: dict[str, Path], image: dict[str, Path]) -> None:
        self.plane, self.folder, self.claims, self.image = plane, folder, claims, image
        self.running: dict[str, Running] = {}
        self.logs: dict[str, Path] = {}
        self.error: BaseException | None = None
        (folder / "hosts").write_text("127.0.0.1 localhost\n")
        self.bridge = f"bt{os.getpid() % 100000}"
        self.net = f"10.{100 + os.getpid() % 100}.0"
        self.count = 1
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.net}.1/24", "dev", self.bridge)
        _run("ip", "link", "set", self.bridge, "up")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all Pods, and everything that was made for them."""
        self._ended.set()
        self._thread.join()
        for one in self.running.values():
            one.signal(signal.SIGKILL)
            one.process.wait()
        for number in range(2, self.count + 1):
            subprocess.run(["ip", "netns", "delete", f"{self.bridge}-{number}"], check=False)
        _run("ip", "link", "delete", self.bridge)
        if self.error:
            raise self.error

    def _loop(self) -> None:
        try:
            while not self._ended.wait(0.2):
                for pod in self.plane.pods():
                    self._look_at(pod)
        except BaseException as error:
            self.error = error

    def _look_at(self, pod: dict[str, Any]) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        deleted = "deletionTimestamp" in pod["metadata"]
        one = self.running.get(uid)
        if one is None and not deleted and pod["status"]["phase"] == "Pending":
            self._begin(pod)
        elif one is None and deleted:
            self.plane.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        elif one is not None and (status := one.process.poll()) is not None:
            if pod["status"]["phase"] == "Running":
                self._patch(name, self._status(pod, one, 128 - status if status < 0 else status))
            elif deleted:
                self.plane.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        elif one is not None and deleted and one.killed_at is None:
            one.killed_at = time.monotonic() + pod["metadata"]["deletionGracePeriodSeconds"]
            one.signal(signal.SIGTERM)
        elif one is not None and one.killed_at is not None and time.monotonic() > one.killed_at:
            one.signal(signal.SIGKILL)

    def _begin(self, pod: dict[str, Any]) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        (container,) = spec["containers"]
        address = f"{self.net}.{self.count + 1}"
        environment = self._environment(pod, container, address)
        if environment is None:
            return  # as with CreateContainerConfigError: until its ConfigMaps and Secrets exist
        if "nodeName" not in spec:
            target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
            bound = self.plane.call(
                "POST", f"{PODS}/{name}/binding", {**target, "target": {"kind": "Node", "name": NODE}}
            )
            assert bound.ok, bound.text
        self.count += 1
        network = f"{self.bridge}-{self.count}"
        _run("ip", "netns", "add", network)
        _run("ip", "link", "add", f"v{network}"[:15], "type", "veth", "peer", "name", "eth0", "netns", network)
        _run("ip", "link", "set", f"v{network}"[:15], "master", self.bridge, "up")
        _run("ip", "-n", network, "address", "add", f"{address}/24", "dev", "eth0")
        _run("ip", "-n", network, "link", "set", "eth0", "up")
        hostname = spec.get("hostname", name)
        names = [f"{hostname}.{spec['subdomain']}", hostname] if "subdomain" in spec else [hostname]
        root = self.folder / f"root-{self.count}"
        root.mkdir()
        script = self._script(pod, container, environment, root, hostname, self.folder / "hosts")
        log = self.folder / f"{name}.log"
        command = ["ip", "netns", "exec", network, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts"]
        with log.open("w") as output:
            process = subprocess.Popen([*command, "sh", "-c", script], stdout=output, stderr=output)
        self.running[pod["metadata"]["uid"]] = one = Running(pod, process, address, log)
        self.logs[name] = log
        # In place: the file is mounted into all Pods. A later Pod of the same name takes it over.
        lines = (self.folder / "hosts").read_text().splitlines()
        lines = [line for line in lines if not set(names) & set(line.split()[1:])]
        with (self.folder / "hosts").open("r+") as hosts:
            hosts.write("\n".join([*lines, f"{address} {' '.join(names)}"]) + "\n")
            hosts.truncate()
        self._patch(name, self._status(pod, one, None))

    def _environment(self, pod: dict[str, Any], container: dict[str, Any], address: str) -> dict[str, str] | None:
        """Return the container's variables; None if a ConfigMap or Secret is missing."""
        result = {**IMAGE_ENVIRONMENT}
        for source in container.get("envFrom", ()):
            for kind in ("configMap", "secret"):
                if reference := source.get(f"{kind}Ref"):
                    found = self._values(kind, reference["name"])
                    if found is None and not reference.get("optional"):
                        return None
                    result |= found or {}
        for entry in container.get("env", ()):
            origin = entry.get("valueFrom", {})
            value = _expand(entry.get("value", ""), result)
            if path := origin.get("fieldRef", {}).get("fieldPath"):
                label = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
                fields = {"status.podIP": address, "metadata.name": pod["metadata"]["name"]}
                value = pod["metadata"][label[1]][label[2]] if label else fields[path]
            if reference := origin.get("secretKeyRef"):
                found = self._values("secret", reference["name"])
                if found is None:
                    return None
                value = found[reference["key"]]
            result[entry["name"]] = value
        return result

    def _values(self, kind: str, name: str) -> dict[str, str] | None:
        found = self.plane.call("GET", f"namespaces/{NAMESPACE}/{kind}s".lower() + f"/{name}")
        if not found.ok:
            return None
        data = found.json().get("data", {})
        return {key: base64.b64decode(value).decode() if kind == "secret" else value for key, value in data.items()}

    def _script(
        self,
        pod: dict[str, Any],
        container: dict[str, Any],
        environment: dict[str, str],
        root: Path,
        hostname: str,
        hosts: Path,
    ) -> str:
        user = {**pod["spec"]["securityContext"], **container["securityContext"]}
        assert user["readOnlyRootFilesystem"], "only read-only roots are tested"
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounts, devices = [], []
        for path, source in self.image.items():
            mounts.append(f"mkdir -p $r{path}; mount --rbind {shlex.quote(str(source))} $r{path}")
        # As containerd does, folders before those within them.
        for mount in sorted(container["volumeMounts"], key=lambda one: one["mountPath"].count("/")):
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "emptyDir" in volume:
                line = f"mkdir -p $r{path}; mount -t tmpfs -o mode=1777 none $r{path}"
            elif "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]
                line = f"mkdir -p $r{path}; mount --bind {shlex.quote(str(self.claims[claim['claimName']]))} $r{path}"
                if mount.get("readOnly") or claim.get("readOnly"):
                    line += f"; mount -o remount,bind,ro $r{path}"
            else:  # the token of a service account
                continue
            (devices if path.startswith("/dev") else mounts).append(line)
        command = [_expand(word, environment) for word in (*container["command"], *container.get("args", ()))]
        return ENTER.format(
            hostname=shlex.quote(hostname),
            root=root,
            hosts=hosts,
            mounts="\n".join(mounts),
            devices="\n".join(devices),
            user=user["runAsUser"],
            group=user["runAsGroup"],
            environment=shlex.join(f"{name}={value}" for name, value in environment.items()),
            directory=shlex.quote(container["workingDir"]),
            command=shlex.join(command),
        )

    def _status(self, pod: dict[str, Any], one: Running, status: int | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        phase = "Running" if status is None else "Failed" if status else "Succeeded"
        ended = {"exitCode": status, "reason": "Error" if status else "Completed", "startedAt": now, "finishedAt": now}
        state = {"running": {"startedAt": now}} if status is None else {"terminated": ended}
        (container,) = pod["spec"]["containers"]
        described = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
        return {
            "phase": phase,
            "podIP": one.address,
            "podIPs": [{"ip": one.address}],
            "startTime": pod["status"].get("startTime", now),
            "containerStatuses": [{**described, "ready": status is None, "state": state}],
        }

    def _patch(self, name: str, status: dict[str, Any]) -> None:
        done = self.plane.call("PATCH", f"{PODS}/{name}/status", {"status": status}, kind=MERGE)
        assert done.ok or done.status_code == 404, done.text


def _expand(text: str, environment: dict[str, str]) -> str:
    """Replace $(NAME), as Kubernetes does."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def described(pods: list[dict[str, Any]]) -> str:
    """Return what happens in the cluster, for messages of tests."""
    return json.dumps([[pod["metadata"]["name"], pod["status"]] for pod in pods], indent=1)
