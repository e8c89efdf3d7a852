"""A real Grid Engine on this machine: Debian's packages (Son of Grid Engine 8.1.9), one host, everything in a folder.

The daemons are children of this process and die with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
NOTIFY_SECONDS = 40  # from SIGUSR2 to SIGKILL
BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {root}/default/common;{root}/spool/qmaster
binary_path {programs}
qmaster_spool_dir {root}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
# Of the default configuration.
CHANGED = {
    "execd_spool_dir": "{root}/spool/execd",
    "mailer": "/bin/true",
    "min_uid": "0",
    "min_gid": "0",
    "gid_range": "{groups}",
    "load_report_time": "00:00:02",
    "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00",
}
ENVIRONMENT = """\
pe_name {name}
slots 99
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {rule}
control_slaves TRUE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
QUEUE = {
    "qname": "large",
    "hostlist": "localhost",
    "pe_list": "smp filled",
    "slots": "4",
    "shell": "/bin/sh",
    "load_thresholds": "NONE",
    "tmpdir": "{root}/tmp",
    "notify": f"00:00:{NOTIFY_SECONDS}",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "job_load_adjustments": "NONE",
}


def why_not() -> str | None:
    """The reason why it cannot run here."""
    if not (PROGRAMS / "sge_qmaster").exists():
        return "needs Grid Engine (Debian: apt install gridengine-master gridengine-exec gridengine-client)"
    return None if os.geteuid() == 0 else "needs root, as which Grid Engine's daemon starts jobs"


@contextlib.contextmanager
def running(root: Path) -> Iterator[dict[str, str]]:
    """Start it; yields the variables with which its commands find it."""
    common = root / "default/common"
    for folder in (common, root / "spool/qmaster/job_scripts", root / "spool/execd", root / "tmp"):
        folder.mkdir(parents=True)
    (root / "util").symlink_to(SHARED / "util")
    (root / "utilbin").mkdir()
    (root / "utilbin/lx-amd64").symlink_to(PROGRAMS)  # has qrsh_starter
    ports = [str(free_port()) for _ in range(2)]
    environment = {
        **dict(zip(("SGE_QMASTER_PORT", "SGE_EXECD_PORT"), ports, strict=True)),
        "SGE_ROOT": str(root),
        "SGE_CELL": "default",
        "LD_LIBRARY_PATH": f"{PROGRAMS}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        "PATH": f"{PROGRAMS}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    bare = {**os.environ, **environment}

    def call(*command: str | Path) -> str:
        done = subprocess.run([*command], env=bare, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def configure(option: str, shown: str, changed: dict[str, str]) -> None:
        """Change values in what qconf shows, and give it back."""
        lines = [f"{name} {changed.get(name, rest)}" for name, rest in pairs(shown)]
        (root / "given").write_text("\n".join(lines) + "\n")
        call("qconf", option, root / "given")

    (common / "act_qmaster").write_text("localhost\n")
    (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
    (common / "bootstrap").write_text(BOOTSTRAP.format(root=root, programs=PROGRAMS))
    # A group marks the processes of a job, also for another Grid Engine of this machine.
    groups = f"{10 * int(ports[0])}-{10 * int(ports[0]) + 9}"
    changed = {name: value.format(root=root, groups=groups) for name, value in CHANGED.items()}
    default = pairs((SHARED / "default-configuration").read_text())
    (root / "configuration").write_text("".join(f"{name} {changed.get(name, rest)}\n" for name, rest in default))
    call(PROGRAMS / "spoolinit", "classic", "libspoolc", f"{common};{root}/spool/qmaster", "init")
    call(PROGRAMS / "spooldefaults.bin", "configuration", root / "configuration")
    call(PROGRAMS / "spooldefaults.bin", "complexes", SHARED / "util/resources/centry")
    call(PROGRAMS / "spooldefaults.bin", "usersets", SHARED / "util/resources/usersets")
    call(PROGRAMS / "spooldefaults.bin", "managers", "root")
    with contextlib.ExitStack() as daemons:

        def begin(name: str) -> None:
            # SGE_ND: in the foreground.
            daemon = subprocess.Popen(
                [PROGRAMS / name], env={**bare, "SGE_ND": "1"}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            daemons.callback(end, daemon)

        log = daemons.enter_context((root / "log").open("w"))
        begin("sge_qmaster")
        deadline = time.monotonic() + 60
        while subprocess.run(["qconf", "-sh"], env=bare, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, (root / "log").read_text()
            time.sleep(0.2)
        call("qconf", "-as", "localhost")
        begin("sge_execd")
        for name, rule in (("smp", "$pe_slots"), ("filled", "1")):
            (root / "given").write_text(ENVIRONMENT.format(name=name, rule=rule))
            call("qconf", "-Ap", root / "given")
        configure("-Aq", call("qconf", "-sq"), {name: value.format(root=root) for name, value in QUEUE.items()})
        configure("-Msconf", call("qconf", "-ssconf"), SCHEDULER)
        while "localhost" not in (shown := call("qhost")) or shown.splitlines()[-1].split()[6] == "-":
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)
        yield environment


def pairs(text: str) -> list[tuple[str, str]]:
    """Names and values of one of Grid Engine's configurations."""
    joined = text.replace("\\\n", " ")
    lines = [line.split(None, 1) for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(line[0], line[1] if len(line) > 1 else "") for line in lines if line[0] != "Version:"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        daemon.wait(10)
    daemon.kill()
    daemon.wait()
