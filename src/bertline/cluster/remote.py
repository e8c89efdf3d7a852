"""Shell scripts on other hosts over ssh, without a password, in folders that the hosts share."""

from __future__ import annotations

import shlex
import subprocess
import sys

from bertline.cluster import scheduler_jobs
from bertline.cluster.processes import start
from bertline.console import BertlineError

# ServerAliveInterval: a host that does not answer for 45 s is lost.
SSH = (
    *("ssh", "-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "ClearAllForwardings=yes"),
    *("-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15"),
)
PRINT_FREE_PORT = "from bertline.cluster.ranks import free_port; print(free_port())"


def start_on_host(host: str, command: list[str]) -> subprocess.Popen[bytes]:
    """Start `command` on `host`, in this folder and with the variables of a job.

    Its standard input stays open, for the signals of `wait_for_all`, and ends with the connection.
    """
    script = scheduler_jobs.node_script(command)
    return start(_ssh(host, script), for_another_node=True, text=script)


def free_port_of(host: str) -> int:
    """Return a TCP port that no process of `host` listens on. Raises BertlineError if the host does not answer."""
    script = scheduler_jobs.node_script([sys.executable, "-c", PRINT_FREE_PORT])
    done = subprocess.run(_ssh(host, script), input=script, capture_output=True, text=True, check=False)  # noqa: S603
    port = done.stdout.strip().rpartition("\n")[2]  # a shell's start-up files may print as well
    if done.returncode or not port.isdigit():
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise BertlineError(
            f"--hosts: {host}: {said}; needed are ssh without a password (`ssh -o BatchMode=yes {host} true`), "
            f"this folder and {sys.executable}"
        )
    return int(port)


def _ssh(host: str, script: str) -> list[str]:
    # The script holds the job's token, and the users of both machines can read the words of a command. A shell that
    # reads its script from standard input may read too far, and the login shell there may be any.
    read = f'eval "$(dd bs=1 count={len(script.encode())} 2> /dev/null)"'
    return [*SSH, "--", host, f"exec /bin/sh -c {shlex.quote(read)}"]
