"""Submission, query and cancellation of Snakemake's jobs on LSF, PBS, Cobalt and Grid Engine, for cluster-generic.

A job's script writes its exit status to a file, because Cobalt, PBS without a history, and LSF after some time do not
keep it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bertline.cluster import cluster_generic
from bertline.cluster.schedulers import Request, Scheduler, scheduler_here
from bertline.console import BertlineError
from bertline.files import write_text
from bertline.training.contract import JOB_ENDS, TOKEN

# Variables for a job and its trainers on other nodes; only LSF passes any on. They are written to a file, so they
# exclude secrets such as HF_TOKEN, and proxies, whose addresses may contain a password. The job's own token is only
# there in a launcher, whose scripts other users cannot read.
PASSED_ON = re.compile(
    rf"{TOKEN}|(LD_LIBRARY_)?PATH|VIRTUAL_ENV|CONDA_PREFIX|LANG|CC|CXX|CUDA_HOME|HF_HOME|HF_ENDPOINT"
    r"|REQUESTS_CA_BUNDLE|HF_HUB_DISABLE_IMPLICIT_TOKEN"
    r"|(LC_|PYTHON|PYTORCH_|TORCH|TRITON_|G?OMP_|MKL_|NCCL_|GLOO_|UCX_|FI_|HF_HUB_|SSL_CERT_)\w*"
    r"(?<!TOKEN)(?<!PASSWORD)(?<!_KEY)(?<!SECRET)"
)
STOPPED_FROM_OUTSIDE = 143  # exit status of a job that its scheduler stopped: 128 + SIGTERM
# A network file system may show the files of another node late.
LATENCY_SECONDS = 30.0
GRID_ENGINE = "grid_engine_"  # resources of a job, from site.yaml
PARENT_CHECK_SECONDS = 5.0
JOB_SCRIPT = """#!/bin/sh
# The scheduler signals every process of a job; this shell stays, to write down how the job ended.
trap stopped=1 TERM USR1 USR2
cd {folder} || exit 1
{exports}
export {job_ends}=$(($(date +%s) + 60 * {minutes}))
# On USR1 and USR2, which LSF and Grid Engine send before the end, snakemake would end; the launcher handles them.
(trap : TERM; trap '' USR1 USR2
{body})
status=$?
[ $status -eq 0 ] || [ -z "$stopped" ] || status={stopped_status}
echo $status > {ended}/"${variable}".part && mv {ended}/"${variable}".part {ended}/"${variable}"
exit $status
"""


def submit_job(jobscript: Path) -> str:
    """Submit one of Snakemake's jobs.

    Args:
        jobscript: the shell script that Snakemake wrote, with the job's properties in a comment.

    Returns:
        The job's number.

    Raises:
        BertlineError: if there is no scheduler, it refuses the job, or snakemake has ended.
    """
    from snakemake.utils import read_job_properties  # takes a second; not needed by other functions

    cluster_generic.submitted()  # before anything is written
    scheduler = scheduler_here()
    scheduler.ended.mkdir(parents=True, exist_ok=True)
    job = request_of(read_job_properties(str(jobscript)), scheduler.logs)
    # HF_ENDPOINT is an address, which may contain a password: only for this user.
    write_text(job.script, job_script(scheduler, jobscript.read_text(), job.minutes), mode=0o700)
    before = Path(job.script).stat().st_mtime  # by the clock of the file system
    number = cluster_generic.wait_for_answer(
        lambda repeated: _send(scheduler, job, repeated=repeated),
        lambda: _find(scheduler, job),
        scheduler.job_name(job),
    )
    # Of an earlier job: numbers begin again.
    ended = scheduler.ended / number
    if ended.exists() and ended.stat().st_mtime < before:
        ended.unlink()
    (scheduler.held / number).unlink(missing_ok=True)
    cluster_generic.record_job(number, lambda numbers: _cancel(scheduler, numbers))
    return number


def _send(scheduler: Scheduler, job: Request, *, repeated: bool) -> str:
    """Submit a job once, unless a repeated request finds it in the queue; return its number.

    Raises BertlineError if the job is refused, NoAnswer if the scheduler does not answer.
    """
    if repeated and scheduler.find and (found := _find(scheduler, job)):
        return found
    command = scheduler.submit(job)
    done = _answer(command)
    new = scheduler.number.findall(done.stdout)
    if done.returncode or not new:
        raise BertlineError(f"{command[0]} refused the job {job.name}: {_message_of(done)}; see site.yaml")
    return str(new[-1])


def _find(scheduler: Scheduler, job: Request) -> str | None:
    """Return the number of a job in the queue, None if it is not there. Raises NoAnswer if that cannot be known."""
    if scheduler.find is None or scheduler.found is None:
        raise cluster_generic.NoAnswer(f"{scheduler.name} finds no job by its name")
    found = scheduler.found.search(_answer(scheduler.find(job)).stdout)
    return found[1] if found else None


def _cancel(scheduler: Scheduler, numbers: list[str]) -> None:
    """Cancel jobs. Raises BertlineError with the scheduler's message if that fails for one that is not over.

    NoAnswer, which is one, if the server did not answer.
    """
    done = _answer([scheduler.cancel, *numbers])
    lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
    # A command fails as well if only one of the jobs has just ended.
    failed = [line for line in lines if line.strip() and not scheduler.cancelled.search(line)]
    if done.returncode and (failed or not lines):
        words = " ".join(failed).split() or [f"{scheduler.cancel} ended with status {done.returncode}"]
        raise BertlineError(" ".join(words))


def _is_cancelled(scheduler: Scheduler, number: str) -> bool:
    """Return whether a job that may be cancelled already is over, or ends."""
    try:
        _cancel(scheduler, [number])
    except BertlineError:
        return bool(scheduler.over.search(_output_of([*scheduler.query, number])))
    return True


def _answer(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a scheduler's command and return how it ended. Raises NoAnswer if its server does not answer."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode and cluster_generic.NO_ANSWER.search(done.stdout + done.stderr):
        raise cluster_generic.NoAnswer(_message_of(done))
    return done


def _message_of(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split())


def _output_of(command: list[str]) -> str:
    """Return the output and the errors of a scheduler's command, whether it succeeds or not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout + done.stderr


def request_of(properties: dict[str, Any], logs: Path) -> Request:
    """Convert the properties of one of Snakemake's jobs, or of a group of them, to a request.

    Args:
        properties: including the resources of workflow/inputs/placement.smk.
        logs: the folder of the job's script and log.

    Raises:
        BertlineError: if the job asks for something that only Slurm has.
    """
    resources = properties["resources"]
    if resources.get("additional_nodes"):
        raise BertlineError("only Slurm has jobs on nodes of several kinds; leave `additional_nodes` out of site.yaml")
    name = properties.get("rule") or properties["groupid"]
    wildcards = "-".join(map(str, properties.get("wildcards", {}).values())).replace("/", "-")
    # Snakemake makes a number of `--set-resources RULE:slurm_account=4711`.
    texts = {key: str(value) for key, value in resources.items() if value is not None}
    path = logs.absolute() / f"{name}-{wildcards or properties['jobid']}-{resources.get('attempt', 1)}"
    return Request(
        name=name,
        # Unique: LSF and Cobalt read it only when the job starts, when there may already be another.
        script=f"{path}-{os.getpid()}.sh",
        log=f"{path}.log",
        minutes=int(resources["runtime"]),
        nodes=int(resources.get("nodes", 1)),
        cpus=int(properties["threads"]),
        gpus=_gpus_in(str(resources.get("gres") or "gpu:0")),
        memory_mb=int(resources["mem_mb"]),
        queue=texts.get("slurm_partition"),
        account=texts.get("slurm_account"),
        constraint=texts.get("constraint"),
        priority=texts.get("qos"),
        grid_engine={key.removeprefix(GRID_ENGINE): texts[key] for key in texts if key.startswith(GRID_ENGINE)},
    )


def _gpus_in(gres: str) -> int:
    """Return the number of GPUs of each node in a resource for Slurm, as gpu:4 or gpu:a100:4.

    Raises BertlineError if it is, or includes, something else.
    """
    counts = [re.fullmatch(r"gpu:(?:[^:()]+:)*(\d+)", part) for part in gres.split(",")]
    if not all(counts):
        raise BertlineError(
            f"gres: given '{gres}'; only Slurm has more than a number of GPUs, write gpu:4 or gpu:a100:4"
        )
    return sum(int(count[1]) for count in counts if count)


def job_script(scheduler: Scheduler, body: str, minutes: int) -> str:
    """Return a script that runs `body`, exports the end of its walltime (in minutes), and records its exit status."""
    return JOB_SCRIPT.format(
        folder=shlex.quote(os.getcwd()),
        exports=_exports(),
        job_ends=JOB_ENDS,
        minutes=minutes,
        body=body,
        stopped_status=STOPPED_FROM_OUTSIDE,
        ended=scheduler.ended,
        variable=scheduler.variable,
    )


def node_script(command: list[str]) -> str:
    """Return a script that runs `command` on another node as here; some schedulers and ssh do not preserve quotes."""
    return f"cd {shlex.quote(os.getcwd())} || exit 1\n{_exports()}\nexec {shlex.join(command)}\n"


def _exports() -> str:
    passed_on = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(passed_on.items()))


def job_status(number: str) -> str:
    """Return "running" (also for a waiting job), "success" or "failed" for a job.

    Args:
        number: of the job, as the scheduler's submit command printed it.
    """
    scheduler = scheduler_here()
    ended = scheduler.ended / number
    if not ended.exists():
        output = _output_of([*scheduler.query, number])
        if scheduler.broken and (reason := scheduler.broken.search(output)):
            print(f"job {number} cannot start and is deleted: {' '.join(reason[0].split())}", file=sys.stderr)
            _output_of([scheduler.cancel, number])
            return "failed"
        # If the scheduler does not answer, the job still counts as running.
        if not scheduler.over.search(output):
            _report_hold(scheduler, number, output)
            return "running"
    deadline = time.monotonic() + LATENCY_SECONDS
    while not ended.exists() and time.monotonic() < deadline:
        time.sleep(1)
        list(ended.parent.iterdir())  # refreshes NFS's cache
    written = ended.read_text(errors="replace").strip() if ended.exists() else ""
    status = int(written) if re.fullmatch("[0-9]{1,3}", written) else STOPPED_FROM_OUTSIDE  # on a full disk: empty
    if status == STOPPED_FROM_OUTSIDE:
        reasons = "walltime, memory, a dead node, or someone cancelled it"
        print(f"job {number} was ended from outside ({reasons}); its log is in {scheduler.logs}", file=sys.stderr)
    return "failed" if status else "success"


def _report_hold(scheduler: Scheduler, number: str, queried: str) -> None:
    """Print once what to do if a job is held, by what its scheduler prints about it."""
    hold = scheduler.hold
    if hold is None or not hold.state.search(queried):
        return
    if cluster_generic.is_new(scheduler.held / number):
        print(
            f"job {number} is held and waits (reason: `{hold.explain} {number}`); start it with "
            f"`{hold.release} {number}`, or delete it with `{scheduler.cancel} {number}`, and it is submitted again",
            file=sys.stderr,
        )


def cancel_jobs_at_the_end() -> None:
    """Wait for the end of the parent, snakemake, and cancel its unfinished jobs, as after Ctrl-C.

    The executor's own method (cluster-generic 1.0.9) omits the jobs whose status it is querying, and gives the
    scheduler two seconds. When snakemake is killed, this process ends as well and the jobs continue.

    Raises BertlineError with the command for a person to repeat if that fails.
    """
    scheduler = scheduler_here()
    numbers = unfinished_at_the_end(scheduler.logs, scheduler.ended)
    try:
        if numbers:
            _cancel(scheduler, numbers)
    except BertlineError as error:
        if not isinstance(error, cluster_generic.NoAnswer):
            numbers = [one for one in numbers if not _is_cancelled(scheduler, one)]
        if numbers:
            again = f"{scheduler.cancel} {' '.join(numbers)}"
            raise BertlineError(f"{error}; unfinished jobs run on until `{again}`") from None


def unfinished_at_the_end(logs: Path, ended: Path) -> list[str]:
    """Wait for the end of the parent, snakemake, and return the numbers of its unfinished jobs; [] if it was killed.

    Args:
        logs: a folder for the list of jobs, to which their submission adds.
        ended: the folder with a file for each ended job.
    """
    # Ctrl-C reaches this process as well; it waits for snakemake's SIGTERM.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    snakemake = os.getppid()
    ended.mkdir(parents=True, exist_ok=True)
    submitted = Path(logs, f"sent-{os.getpid()}").absolute()
    submitted.write_text("")  # a killed process of this number, as in an earlier Pod, may have left one with its jobs
    # `submit_job` appends its jobs to this file, whose path is in SNAKEMAKE_CLUSTER_SIDECAR_VARS.
    print(submitted, flush=True)
    received = None
    while received is None and os.getppid() == snakemake:
        received = signal.sigtimedwait([signal.SIGTERM], PARENT_CHECK_SECONDS)
    numbers = [number for number in cluster_generic.take_jobs(submitted) if not (ended / number).exists()]
    return numbers if received else []
