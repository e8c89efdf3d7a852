"""Submission, query and cancellation of Snakemake's jobs on Kubernetes, with kubectl, for the executor cluster-generic.

Every job is an Indexed Job with a Pod for each node, made from the manifests of a kustomization; those in
deploy/kubernetes/graph define the Pods' rights and volumes. This module sets the name, size and script of a Job.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from bertline.cluster import cluster_generic, scheduler_jobs
from bertline.cluster.schedulers import Request
from bertline.console import BertlineError
from bertline.files import write_text

LOGS = Path("logs", "kubernetes")
ENDED = LOGS / "ended"
# An empty file while an outage that was reported lasts.
UNANSWERED = LOGS / "unanswered"
# Folder with an empty file for each Job that does not start and reason that was reported.
WAITING = LOGS / "waiting"
STARTS_WITHIN = timedelta(minutes=1)  # Pods wait for a moment even if nothing is wrong
STARTING = {"ContainerCreating", "PodInitializing", "ErrImagePull"}  # the last becomes ImagePullBackOff
# The name in the manifests. It is replaced in names of objects, the Pods' addresses, labels and their selectors.
NAME = "bertline-training"
SELECTORS = {"labels", "selector", "labelSelector", "podSelector"}
# Kinds of objects for all jobs, which the Pods refer to by names of their own.
SHARED = {"ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"}
GPU = "nvidia.com/gpu"
SIZE = {"cpu", "memory", GPU}
# A Pod is a host named after its Job and its number, and a host's name has at most 63 characters.
MAX_NAME = 52
QUEUE = "kueue.x-k8s.io/queue-name"
PROGRAM = "workflow/scripts/run_in_pod.py"  # of a Pod, in the manifests: a path in the checkout
OF_JOB = "batch.kubernetes.io/job-name"  # a label of Pods
NAMESPACE_OF_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
WITHOUT_CONFIGURATION = "localhost:8080"  # what kubectl then asks
# Refusals that end by themselves, or when somebody logs in again: an old token, an object that others change or make at
# the same time, a webhook that restarts.
REFUSED_FOR_NOW = re.compile(
    r"You must be logged in to the server|the server has asked for the client to provide credentials"
    r"|getting credentials: exec: executable .+ failed with exit code"
    r"|the object has been modified; please apply your changes"
    r"|failed calling webhook .*no endpoints available for service|Error from server \(AlreadyExists\)"
)
LOG_LINE = re.compile(r"[EWI]\d{4} ")  # kubectl logs each of its attempts before it prints the error
SCRIPT = """#!/bin/sh
# All processes get the signal to stop; this shell waits for them.
trap : TERM
cd {folder} || exit 1
export PYTHONPATH={source}
{body}
"""


def submit_job(jobscript: Path, *, manifests: Path) -> str:
    """Submit one of Snakemake's jobs.

    Args:
        jobscript: the shell script that Snakemake wrote, with the job's properties in a comment.
        manifests: folder of a kustomization.

    Returns:
        The name of the Job.

    Raises:
        BertlineError: if the manifests cannot be used, Kubernetes refuses the Job, or snakemake has ended.
    """
    from snakemake.utils import read_job_properties  # takes a second; not needed by other functions

    cluster_generic.submitted()  # before anything is written
    properties = read_job_properties(str(jobscript))
    request = scheduler_jobs.request_of(properties, LOGS)
    name = job_name(request.name)
    folder = (LOGS / name).absolute()
    folder.mkdir(parents=True)
    script = folder / "job.sh"
    source = shlex.quote(str(_checkout() / "src"))
    write_text(script, SCRIPT.format(folder=shlex.quote(os.getcwd()), source=source, body=jobscript.read_text()))
    rendered = yaml.safe_load_all(_kubectl("kustomize", str(manifests)))
    about = f"{request.name} {' '.join(map(str, properties.get('wildcards', {}).values()))}".strip()
    shared, job, of_job = fill(list(rendered), name, request, ["--script", str(script), "--folder", str(folder)], about)
    if request.priority:
        job["spec"]["template"]["spec"]["priorityClassName"] = request.priority
    cluster_generic.record(name)
    try:
        cluster_generic.wait_for_answer(lambda repeated: _send(shared, job, of_job, repeated=repeated))
    except BertlineError:
        # It may exist without what belongs to it, and must not run besides the one that Snakemake submits next.
        with suppress(BertlineError):
            cluster_generic.wait_for_answer(lambda repeated: delete([name]))
        cluster_generic.cancel_if_ended(name, delete)
        raise
    cluster_generic.cancel_if_ended(name, delete)
    return name


def _send(shared: list[dict[str, Any]], job: dict[str, Any], of_job: list[dict[str, Any]], *, repeated: bool) -> None:
    """Make a Job, unless a repeated request finds it, and what belongs to it.

    Raises BertlineError if Kubernetes refuses one of them, NoAnswer if it does not answer.
    """
    name = job["metadata"]["name"]
    if shared:
        _kubectl("apply", "--filename=-", given=_as_list(shared))
    made = _kubectl("get", "job", name, "--ignore-not-found", "--output=json").strip() if repeated else ""
    made = made or _kubectl("create", "--filename=-", "--output=json", given=job)
    # They are deleted with the Job.
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": json.loads(made)["metadata"]["uid"]}
    for one in of_job:
        one["metadata"]["ownerReferences"] = [reference]
    if of_job:
        _kubectl("apply", "--filename=-", given=_as_list(of_job))


def job_name(rule: str) -> str:
    """Return a new name for a Job of a rule, as Kubernetes allows it."""
    readable = re.sub(r"[^a-z0-9]+", "-", rule.lower()).strip("-")
    return f"bertline-{readable[: MAX_NAME - 18]}-{secrets.token_hex(4)}"


def fill(
    rendered: list[dict[str, Any]], name: str, request: Request, arguments: list[str], about: str
) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """Fill in the manifests for one job.

    Args:
        rendered: objects of the kustomization, one Job among them. They are not changed.
        name: of the Job.
        request: size of the job.
        arguments: of the program of the Pods.
        about: an annotation for people: the rule and its wildcards.

    Returns:
        Objects that all jobs share, the Job, and objects of this Job only.

    Raises:
        BertlineError: if there is no Job of this name with a container `node`, it does not mount this folder, the
            constraint is no label, or an object has another namespace than kubectl's own, where it looks for the Job.
    """
    _check_namespace(rendered)
    renamed = [_with_name(one, name) for one in rendered]
    shared = [one for one in rendered if one in renamed]
    own = [one for one in renamed if one not in rendered]
    found = [one for one in own if one["kind"] == "Job" and one["metadata"]["name"] == name]
    others = [one for one in own if one["kind"] != "Job" and (one["kind"] != "Service" or request.nodes > 1)]
    containers = found[0]["spec"]["template"]["spec"]["containers"] if len(found) == 1 else []
    node = next((container for container in containers if container["name"] == "node"), None)
    if node is None:
        raise BertlineError(
            f"the manifests need one Job, {NAME}, without a prefix or suffix, and a container `node` in it; see "
            "deploy/kubernetes/graph"
        )
    job, here = found[0], os.getcwd()
    _check_mounts(job["spec"]["template"]["spec"].get("volumes", []), node.get("volumeMounts", []), here)
    job["metadata"].setdefault("annotations", {})["bertline/job"] = about
    if request.queue:
        job["metadata"].setdefault("labels", {})[QUEUE] = request.queue
    job["spec"] |= {"completions": request.nodes, "parallelism": request.nodes}
    node["resources"] = _resources(node.get("resources") or {}, request)
    node["workingDir"] = here
    node["command"] = [str(_checkout() / word) if word == PROGRAM else word for word in node.get("command", [])]
    node["args"] = arguments
    if request.constraint:
        label, is_one, value = request.constraint.partition("=")
        if not is_one:  # an empty value is one, for which the Pods would wait forever
            raise BertlineError(f"constraint: given '{label}'; write a node's label=value, as in gpu.type=a100")
        job["spec"]["template"]["spec"].setdefault("nodeSelector", {})[label] = value
    return shared, job, others


def _check_namespace(rendered: list[dict[str, Any]]) -> None:
    """Raise BertlineError if an object has another namespace than kubectl's own: of its context, or of its Pod."""
    given = {one["metadata"]["namespace"] for one in rendered if one["metadata"].get("namespace")}
    if not given:
        return
    own = ""
    with suppress(BertlineError):  # there is no context
        own = _kubectl("config", "view", "--minify", "--output=jsonpath={..namespace}").strip()
    own = own or (NAMESPACE_OF_POD.read_text().strip() if NAMESPACE_OF_POD.exists() else "default")
    for namespace in sorted(given - {own}):
        raise BertlineError(
            f"the manifests set the namespace {namespace}, that of kubectl is {own}; leave it out, and set it in "
            f"kubectl's context: kubectl config set-context --current --namespace={namespace}"
        )


def _checkout() -> Path:
    """Return the checkout of this script, which need not be the folder of snakemake or that of the library."""
    return Path(sys.argv[0]).absolute().parents[2]


def _check_mounts(volumes: list[dict[str, Any]], mounts: list[dict[str, Any]], here: str) -> None:
    """Raise BertlineError unless a folder is on a shared volume of a container: not on one that begins empty."""
    empty = {volume["name"] for volume in volumes if "emptyDir" in volume}
    above = [mount for mount in mounts if Path(here).is_relative_to(mount["mountPath"])]
    lowest = max(above, key=lambda mount: len(mount["mountPath"].rstrip("/")), default=None)
    if lowest is None or lowest["name"] in empty:
        shared = ", ".join(mount["mountPath"] for mount in mounts if mount["name"] not in empty) or "none"
        raise BertlineError(
            f"{here} is on no shared volume of the Pods ({shared}); start snakemake on one, at the same path"
        )


def _resources(given: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return the resources of a container with the size of a job; `given` ones of other kinds stay, as rdma/hca."""
    size = {"cpu": str(request.cpus)} | ({"memory": f"{request.memory_mb}M"} if request.memory_mb else {})
    of_job = {"requests": size, "limits": size | ({GPU: str(request.gpus)} if request.gpus else {})}
    for kind, amounts in of_job.items():
        others = {name: amount for name, amount in (given.get(kind) or {}).items() if name not in SIZE}
        of_job[kind] = others | amounts
    return given | of_job


def _with_name(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a copy of an object with the name of a Job instead of that in the manifests."""
    copy: dict[str, Any] = json.loads(json.dumps(manifest))
    if copy["kind"] not in SHARED:
        copy["metadata"]["name"] = copy["metadata"]["name"].replace(NAME, name)
        _rename(copy, name)
    return copy


def _rename(value: Any, name: str, *, selects: bool = False) -> None:
    """Replace the name of the manifests within an object.

    Args:
        value: the object, or a part of it; it is changed.
        name: of the Job.
        selects: whether this part has labels, or selects objects by theirs.
    """
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        if isinstance(part, dict | list):
            _rename(part, name, selects=selects or key in SELECTORS)
        elif part == NAME and (selects or key == "subdomain"):
            value[key] = name
    if isinstance(value, dict) and value.get("name") == "MASTER_ADDR" and "value" in value:
        value["value"] = value["value"].replace(NAME, name)


def job_status(name: str) -> str:
    """Return "running" (also for a waiting job), "success" or "failed" for a Job.

    Args:
        name: of the Job, as `kubectl get jobs` lists it.
    """
    try:
        output = _kubectl("get", "job", name, "--ignore-not-found", "--output=json").strip()
    except BertlineError as error:  # Kubernetes does not answer
        if cluster_generic.is_new(UNANSWERED):
            print(f"{error}; asking again, jobs count as running until then", file=sys.stderr)
        return "running"
    UNANSWERED.unlink(missing_ok=True)
    job = json.loads(output or "{}")
    conditions = job.get("status", {}).get("conditions", [])
    if not job:
        print(f"job {name} was deleted", file=sys.stderr)
        status = "failed"
    elif _holds(conditions, "Complete"):
        status = "success"
    elif failure := _holds(conditions, "Failed"):
        logs = f"kubectl logs -l {OF_JOB}={name} --prefix --tail=-1"  # of all Pods
        reason = _out_of_memory(name) or f"{failure.get('reason')}: {failure.get('message')}"
        print(f"job {name} failed ({reason}); its output: {logs}", file=sys.stderr)
        status = "failed"
    else:
        _report_wait(name, job)
        return "running"
    cluster_generic.is_new(ENDED / name)
    return status


def _report_wait(name: str, job: dict[str, Any]) -> None:
    """Print once for each reason why a Job that is not over does not run, if it should have started."""
    status = job.get("status", {})
    made = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    runs = 0 < status.get("active", 0) <= status.get("ready", 0)
    if runs or datetime.now(UTC) - made < STARTS_WITHIN:
        return
    suspended = _holds(status.get("conditions", []), "Suspended")
    found = suspended or _reason_of_pods(name)
    if not found:
        return
    reason = found.get("reason", "unknown reason")  # it is optional, like the message
    if cluster_generic.is_new(WAITING / f"{name}-{reason}"):
        told = " ".join(f"{reason}: {found.get('message', '')}".split()).rstrip(":")
        print(f"job {name} waits: {told}; see kubectl describe job {name}", file=sys.stderr)


def _reason_of_pods(name: str) -> dict[str, str] | None:
    """Return the `reason` and `message` with which a Pod of a Job waits; None if none does, or nothing is known."""
    pods = _pods(name)
    if pods == []:
        return {"reason": "NoPod", "message": "Kubernetes has not made its Pods, as when a quota is full"}
    for pod in [one["status"] for one in pods or []]:
        for condition in pod.get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition
        for container in pod.get("initContainerStatuses", []) + pod.get("containerStatuses", []):
            waiting = container["state"].get("waiting", {})
            if waiting.get("reason", "ContainerCreating") not in STARTING:
                return waiting
    return None


def _pods(name: str) -> list[dict[str, Any]] | None:
    """Return the Pods of a Job, None if kubectl fails."""
    try:
        pods: list[dict[str, Any]] = json.loads(
            _kubectl("get", "pods", f"--selector={OF_JOB}={name}", "--output=json")
        )["items"]
    except BertlineError:
        return None
    return pods


def _out_of_memory(name: str) -> str | None:
    """Return what to do if a container of a Job was ended for its use of memory; None if none was.

    The kernel ends all processes of the container together, so none of them can tell.
    """
    for pod in _pods(name) or []:
        ended = [one["state"].get("terminated", {}) for one in pod["status"].get("containerStatuses", [])]
        if "OOMKilled" in [one.get("reason") for one in ended]:
            (node,) = (one for one in pod["spec"]["containers"] if one["name"] == "node")
            limit = node["resources"]["limits"].get("memory", "its node has")
            return (
                f"OOMKilled: Pod {pod['metadata']['name']} needs more than {limit} of memory; "
                "raise `memory_mb` in site.yaml, or of a rule that has none there --set-resources RULE:mem_mb=N"
            )
    return None


def cancel_jobs_at_the_end() -> None:
    """Wait for the end of the parent, snakemake, and delete its unfinished Jobs, as after Ctrl-C.

    Raises BertlineError with the command for a person to repeat if that fails.
    """
    UNANSWERED.unlink(missing_ok=True)  # of an earlier call
    names = scheduler_jobs.unfinished_at_the_end(LOGS, ENDED)
    try:
        delete(names)
    except BertlineError as error:
        raise BertlineError(f"{error}; unfinished Jobs run on until `kubectl delete job {' '.join(names)}`") from None


def delete(names: list[str]) -> None:
    """Delete Jobs with everything that belongs to them. Their Pods have time to save."""
    if names:
        _kubectl("delete", "job", "--ignore-not-found", "--wait=false", *names)


def _holds(conditions: list[dict[str, Any]], kind: str) -> dict[str, Any] | None:
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def _as_list(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _kubectl(*arguments: str, given: dict[str, Any] | None = None) -> str:
    """Run kubectl with an object as its input; return its output. Raises BertlineError with its message if it fails.

    NoAnswer, which is one, if the server did not answer, or refuses only for now.
    """
    if shutil.which("kubectl") is None:
        raise BertlineError("kubectl is not on the PATH; start snakemake where `kubectl get jobs` works")
    command = ["kubectl", *arguments]
    text = json.dumps(given) if given else None
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode and WITHOUT_CONFIGURATION in done.stderr:
        raise BertlineError(
            f"kubectl {arguments[0]}: no cluster is configured, or one at {WITHOUT_CONFIGURATION}, which does not "
            "answer; set KUBECONFIG so that `kubectl get jobs` works"
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        message = " ".join(" ".join([line for line in lines if not LOG_LINE.match(line)] or lines[-1:]).split())
        no_answer = cluster_generic.NO_ANSWER.search(message) or REFUSED_FOR_NOW.search(message)
        error = cluster_generic.NoAnswer if no_answer else BertlineError
        raise error(f"kubectl {arguments[0]}: {message}")
    return done.stdout
