"""PBS, LSF and Cobalt: commands that submit, query, cancel and start a job. Slurm has its own executor."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bertline.console import BertlineError

# Environment variables with the number of a job. Jobs of Slurm, which has its own executor, and of Grid Engine are only
# recorded.
JOB_NUMBERS = {
    "slurm": "SLURM_JOB_ID",
    "pbs": "PBS_JOBID",
    "lsf": "LSB_JOBID",
    "cobalt": "COBALT_JOBID",
    "sge": "JOB_ID",
    "kubernetes": "KUBERNETES_JOB",
}


@dataclass(frozen=True)
class Request:
    """Resources and files of a job."""

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
    """Commands of one scheduler, and how to parse their output."""

    name: str
    program: str  # identifies it by its presence on the PATH; both Cobalt and PBS have a qstat
    submit: Callable[[Request], list[str]]
    number: re.Pattern[str]  # of the new job, in the output of `submit`
    query: tuple[str, ...]
    cancel: str
    over: re.Pattern[str]  # in the output of `query` for a job that is over or forgotten
    hosts: Callable[[], list[str]]  # of this job's slots; the first is where its script runs
    start: Callable[[list[str], str, str], list[str]]  # slots, host, script -> command that runs the script there

    @property
    def variable(self) -> str:
        """Environment variable with the number of a job."""
        return JOB_NUMBERS[self.name]

    @property
    def logs(self) -> Path:
        """Folder of the jobs' scripts and logs."""
        return Path("logs", self.name)

    @property
    def ended(self) -> Path:
        """Folder with a file for each ended job, which contains its exit status."""
        return self.logs / "ended"


def _qsub(job: Request) -> list[str]:
    chunk = f"{job.nodes}:ncpus={job.cpus}:mem={job.memory_mb}mb"
    chunk += f":ngpus={job.gpus}" if job.gpus else ""
    chunk += f":{job.constraint}" if job.constraint else ""
    walltime = f"{job.minutes // 60}:{job.minutes % 60:02}:00"
    limits = ["-l", f"select={chunk}", "-l", "place=scatter", "-l", f"walltime={walltime}"]
    where = [*_option("-q", job.queue), *_option("-A", job.account)]
    # PBS truncates or rejects longer names.
    return ["qsub", "-N", job.name[:15], "-j", "oe", "-o", job.log, *limits, *where, job.script]


def _bsub(job: Request) -> list[str]:
    needs = ["-n", str(job.nodes * job.cpus), "-R", f"span[ptile={job.cpus}] rusage[mem={job.memory_mb}MB/host]"]
    needs += _option("-gpu", f"num={job.gpus}" if job.gpus else None) + _option("-R", job.constraint)
    where = [*_option("-q", job.queue), *_option("-P", job.account)]
    # A shell reads the command once more.
    script = ["/bin/sh", shlex.quote(job.script)]
    return ["bsub", "-J", job.name, "-oo", job.log, "-W", str(job.minutes), *needs, *where, *script]


def _cobalt_qsub(job: Request) -> list[str]:
    # Cobalt allocates whole nodes: cores, GPUs and memory are not requested.
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
        # For a job that is over, qstat prints nothing and fails; if the server does not answer, it prints an error.
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
    """Return the scheduler whose programs are on the PATH. Raises BertlineError if there is none."""
    for scheduler in SCHEDULERS:
        if shutil.which(scheduler.program):
            return scheduler
    programs = " or ".join(f"{scheduler.program} ({scheduler.name})" for scheduler in SCHEDULERS)
    raise BertlineError(f"no {programs} is on the PATH; start snakemake on a login node")


def own_scheduler() -> Scheduler | None:
    """Return the scheduler of this process's job; None outside a job of these schedulers."""
    return next((scheduler for scheduler in SCHEDULERS if scheduler.variable in os.environ), None)


def export_own_job() -> None:
    """Set BERTLINE_JOB for the trainers that this process starts: scheduler and number of its job, if it is in one."""
    os.environ.pop("BERTLINE_JOB", None)  # of the job in which this one was submitted
    for name, variable in JOB_NUMBERS.items():
        if os.environ.get(variable):
            os.environ["BERTLINE_JOB"] = f"{name} {os.environ[variable]}"
            return


def minutes_left() -> float | None:
    """Return the minutes left of this job's walltime; None outside a job of these schedulers."""
    ends = os.environ.get("BERTLINE_JOB_ENDS")
    return (float(ends) - time.time()) / 60 if ends else None
