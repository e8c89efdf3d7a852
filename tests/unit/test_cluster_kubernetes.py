"""Trainings in the Pods of an Indexed Job, and Snakemake's jobs as such Jobs. Each Pod is a process of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_dataset import recipe, write_dataset
from training_processes import free_port

from bertline.cluster import kubernetes, pods, scheduler_jobs, waiting
from bertline.cluster.schedulers import Request
from bertline.console import BertlineError
from bertline.results import paths

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"
LAUNCH = SCRIPTS / "launch.py"
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WRITE_ENVIRONMENT = f"""
import json, os, sys
values = {{name: os.environ[name] for name in {NAMES}}}
open(f"{{sys.argv[1]}}/{{values['RANK']}}.json", "w").write(json.dumps([values, sys.argv[2:]]))
"""


def of_pod(index: int, port: int, **others: str) -> dict[str, str]:
    """The variables of a Pod of deploy/kubernetes/multi-node."""
    job = {"KUBERNETES_JOB": "training", "KUBERNETES_JOB_UID": "1-2-3", "JOB_COMPLETION_INDEX": str(index)}
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "POD_IP": "127.0.0.1"}
    return {**os.environ, **job, **address, "BERTLINE_JOB_TOKEN": "secret", **others}


def start_pods(count: int, *command: object, folder: Path, **others: str) -> list[subprocess.Popen[str]]:
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=folder,
            env=of_pod(index, port, **others),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(count)
    ]


def finish(pods: list[subprocess.Popen[str]]) -> tuple[list[int], str]:
    """The exit statuses, and all output."""
    output = "".join(pod.communicate(timeout=120)[0] for pod in pods)
    return [pod.returncode for pod in pods], output


# Programs of a rank: one ends as when another Pod is preempted, one is ended by its own Pod's signal.
STOPS = ("sys.exit(75)", "time.sleep(240)")


def wait_for_handler(pod: subprocess.Popen[Any], deadline: float) -> None:
    """Wait until a process handles SIGTERM."""
    # Its bit, of number 15, in the mask of signals that the process handles.
    status = Path(f"/proc/{pod.pid}/status")
    while not int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16) & (1 << 14):
        assert pod.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def environments(folder: Path) -> list[Any]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(len(list(folder.glob("*.json"))))]


def program(folder: Path, text: str) -> Path:
    path = folder / "trainer.py"
    path.write_text(text)
    return path


def test_each_pod_starts_the_ranks_of_its_node(tmp_path):
    command = (
        LAUNCH,
        "--nodes",
        2,
        "--processes-per-node",
        2,
        "--",
        program(tmp_path, WRITE_ENVIRONMENT),
        tmp_path,
        "--x",
    )
    statuses, output = finish(start_pods(2, *command, folder=tmp_path))
    assert statuses == [0, 0], output
    ranks = environments(tmp_path)
    assert [values["RANK"] for values, _ in ranks] == ["0", "1", "2", "3"]
    assert [values["LOCAL_RANK"] for values, _ in ranks] == ["0", "1", "0", "1"]
    # Rank 0 listens at its Pod's own address; the others find it by name.
    assert [values["MASTER_ADDR"] for values, _ in ranks] == ["127.0.0.1", "127.0.0.1", "localhost", "localhost"]
    for values, arguments in ranks:
        assert (values["WORLD_SIZE"], values["LOCAL_WORLD_SIZE"]) == ("4", "2")
        assert values["MASTER_PORT"] == ranks[0][0]["MASTER_PORT"]
        assert arguments == ["--x"]


def train_command(folder: Path, output: str, *size: object, threads: int = 1) -> list[object]:
    """A training on a node with so many threads. What a rank computes at once decides the last bits."""
    options = ["--micro-batch-tokens", "64", "--threads", threads, "--log-every", "1"]
    files = [
        "--recipe",
        folder / "recipe.json",
        "--dataset",
        folder / "dataset/dataset.json",
        "--output",
        folder / output,
    ]
    checkpoints = ["--checkpoints", folder / output / "checkpoints"]
    return [LAUNCH, *size, *checkpoints, "--", LAUNCH.with_name("pretrain.py"), *files, *options]


@pytest.mark.slow
def test_two_pods_train_the_weights_of_two_ranks_on_one_machine_to_the_bit(tmp_path):
    (tmp_path / "recipe.json").write_text(json.dumps(recipe(steps=6)))
    write_dataset(tmp_path / "dataset")
    # One thread for each rank in either case.
    command = train_command(tmp_path, "here", "--processes-per-node", 2, threads=2)
    subprocess.run([sys.executable, *map(str, command)], cwd=tmp_path, check=True, capture_output=True)
    statuses, output = finish(start_pods(2, *train_command(tmp_path, "pods", "--nodes", 2), folder=tmp_path))
    assert statuses == [0, 0], output
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("here", "pods")]
    assert weights[0] == weights[1]
    assert json.loads((tmp_path / "pods/recipe.json").read_text())["jobs"] == ["kubernetes training"]


@pytest.mark.slow
def test_a_pod_that_is_asked_to_stop_makes_all_pods_save(tmp_path):
    """One is preempted; all end with the status on which the Job starts them again, and the next Pods resume."""
    (tmp_path / "recipe.json").write_text(json.dumps(recipe(steps=100_000)))
    write_dataset(tmp_path / "dataset")
    pods = start_pods(2, *train_command(tmp_path, "phase", "--nodes", 2), folder=tmp_path)
    journal = tmp_path / "phase/checkpoints/journal.jsonl"
    deadline = time.monotonic() + 100
    while not (journal.exists() and journal.read_text().count("\n") > 3) and time.monotonic() < deadline:
        assert all(pod.poll() is None for pod in pods), finish(pods)
        time.sleep(0.05)
    pods[1].send_signal(signal.SIGTERM)
    statuses, output = finish(pods)
    assert statuses == [75, 75], output
    assert json.loads((tmp_path / "phase/checkpoints/durable.json").read_text())["step"] > 0


def test_ranks_of_several_pods_need_the_token_of_their_job(tmp_path):
    command = (LAUNCH, "--nodes", 2, "--", program(tmp_path, WRITE_ENVIRONMENT), tmp_path)
    (pod,) = start_pods(1, *command, folder=tmp_path, BERTLINE_JOB_TOKEN="")
    output, _ = pod.communicate(timeout=240)
    assert pod.returncode == 1
    assert output == "error: BERTLINE_JOB_TOKEN is not set in this Pod; use the Job of deploy/kubernetes/multi-node\n"


@pytest.mark.parametrize("variable", ["JOB_COMPLETION_INDEX", "MASTER_PORT"])
def test_a_variable_of_a_pod_that_is_no_number_is_one_line(tmp_path, variable):
    command = (LAUNCH, "--nodes", 2, "--", program(tmp_path, WRITE_ENVIRONMENT), tmp_path)
    (pod,) = start_pods(1, *command, folder=tmp_path, **{variable: "tcp://x"})
    assert finish([pod]) == (
        [1], f"error: {variable} is 'tcp://x', not a number; in a Job of deploy/kubernetes it is one\n"
    )  # fmt: skip


def test_a_pod_that_is_stopped_while_its_program_starts_is_started_again(tmp_path):
    """Process 1 of a container ignores a signal that it does not handle yet."""
    (tmp_path / "bertline/cluster").mkdir(parents=True)
    (tmp_path / "bertline/__init__.py").write_text("import time; print('imports', flush=True); time.sleep(240)\n")
    command = [sys.executable, SCRIPTS / "run_in_pod.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout.readline() == "imports\n"
        pod.terminate()
        assert pod.wait(240) == 75


@pytest.mark.parametrize(
    ("index", "addresses"), [(1, {"MASTER_ADDR": "nobody.invalid"}), (0, {"MASTER_ADDR": "training-0.invalid"})]
)
def test_pods_wait_until_each_has_an_address_and_can_be_stopped(tmp_path, index, addresses):
    """An attempt is not counted before."""
    command = (LAUNCH, "--nodes", 2, "--checkpoints", tmp_path / "phase/checkpoints", "--")
    command = (*command, program(tmp_path, WRITE_ENVIRONMENT), tmp_path)
    environment = of_pod(index, free_port(), **addresses)
    pod = subprocess.Popen([sys.executable, *map(str, command)], cwd=tmp_path, env=environment)
    wait_for_handler(pod, time.monotonic() + 240)
    pod.terminate()
    assert pod.wait(240) == 75
    assert not environments(tmp_path)
    assert not (tmp_path / "phase").exists()


def test_who_has_no_address_is_printed_once(monkeypatch, capsys):
    fails = {"t-0.t": 1, "t-1.t": 3, "t-2.t": 2}

    def look_up(name: str, port: None) -> None:
        if fails[name]:
            fails[name] -= 1
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("MASTER_ADDR", "t-0.t")
    monkeypatch.setattr(pods, "REPORTED_AFTER", 0.0)
    monkeypatch.setattr(pods, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert pods.wait_for_pods(pods.Pod("t", "1", 0), 3, None) == 3
    assert not any(fails.values())
    assert capsys.readouterr().err == (
        "waiting for Pods without an address: t-0.t, t-1.t, t-2.t; kubectl describe pod says why they do not run\n"
    )


def test_the_wait_for_pods_leaves_the_handling_of_signals_as_it_was(monkeypatch):
    """Later a signal must reach the ranks, which save."""
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    before = signal.getsignal(signal.SIGTERM)
    assert pods.wait_for_pods(pods.Pod("t", "1", 0), 1, None) == 1
    assert signal.getsignal(signal.SIGTERM) == before


def finish_phase(folder: Path) -> None:
    for name in paths.PHASE_OUTPUTS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_ranks_of_a_finished_phase_are_not_waited_for(tmp_path):
    """A Pod that was evicted at the very end: an index of the Job that is complete never runs again."""
    finish_phase(tmp_path / "phase")
    command = (LAUNCH, "--nodes", 2, "--checkpoints", tmp_path / "phase/checkpoints", "--")
    command = (*command, program(tmp_path, WRITE_ENVIRONMENT), tmp_path)
    pods_of_job = start_pods(2, *command, folder=tmp_path, MASTER_ADDR="nobody.invalid")
    statuses, output = finish(pods_of_job)
    assert statuses == [0, 0], output
    assert [values["WORLD_SIZE"] for values, _ in environments(tmp_path)] == ["1"]


def test_a_wait_for_pods_ends_with_their_phase(tmp_path, monkeypatch):
    """It was published while this Pod waited for one that has completed since."""

    def look_up(name: str, port: None) -> None:
        finish_phase(tmp_path / "phase")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("MASTER_ADDR", "t-0.t")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match=r"^0$"):
        pods.wait_for_pods(pods.Pod("t", "1", 1), 2, tmp_path / "phase/checkpoints")


def test_pods_of_the_same_job_count_as_attempts_and_another_job_begins_anew(tmp_path):
    script = program(tmp_path, "import sys; open(sys.argv[1] + '/ran', 'a').write('x'); sys.exit(69)")
    command = (LAUNCH, "--checkpoints", tmp_path / "checkpoints", "--", script, tmp_path)

    def attempt(job: str) -> int:
        return finish(start_pods(1, *command, folder=tmp_path, KUBERNETES_JOB_UID=job))[0][0]

    assert [attempt("a") for _ in range(4)] == [69, 69, 69, 1]
    assert (tmp_path / "ran").read_text() == "xxx"
    assert attempt("b") == 69


@pytest.mark.parametrize("signalled", [0, 1])
def test_an_attempt_that_a_preemption_ended_is_not_counted(tmp_path, signalled):
    """Of this Pod, by its signal; of another Pod, whose ranks make those here stop and save."""
    script = program(tmp_path, "import os, sys, time; open(sys.argv[1], 'w').close(); " + STOPS[signalled])
    command = (LAUNCH, "--checkpoints", tmp_path / "checkpoints", "--", script, tmp_path / "started")
    for _ in range(4):
        (tmp_path / "started").unlink(missing_ok=True)
        (pod,) = start_pods(1, *command, folder=tmp_path)
        deadline = time.monotonic() + 240
        while not (tmp_path / "started").exists():
            assert pod.poll() is None, finish([pod])
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if signalled:
            wait_for_handler(pod, deadline)
            pod.terminate()
        assert finish([pod])[0] == [128 + signal.SIGTERM if signalled else 75]


GRAPH_JOB = f"{sys.executable} {LAUNCH} --nodes 2 --processes-per-node 2 -- {{script}} {{folder}} || exit 1"


def run_graph_job(folder: Path, text: str) -> tuple[list[int], str]:
    """Run a job of Snakemake whose rule starts `text` on two nodes."""
    script = program(folder, text)
    (folder / "job").mkdir(exist_ok=True)
    (folder / "job.sh").write_text(GRAPH_JOB.format(script=script, folder=folder))
    command = (SCRIPTS / "run_in_pod.py", "--script", folder / "job.sh", "--folder", folder / "job")
    return finish(start_pods(2, *command, folder=folder, BERTLINE_JOB_TOKEN=""))


def test_a_job_of_the_graph_runs_in_its_first_pod_and_starts_ranks_in_the_others(tmp_path):
    statuses, output = run_graph_job(tmp_path, WRITE_ENVIRONMENT)
    assert statuses == [0, 0], output
    assert [values["RANK"] for values, _ in environments(tmp_path)] == ["0", "1", "2", "3"]
    # A Pod that takes the place of the second one does not start them again.
    (script,) = tmp_path.glob("job/start*")
    assert script.name == "started-1.sh"
    # It contains the job's token.
    assert stat.S_IMODE(script.stat().st_mode) == 0o600


def test_ranks_elsewhere_are_started_again_although_they_had_ended_well(tmp_path):
    """The first Pod was evicted after its ranks had ended, before Snakemake's job had."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job.sh").write_text(
        "count=$(cat count 2>/dev/null || echo 0); echo $((count + 1)) > count\n"
        "echo 'echo x >> ran' > job/new\n"
        "mv job/new job/start-1.sh\n"
        "while [ -e job/start-1.sh ]; do sleep 0.1; done\n"
        "[ $count != 0 ]\n"
    )
    command = (SCRIPTS / "run_in_pod.py", "--script", tmp_path / "job.sh", "--folder", tmp_path / "job")
    first, second = start_pods(2, *command, folder=tmp_path, BERTLINE_JOB_TOKEN="")
    assert finish([first])[0] == [1]
    (again,) = start_pods(1, *command, folder=tmp_path, BERTLINE_JOB_TOKEN="")
    statuses, output = finish([again, second])
    assert statuses == [0, 0], output
    assert (tmp_path / "ran").read_text() == "x\nx\n"


def test_what_an_earlier_pod_left_does_not_count(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job/status").write_text("75")
    (tmp_path / "job/over").touch()
    (tmp_path / "job/start-1.sh").write_text("exit 9\n")
    (tmp_path / "job.sh").write_text("ls job > found; exit 1\n")
    command = (SCRIPTS / "run_in_pod.py", "--script", tmp_path / "job.sh", "--folder", tmp_path / "job")
    statuses, output = finish(start_pods(1, *command, folder=tmp_path))
    assert statuses == [1], output
    assert (tmp_path / "found").read_text() == ""


def test_a_job_of_the_graph_that_needs_no_ranks_elsewhere_ends_the_other_pods(tmp_path):
    (tmp_path / "job").mkdir()
    (tmp_path / "job.sh").write_text("true\n")
    command = (SCRIPTS / "run_in_pod.py", "--script", tmp_path / "job.sh", "--folder", tmp_path / "job")
    statuses, output = finish(start_pods(2, *command, folder=tmp_path))
    assert statuses == [0, 0], output


@pytest.mark.parametrize(("status", "of_first"), [(75, 75), (69, 69), (70, 1)])
def test_only_a_training_that_can_continue_has_its_pods_started_again(tmp_path, status, of_first):
    """Snakemake itself ends with 1 in all cases."""
    statuses, output = run_graph_job(tmp_path, f"import sys; sys.exit({status})")
    assert statuses == [of_first, status], output


REQUEST = Request(
    name="pretrain_phase",
    script="s",
    log="l",
    minutes=60,
    nodes=2,
    cpus=4,
    gpus=8,
    memory_mb=2000,
    queue="ours",
    account=None,
    constraint="gpu.type=a100",
)


def manifests(mount: str) -> list[dict[str, Any]]:
    container = {"name": "node", "volumeMounts": [{"name": "project", "mountPath": mount}]}
    container["env"] = [{"name": "MASTER_ADDR", "value": "bertline-training-0.bertline-training"}]
    return [
        {"kind": "ConfigMap", "metadata": {"name": "bertline-env"}},
        {"kind": "Service", "metadata": {"name": "bertline-training"}},
        {"kind": "NetworkPolicy", "metadata": {"name": "bertline-training"}},
        {
            "kind": "Job",
            "metadata": {"name": "bertline-training"},
            "spec": {"template": {"spec": {"containers": [container], "subdomain": "bertline-training"}}},
        },
    ]


def test_a_job_has_the_size_that_its_rule_asks_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared, job, others = kubernetes.fill(
        manifests(str(tmp_path)), "mine", REQUEST, ["--script", "x"], "pretrain_phase p1"
    )
    assert [one["kind"] for one in shared] == ["ConfigMap"]
    assert [(one["kind"], one["metadata"]["name"]) for one in others] == [
        ("Service", "mine"),
        ("NetworkPolicy", "mine"),
    ]
    assert job["metadata"] == {
        "name": "mine",
        "annotations": {"bertline/job": "pretrain_phase p1"},
        "labels": {"kueue.x-k8s.io/queue-name": "ours"},
    }
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["spec"]["completions"], job["spec"]["parallelism"], pod["subdomain"]) == (2, 2, "mine")
    assert container["env"][0]["value"] == "mine-0.mine"
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "2000M"},
        "limits": {"cpu": "4", "memory": "2000M", "nvidia.com/gpu": "8"},
    }
    assert pod["nodeSelector"] == {"gpu.type": "a100"}


def test_a_memory_of_0_is_not_requested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, job, _ = kubernetes.fill(manifests(str(tmp_path)), "mine", replace(REQUEST, memory_mb=0), [], "")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "4"}, "limits": {"cpu": "4", "nvidia.com/gpu": "8"}}


def test_a_job_of_one_node_needs_no_names_for_its_pods(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, others = kubernetes.fill(manifests(str(tmp_path)), "mine", replace(REQUEST, nodes=1), [], "")
    assert [one["kind"] for one in others] == ["NetworkPolicy"]


def test_a_constraint_that_is_no_label_is_refused(tmp_path, monkeypatch):
    """Its Pods would wait forever."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertlineError, match=r"^constraint: given 'a100'; write a node's label=value, as in gpu\.type"):
        kubernetes.fill(manifests(str(tmp_path)), "mine", replace(REQUEST, constraint="a100"), [], "")


def test_other_resources_of_the_manifests_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rendered = manifests(str(tmp_path))
    (container,) = rendered[-1]["spec"]["template"]["spec"]["containers"]
    container["resources"] = {
        "requests": {"cpu": "8", "memory": "64Gi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1", "rdma/hca": "1"},
        "claims": [{"name": "mine"}],
    }
    _, job, _ = kubernetes.fill(rendered, "mine", replace(REQUEST, memory_mb=0, gpus=0), [], "")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "4", "rdma/hca": "1"},
        "claims": [{"name": "mine"}],
    }


@pytest.mark.parametrize("resources", [None, {"requests": None, "limits": None}])
def test_resources_of_the_manifests_may_be_empty(tmp_path, monkeypatch, resources):
    monkeypatch.chdir(tmp_path)
    rendered = manifests(str(tmp_path))
    (container,) = rendered[-1]["spec"]["template"]["spec"]["containers"]
    container["resources"] = resources
    _, job, _ = kubernetes.fill(rendered, "mine", replace(REQUEST, gpus=0), [], "")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    size = {"cpu": "4", "memory": "2000M"}
    assert container["resources"] == {"requests": size, "limits": size}


def test_only_names_and_labels_of_the_job_are_replaced(tmp_path, monkeypatch):
    """Not those of images, claims, settings, nodes and namespaces that contain the Job's."""
    monkeypatch.chdir(tmp_path)
    old, label = "bertline-training", "batch.kubernetes.io/job-name"
    rendered = manifests(str(tmp_path))
    settings, service, policy, job = rendered
    settings["data"] = {"REGISTRY": f"ghcr.io/lab/{old}", "OUTPUT_DIR": f"/results/{old}"}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": f"{old}-data"}, "spec": {}}
    service["spec"] = {"selector": {label: old}}
    peers = [{"podSelector": {"matchExpressions": [{"key": label, "operator": "In", "values": [old]}]}}]
    peers += [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": old}}}]
    policy["spec"] = {"podSelector": {"matchLabels": {label: old}}, "ingress": [{"from": peers}]}
    egress = {"kind": "NetworkPolicy", "metadata": {"name": f"{old}-egress"}, "spec": {"podSelector": {}}}
    pod = job["spec"]["template"]["spec"]
    job["spec"]["template"]["metadata"] = {"labels": {"app": old}}
    spread = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": old}}}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"{old}-data"}}
    pod |= {"nodeSelector": {"pool": old}, "topologySpreadConstraints": [spread], "volumes": [volume]}
    pod["serviceAccountName"] = old
    pod["containers"][0] |= {"image": f"ghcr.io/lab/{old}/bertline:cuda", "command": ["run", old]}
    before = json.dumps(rendered)
    shared, filled, others = kubernetes.fill([*rendered, claim, egress], "mine", REQUEST, [], "")
    assert shared == [settings, claim]
    assert json.dumps(rendered) == before
    new_service, new_policy, new_egress = others
    assert new_service["spec"]["selector"] == {label: "mine"}
    assert new_policy["spec"]["podSelector"]["matchLabels"] == {label: "mine"}
    among, elsewhere = new_policy["spec"]["ingress"][0]["from"]
    assert among["podSelector"]["matchExpressions"][0]["values"] == ["mine"]
    assert elsewhere == peers[1]
    assert new_egress["metadata"]["name"] == "mine-egress"
    assert filled["spec"]["template"]["metadata"]["labels"] == {"app": "mine"}
    new = filled["spec"]["template"]["spec"]
    assert new["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == {"app": "mine"}
    assert new["nodeSelector"]["pool"] == old
    assert (new["volumes"], new["serviceAccountName"]) == ([volume], old)
    assert new["containers"][0]["image"] == f"ghcr.io/lab/{old}/bertline:cuda"
    assert new["containers"][0]["command"] == ["run", old]
    assert new["containers"][0]["env"][0]["value"] == "mine-0.mine"


@pytest.mark.parametrize(
    ("mounts", "told"),
    [
        ({"project": "/elsewhere"}, "/elsewhere"),
        ({"empty": "/"}, "none"),  # as /tmp and /dev/shm
        ({"project": "/", "empty": "HERE"}, "/"),
        ({}, "none"),
    ],
)
def test_a_folder_that_the_pods_do_not_have_is_refused(tmp_path, monkeypatch, mounts, told):
    monkeypatch.chdir(tmp_path)
    rendered = manifests("/elsewhere")
    pod = rendered[-1]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "project", "persistentVolumeClaim": {}}, {"name": "empty", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [
        {"name": name, "mountPath": path.replace("HERE", str(tmp_path))} for name, path in mounts.items()
    ]
    if not mounts:
        del pod["containers"][0]["volumeMounts"]
    with pytest.raises(BertlineError, match=rf"is on no shared volume of the Pods \({told}\); start snakemake on one"):
        kubernetes.fill(rendered, "mine", REQUEST, [], "")


def test_manifests_whose_job_kubectl_would_not_find_are_refused(tmp_path, monkeypatch):
    """With `namePrefix:` of a kustomization, Jobs would count as deleted, and run twice."""
    monkeypatch.chdir(tmp_path)
    rendered = manifests(str(tmp_path))
    rendered[-1]["metadata"]["name"] = "alice-bertline-training"
    with pytest.raises(BertlineError, match=r"^the manifests need one Job, bertline-training, without a pre"):
        kubernetes.fill(rendered, "mine", REQUEST, [], "")


# A fake kubectl: writes down what it is asked, and answers with files.
KUBECTL = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
here = Path(__file__).parent
given = json.loads(sys.stdin.read()) if "--filename=-" in sys.argv else None
with (here / "asked.jsonl").open("a") as asked:
    asked.write(json.dumps([sys.argv[1:], given]) + "\\n")
if sys.argv[1] == "create":
    (here / "recorded").write_text((here.parent / "submitted").read_text())
if (here / "ends").exists() and sys.argv[1] == "create":
    (here.parent / "submitted").unlink()
if (here / "away").exists() and sys.argv[1] in (words := (here / "away").read_text().split()):
    words.remove(sys.argv[1])
    (here / "away").write_text(" ".join(words))
    if sys.argv[1] == "create":
        (here / "job.json").write_text(json.dumps({"metadata": {"uid": "of-the-job"}}))
    sys.exit((here / "says").read_text() if (here / "says").exists() else "Unable to connect to the server: EOF")
if (here / "unknown").exists():
    sys.exit("The connection to the server localhost:8080 was refused - did you specify the right host or port?")
if (here / "refuses").exists() and (here / "refuses").read_text() in json.dumps(given):
    sys.exit("the server is not pleased")
if sys.argv[1] == "kustomize":
    print((here / "manifests.json").read_text())
elif sys.argv[1] == "config":
    if not (here / "namespace").exists():
        sys.exit("error: current-context must exist in order to minify")
    print((here / "namespace").read_text())
elif sys.argv[1:3] == ["get", "pods"]:
    print((here / "pods.json").read_text() if (here / "pods.json").exists() else '{"items": []}')
elif sys.argv[1] == "get":
    print((here / "job.json").read_text() if (here / "job.json").exists() else "")
elif "--output=json" in sys.argv:
    print(json.dumps({**given, "metadata": {**given["metadata"], "uid": "of-the-job"}}))
"""
JOBSCRIPT = """#!/bin/sh
# properties = {"type": "single", "rule": "pretrain_phase", "wildcards": {"phase": "p1"}, "jobid": 1, "threads": 2, \\
"resources": {"runtime": 10, "nodes": 2, "mem_mb": 500, "slurm_partition": "gpu", "qos": "urgent"}}
echo it
"""


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """The folder of the fake, which is on the PATH; this process is in another."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "kubectl").write_text(KUBECTL)
    (folder / "kubectl").chmod(0o755)
    (folder / "manifests.json").write_text("\n---\n".join(map(json.dumps, manifests(str(tmp_path)))))
    (tmp_path / "jobscript.sh").write_text(JOBSCRIPT.replace("\\\n", ""))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SNAKEMAKE_CLUSTER_SIDECAR_VARS", str(tmp_path / "submitted"))
    (tmp_path / "submitted").touch()
    monkeypatch.setattr(waiting, "MAX_PAUSE", 0)
    monkeypatch.chdir(tmp_path)
    return folder


def asked(kubectl: Path) -> list[Any]:
    return [json.loads(line) for line in (kubectl / "asked.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("of_context", "of_pod", "is_own"),
    [
        ("alice", None, True),
        ("alice", "bob", True),
        ("bob", "alice", False),
        ("", "alice", True),  # the context has none
        (None, "alice", True),  # there is no context, as in a Pod
        (None, None, False),
    ],
)
def test_the_manifests_may_only_have_the_namespace_of_kubectl(
    kubectl, tmp_path, monkeypatch, of_context, of_pod, is_own
):
    """With another `namespace:`, Jobs would count as deleted, and run twice."""
    monkeypatch.setattr(kubernetes, "NAMESPACE_OF_POD", tmp_path / "of-pod")
    for path, namespace in ((kubectl / "namespace", of_context), (tmp_path / "of-pod", of_pod)):
        if namespace is not None:
            path.write_text(namespace)
    rendered = manifests(str(tmp_path))
    rendered[-1]["metadata"]["namespace"] = "alice"
    own = of_context or of_pod or "default"
    told = rf"^the manifests set the namespace alice, that of kubectl is {own}; .* --namespace=alice$"
    with nullcontext() if is_own else pytest.raises(BertlineError, match=told):
        kubernetes.fill(rendered, "mine", REQUEST, [], "")
    rendered[0]["metadata"]["namespace"] = own
    rendered[-1]["metadata"]["namespace"] = "carol"
    with pytest.raises(BertlineError, match=r"^the manifests set the namespace carol, "):
        kubernetes.fill(rendered, "mine", REQUEST, [], "")


def test_what_belongs_to_a_job_is_made_after_it_and_deleted_with_it(kubectl, tmp_path):
    name = kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    (render, _), (apply, shared), (create, job), (_, others) = asked(kubectl)
    assert render == ["kustomize", str(tmp_path)]
    assert (apply[0], [one["kind"] for one in shared["items"]]) == ("apply", ["ConfigMap"])
    assert (create[0], job["kind"], job["metadata"]["name"]) == ("create", "Job", name)
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "urgent"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "of-the-job"}
    assert {one["kind"]: one["metadata"]["ownerReferences"] for one in others["items"]} == {
        "Service": [owner],
        "NetworkPolicy": [owner],
    }
    assert (tmp_path / "submitted").read_text() == f"{name}\n"
    assert "echo it" in (tmp_path / f"logs/kubernetes/{name}/job.sh").read_text()


def test_a_job_runs_in_the_folder_of_snakemake_with_the_programs_of_the_checkout(kubectl, tmp_path, monkeypatch):
    """Which need not be the same: docs/targets.md. Names of folders may have spaces. The shell survives a stop."""
    here, checkout = tmp_path / "my run", tmp_path / "my checkout"
    (checkout / "workflow/scripts").mkdir(parents=True)
    (checkout / "src").mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("sys.argv", [f"{checkout}/workflow/scripts/kubernetes_submit.py"])
    rendered = manifests(str(tmp_path))
    (node,) = rendered[-1]["spec"]["template"]["spec"]["containers"]
    node["command"] = ["python", "workflow/scripts/run_in_pod.py"]
    (kubectl / "manifests.json").write_text("\n---\n".join(map(json.dumps, rendered)))
    (tmp_path / "jobscript.sh").write_text(
        JOBSCRIPT.replace("\\\n", "").replace("echo it", "kill -TERM $$; pwd; env | grep PYTHONPATH")
    )
    name = kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    job = next(given for arguments, given in asked(kubectl) if arguments[0] == "create")
    (node,) = job["spec"]["template"]["spec"]["containers"]
    assert node["workingDir"] == str(here)
    assert node["command"] == ["python", f"{checkout}/workflow/scripts/run_in_pod.py"]
    script = here / f"logs/kubernetes/{name}/job.sh"
    assert node["args"] == ["--script", str(script), "--folder", str(script.parent)]
    printed = subprocess.run(["/bin/sh", script], cwd="/", env={}, stdout=subprocess.PIPE, text=True, check=True)
    assert printed.stdout.splitlines() == [str(here), f"PYTHONPATH={checkout}/src"]


def test_a_job_to_which_nothing_belongs_is_made(kubectl, tmp_path):
    """As in a kustomization without a NetworkPolicy, on one node."""
    (kubectl / "manifests.json").write_text("\n---\n".join(map(json.dumps, manifests(str(tmp_path))[::3])))
    kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    assert [arguments[0] for arguments, _ in asked(kubectl)] == ["kustomize", "apply", "create"]


def test_a_job_that_kubernetes_refuses_is_one_line_and_leaves_nothing(kubectl, tmp_path):
    (kubectl / "refuses").write_text("NetworkPolicy")
    with pytest.raises(BertlineError, match="kubectl apply: the server is not pleased"):
        kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    created, deleted = asked(kubectl)[2], asked(kubectl)[-1]
    assert deleted[0][:2] == ["delete", "job"]
    assert deleted[0][-1] == created[1]["metadata"]["name"]


def test_a_job_whose_answer_was_lost_is_made_once(kubectl, tmp_path, capsys):
    """The server is away for each request once, and has made the Job before."""
    (kubectl / "away").write_text("apply create get apply")
    name = kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    made = [(arguments[0], given["kind"]) for arguments, given in asked(kubectl) if arguments[0] == "create"]
    assert made == [("create", "Job")]
    ((_, others),) = [call for call in asked(kubectl) if call[1] and "NetworkPolicy" in json.dumps(call[1])]
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in others["items"]} == {"of-the-job"}
    assert (tmp_path / "submitted").read_text() == f"{name}\n"
    assert capsys.readouterr().err.count("a submission waits for the scheduler: kubectl apply: ") == 1


FROM_SERVER, TO_VALIDATE = "Error from server ({}): {} (post jobs.batch)", 'error: error validating "STDIN": {}'
POST = 'Post "https://api.example.org:6443/apis/batch/v1/namespaces/me/jobs": {}'


@pytest.mark.parametrize(
    "message",
    [
        "Unable to connect to the server: dial tcp: lookup api.example.org on 10.0.0.2:53: no such host",
        "Unable to connect to the server: dial tcp: lookup api.example.org on 10.0.0.2:53: server misbehaving",
        "Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: network is unreachable",
        TO_VALIDATE.format('failed to download openapi: Get "https://api.example.org:6443/openapi/v2": EOF'),
        TO_VALIDATE.format(f"error validating data: {POST.format('EOF')}"),
        "error: unexpected error when reading response body. Please retry. Original error: unexpected EOF",
        POST.format("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR"),
        FROM_SERVER.format(
            "InternalError",
            'an error on the server ("<html>502 Bad Gateway</html>") has prevented the request from succeeding',
        ),
        FROM_SERVER.format("ServiceUnavailable", "apiserver is shutting down"),
        FROM_SERVER.format(
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        FROM_SERVER.format(
            "TooManyRequests", "the server has received too many requests and has asked us to try again later"
        ),
    ],
)
def test_a_submission_waits_while_the_server_is_away(kubectl, tmp_path, capsys, message):
    """The messages are those of kubectl 1.32."""
    (kubectl / "away").write_text("create")
    (kubectl / "says").write_text(message)
    name = kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    assert (tmp_path / "submitted").read_text() == f"{name}\n"
    assert capsys.readouterr().err == f"a submission waits for the scheduler: kubectl create: {message}\n"


REVIEW = "https://kueue-webhook-service.kueue-system.svc:443/mutate-batch-v1-job"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("apply", "error: You must be logged in to the server (Unauthorized)"),
        (
            "create",
            "error: You must be logged in to the server (the server has asked for the client to provide credentials)",
        ),
        (
            "create",
            "Unable to connect to the server: getting credentials: exec: executable aws failed with exit code 255",
        ),
        (
            "create",
            'Error from server (Conflict): error when creating "STDIN": Operation cannot be fulfilled on '
            'resourcequotas "gpus": the object has been modified; please apply your changes '
            "to the latest version and try again",
        ),
        (
            "create",
            'Error from server (InternalError): error when creating "STDIN": Internal error occurred: failed calling '
            f'webhook "mjob.kb.io": failed to call webhook: Post "{REVIEW}": no endpoints available for service '
            '"kueue-webhook-service"',
        ),
        (
            "apply",
            'Error from server (AlreadyExists): error when creating "STDIN": configmaps "bertline-env" already exists',
        ),
    ],
)
def test_a_submission_waits_while_it_is_refused_for_now(kubectl, tmp_path, capsys, request_, message):
    """Expired tokens are renewed, webhooks restarted, and two runs make the same settings at once."""
    (kubectl / "away").write_text(f"{request_} {request_}")
    (kubectl / "says").write_text(message)
    name = kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    assert (tmp_path / "submitted").read_text() == f"{name}\n"
    assert capsys.readouterr().err == f"a submission waits for the scheduler: kubectl {request_}: {message}\n"


@pytest.mark.parametrize(
    "message",
    [
        "Unable to connect to the server: getting credentials: exec: executable aws not found",
        'Error from server (Forbidden): jobs.batch is forbidden: User "me" cannot create resource "jobs"',
        'Error from server (NotFound): error when creating "STDIN": namespaces "mine" not found',
    ],
)
def test_a_submission_that_is_refused_for_good_does_not_wait(kubectl, tmp_path, message):
    (kubectl / "away").write_text("create")
    (kubectl / "says").write_text(message)
    with pytest.raises(BertlineError, match=f"^kubectl create: {re.escape(message)}$"):
        kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)


def test_a_refusal_is_one_although_kubectl_logs_that_another_server_is_away(kubectl, tmp_path):
    log = 'E1128 04:56:29.620484 17293 memcache.go:287] "Unhandled Error" err="couldn\'t get resource list for '
    log += 'metrics.k8s.io/v1beta1: the server is currently unable to handle the request"\n'
    (kubectl / "away").write_text("create")
    (kubectl / "says").write_text(f"{log}Error from server (Forbidden): exceeded quota\n")
    with pytest.raises(BertlineError, match=r"^kubectl create: Error from server \(Forbidden\): exceeded quota$"):
        kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)


def test_a_job_is_listed_for_the_end_of_snakemake_before_it_is_made(kubectl, tmp_path):
    name = kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    assert (kubectl / "recorded").read_text() == f"{name}\n"


def test_a_job_that_cannot_be_completed_is_deleted_before_the_next_one_is_submitted(kubectl, tmp_path):
    """The server is away when it should delete it."""
    (kubectl / "refuses").write_text("NetworkPolicy")
    (kubectl / "away").write_text("delete delete")
    with pytest.raises(BertlineError, match="kubectl apply: the server is not pleased"):
        kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    assert [arguments[0] for arguments, _ in asked(kubectl)[-3:]] == ["delete"] * 3


def test_without_a_configuration_of_kubectl_nothing_waits(kubectl, tmp_path):
    """kubectl then asks this machine."""
    (kubectl / "unknown").touch()
    with pytest.raises(BertlineError, match=r"kubectl \w+: no cluster is configured.*; set KUBECONFIG so that"):
        kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)


@pytest.mark.parametrize("away", ["", "create"])
def test_a_job_whose_submission_outlives_snakemake_is_deleted(kubectl, tmp_path, away):
    """Also if the answer to its creation is lost."""
    (kubectl / "away").write_text(away)
    (kubectl / "ends").touch()
    with pytest.raises(BertlineError, match=r"snakemake has ended; its new job .* was canceled"):
        kubernetes.submit_job(tmp_path / "jobscript.sh", manifests=tmp_path)
    deleted, created = asked(kubectl)[-1], asked(kubectl)[2]
    assert deleted[0][:2] == ["delete", "job"]
    assert deleted[0][-1] == created[1]["metadata"]["name"]
    assert not (tmp_path / "submitted").exists()


NEW = {"creationTimestamp": "9999-12-31T23:59:59Z"}  # a test may run long after this is computed
LOGS_OF_IT = "kubectl logs -l batch.kubernetes.io/job-name=it --prefix --tail=-1"
FAILED = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "exit code 1"}


@pytest.mark.parametrize(
    ("conditions", "expected", "told"),
    [
        ([], "running", ""),
        ([{"type": "Suspended", "status": "True"}, {"type": "Failed", "status": "False"}], "running", ""),
        ([{"type": "Complete", "status": "True"}], "success", ""),
        (
            [FAILED],
            "failed",
            f"job it failed (PodFailurePolicy: exit code 1); its output: {LOGS_OF_IT}\n",
        ),
        (None, "failed", "job it was deleted\n"),
    ],
)
def test_the_state_of_a_job_is_that_of_its_conditions(kubectl, capsys, conditions, expected, told):
    job = "" if conditions is None else json.dumps({"metadata": NEW, "status": {"conditions": conditions}})
    (kubectl / "job.json").write_text(job)
    assert kubernetes.job_status("it") == expected
    assert capsys.readouterr().err == told
    assert (kubernetes.ENDED / "it").exists() == (expected != "running")


def test_a_full_volume_does_not_end_snakemake(kubectl, capsys):
    """A status that cannot be queried would end the whole run."""
    kubernetes.LOGS.mkdir(parents=True)
    kubernetes.ENDED.touch()  # no folder: nothing can be written into it
    (kubectl / "job.json").write_text(json.dumps({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}))
    assert kubernetes.job_status("it") == "success"


def test_an_outage_is_told_although_the_volume_is_full(kubectl, tmp_path, capsys):
    (tmp_path / "logs").touch()  # no folder
    (kubectl / "away").write_text("get")
    assert kubernetes.job_status("it") == "running"
    assert "asking again, jobs count as running until then" in capsys.readouterr().err


OUT_OF_MEMORY = (
    "job it failed (OOMKilled: Pod it-1-x needs more than 2G of memory; raise `memory_mb` in site.yaml, or of a "
    f"rule that has none there --set-resources RULE:mem_mb=N); its output: {LOGS_OF_IT}\n"
)


@pytest.mark.parametrize(("limits", "limit"), [({"memory": "2G"}, "2G of"), ({}, "its node has of")])
def test_a_job_that_ran_out_of_memory_says_so(limits, limit, kubectl, capsys):
    """Its condition does not tell."""

    def pod(name: str, reason: str) -> dict[str, Any]:
        node = {"name": "node", "resources": {"limits": limits}}
        statuses = [{"name": "node", "state": {"terminated": {"reason": reason}}}]
        return {"metadata": {"name": name}, "spec": {"containers": [node]}, "status": {"containerStatuses": statuses}}

    failed = {**FAILED, "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    (kubectl / "job.json").write_text(json.dumps({"status": {"conditions": [failed]}}))
    pods = [{**pod("it-0-w", ""), "status": {}}, pod("it-0-x", "Error"), pod("it-1-x", "OOMKilled")]
    (kubectl / "pods.json").write_text(json.dumps({"items": pods}))
    assert kubernetes.job_status("it") == "failed"
    assert capsys.readouterr().err == OUT_OF_MEMORY.replace("2G of", limit)
    assert "--selector=batch.kubernetes.io/job-name=it" in asked(kubectl)[-1][0]


def test_a_failed_job_has_failed_although_its_pods_are_not_listed(kubectl, capsys):
    (kubectl / "job.json").write_text(json.dumps({"status": {"conditions": [FAILED]}}))
    (kubectl / "pods.json").mkdir()  # an error
    assert kubernetes.job_status("it") == "failed"
    assert "(PodFailurePolicy: exit code 1)" in capsys.readouterr().err


OLD = {"creationTimestamp": "2026-01-02T03:04:05Z"}


def pod_that_waits(reason: str, message: str) -> dict[str, Any]:
    waiting = {"state": {"waiting": {"reason": reason, "message": message}}}
    scheduled = {"type": "PodScheduled", "status": "True"}
    return {"status": {"conditions": [scheduled], "containerStatuses": [{"state": {"running": {}}}, waiting]}}


def pod_that_initializes(reason: str) -> dict[str, Any]:
    return {"status": {"initContainerStatuses": [{"state": {"waiting": {"reason": reason, "message": "m"}}}]}}


def pod_without_node(reason: str, message: str) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]
    return {"status": {"conditions": conditions}}


RUNS: dict[str, Any] = {"status": {"containerStatuses": [{"state": {"running": {}}}]}}


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        (
            [pod_that_waits("ImagePullBackOff", 'Back-off pulling\n image "x"')],
            'ImagePullBackOff: Back-off pulling image "x"',
        ),
        (
            [RUNS, pod_that_waits("CreateContainerConfigError", 'configmap "a" not found')],
            'CreateContainerConfigError: configmap "a" not found',
        ),
        (
            [{"status": {}}, pod_without_node("Unschedulable", "0/3 nodes are available")],
            "Unschedulable: 0/3 nodes are available",
        ),
        ([{"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}], "unknown reason"),
        ([pod_that_initializes("ImagePullBackOff")], "ImagePullBackOff: m"),
        ([], "NoPod: Kubernetes has not made its Pods, as when a quota is full"),
    ],
)
def test_a_job_that_cannot_start_says_so_once(kubectl, capsys, pods, told):
    status = {"active": len(pods), "ready": pods.count(RUNS)}
    (kubectl / "job.json").write_text(json.dumps({"metadata": OLD, "status": status}))
    (kubectl / "pods.json").write_text(json.dumps({"items": pods}))
    assert [kubernetes.job_status("it") for _ in range(2)] == ["running", "running"]
    assert capsys.readouterr().err == f"job it waits: {told}; see kubectl describe job it\n"


def test_a_job_waits_for_one_reason_after_another(kubectl, capsys):
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended"}
    (kubectl / "job.json").write_text(json.dumps({"metadata": OLD, "status": {"conditions": [suspended]}}))
    kubernetes.job_status("it")
    (kubectl / "job.json").write_text(json.dumps({"metadata": OLD, "status": {"active": 1}}))
    (kubectl / "pods.json").write_text(json.dumps({"items": [pod_without_node("Unschedulable", "0/3 nodes")]}))
    kubernetes.job_status("it")
    assert capsys.readouterr().err == (
        "job it waits: JobSuspended: Job suspended; see kubectl describe job it\n"
        "job it waits: Unschedulable: 0/3 nodes; see kubectl describe job it\n"
    )


@pytest.mark.parametrize(
    ("made", "status", "pods"),
    [
        (NEW, {"active": 1}, [pod_without_node("Unschedulable", "0/3 nodes")]),
        (OLD, {"active": 1, "ready": 1}, [RUNS]),
        (OLD, {"active": 1}, [pod_that_waits("ContainerCreating", "")]),
        (OLD, {"active": 1}, None),
    ],
    ids=["just made", "runs", "image is copied", "no answer about its Pods"],
)
def test_a_job_that_starts_says_nothing(kubectl, capsys, made, status, pods):
    (kubectl / "job.json").write_text(json.dumps({"metadata": made, "status": status}))
    if pods is None:
        (kubectl / "pods.json").mkdir()  # an error
    else:
        (kubectl / "pods.json").write_text(json.dumps({"items": pods}))
    assert kubernetes.job_status("it") == "running"
    assert capsys.readouterr().err == ""


def test_an_outage_is_one_line_for_all_jobs_that_count_as_running(kubectl, capsys):
    """Kubectl also logs each of its attempts."""
    log = (
        'E1128 04:56:29.620484 17293 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group"\n'
    )
    error = "The connection to the server api:6443 was refused - did you specify the right host or port?"
    (kubectl / "job.json").write_text(json.dumps({"metadata": NEW, "status": {"conditions": []}}))
    (kubectl / "says").write_text(f"{log * 5}{error}\n")
    for _ in range(2):
        (kubectl / "away").write_text("get get get")
        assert [kubernetes.job_status(name) for name in ("a", "b", "a", "b")] == ["running"] * 4
        told = f"kubectl get: {error}; asking again, jobs count as running until then\n"
        assert capsys.readouterr().err == told


def test_a_message_that_is_only_a_log_is_its_last_line(kubectl, capsys):
    (kubectl / "away").write_text("get")
    (kubectl / "says").write_text(
        "E1128 04:56:29.62 1 memcache.go:265] first\nE1128 04:56:30.62 1 memcache.go:265] last\n"
    )
    assert kubernetes.job_status("it") == "running"
    assert capsys.readouterr().err.startswith("kubectl get: E1128 04:56:30.62 1 memcache.go:265] last; asking again")


def test_an_outage_that_an_earlier_call_reported_is_reported_again(kubectl):
    """The process that cancels jobs at the end starts with snakemake."""
    kubernetes.UNANSWERED.parent.mkdir(parents=True)
    kubernetes.UNANSWERED.touch()
    cancel = subprocess.Popen([sys.executable, SCRIPTS / "kubernetes_cancel.py"], stdout=subprocess.PIPE, text=True)
    assert cancel.stdout.readline().startswith(os.getcwd())
    assert not kubernetes.UNANSWERED.exists()
    cancel.terminate()
    assert cancel.communicate(timeout=240) == ("", None)


def test_jobs_that_cannot_be_deleted_at_the_end_are_named(kubectl, monkeypatch):
    monkeypatch.setattr(scheduler_jobs, "unfinished_at_the_end", lambda logs, ended: ["one", "two"])
    (kubectl / "away").write_text("delete")
    message = "kubectl delete: Unable to .*; unfinished Jobs run on until `kubectl delete job one two`"
    with pytest.raises(BertlineError, match=message):
        kubernetes.cancel_jobs_at_the_end()
    kubernetes.cancel_jobs_at_the_end()
    assert asked(kubectl)[-1][0] == ["delete", "job", "--ignore-not-found", "--wait=false", "one", "two"]


@pytest.mark.parametrize("rule", ["encode_shard", "Ein_sehr_langer_Name_einer_Regel_der_kein_Ende_nimmt", "_x"])
def test_the_name_of_a_job_is_one_of_a_host_and_never_twice_the_same(rule):
    names = {kubernetes.job_name(rule) for _ in range(50)}
    assert len(names) == 50
    for name in names:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", f"{name}-1000")
        assert len(f"{name}-1000") <= 63
