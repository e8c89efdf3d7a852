"""Limits of a job or a container on memory and cores, in made-up folders of cgroups and in a real cgroup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bertline.limits import available_cores, available_memory, cgroups_of

UNLIMITED = 9223372036854771712  # of version 1
MIB = 1 << 20
# What a job in a cgroup finds. Its peak of memory is more than half of the limit.
JOB = """
import json, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
import torch
from bertline.planning.sweep import by_micro_batch
from bertline.proposal.machine import this_machine
from bertline.training.distributed.process_group import Group
from bertline.training.micro_batch import _has_memory_for_twice

taken = b"x" * 500_000_000
phase = {"settings": {"global_batch_size": 8, "sequence_length": 32}}
def trial(recipe, processes, tokens):
    return {"fits": True, "device": "cpu", "memory_bytes": 10**9 + tokens}
found = {
    "memory": this_machine(0).memory,
    "trains_larger": _has_memory_for_twice(Group(0, 1, torch.device("cpu"))),
    "swept": [row["fits"] for row in by_micro_batch(phase, [1, 2, 4], processes=1, trial=trial)],
}
print(json.dumps(found))
"""


def write_files(folder: Path, **contents: object) -> None:
    """Write files, whose names have a dot where the arguments have two underscores."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def memory_v2(folder: Path, limit: object, usage: int, cache: int = 0) -> None:
    stat = f"anon {usage - cache}\ninactive_file {cache}\nactive_file 0"
    write_files(folder, memory__max=limit, memory__current=usage, memory__stat=stat)


def memory_v1(folder: Path, limit: int, usage: int, cache: int = 0) -> None:
    stat = f"inactive_file 0\ntotal_inactive_file {cache}"
    write_files(folder, memory__limit_in_bytes=limit, memory__usage_in_bytes=usage, memory__stat=stat)


def own_of(tmp_path: Path, *lines: str) -> Path:
    own = tmp_path / "own"
    own.write_text("".join(f"{line}\n" for line in lines))
    return own


def test_without_cgroups_the_limits_are_the_machines(tmp_path: Path) -> None:
    assert available_cores(tmp_path, tmp_path / "absent") == len(os.sched_getaffinity(0))
    assert available_memory(tmp_path, tmp_path / "absent") > 100 * MIB
    own = own_of(tmp_path, "0::/user.slice")
    memory_v2(tmp_path / "user.slice", "max", 5 * MIB)
    write_files(tmp_path / "user.slice", cpu__max="max 100000")
    assert available_cores(tmp_path, own) == len(os.sched_getaffinity(0))
    assert available_memory(tmp_path, own) > 100 * MIB


def test_each_parent_limits_the_memory(tmp_path: Path) -> None:
    own = own_of(tmp_path, "0::/slurm/job_1/step_0")
    memory_v2(tmp_path / "slurm/job_1/step_0", "max", MIB)
    memory_v2(tmp_path / "slurm/job_1", 20 * MIB, 5 * MIB)
    memory_v2(tmp_path / "slurm", 30 * MIB, 20 * MIB)
    assert available_memory(tmp_path, own) == 10 * MIB


def test_pages_that_the_kernel_would_drop_are_available(tmp_path: Path) -> None:
    memory_v2(tmp_path / "2/job", 20 * MIB, 15 * MIB, cache=8 * MIB)
    assert available_memory(tmp_path / "2", own_of(tmp_path, "0::/job")) == 13 * MIB
    memory_v1(tmp_path / "1/memory/job", 20 * MIB, 15 * MIB, cache=8 * MIB)
    assert available_memory(tmp_path / "1", own_of(tmp_path, "9:cpuset:/", "4:memory:/job", "0::/")) == 13 * MIB


def test_the_limits_of_version_1_are_by_controller(tmp_path: Path) -> None:
    own = own_of(tmp_path, "11:cpu,cpuacct:/group", "4:memory:/job/step", "1:name=systemd:/a:b", "0::/job")
    memory_v1(tmp_path / "memory/job/step", UNLIMITED, MIB)
    memory_v1(tmp_path / "memory/job", 20 * MIB, 18 * MIB)
    memory_v1(tmp_path / "memory", UNLIMITED, 30 * MIB)
    memory_v1(tmp_path / "memory/group", MIB, MIB)
    write_files(tmp_path / "cpu/group", cpu__cfs_quota_us=50_000, cpu__cfs_period_us=100_000)
    write_files(tmp_path / "cpu", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100_000)
    assert available_memory(tmp_path, own) == 2 * MIB
    assert available_cores(tmp_path, own) == 1


def test_in_a_container_the_paths_may_be_those_of_the_host(tmp_path: Path) -> None:
    memory_v1(tmp_path / "1/memory", 20 * MIB, 18 * MIB)
    assert available_memory(tmp_path / "1", own_of(tmp_path, "4:memory:/docker/0123")) == 2 * MIB
    memory_v2(tmp_path / "2", 20 * MIB, 17 * MIB)
    assert available_memory(tmp_path / "2", own_of(tmp_path, "0::/../outside")) == 3 * MIB


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4), ("50000 100000", 1), ("250000 100000", 3), ("6400000 100000", 4)]
)
def test_a_part_of_a_core_counts_as_one(
    tmp_path: Path, quota: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    write_files(tmp_path / "pod/container", cpu__max="max 100000")
    write_files(tmp_path / "pod", cpu__max=quota)
    assert available_cores(tmp_path, own_of(tmp_path, "0::/pod/container")) == cores


def test_more_usage_than_the_limit_leaves_nothing(tmp_path: Path) -> None:
    memory_v2(tmp_path / "job", MIB, 2 * MIB)
    assert available_memory(tmp_path, own_of(tmp_path, "0::/job")) == 0


def test_the_machine_may_have_less_than_the_limit(tmp_path: Path) -> None:
    memory_v2(tmp_path / "job", 1 << 60, MIB)
    assert available_memory(tmp_path, own_of(tmp_path, "0::/job")) <= psutil.virtual_memory().total


@pytest.fixture
def limited() -> Iterator[Path]:
    """A real cgroup whose memory is 1.2 GB; tests that need it are skipped where none can be made."""
    for parent in cgroups_of("memory"):
        cgroup = parent / f"bertline-test-{os.getpid()}"
        try:
            cgroup.mkdir()
        except OSError:
            continue
        try:
            [limit] = [cgroup / name for name in ("memory.max", "memory.limit_in_bytes") if (cgroup / name).exists()]
            limit.write_text("1200000000")
            subprocess.run(["sh", "-c", "echo 0 > $1/cgroup.procs", "sh", cgroup], check=True, capture_output=True)
        except (ValueError, OSError, subprocess.CalledProcessError):
            cgroup.rmdir()
            continue
        yield cgroup
        cgroup.rmdir()
        return
    pytest.skip("no cgroup with a limit on its memory can be made here")


def test_a_job_plans_within_the_memory_of_its_cgroup(limited: Path) -> None:
    done = subprocess.run([sys.executable, "-c", JOB, limited], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0 < found["memory"] < 700_000_000
    assert not found["trains_larger"]
    assert found["swept"] == [True, True, False]
