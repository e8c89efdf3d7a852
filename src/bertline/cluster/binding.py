"""Binding of a node's processes to sockets or NUMA nodes, with numactl: cores, and memory next to them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from bertline.console import BertlineError

Bind = Literal["none", "socket", "numa"]

SYSTEM = Path("/sys/devices/system")


class Domain(NamedTuple):
    """Cores that share memory, and the NUMA nodes of that memory. A core has one number for each of its threads."""

    cores: tuple[tuple[int, ...], ...]
    memory: tuple[int, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(cpu for core in self.cores for cpu in core)


def bound(command: list[str], bind: Bind, local_rank: int, processes: int) -> list[str]:
    """Return `command` with numactl before it, for one of a node's `processes`.

    Processes are divided among the sockets or NUMA nodes in order; several on one of them divide its cores. Raises
    BertlineError if numactl is missing or a process would have no core.
    """
    if bind == "none":
        return command
    if shutil.which("numactl") is None:
        raise BertlineError(
            f"bind {bind}: numactl is not installed; install it (Debian: apt install numactl), or bind none"
        )
    own = share(domains(bind, os.sched_getaffinity(0)), local_rank, processes)
    cpus, memory = (",".join(map(str, numbers)) for numbers in (own.cpus, own.memory))
    return ["numactl", f"--physcpubind={cpus}", f"--membind={memory}", *command]


def share(found: Sequence[Domain], local_rank: int, processes: int) -> Domain:
    """Return the part of a node's domains for the process `local_rank`. Raises BertlineError if it is empty.

    No two processes share a core, unless there are more processes than cores: then they divide its threads.
    """
    if processes <= len(found):
        # Whole domains: with fewer processes than domains, several for each.
        first, last = (len(found) * rank // processes for rank in (local_rank, local_rank + 1))
        own = found[first:last]
        cores = tuple(core for one in own for core in one.cores)
        return Domain(cores, tuple(node for one in own for node in one.memory))
    domain = local_rank * len(found) // processes
    sharing = [rank for rank in range(processes) if rank * len(found) // processes == domain]
    cores, place = found[domain].cores, sharing.index(local_rank)
    if len(cores) < len(sharing):
        cores = tuple((cpu,) for cpu in found[domain].cpus)
    own_cores = cores[len(cores) * place // len(sharing) : len(cores) * (place + 1) // len(sharing)]
    if not own_cores:
        raise BertlineError(
            f"{processes} processes are more than the node's {len(found)} sockets or NUMA nodes have cores; lower it"
        )
    return Domain(own_cores, found[domain].memory)


def domains(bind: Bind, allowed: set[int], system: Path = SYSTEM) -> list[Domain]:
    """Return the sockets or NUMA nodes of this machine with `allowed` cores, by number.

    Args:
        system: the folder in sysfs: https://docs.kernel.org/admin-guide/cputopology.html, and for NUMA nodes
            https://docs.kernel.org/admin-guide/mm/numaperf.html
    """
    nodes = {
        int(path.name.removeprefix("node")): parse_cpu_list((path / "cpulist").read_text()) & allowed
        for path in system.glob("node/node[0-9]*")
    } or {0: set(allowed)}
    if bind == "numa":
        return [Domain(_cores_of(cpus, system), (node,)) for node, cpus in sorted(nodes.items()) if cpus]
    sockets: dict[int, set[int]] = {}
    for cpu in allowed:
        package = 0  # of a machine that does not show its sockets, as some virtual ones
        with suppress(FileNotFoundError):
            package = int((system / f"cpu/cpu{cpu}/topology/physical_package_id").read_text())
        sockets.setdefault(package, set()).add(cpu)
    return [
        Domain(_cores_of(cpus, system), tuple(node for node, of_node in sorted(nodes.items()) if of_node & cpus))
        for _, cpus in sorted(sockets.items())
    ]


def _cores_of(cpus: set[int], system: Path) -> tuple[tuple[int, ...], ...]:
    """Group `cpus` by the core whose threads they are. Their numbers may lie apart, such as 0 and 16 of one core.

    Each is one of its own on a machine that does not show the threads, as some virtual ones.
    """
    cores = set()
    for cpu in cpus:
        threads = {cpu}
        with suppress(FileNotFoundError):
            threads = parse_cpu_list((system / f"cpu/cpu{cpu}/topology/thread_siblings_list").read_text()) & cpus
        cores.add(tuple(sorted(threads)))
    return tuple(sorted(cores))


def parse_cpu_list(text: str) -> set[int]:
    """Parse numbers and ranges separated by commas, such as 0-3,8-11."""
    cpus: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus
