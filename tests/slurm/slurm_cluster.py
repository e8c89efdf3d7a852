"""A real Slurm on this machine: Debian's packages, several slurmd on one host, everything in one folder.

Outside that folder there are only the two links in /etc/slurm, which Snakemake's plugin needs: it removes SLURM_CONF
from the environment of its jobs. Daemons are children of this process and die with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

ETC = Path("/etc/slurm")
LINKS = ("slurm.conf", "gres.conf")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sacct", "scancel", "scontrol")
DATABASE_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "mariadb", "sacctmgr")
NODES = {"cpu1": "", "gpu1": " Gres=gpu:2 Feature=new", "gpu2": " Gres=gpu:2 Feature=new", "gpu3": " Gres=gpu:2"}
MARK = "BERTLINE_TEST_CLUSTER"  # in the environment of every daemon, so that nothing of them is left behind
PR_SET_PDEATHSIG = 1

SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=localhost
SlurmctldPort={slurmctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A job that is put back into the queue waits until its credentials have expired.
AuthInfo=socket={root}/run/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
# No control groups: they are not there in a container.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_min_interval=100000,batch_sched_delay=0,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=15
SlurmdTimeout=20
SlurmctldTimeout=30
InactiveLimit=0
MinJobAge=300
MessageTimeout=30
GresTypes=gpu
{accounting}
{nodes}
PartitionName=DEFAULT MaxTime=1-00:00:00 DefaultTime=00:30:00 DefMemPerCPU=500 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=cpu Nodes=ALL Default=YES
PartitionName=gpu Nodes=gpu[1-3] PreemptMode=REQUEUE GraceTime=40
PartitionName=old Nodes=gpu3 PreemptMode=REQUEUE GraceTime=40
PartitionName=urgent Nodes=gpu[1-3] PriorityTier=100
"""
NODE = (
    "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 Boards=1 SocketsPerBoard=1"
    " CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000{kind}"
)
# sacct and sacctmgr find munge only through the "password".
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={slurmdbd}
AccountingStoragePass={root}/run/munge.socket
AccountingStorageTRES=gres/gpu
"""
SLURMDBD_CONF = """\
DbdHost=localhost
DbdPort={slurmdbd}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/run/munge.socket
LogFile={root}/log/slurmdbd.log
PidFile={root}/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={mariadb}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""
MY_CNF = """\
[mysqld]
datadir={root}/db
socket={root}/run/mysqld.sock
pid-file={root}/run/mysqld.pid
log-error={root}/log/mysqld.log
bind-address=127.0.0.1
port={mariadb}
user=root
skip-name-resolve
innodb_buffer_pool_size=64M
innodb_log_file_size=16M
innodb_lock_wait_timeout=900
innodb_flush_log_at_trx_commit=0
max_allowed_packet=16M
"""
GRES_CONF = "AutoDetect=off\nNodeName=gpu[1-3] Name=gpu File={root}/dev/gpu[0-1]\n"


class Cluster:
    """A running cluster.

    Attributes:
        root: its folder.
        accounting: whether it keeps accounts.
        as_node: a command that runs another one as on a machine of its own, before the slurmd of each node.
    """

    def __init__(self, root: Path, environment: dict[str, str], *, accounting: bool, as_node: Sequence[str]) -> None:
        self.root, self.accounting, self.as_node = root, accounting, as_node
        self._environment = environment
        self._daemons: dict[str, subprocess.Popen] = {}

    def start(self, name: str, *command: str) -> None:
        """Start a daemon in the foreground, as a child of this process that dies with it."""
        log = (self.root / "log" / f"{name}.out").open("ab")
        self._daemons[name] = subprocess.Popen(
            command,
            env=self._environment,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        log.close()

    def check(self) -> None:
        """Raise if a daemon has ended."""
        for name, process in self._daemons.items():
            if process.poll() is not None:
                told = (self.root / "log" / f"{name}.out").read_text() + self.log(name)
                raise RuntimeError(f"{name} ended with status {process.returncode}:\n{told[-3000:]}")

    def log(self, name: str) -> str:
        path = self.root / "log" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start_node(self, name: str) -> None:
        self.start(f"slurmd.{name}", *self.as_node, shutil.which("slurmd") or "slurmd", "-D", "-N", name)

    def stop_daemon(self, name: str) -> None:
        """Stop slurmctld or slurmdbd, as for an upgrade."""
        process = self._daemons.pop(name)
        process.terminate()
        process.wait(60)

    def signal_daemon(self, name: str, number: signal.Signals) -> None:
        self._daemons[name].send_signal(number)

    def start_daemon(self, name: str) -> None:
        self.start(name, name, "-D")

    def kill_node(self, name: str) -> None:
        """Leave the state after a power cut: neither slurmd nor anything it started runs, and nothing reports it."""
        self._daemons.pop(f"slurmd.{name}").kill()
        tasks, watchers = [], set()
        for process in processes_of(self.root):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURMD_NODENAME") == name:
                    tasks.append(process)
                    watchers |= {parent for parent in process.parents() if parent.name().startswith("slurmstepd")}
        for process in [*watchers, *tasks]:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def stop(self) -> None:
        """End jobs and daemons, and whatever is left of them."""
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(["scancel", "--user=root", "--signal=KILL"], timeout=10, capture_output=True, check=False)
            subprocess.run(["scancel", "--user=root"], timeout=10, capture_output=True, check=False)
        # The database last: the others write to it.
        for process in reversed(self._daemons.values()):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in processes_of(self.root):
            with contextlib.suppress(psutil.Error):
                process.kill()


def processes_of(root: Path) -> list[psutil.Process]:
    """Every process that a daemon of the cluster started, and the daemons."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK) == str(root):
                found.append(process)
    return found


def trainers_of(root: Path) -> list[tuple[psutil.Process, dict[str, str]]]:
    """The trainers that run on the cluster's nodes, each with its environment."""
    found = []
    for process in processes_of(root):
        with contextlib.suppress(psutil.Error):
            if any(word.endswith("pretrain.py") for word in process.cmdline()):
                found.append((process, process.environ()))
    return found


def why_not(*, accounting: bool) -> str | None:
    """Why no cluster can be brought up here, or None."""
    missing = [program for program in PROGRAMS + DATABASE_PROGRAMS * accounting if shutil.which(program) is None]
    if os.geteuid() != 0:
        return "a test cluster needs root"
    if missing:
        return f"a test cluster needs {', '.join(missing)} (see tests/slurm/packages.txt)"
    for name in LINKS:
        link = ETC / name
        if link.exists() or (link.is_symlink() and "bertline-slurm-" not in os.readlink(link)):
            return f"{link} is there: this machine has a Slurm of its own, or another test runs"
    return None


@contextlib.contextmanager
def running_cluster(*, accounting: bool, as_node: Sequence[str] = ()) -> Iterator[Cluster]:
    """Bring a cluster up, wait until every node is idle, and take it down in the end."""
    root = Path(tempfile.mkdtemp(prefix="bertline-slurm-", dir="/tmp"))  # sockets want a short path
    root.chmod(0o755)
    cluster = Cluster(root, {**os.environ, MARK: str(root)}, accounting=accounting, as_node=as_node)
    os.environ[MARK] = str(root)
    try:
        _write_files(root, accounting=accounting)
        _start(cluster)
        yield cluster
    finally:
        cluster.stop()
        for name in LINKS:
            (ETC / name).unlink(missing_ok=True)
        os.environ.pop(MARK)
        # A process that was just killed may still have a file in its hands.
        shutil.rmtree(root, ignore_errors=True)


def _write_files(root: Path, *, accounting: bool) -> None:
    for folder in ("run", "log", "state", "db", "etc", "dev", *(f"spool/{node}" for node in NODES)):
        (root / folder).mkdir(parents=True)
    ports = dict(zip(("slurmctld", "slurmdbd", "mariadb", *NODES), _free_ports(3 + len(NODES)), strict=True))
    nodes = [NODE.format(name=name, port=ports[name], kind=kind) for name, kind in NODES.items()]
    accounts = ACCOUNTING if accounting else "AccountingStorageType=accounting_storage/none"
    values = {"root": root, **ports, "nodes": "\n".join(nodes), "accounting": accounts.format(root=root, **ports)}
    texts = {
        "slurm.conf": SLURM_CONF,
        "gres.conf": GRES_CONF,
        "slurmdbd.conf": SLURMDBD_CONF,
        "my.cnf": MY_CNF,
    }
    for name, text in texts.items():
        (root / "etc" / name).write_text(text.format(**values))
        (root / "etc" / name).chmod(0o600 if name == "slurmdbd.conf" else 0o644)
    (root / "etc/munge.key").write_bytes(secrets.token_bytes(1024))
    (root / "etc/munge.key").chmod(0o600)
    # A GPU is a device file: these are /dev/null by another name.
    for number in range(2):
        os.mknod(root / f"dev/gpu{number}", 0o020666, os.makedev(1, 3))
    ETC.mkdir(exist_ok=True)
    for name in LINKS:
        (ETC / name).unlink(missing_ok=True)
        (ETC / name).symlink_to(root / "etc" / name)


def _start(cluster: Cluster) -> None:
    root = cluster.root
    files = {"key-file": "etc/munge.key", "socket": "run/munge.socket", "pid-file": "run/munged.pid"}
    files |= {"log-file": "log/munged.log", "seed-file": "run/munged.seed"}
    options = [f"--{option}={root / path}" for option, path in files.items()]
    cluster.start("munged", "munged", "--foreground", "--force", *options)
    wait_until((root / "run/munge.socket").exists, "munge", cluster)
    if cluster.accounting:
        _start_accounting(cluster)
    cluster.start_daemon("slurmctld")
    for name in NODES:
        cluster.start_node(name)
    wait_until(lambda: len(nodes_in_state("idle")) == len(NODES), "idle nodes", cluster)


def _start_accounting(cluster: Cluster) -> None:
    root = cluster.root
    defaults = f"--defaults-file={root}/etc/my.cnf"
    install = [
        "mariadb-install-db",
        defaults,
        "--user=root",
        "--skip-test-db",
        "--auth-root-authentication-method=normal",
    ]
    subprocess.run(install, capture_output=True, check=True)
    cluster.start("mariadbd", "mariadbd", defaults)
    mariadb = ["mariadb", f"--socket={root}/run/mysqld.sock", "--user=root", "--execute"]
    user = "slurm@'127.0.0.1'"
    create = f"create database slurm; create user {user} identified by 'slurm'; grant all on slurm.* to {user};"
    wait_until(lambda: succeeds(*mariadb, "select 1"), "MariaDB", cluster)
    subprocess.run([*mariadb, create], capture_output=True, check=True)
    # slurmdbd looks for its configuration beside slurm.conf, and /etc is not ours.
    cluster._environment["SLURM_CONF"] = str(root / "etc/slurm.conf")
    cluster.start_daemon("slurmdbd")
    wait_until(lambda: succeeds("sacctmgr", "--noheader", "list", "cluster"), "slurmdbd", cluster)
    for entry in (
        "cluster lab",
        "account bert Description=bert Organization=lab Cluster=lab",
        "user root Account=bert Cluster=lab DefaultAccount=bert",
    ):
        subprocess.run(["sacctmgr", "--immediate", "add", *entry.split()], capture_output=True, check=True)


def nodes_in_state(state: str) -> set[str]:
    listed = subprocess.run(
        ["sinfo", "--noheader", "--states", state, "--Node", "--format=%N"], capture_output=True, text=True, check=False
    )
    return set(listed.stdout.split())


def wait_until(
    holds: Callable[[], object], what: str, cluster: Cluster | None = None, *, seconds: float = 300.0
) -> None:
    """Look until `holds`; a busy machine gets the time it needs."""
    deadline = time.monotonic() + seconds
    while not holds():
        if cluster is not None:
            cluster.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, timeout=5, capture_output=True, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
