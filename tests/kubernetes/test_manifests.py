"""What kustomize makes of deploy/kubernetes: valid objects, and Pods with no more rights than they need."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy/kubernetes"
FOLDERS = ("claims", "single-node", "multi-node", "trainjob", "graph", "submitter")
KUBECTL = shutil.which("kubectl", path=f"{os.environ.get('KUBEBUILDER_ASSETS', '')}:{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="needs kubectl 1.27 or newer")


def render(folder: Path) -> list[dict[str, Any]]:
    """The objects; kustomize must not warn, as it does of deprecated fields."""
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return list(yaml.safe_load_all(done.stdout))


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """The specifications of Pods, wherever they are in an object."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for part in value.values():
            yield from pods(part)
    elif isinstance(value, list):
        for part in value:
            yield from pods(part)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_object_matches_the_schema_of_its_kind(name: str) -> None:
    """No unknown field either. Those of Kubeflow are compared in test_on_an_api_server.py."""
    validator = pytest.importorskip("kubernetes_validate")
    objects = [one for one in render(DEPLOY / name) if not one["apiVersion"].startswith("trainer.kubeflow.org/")]
    assert objects
    for one in objects:
        for version in ("1.31", "1.34", "1.36"):
            validator.validate(one, version, strict=True)
        wrong = copy.deepcopy(one)
        wrong["metadata"]["unknown"] = 1
        with pytest.raises(validator.ValidationError):
            validator.validate(wrong, "1.34", strict=True)


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != "claims"])
def test_pods_have_no_more_rights_than_they_need(name: str) -> None:
    found = list(pods(render(DEPLOY / name)))
    assert len(found) == 1
    for pod in found:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] == (name == "submitter")
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        for mount in container["volumeMounts"]:
            assert mount.get("readOnly", False) == (mount["name"] == "data")


@pytest.mark.parametrize("name", ["single-node", "multi-node", "trainjob"])
def test_the_file_of_settings_decides_image_user_and_size(name: str, tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    path = tmp_path / "deploy/base/bertline.env"
    values = {
        "REGISTRY": "r.example:5000/team",
        "USER_ID": "7",
        "GROUP_ID": "8",
        "NUM_NODES": "3",
        "PROCESSES_PER_NODE": "4",
    }
    values |= {"THREADS": "16", "MEMORY": "9Gi", "WORKSPACE": "/elsewhere"}
    lines = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in values]
    path.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in values.items())]) + "\n")
    objects = render(tmp_path / "deploy" / name)
    (pod,) = pods(objects)
    (container,) = pod["containers"]
    assert container["image"] == "r.example:5000/team/bertline:cuda"
    user = pod["securityContext"]
    assert (user["runAsUser"], user["runAsGroup"], user["fsGroup"]) == (7, 8, 8)
    assert container["resources"]["limits"] == {"cpu": "16", "memory": "9Gi", "nvidia.com/gpu": "4"}
    assert container["workingDir"] == "/elsewhere"
    kinds = {one["kind"]: one for one in objects}
    if name == "multi-node":
        assert (kinds["Job"]["spec"]["completions"], kinds["Job"]["spec"]["parallelism"]) == (3, 3)
    if name == "trainjob":
        assert kinds["TrainingRuntime"]["spec"]["mlPolicy"]["numNodes"] == 3


def test_a_second_training_has_names_and_settings_of_its_own(tmp_path: Path) -> None:
    """By the commands of the documentation."""
    shutil.copytree(DEPLOY, tmp_path / "deploy/kubernetes")
    text = (DEPLOY.parents[1] / "docs/kubernetes.md").read_text()
    start = text.index("    cp -r deploy/kubernetes second\n")
    subprocess.run(["bash", "-ec", text[start : text.index("\n\n", start)]], cwd=tmp_path, check=True)
    settings = tmp_path / "second/base/bertline.env"
    settings.write_text(settings.read_text().replace("NUM_NODES=2", "NUM_NODES=5"))
    objects = render(tmp_path / "second/multi-node")
    first = {(one["kind"], one["metadata"]["name"]) for one in render(DEPLOY / "multi-node")}
    assert first.isdisjoint((one["kind"], one["metadata"]["name"]) for one in objects)
    assert "bertline-training" not in yaml.safe_dump(objects)
    (job,) = [one for one in objects if one["kind"] == "Job"]
    assert job["spec"]["parallelism"] == 5


def test_only_pods_of_the_same_job_are_let_in() -> None:
    for name in ("single-node", "multi-node", "trainjob", "graph"):
        (policy,) = [one["spec"] for one in render(DEPLOY / name) if one["kind"] == "NetworkPolicy"]
        assert policy["policyTypes"] == ["Ingress"]
        assert policy["ingress"] == [{"from": [{"podSelector": policy["podSelector"]}]}]
