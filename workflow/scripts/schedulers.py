"""PBS, LSF and Cobalt: how a job is sent, asked after, and started on its nodes. Slurm has an executor of its own.

Whether a job that is over went well is written by its own script into a file, because Cobalt, PBS without a history,
and LSF after a while, forget it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.training.started import JOB_IDS

# What a job must be told, and its trainers on other nodes; Cobalt and PBS hand on nothing. It is written to a file: no
# secrets, so no HF_TOKEN, and no proxies, whose addresses may hold a password.
HANDED_ON = re.compile(
    r"(LD_LIBRARY_)?PATH|VIRTUAL_ENV|CONDA_PREFIX|LANG|CC|CXX|CUDA_HOME|HF_HOME|HF_ENDPOINT|REQUESTS_CA_BUNDLE"
    r"|(LC_|PYTHON|PYTORCH_|TORCH|TRITON_|OMP_|MKL_|NCCL_|GLOO_|UCX_|FI_|HF_HUB_|SSL_CERT_)\w*"
)
STOPPED = 143  # how a job ended whose scheduler told it to stop
JOB_SCRIPT = """#!/bin/sh
# The scheduler tells every process of a job to stop; this shell stays, to write down how the job ended.
trap told=1 TERM USR2
cd {folder} || exit 1
{exports}
export BERTLINE_JOB_ENDS=$(($(date +%s) + 60 * {minutes}))
(trap : TERM USR2
{body})
status=$?
[ $status -eq 0 ] || [ -z "$told" ] || status={stopped}
echo $status > {ended}/"${variable}".part && mv {ended}/"${variable}".part {ended}/"${variable}"
exit $status
"""


@dataclass(frozen=True)
class Request:
    """What a job asks for."""

    name: str
    script: str
    log: str
    minutes: int
    nodes: int
    cpus: int  # of each node, as are GPUs and memory
    gpus: int
    memory_mb: int
    queue: str | None
    account: str | None
    constraint: str | None


@dataclass(frozen=True)
class Scheduler:
    """What has to be known of one."""

    name: str
    program: str  # by which it is known to be here; Cobalt has a qstat as PBS has
    submit: Callable[[Request], list[str]]
    number: re.Pattern[str]  # of the new job, in what that prints
    query: tuple[str, ...]
    cancel: str
    over: re.Pattern[str]  # what the query prints of a job that is over or forgotten
    hosts: Callable[[], list[str]]  # of this job's slots; the first is where its script runs
    start: Callable[[list[str], str, str], list[str]]  # slots, host, script -> what runs the script there

    @property
    def variable(self) -> str:
        """In the environment of a job: its number."""
        return JOB_IDS[self.name]

    @property
    def logs(self) -> Path:
        return Path("logs", self.name)

    @property
    def ended(self) -> Path:
        """A file for each job that came to its end, with its exit status."""
        return self.logs / "ended"


def _qsub(job: Request) -> list[str]:
    chunk = f"{job.nodes}:ncpus={job.cpus}:mem={job.memory_mb}mb"
    chunk += f":ngpus={job.gpus}" if job.gpus else ""
    chunk += f":{job.constraint}" if job.constraint else ""
    limits = [
        "-l",
        f"select={chunk}",
        "-l",
        "place=scatter",
        "-l",
        f"walltime={job.minutes // 60}:{job.minutes % 60:02}:00",
    ]
    where = [*_option("-q", job.queue), *_option("-A", job.account)]
    # PBS cuts or refuses longer names.
    return ["qsub", "-N", job.name[:15], "-j", "oe", "-o", job.log, *limits, *where, job.script]


def _bsub(job: Request) -> list[str]:
    needs = ["-n", str(job.nodes * job.cpus), "-R", f"span[ptile={job.cpus}] rusage[mem={job.memory_mb}MB/host]"]
    needs += _option("-gpu", f"num={job.gpus}" if job.gpus else None) + _option("-R", job.constraint)
    where = [*_option("-q", job.queue), *_option("-P", job.account)]
    # What is to run is read by a shell once more.
    script = ["/bin/sh", shlex.quote(job.script)]
    return ["bsub", "-J", job.name, "-oo", job.log, "-W", str(job.minutes), *needs, *where, *script]


def _cobalt_qsub(job: Request) -> list[str]:
    # Its nodes are given whole: cores, GPUs and memory are not asked for.
    logs = ["-o", job.log, "-e", job.log, "--debuglog", f"{job.log}.cobalt"]
    where = [*_option("-q", job.queue), *_option("-A", job.account), *_option("--attrs", job.constraint)]
    return ["qsub", "--jobname", job.name, *logs, "-n", str(job.nodes), "-t", str(job.minutes), *where, job.script]


def _option(name: str, value: str | None) -> list[str]:
    return [name, value] if value else []


SCHEDULERS = (
    Scheduler(
        name="lsf",
        program="bjobs",
        submit=_bsub,
        number=re.compile(r"^Job <(\d+)> is submitted", re.MULTILINE),
        query=("bjobs", "-noheader", "-o", "stat"),
        cancel="bkill",
        over=re.compile("DONE|EXIT|is not found"),
        hosts=lambda: Path(os.environ["LSB_DJOB_HOSTFILE"]).read_text().split(),
        start=lambda slots, host, script: ["blaunch", host, "/bin/sh", script],
    ),
    Scheduler(
        name="cobalt",
        program="cqwait",
        submit=_cobalt_qsub,
        number=re.compile(r"^(\d+)\b", re.MULTILINE),
        query=("qstat",),
        cancel="qdel",
        # It says nothing, and fails. If the queue's server does not answer, it says so.
        over=re.compile(r"\A\Z"),
        hosts=lambda: Path(os.environ["COBALT_NODEFILE"]).read_text().split(),
        start=lambda slots, host, script: ["ssh", "-o", "BatchMode=yes", host, f"/bin/sh {shlex.quote(script)}"],
    ),
    Scheduler(
        name="pbs",
        program="qstat",
        submit=_qsub,
        number=re.compile(r"^(\d+\S*)", re.MULTILINE),
        query=("qstat",),
        cancel="qdel",
        over=re.compile("Unknown Job Id|Job has finished", re.IGNORECASE),
        hosts=lambda: Path(os.environ["PBS_NODEFILE"]).read_text().split(),
        start=lambda slots, host, script: ["pbsdsh", "-n", str(slots.index(host)), "--", "/bin/sh", script],
    ),
)


def scheduler_here() -> Scheduler:
    """The one whose programs are on the PATH. Raises BertlineError where there is none."""
    for scheduler in SCHEDULERS:
        if shutil.which(scheduler.program):
            return scheduler
    programs = " or ".join(f"{scheduler.program} ({scheduler.name})" for scheduler in SCHEDULERS)
    raise BertlineError(f"no {programs} is on the PATH; start snakemake on a login node")


def own_scheduler() -> Scheduler | None:
    """The one that this process is a job of, if it is one of these."""
    return next((scheduler for scheduler in SCHEDULERS if scheduler.variable in os.environ), None)


def minutes_left() -> float | None:
    """Of this job's walltime; None outside a job."""
    ends = os.environ.get("BERTLINE_JOB_ENDS")
    return (float(ends) - time.time()) / 60 if ends else None


def request_of(properties: dict[str, Any], logs: Path) -> Request:
    """What one of Snakemake's jobs, or a group of them, asks for, in the words of workflow/inputs/placement.smk."""
    resources = properties["resources"]
    name = properties.get("rule") or properties["groupid"]
    wildcards = "-".join(map(str, properties.get("wildcards", {}).values())).replace("/", "-")
    path = logs.absolute() / f"{name}-{wildcards or properties['jobid']}-{resources.get('attempt', 1)}"
    return Request(
        name=name,
        # A name of its own: LSF and Cobalt read it only when the job starts, and by then there may be another.
        script=f"{path}-{os.getpid()}.sh",
        log=f"{path}.log",
        minutes=int(resources["runtime"]),
        nodes=int(resources.get("nodes", 1)),
        cpus=int(properties["threads"]),
        gpus=int(str(resources.get("gres") or "gpu:0").rpartition(":")[2]),
        memory_mb=int(resources["mem_mb"]),
        queue=resources.get("slurm_partition"),
        account=resources.get("slurm_account"),
        constraint=resources.get("constraint"),
    )


def job_script(scheduler: Scheduler, body: str, minutes: int) -> str:
    """Snakemake's script for a job, within one that knows when its walltime ends and writes down how it ended."""
    return JOB_SCRIPT.format(
        folder=shlex.quote(os.getcwd()),
        exports=_exports(),
        minutes=minutes,
        body=body,
        stopped=STOPPED,
        ended=scheduler.ended,
        variable=scheduler.variable,
    )


def script_for_a_node(command: list[str]) -> str:
    """Run `command` as if it were here. A script, because not every scheduler hands quotes on."""
    return f"cd {shlex.quote(os.getcwd())} || exit 1\n{_exports()}\nexec {shlex.join(command)}\n"


def _exports() -> str:
    told = {name: value for name, value in os.environ.items() if HANDED_ON.fullmatch(name)}
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(told.items()))
