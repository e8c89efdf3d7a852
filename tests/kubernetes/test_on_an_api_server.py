"""The manifests and the profile on a real API server with the real controller of Jobs. Pods are processes here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import NAMESPACE, SUBMITTER, ControlPlane, missing_programs
from kubelet import Kubelet, described, is_possible
from snakemake_runs import PHASE, SMALL_CONFIG, copy_workflow
from synthetic_dataset import recipe, write_dataset

from bertline.demo_data.generate import generate
from bertline.planning.resolve import make_plan

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy/kubernetes"
LAUNCH = ROOT / "workflow/scripts/launch.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"KUBEBUILDER_ASSETS lacks {', '.join(missing_programs())}"),
]
nodes = pytest.mark.skipif(not is_possible(), reason="needs root, network namespaces and overlays")
LABEL = "app.kubernetes.io/name=bertline"
CLAIMS = {"bertline-data": "data", "bertline-results": "results", "bertline-project": "project"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    made = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        made.start()
        # The strictest of the standards for Pods.
        strict = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        metadata = {"name": NAMESPACE, "labels": strict}
        made.kubectl("create", "--filename=-", given=[{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}])
        made.until(lambda: made.call("GET", f"namespaces/{NAMESPACE}/serviceaccounts/default").ok, "service account")
        yield made
    finally:
        made.stop()


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path) -> Iterator[Kubelet]:
    """Nodes; the volumes are folders of tmp_path."""
    for name in CLAIMS.values():
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    folder = tmp_path / "kubelet"
    folder.mkdir()
    claims = {claim: tmp_path / name for claim, name in CLAIMS.items()}
    made = Kubelet(plane, folder, claims, {"/bertline": ROOT})
    try:
        yield made
    finally:
        plane.kubectl("delete", "jobs", "--all", "--wait=false")
        plane.kubectl("delete", "services,networkpolicies", "--selector", LABEL, "--wait=false")
        made.stop()
        for pod in plane.pods():
            plane.call("DELETE", f"namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        plane.until(lambda: not plane.pods(), "end of all Pods")


def deploy(folder: Path, **variables: object) -> Path:
    """Copy the manifests, for nodes without GPUs, with these values in the file of settings."""
    shutil.copytree(DEPLOY, folder)
    settings = folder / "base/bertline.env"
    lines = [line for line in settings.read_text().splitlines() if line.partition("=")[0] not in variables]
    settings.write_text("\n".join([*lines, *(f"{name}={value}" for name, value in variables.items())]) + "\n")
    for name in ("single-node", "multi-node"):
        path = folder / name / "kustomization.yaml"
        content = yaml.safe_load(path.read_text())
        content["components"] = [*content.get("components", []), "../components/cpu-only"]
        path.write_text(yaml.safe_dump(content))
    return folder


@pytest.mark.parametrize("name", ["claims", "submitter", "single-node", "multi-node", "graph"])
def test_the_server_accepts_every_object_and_no_pod_breaks_the_restricted_standard(
    plane: ControlPlane, name: str
) -> None:
    if name == "submitter":  # its Pod needs its account
        plane.kubectl("apply", "--filename", str(DEPLOY / "submitter/rights.yaml"))
    output = plane.kubectl("apply", "-k", str(DEPLOY / name), "--dry-run=server", "--validate=strict", check=False)
    assert "created (server dry run)" in output
    assert "Warning" not in output
    assert "rror" not in output


def test_the_server_refuses_a_field_that_does_not_exist(plane: ControlPlane, tmp_path: Path) -> None:
    deploy(tmp_path / "deploy")
    path = tmp_path / "deploy/base/job.yaml"
    path.write_text(path.read_text().replace("readOnlyRootFilesystem", "readOnlyRoot"))
    given = ("apply", "-k", str(tmp_path / "deploy/multi-node"), "--dry-run=server", "--validate=strict")
    assert 'unknown field "spec.template.spec.containers[0].securityContext.readOnlyRoot"' in plane.kubectl(
        *given, check=False
    )


def test_a_trainjob_matches_the_resources_of_kubeflow(plane: ControlPlane) -> None:
    resources = os.environ.get("KUBEFLOW_CRDS")
    if not resources:
        pytest.skip("KUBEFLOW_CRDS is not set: the folder manifests/base/crds of kubeflow/trainer")
    plane.kubectl("apply", "--server-side", "-k", resources)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    given = ("apply", "-k", str(DEPLOY / "trainjob"), "--dry-run=server", "--validate=strict")
    plane.until(lambda: "no matches" not in plane.kubectl(*given, check=False), "kind")
    output = plane.kubectl(*given, check=False)
    assert "trainjob.trainer.kubeflow.org/bertline-training created" in output
    assert "trainingruntime.trainer.kubeflow.org/bertline created" in output
    assert "rror" not in output


def trained_here(folder: Path, data: Path) -> bytes:
    """The weights of two ranks on one machine, undisturbed."""
    given = ["--recipe", data / "recipe.json", "--dataset", data / "dataset/dataset.json", "--output", folder / "here"]
    options = ["--threads", "2", "--micro-batch-tokens", "64"]
    command = [
        sys.executable,
        LAUNCH,
        "--processes-per-node",
        "2",
        "--",
        LAUNCH.with_name("pretrain.py"),
        *given,
        *options,
    ]
    subprocess.run([*map(str, command)], cwd=folder, check=True, capture_output=True, umask=0)
    return (folder / "here/model.safetensors").read_bytes()


def data_of(folder: Path, steps: int) -> None:
    (folder / "data/recipe.json").write_text(json.dumps(recipe(steps=steps)))
    write_dataset(folder / "data/dataset")


def logs(cluster: Kubelet) -> str:
    texts = [f"{name}:\n{path.read_text()[-3000:]}" for name, path in cluster.logs.items()]
    return "\n".join([*texts, described(cluster.plane.pods())])


def names_of_pods(plane: ControlPlane) -> list[str]:
    """The Pods that run."""
    return [pod["metadata"]["name"] for pod in plane.pods() if pod["status"]["phase"] == "Running"]


def evict(plane: ControlPlane, name: str) -> None:
    """As `kubectl drain` and the autoscaler do."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = plane.call("POST", f"namespaces/{NAMESPACE}/pods/{name}/eviction", eviction)
    assert answer.ok, answer.text


def condition(plane: ControlPlane, name: str) -> str | None:
    """Complete or Failed, when the Job has ended."""
    held = plane.job(name)["status"].get("conditions", [])
    return next(
        (one["type"] for one in held if one["type"] in ("Complete", "Failed") and one["status"] == "True"), None
    )


@nodes
def test_a_job_of_two_pods_of_which_one_is_evicted_trains_the_weights_of_one_machine(
    plane: ControlPlane, cluster: Kubelet, tmp_path: Path
) -> None:
    steps = 60
    data_of(tmp_path, steps)
    options = "--log-every=1 --checkpoint-every=20"
    size = {"THREADS": 1, "MEMORY": "2Gi", "MICRO_BATCH_TOKENS": 64, "TRAINER_OPTIONS": options}
    manifests = deploy(tmp_path / "deploy", **size)
    plane.kubectl("create", "secret", "generic", "bertline-job-token", "--from-literal=BERTLINE_JOB_TOKEN=secret")
    plane.kubectl("apply", "-k", str(manifests / "multi-node"))
    phase = tmp_path / "results/phase"

    def has_steps() -> bool:
        assert condition(plane, "bertline-training") != "Failed", logs(cluster)
        return (phase / "checkpoints/durable.json").exists()

    plane.until(has_steps, "checkpoint", seconds=300)
    evict(plane, next(name for name in names_of_pods(plane) if "-1-" in name))
    ended = plane.until(lambda: condition(plane, "bertline-training"), "end of the Job", seconds=300)
    assert ended == "Complete", logs(cluster)
    text = "".join(path.read_text() for path in cluster.logs.values())
    assert "asked to stop" in text, logs(cluster)
    assert "resuming" in text
    assert len(cluster.logs) == 4
    # Nothing of it counted as a failure of the training.
    assert not plane.job("bertline-training")["status"].get("failed")
    journal = [json.loads(line)["step"] for line in (phase / "metrics.jsonl").read_text().splitlines()]
    assert journal == sorted(set(journal))
    assert (phase / "model.safetensors").read_bytes() == trained_here(tmp_path, tmp_path / "data")
    assert {path.stat().st_uid for path in phase.iterdir()} == {1000}


@nodes
def test_a_setting_that_cannot_work_ends_the_job_at_once(plane: ControlPlane, cluster: Kubelet, tmp_path: Path) -> None:
    manifests = deploy(tmp_path / "deploy", THREADS=1, OUTPUT_DIR="/data/phase")
    plane.kubectl("apply", "-k", str(manifests / "single-node"))
    ended = plane.until(lambda: condition(plane, "bertline-training"), "end of the Job")
    assert ended == "Failed"
    (log,) = cluster.logs.values()
    assert log.read_text() == "error: /data/phase: Read-only file system; name another path, or allow it\n"


class Graph:
    """A copy of the project on the volume that the Pods mount, and snakemake in it with the rights of the submitter."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        copy_workflow(folder)
        for name in ("src", "deploy"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        template = folder / "deploy/kubernetes/graph/job.yaml"
        template.write_text(template.read_text().replace("mountPath: /project", f"mountPath: {folder}"))
        given = {"gpus_per_node": 0, "cpus_per_gpu": 1, "memory_mb": 2000, "micro_batch_tokens": 1024}
        site = {"partitions": {"cpu": "cpu", "gpu": "gpu"}, "phases": {"default": {**given, "nodes": 2}}}
        (folder / "site.yaml").write_text(yaml.safe_dump(site))
        subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
        plane.kubectl("apply", "--filename", str(folder / "deploy/kubernetes/submitter/rights.yaml"))
        path = f"{plane.assets}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig(SUBMITTER)), "PATH": path, "NO_COLOR": "1"}

    def config(self, steps: int) -> str:
        """Write the configuration; return the weights that it asks for."""
        small = json.loads(json.dumps(SMALL_CONFIG))
        book = {"source": "files", "paths": ["book.txt"], "separator": "* * *", "sentences": "unicode"}
        small["corpora"] = {"book": book}
        small["sequence_lengths"] = [128]
        small["datasets"]["small"] |= {"corpora": ["book"], "shards": 1}
        run = small["runs"]["first"]
        run["phases"] = {"phase1": {**PHASE, "sequence_length": 128, "steps": steps}}
        del run["finetune"], small["evaluation"], small["mirrors"]
        (self.folder / "small.yaml").write_text(yaml.safe_dump(small, sort_keys=False))
        before = os.umask(0)  # files are made by two users here: this one, and that of the Pods
        with contextlib.chdir(self.folder):
            (phase,) = make_plan(small, "config/config.schema.yaml", "config/models").phases
        os.umask(before)
        return f"results/phases/{phase}/model.safetensors"

    def start(self, *arguments: str, profile: str = "kubernetes") -> subprocess.Popen[str]:
        options = ["--profile", f"profiles/{profile}", "--configfile", "small.yaml", "--latency-wait", "10"]
        if profile == "kubernetes":
            options += ["--seconds-between-status-checks", "1", "--retries", "0"]
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *arguments, *options],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            umask=0,
            # Background shells ignore it, and what they start inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


def jobs(plane: ControlPlane) -> list[dict[str, Any]]:
    return json.loads(plane.kubectl("get", "jobs", "-o", "json"))["items"]


@nodes
def test_the_graph_trains_on_two_pods_through_the_profile_survives_an_eviction_and_ctrl_c_leaves_nothing(
    plane: ControlPlane, cluster: Kubelet, tmp_path: Path
) -> None:
    generate(tmp_path / "sample", 1)
    graph = Graph(plane, tmp_path / "project")
    shutil.copy(tmp_path / "sample/books/book-001.txt", graph.folder / "book.txt")
    weights = graph.config(steps=4)
    process = graph.start(weights)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output[-6000:] + logs(cluster)
    sizes = {
        job["metadata"]["annotations"]["bertline/job"].split()[0]: job["spec"]["completions"] for job in jobs(plane)
    }
    assert sizes["pretrain_phase"] == 2
    assert {size for name, size in sizes.items() if name != "pretrain_phase"} == {1}
    folder = (graph.folder / weights).parent
    trained = json.loads((folder / "recipe.json").read_text())
    assert trained["world_size"] == 2
    (job,) = [job["metadata"]["name"] for job in jobs(plane) if job["spec"]["completions"] == 2]
    assert trained["jobs"] == [f"kubernetes {job}"]
    on_pods = (graph.folder / weights).read_bytes()
    # The same on this machine.
    shutil.rmtree(folder)
    size = ["processes_per_node=2", "micro_batch_tokens=1024"]
    local = graph.start(
        weights, "--cores", "2", "--set-resources", *(f"pretrain_phase:{one}" for one in size), profile="local"
    )
    said, _ = local.communicate(timeout=300)
    assert local.returncode == 0, said[-4000:]
    assert (graph.folder / weights).read_bytes() == on_pods
    # A long one.
    weights = graph.config(steps=100_000)
    process = graph.start(weights, "--set-resources", "pretrain_phase:log_every=1")
    journal = (graph.folder / weights).parent / "checkpoints/journal.jsonl"
    plane.until(lambda: journal.exists() or process.poll() is not None, "step", seconds=300)
    assert process.poll() is None, process.communicate()[0][-4000:] + logs(cluster)
    # The Pod in which snakemake itself runs. The Job starts both anew, and no second Job is submitted.
    submitted = {job["metadata"]["name"] for job in jobs(plane)}
    evict(plane, next(name for name in names_of_pods(plane) if "pretrain" in name and "-0-" in name))
    log = journal.with_name("training.log")
    plane.until(lambda: "resuming" in log.read_text() or process.poll() is not None, "resumption", seconds=300)
    assert process.poll() is None, process.communicate()[0][-4000:] + logs(cluster)
    assert {job["metadata"]["name"] for job in jobs(plane)} == submitted
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    plane.until(lambda: all(pod["status"]["phase"] != "Running" for pod in plane.pods()), "end of the Pods")
    assert all("completionTime" in job["status"] for job in jobs(plane))

    def belongs_to_no_job() -> set[str]:
        listed = plane.kubectl("get", "services,networkpolicies", "--selector", LABEL, "-o", "json")
        names = {one["metadata"]["name"] for one in json.loads(listed)["items"]}
        return names - {job["metadata"]["name"] for job in jobs(plane)}

    plane.until(lambda: not belongs_to_no_job(), "deletion of what belongs to the Job")
    assert json.loads((journal.parent / "durable.json").read_text())["step"] > 0
