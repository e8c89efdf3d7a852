"""PBS and LSF: how a job is sent, asked after, and started on its nodes. Slurm has an executor of its own.

Whether a job that is over went well is written by its own script into a file, because PBS without a history, and LSF
after a while, forget it.
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

# What the programs on the other nodes must be told; PBS hands on nothing.
HANDED_ON = re.compile(r"PATH|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|(PYTHON|NCCL_|GLOO_|OMP_|MKL_|TORCH|HF_)\w*")
STOPPED = 143  # how a job ended whose scheduler told it to stop
JOB_SCRIPT = """#!/bin/sh
# The scheduler tells every process of a job to stop; this shell stays, to write down how the job ended.
trap told=1 TERM USR2
cd {folder} || exit 1
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
    variable: str  # in the environment of a job: its number
    submit: Callable[[Request], list[str]]  # the job's script comes on stdin
    number: re.Pattern[str]  # of the new job, in what that prints
    query: tuple[str, ...]
    cancel: str
    over: re.Pattern[str]  # what the query prints of a job that is over or forgotten
    hosts: Callable[[], list[str]]  # of this job's slots; the first is where its script runs
    start: Callable[[list[str], str], list[str]]  # slots, host -> what starts a command there

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
    return ["qsub", "-V", "-N", job.name[:15], "-j", "oe", "-o", job.log, *limits, *where]


def _bsub(job: Request) -> list[str]:
    needs = ["-n", str(job.nodes * job.cpus), "-R", f"span[ptile={job.cpus}] rusage[mem={job.memory_mb}MB/host]"]
    needs += _option("-gpu", f"num={job.gpus}" if job.gpus else None) + _option("-R", job.constraint)
    where = [*_option("-q", job.queue), *_option("-P", job.account)]
    return ["bsub", "-J", job.name, "-oo", job.log, "-W", str(job.minutes), *needs, *where]


def _option(name: str, value: str | None) -> list[str]:
    return [name, value] if value else []


SCHEDULERS = (
    Scheduler(
        name="lsf",
        variable="LSB_JOBID",
        submit=_bsub,
        number=re.compile(r"^Job <(\d+)> is submitted", re.MULTILINE),
        query=("bjobs", "-noheader", "-o", "stat"),
        cancel="bkill",
        over=re.compile("DONE|EXIT|is not found"),
        hosts=lambda: Path(os.environ["LSB_DJOB_HOSTFILE"]).read_text().split(),
        start=lambda slots, host: ["blaunch", host],
    ),
    Scheduler(
        name="pbs",
        variable="PBS_JOBID",
        submit=_qsub,
        number=re.compile(r"^(\d+\S*)", re.MULTILINE),
        query=("qstat",),
        cancel="qdel",
        over=re.compile("Unknown Job Id|Job has finished", re.IGNORECASE),
        hosts=lambda: Path(os.environ["PBS_NODEFILE"]).read_text().split(),
        start=lambda slots, host: ["pbsdsh", "-n", str(slots.index(host)), "--"],
    ),
)


def scheduler_here() -> Scheduler:
    """The one whose programs are on the PATH. Raises BertlineError where there is none."""
    for scheduler in SCHEDULERS:
        if shutil.which(scheduler.query[0]):
            return scheduler
    raise BertlineError("neither bjobs (LSF) nor qstat (PBS) is on the PATH; start snakemake on a login node")


def own_scheduler() -> Scheduler | None:
    """The one that this process is a job of, if it is PBS or LSF."""
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
    log = logs.absolute() / f"{name}-{wildcards or properties['jobid']}-{resources.get('attempt', 1)}.log"
    return Request(
        name=name,
        log=str(log),
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
        minutes=minutes,
        body=body,
        stopped=STOPPED,
        ended=scheduler.ended,
        variable=scheduler.variable,
    )


def script_for_a_node(command: list[str]) -> str:
    """Run `command` as if it were here. A script, because not every scheduler hands quotes on."""
    told = {name: value for name, value in os.environ.items() if HANDED_ON.fullmatch(name)}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(told.items()))
    return f"cd {shlex.quote(os.getcwd())} || exit 1\n{exports}exec {shlex.join(command)}\n"
