"""PBS, LSF, Cobalt and Grid Engine: commands that submit, query, cancel and start a job. Slurm has its own executor."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertline.console import BertlineError
from bertline.training.contract import JOB, JOB_ENDS

# Environment variables with the number of a job. Those of Slurm, which has its own executor, are only recorded.
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
    memory_mb: int  # 0: not requested
    queue: str | None
    account: str | None
    constraint: str | None
    priority: str | None = None
    grid_engine: Mapping[str, str] = field(default_factory=dict)  # of site.yaml

    @property
    def code(self) -> str:
        """A part of the job's name in the queue that no other of the user's jobs has."""
        return hashlib.sha256(self.script.encode()).hexdigest()[:6]


@dataclass(frozen=True)
class Hold:
    """How to recognize a job that is held until a person acts, and the commands that explain and release it.

    The job's number follows the commands.
    PBS holds a job that failed to start about twenty times.
    """

    state: re.Pattern[str]  # in the output of `Scheduler.query`
    explain: str
    release: str


@dataclass(frozen=True)
class Scheduler:
    """Commands of one scheduler, and how to parse their output."""

    name: str
    program: str  # identifies it by its presence on the PATH; PBS, Cobalt and Grid Engine have a qstat
    submit: Callable[[Request], list[str]]
    job_name: Callable[[Request], str]  # in the queue
    number: re.Pattern[str]  # of the new job, in the output of `submit`: a whole line, as sites print more; the last
    query: tuple[str, ...]
    cancel: str
    cancelled: re.Pattern[str]  # in each line of `cancel` about a job that is over, or is cancelled now or already
    over: re.Pattern[str]  # in the output of `query` for a job that is over or forgotten
    hosts_file: str  # environment variable with the path of a file: a line for each slot or host of the job
    start: Callable[[list[str], str, str], list[str]]  # slots, host, script -> command that runs the script there
    find: Callable[[Request], list[str]] | None = None  # prints the number of a job in the queue
    found: re.Pattern[str] | None = None  # the number, in the output of `find`
    broken: re.Pattern[str] | None = None  # in the output of `query` for a job that cannot start
    hold: Hold | None = None

    @property
    def variable(self) -> str:
        """Environment variable with the number of a job."""
        return JOB_NUMBERS[self.name]

    def hosts(self) -> list[str]:
        """Return the hosts of this job's slots; its script runs on the first one."""
        return [line.split()[0] for line in Path(os.environ[self.hosts_file]).read_text().splitlines() if line.strip()]

    @property
    def logs(self) -> Path:
        """Folder of the jobs' scripts and logs."""
        return Path("logs", self.name)

    @property
    def ended(self) -> Path:
        """Folder with a file for each ended job, which contains its exit status."""
        return self.logs / "ended"

    @property
    def held(self) -> Path:
        """Folder with an empty file for each job whose hold was reported."""
        return self.logs / "held"


# A job is not rerun by its scheduler (`-r n`, `-rn`): the first run has written down its end, and Snakemake submits the
# job again.
def _qsub(job: Request) -> list[str]:
    chunk = f"{job.nodes}:ncpus={job.cpus}"
    chunk += f":mem={job.memory_mb}mb" if job.memory_mb else ""
    chunk += f":ngpus={job.gpus}" if job.gpus else ""
    chunk += f":{job.constraint}" if job.constraint else ""
    walltime = f"{job.minutes // 60}:{job.minutes % 60:02}:00"
    limits = ["-l", f"select={chunk}", "-l", "place=scatter", "-l", f"walltime={walltime}"]
    where = [*_option("-q", job.queue), *_option("-A", job.account)]
    return ["qsub", "-N", _pbs_name(job), "-r", "n", "-j", "oe", "-o", job.log, *limits, *where, job.script]


def _pbs_name(job: Request) -> str:
    """Return a name of 15 characters; PBS truncates or rejects longer ones."""
    return f"{job.name[:8]}-{job.code}"


def _long_name(job: Request) -> str:
    return f"{job.name}-{job.code}"


def _bsub(job: Request) -> list[str]:
    memory = f" rusage[mem={job.memory_mb}MB/host]" if job.memory_mb else ""
    needs = ["-n", str(job.nodes * job.cpus), "-R", f"span[ptile={job.cpus}]{memory}"]
    needs += _option("-gpu", f"num={job.gpus}" if job.gpus else None) + _option("-R", job.constraint)
    where = [*_option("-q", job.queue), *_option("-P", job.account)]
    # A shell reads the command once more.
    script = ["/bin/sh", shlex.quote(job.script)]
    return ["bsub", "-J", _long_name(job), "-rn", "-oo", job.log, "-W", str(job.minutes), *needs, *where, *script]


def _cobalt_qsub(job: Request) -> list[str]:
    # Cobalt allocates whole nodes: cores, GPUs and memory are not requested.
    logs = ["-o", job.log, "-e", job.log, "--debuglog", f"{job.log}.cobalt"]
    where = [*_option("-q", job.queue), *_option("-A", job.account), *_option("--attrs", job.constraint)]
    return ["qsub", "--jobname", job.name, *logs, "-n", str(job.nodes), "-t", str(job.minutes), *where, job.script]


def _grid_engine_qsub(job: Request) -> list[str]:
    site, slots = job.grid_engine, job.nodes * job.cpus
    key = "several_nodes" if job.nodes > 1 else "one_node"
    if key not in site:
        raise BertlineError(f"site.yaml: Grid Engine needs `grid_engine: {{{key}: ...}}`, a name that your site chose")
    limits = [f"h_rt={job.minutes // 60}:{job.minutes % 60:02}:00"]
    by_slot = math.ceil(job.memory_mb / job.cpus)
    limits += [f"{site['memory']}={by_slot}M"] if site["memory"] and by_slot else []
    limits += [f"{site['gpu']}={job.gpus}"] if job.gpus else []
    limits += [job.constraint] if job.constraint else []
    needs = ["-l", ",".join(limits), *(["-pe", site[key], str(slots)] if slots > 1 else [])]
    where = [*_option("-q", job.queue), *_option("-P", job.account), *_option("-p", job.priority)]
    # With -notify, SIGUSR2 precedes SIGKILL by the queue's time `notify`.
    how = ["-terse", "-cwd", "-notify", "-r", "n", "-S", "/bin/sh"]
    return ["qsub", *how, "-N", _long_name(job), "-j", "y", "-o", job.log, *needs, *where, job.script]


def _option(name: str, value: str | None) -> list[str]:
    return [name, value] if value else []


PBS_OVER = re.compile("Unknown Job Id|Job has finished", re.IGNORECASE)
SCHEDULERS = (
    Scheduler(
        name="lsf",
        program="bjobs",
        submit=_bsub,
        job_name=_long_name,
        number=re.compile(r"^Job <(\d+)> is submitted", re.MULTILINE),
        query=("bjobs", "-noheader", "-o", "stat"),
        cancel="bkill",
        cancelled=re.compile("is being terminated|has already finished|No matching job found|is not found"),
        # UNKWN, on a host that does not answer, may run on; killed then, it is a ZOMBI until its host answers.
        over=re.compile("DONE|EXIT|ZOMBI|is not found"),
        hosts_file="LSB_DJOB_HOSTFILE",
        start=lambda slots, host, script: ["blaunch", host, "/bin/sh", script],
        find=lambda job: ["bjobs", "-noheader", "-o", "jobid", "-J", _long_name(job)],
        found=re.compile(r"^(\d+)\s*$", re.MULTILINE),
        hold=Hold(re.compile("PSUSP"), explain="bjobs -l", release="bresume"),
    ),
    Scheduler(
        name="cobalt",
        program="cqwait",
        submit=_cobalt_qsub,
        job_name=lambda job: job.name,
        number=re.compile(r"^(\d+)\s*$", re.MULTILINE),
        query=("qstat",),
        cancel="qdel",
        cancelled=re.compile(r"\A\Z"),
        # For a job that is over, qstat prints nothing and fails; if the server does not answer, it prints an error.
        over=re.compile(r"\A\Z"),
        hosts_file="COBALT_NODEFILE",
        start=lambda slots, host, script: ["ssh", "-o", "BatchMode=yes", host, f"/bin/sh {shlex.quote(script)}"],
    ),
    Scheduler(
        name="sge",
        program="qhost",
        submit=_grid_engine_qsub,
        job_name=_long_name,
        number=re.compile(r"^(\d+)\s*$", re.MULTILINE),
        query=("qstat", "-j"),
        cancel="qdel",
        cancelled=re.compile("has registered the job|has deleted job|is already in deletion|does not exist"),
        over=re.compile("do not exist"),
        hosts_file="PE_HOSTFILE",
        start=lambda slots, host, script: ["qrsh", "-inherit", "-nostdin", host, "/bin/sh", script],
        find=lambda job: ["qstat", "-j", _long_name(job)],
        found=re.compile(r"^job_number:\s+(\d+)", re.MULTILINE),
        broken=re.compile(r"^error reason\s.*", re.MULTILINE),
    ),
    Scheduler(
        name="pbs",
        program="qstat",
        submit=_qsub,
        job_name=_pbs_name,
        number=re.compile(r"^(\d+\.\S+)\s*$", re.MULTILINE),
        query=("qstat",),
        cancel="qdel",
        cancelled=PBS_OVER,
        over=PBS_OVER,
        hosts_file="PBS_NODEFILE",
        start=lambda slots, host, script: ["pbsdsh", "-n", str(slots.index(host)), "--", "/bin/sh", script],
        find=lambda job: ["qselect", "-N", _pbs_name(job)],
        found=re.compile(r"^(\d+\.\S+)\s*$", re.MULTILINE),
        # The last but one column of its line.
        hold=Hold(re.compile(r"\sH\s+\S+\s*$", re.MULTILINE), explain="qstat -f", release="qrls"),
    ),
)


def scheduler_here() -> Scheduler:
    """Return the scheduler whose programs come first on the PATH. Raises BertlineError if there is none."""
    for folder in os.get_exec_path():
        for scheduler in SCHEDULERS:
            if shutil.which(scheduler.program, path=folder):
                return scheduler
    programs = " or ".join(f"{scheduler.program} ({scheduler.name})" for scheduler in SCHEDULERS)
    raise BertlineError(f"no {programs} is on the PATH; start snakemake on a login node")


def own_scheduler() -> Scheduler | None:
    """Return the scheduler of this process's job; None outside a job of these schedulers."""
    return next((scheduler for scheduler in SCHEDULERS if scheduler.hosts_file in os.environ), None)


def is_in_job() -> bool:
    """Return whether this process is part of a scheduler's job."""
    return any(os.environ.get(variable) for variable in JOB_NUMBERS.values())


def export_own_job() -> None:
    """Set BERTLINE_JOB for the trainers that this process starts: scheduler and number of its job, if it is in one."""
    os.environ.pop(JOB, None)  # of the job in which this one was submitted
    for name, variable in JOB_NUMBERS.items():
        if os.environ.get(variable):
            os.environ[JOB] = f"{name} {os.environ[variable]}"
            return


def minutes_left() -> float | None:
    """Return the minutes left of this job's walltime; None outside a job of these schedulers.

    Raises BertlineError if the variable with its end is no number.
    """
    ends = os.environ.get(JOB_ENDS)
    try:
        return (float(ends) - time.time()) / 60 if ends else None
    except ValueError:
        raise BertlineError(f"{JOB_ENDS} is '{ends}', not a time in seconds since 1970; unset it") from None
