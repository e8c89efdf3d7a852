"""Memory and cores that this process may use: those of the machine, within the limits of its job or container."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
# Of cgroups of version 2 and of version 1: the limit, the usage, and in memory.stat the part of the usage that the
# kernel frees when memory is needed: pages of files that were not read lately.
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the bytes that this process can still allocate, together with the others of its cgroups.

    Args:
        root: folder where cgroups are mounted.
        own: file with the cgroups of this process.
    """
    left = [bytes_left for cgroup in cgroups_of("memory", root, own) for bytes_left in _memory_left(cgroup)]
    return max(0, min([psutil.virtual_memory().available, *left]))


def available_cores(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the number of cores that this process may run on: the time of a part of a core counts as one.

    Args:
        root: folder where cgroups are mounted.
        own: file with the cgroups of this process.
    """
    quotas = [math.ceil(quota) for cgroup in cgroups_of("cpu", root, own) for quota in _cpu_quotas(cgroup)]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def cgroups_of(controller: str, root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of those that it is in, each of which may have a limit.

    Some may not exist: in a container `own` may have the host's paths, and `root` is the container's cgroup.
    """
    with suppress(OSError):  # a system without cgroups
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            # Version 1 has a hierarchy for each controller; in version 2 there is one, whose line names none.
            top = root / controller if controllers else root
            cgroup = top / path.lstrip("/")
            yield from (folder for folder in (cgroup, *cgroup.parents) if folder.is_relative_to(top))


def _memory_left(cgroup: Path) -> Iterator[int]:
    for limit, usage, cache in MEMORY_FILES:
        with suppress(OSError, ValueError):  # there is no such file, or the limit is "max"
            most, used = (int((cgroup / name).read_text(encoding="utf-8")) for name in (limit, usage))
            statistics = dict(
                line.split() for line in (cgroup / "memory.stat").read_text(encoding="utf-8").splitlines()
            )
            yield most - used + int(statistics.get(cache, 0))


def _cpu_quotas(cgroup: Path) -> Iterator[float]:
    with suppress(OSError, ValueError):  # there is no such file, or the quota is "max"
        quota, period = map(int, (cgroup / "cpu.max").read_text(encoding="utf-8").split())
        yield quota / period
    with suppress(OSError, ValueError):
        quota, period = (
            int((cgroup / f"cpu.cfs_{name}_us").read_text(encoding="utf-8")) for name in ("quota", "period")
        )
        if quota > 0:  # -1 is no limit
            yield quota / period
