"""A scheduler that behaves as PBS, LSF, Cobalt or Grid Engine do, on this machine.

Jobs wait for a slot, run in the background, have a state and an exit status, end with their walltime, and are killed
with all their processes.

It answers under the names of their programs (`programs`), with as much of them as the manuals say of what we use.
There is no server: every job has a process that waits, starts and ends it. Nodes are loopback addresses. The walltime
of job 7 is over at once where a file jobs/7.expire is put.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

SLOTS = 2
KILL_DELAY_SECONDS = 5.0
HOME = "/"
PROGRAMS = {
    "pbs": {"qsub": "pbs_qsub", "qstat": "pbs_qstat", "qdel": "delete", "pbsdsh": "pbsdsh"},
    "lsf": {"bsub": "bsub", "bjobs": "bjobs", "bkill": "delete", "blaunch": "blaunch"},
    "cobalt": {"qsub": "cobalt_qsub", "qstat": "cobalt_qstat", "qdel": "delete", "cqwait": "delete", "ssh": "ssh"},
    "sge": {"qsub": "sge_qsub", "qstat": "sge_qstat", "qdel": "delete", "qhost": "delete", "qrsh": "qrsh"},
}
# What PBS, Cobalt and Grid Engine give a job's script, as sshd gives a command.
BARE = {"HOME": HOME, "PATH": "/usr/bin:/bin", "USER": "me"}
# Seconds of a minute of walltime: tests have little time.
MINUTE = float(os.environ.get("FAKE_MINUTE", "60"))


def programs(kind: str, folder: Path) -> dict[str, str]:
    """Put the programs of a scheduler into `folder`; the environment in which they are found."""
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    for name, function in PROGRAMS[kind].items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} {function} "$@"\n')
        path.chmod(0o755)
    return {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


class Job:
    """One job: its kind, its state and its script are in files."""

    def __init__(self, folder: Path, number: str) -> None:
        self.number, self.path = number, folder / "jobs" / number

    def read(self) -> dict:
        return json.loads(self.path.with_suffix(".json").read_text())

    def write(self, **changed: object) -> None:
        path = self.path.with_suffix(".json")
        known = json.loads(path.read_text()) if path.exists() else {}
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({**known, **changed}))
        temporary.replace(path)

    def processes(self) -> list[psutil.Process]:
        """Those with its path in their environment, wherever they went."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("FAKE_JOB") == str(self.path):
                    found.append(process)
        return found

    def signal(self, number: int) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def submit(folder: Path, kind: str, command: list[str], *, nodes: list[str], minutes: float, log: str) -> str:
    """Put a command into the queue. Returns the job's number."""
    with locked(folder / "numbers"):
        number = str(1 + len(list((folder / "jobs").glob("*.json"))))
        job = Job(folder, number)
        job.write(kind=kind, state="waits", command=command, nodes=nodes, minutes=minutes, log=log, status=None)
    subprocess.Popen(
        [sys.executable, __file__, str(folder), "run", number],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return number


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(folder: Path, number: str) -> None:
    """Wait for a slot, run the job, end it in time."""
    job = Job(folder, number)
    with contextlib.ExitStack() as held:
        while not any(is_free(folder / f"slot-{slot}", held) for slot in range(SLOTS)):
            if job.path.with_suffix(".delete").exists():
                job.write(state="over", status=271)
                return
            time.sleep(0.05)
        known = job.read()
        hosts = job.path.with_suffix(".hosts")
        # Of Grid Engine: host, slots, queue instance, processors.
        line = "{0} 1 all.q@{0} UNDEFINED\n" if known["kind"] == "sge" else "{}\n"
        hosts.write_text("".join(line.format(node) for node in known["nodes"]))
        variables = {
            "pbs": {**BARE, "PBS_JOBID": f"{number}.fake", "PBS_NODEFILE": str(hosts)},
            "lsf": {**os.environ, "LSB_JOBID": number, "LSB_DJOB_HOSTFILE": str(hosts)},
            "cobalt": {**BARE, "COBALT_JOBID": number, "COBALT_NODEFILE": str(hosts)},
            "sge": {**BARE, "JOB_ID": number, "PE_HOSTFILE": str(hosts), "SGE_ROOT": str(folder)},
        }[known["kind"]]
        job.write(state="runs", started=time.time())
        with open(known["log"], "a") as log:
            process = subprocess.Popen(
                known["command"],
                cwd=HOME,
                env={**variables, "FAKE_JOB": str(job.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ended_by = watch(job, process, time.monotonic() + MINUTE * known["minutes"])
        # Whatever the job left behind.
        job.signal(signal.SIGKILL)
        job.write(state="over", status=ended_by or process.wait())


def is_free(slot: Path, held: contextlib.ExitStack) -> bool:
    file = held.enter_context(slot.open("a"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def watch(job: Job, process: subprocess.Popen, deadline: float) -> int:
    """Wait for the end. Returns what ended the job, or 0: -29 for its walltime, 271 for who deleted it, as in PBS."""
    while process.poll() is None:
        deleted = job.path.with_suffix(".delete").exists()
        if deleted or time.monotonic() > deadline or job.path.with_suffix(".expire").exists():
            if job.read()["kind"] == "cobalt":
                # Cobalt signals the script and what runs on its node; what `ssh` started is cleared away in the end.
                os.killpg(process.pid, signal.SIGTERM)
            else:
                # Grid Engine announces its SIGKILL so with -notify, and sends no SIGTERM.
                job.signal(signal.SIGUSR2 if job.read()["kind"] == "sge" else signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_DELAY_SECONDS)
            job.signal(signal.SIGKILL)
            return 271 if deleted else -29
        time.sleep(0.05)
    return 0


def pbs_qsub(folder: Path, arguments: list[str]) -> None:
    given = {name: value for name, value in itertools.pairwise(arguments) if name in ("-o", "-N", "-q")}
    limits = dict(value.split("=", 1) for name, value in itertools.pairwise(arguments) if name == "-l")
    hours, minutes, seconds = map(int, limits["walltime"].split(":"))
    chunks = int(limits["select"].partition(":")[0])
    if len(given["-N"]) > 15 or limits["place"] != "scatter":
        sys.exit("qsub: illegally formed job identifier")
    if given["-q"] == "nowhere":
        sys.exit("qsub: Unknown queue")
    # PBS takes a copy of the script.
    command = ["/bin/sh", "-c", Path(arguments[-1]).read_text()]
    walltime = 60 * hours + minutes + seconds / 60
    number = submit(folder, "pbs", command, nodes=addresses(chunks), minutes=walltime, log=given["-o"])
    print(f"{number}.fake")


def addresses(nodes: int) -> list[str]:
    return [f"127.0.0.{node + 1}" for node in range(nodes)]


def pbs_qstat(folder: Path, arguments: list[str]) -> None:
    identity = arguments[-1]
    job = Job(folder, identity.partition(".")[0])
    if not job.path.with_suffix(".json").exists():
        print(f"qstat: Unknown Job Id {identity}", file=sys.stderr)
        sys.exit(153)
    known = job.read()
    if known["state"] == "over" and "-x" not in arguments:
        print(f"qstat: {identity} Job has finished, use -x or -H to obtain historical job information", file=sys.stderr)
        sys.exit(35)
    print(f"Job id  Name  User  Time Use S Queue\n{identity}  x  me  00:00:01 {known['state'][0].upper()} workq")
    if "-f" in arguments:
        print(f"    Exit_status = {known['status']}")


def bsub(folder: Path, arguments: list[str]) -> None:
    given = dict(itertools.pairwise(arguments))
    per_host = int(re.search(r"span\[ptile=(\d+)\]", " ".join(arguments))[1])
    nodes = [f"127.0.0.{1 + slot // per_host}" for slot in range(int(given["-n"]))]
    command = ["/bin/sh", "-c", " ".join(arguments[-2:])]
    number = submit(folder, "lsf", command, nodes=nodes, minutes=float(given["-W"]), log=given["-oo"])
    print(f"Job <{number}> is submitted to queue <{given['-q']}>.")


def bjobs(folder: Path, arguments: list[str]) -> None:
    job = Job(folder, arguments[-1])
    if not job.path.with_suffix(".json").exists():
        print(f"Job <{arguments[-1]}> is not found", file=sys.stderr)
        sys.exit(255)
    known = job.read()
    over = "DONE" if known["status"] == 0 else "EXIT"
    print({"waits": "PEND", "runs": "RUN", "over": over}[known["state"]])


def cobalt_qsub(folder: Path, arguments: list[str]) -> None:
    given = dict(itertools.pairwise(arguments))
    script = Path(arguments[-1])
    # It reads the script when the job starts, and starts it by its first line.
    if not os.access(script, os.X_OK) or not script.read_text().startswith("#!"):
        sys.exit(f"command {script} is not executable")
    nodes, log = addresses(int(given["-n"])), given["-o"]
    number = submit(folder, "cobalt", [str(script)], nodes=nodes, minutes=float(given["-t"]), log=log)
    print("job limit warning: none of ours", file=sys.stderr)
    print(number)


def cobalt_qstat(folder: Path, arguments: list[str]) -> None:
    """List jobs that wait or run; of others print nothing."""
    job = Job(folder, arguments[-1])
    if not job.path.with_suffix(".json").exists() or job.read()["state"] == "over":
        sys.exit(1)
    state = {"waits": "queued", "runs": "running"}[job.read()["state"]]
    print(f"JobID  User  WallTime  Nodes  State  Location\n{job.number}  me  00:01:00  1  {state}  None")


def sge_qsub(folder: Path, arguments: list[str]) -> None:
    """As Son of Grid Engine 8.1.9 answers: a copy of the script for the shell of -S, messages, slots by environment."""
    flags = {"-terse", "-cwd", "-notify"}
    assert flags <= set(arguments)
    environment, slots = "smp", 1
    if "-pe" in arguments:
        at = arguments.index("-pe")
        _, environment, slots = (arguments.pop(at) for _ in range(3))
    words = iter([word for word in arguments[:-1] if word not in flags])
    given = dict(zip(words, words, strict=True))
    limits = dict(limit.split("=", 1) for limit in given.pop("-l").split(","))
    if given.get("-q") == "nowhere":
        reason = 'Job was rejected because job requests unknown queue "nowhere"'
    elif given["-N"][0].isdigit() or set(given["-N"]) & set("/:@\\*?"):
        reason = f'denied: "{given["-N"]}" is not a valid object name'
    elif unknown := limits.keys() - {"h_rt", "h_vmem", "gpu"}:
        reason = f'unknown resource "{unknown.pop()}"'
    else:
        reason = None
    if reason:
        sys.exit(f"Unable to run job: {reason}\nExiting.")
    hours, minutes, seconds = map(int, limits["h_rt"].split(":"))
    # One slot on each node, or all on one.
    nodes = addresses({"filled": int(slots), "smp": 1}[environment])
    number = submit(
        folder,
        "sge",
        [given["-S"], "-c", Path(arguments[-1]).read_text()],
        nodes=nodes,
        minutes=60 * hours + minutes + seconds / 60,
        log=given["-o"],
    )
    print(number)


def sge_qstat(folder: Path, arguments: list[str]) -> None:
    assert arguments[0] == "-j"
    job = Job(folder, arguments[1])
    if not job.path.with_suffix(".json").exists() or job.read()["state"] == "over":
        print(f"Following jobs do not exist: \n{arguments[1]}", file=sys.stderr)
        sys.exit(1)
    print(f"{'=' * 62}\njob_number:                 {job.number}")


def qrsh(folder: Path, arguments: list[str]) -> None:
    """Only to a node of the job, with Grid Engine's variables alone."""
    assert arguments[:2] == ["-inherit", "-nostdin"]
    assert arguments[2] in Path(os.environ["PE_HOSTFILE"]).read_text()
    elsewhere(arguments[3:], JOB_ID=os.environ["JOB_ID"])


def delete(folder: Path, arguments: list[str]) -> None:
    for identity in arguments:
        Job(folder, identity.partition(".")[0]).path.with_suffix(".delete").touch()


def pbsdsh(folder: Path, arguments: list[str]) -> None:
    """PBS hands neither environment nor folder on."""
    assert arguments[0] == "-n" and arguments[2] == "--"  # noqa: PT018
    elsewhere(arguments[3:], PBS_NODENUM=arguments[1], PBS_JOBID=os.environ["PBS_JOBID"])


def ssh(folder: Path, arguments: list[str]) -> None:
    """What comes after the host is one line for the shell there. It ends with SIGTERM unless that is ignored."""
    assert arguments[:2] == ["-o", "BatchMode=yes"]
    elsewhere(["/bin/sh", "-c", " ".join(arguments[3:])])


def elsewhere(command: list[str], **environment: str) -> None:
    job = os.environ["FAKE_JOB"]
    given = {**BARE, **environment, "FAKE_JOB": job}
    sys.exit(subprocess.run(command, cwd=HOME, env=given, start_new_session=True, check=False).returncode)


def blaunch(folder: Path, arguments: list[str]) -> None:
    sys.exit(subprocess.run(arguments[1:], check=False).returncode)


def main() -> None:
    folder, function, *arguments = sys.argv[1:]
    if function == "run":
        run(Path(folder), arguments[0])
        return
    of_pbs, of_lsf, of_cobalt = (pbs_qsub, pbs_qstat, pbsdsh), (bsub, bjobs, blaunch), (cobalt_qsub, cobalt_qstat, ssh)
    named = (*of_pbs, *of_lsf, *of_cobalt, sge_qsub, sge_qstat, qrsh, delete)
    next(each for each in named if each.__name__ == function)(Path(folder), arguments)


if __name__ == "__main__":
    main()
