"""Processes bound to sockets and NUMA nodes: each has cores of its own and the memory next to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.cluster import binding
from bertline.cluster.binding import Domain, bound, domains, parse_cpu_list, share
from bertline.console import BertlineError


@pytest.fixture
def two_sockets(tmp_path: Path) -> Path:
    """The files of sysfs on a machine with two sockets of two NUMA nodes each, 16 cores with numbers that alternate."""
    for cpu in range(16):
        write_topology(tmp_path, cpu, socket=cpu % 2, siblings=str(cpu))
    write_nodes(tmp_path, "0,2,4,6", "8,10,12,14", "1,3,5,7", "9,11,13,15")
    return tmp_path


@pytest.fixture
def two_threads(tmp_path: Path) -> Path:
    """The files of sysfs on a machine with two sockets of eight cores, each with two threads: 0 and 16, 1 and 17..."""
    for cpu in range(32):
        write_topology(tmp_path, cpu, socket=cpu % 16 // 8, siblings=f"{cpu % 16},{cpu % 16 + 16}")
    write_nodes(tmp_path, "0-7,16-23", "8-15,24-31")
    return tmp_path


def write_topology(system: Path, cpu: int, *, socket: int, siblings: str) -> None:
    topology = system / f"cpu/cpu{cpu}/topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text(f"{socket}\n")
    (topology / "thread_siblings_list").write_text(f"{siblings}\n")


def write_nodes(system: Path, *lists: str) -> None:
    for node, cpus in enumerate(lists):
        (system / f"node/node{node}").mkdir(parents=True)
        (system / f"node/node{node}/cpulist").write_text(f"{cpus}\n")


def one_thread_each(cpus: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    return tuple((cpu,) for cpu in cpus)


def test_a_machine_that_does_not_show_the_threads_of_its_cores_is_bound_by_cpus(tmp_path: Path) -> None:
    write_nodes(tmp_path, "0-1", "2-3")
    assert domains("numa", {0, 1, 2, 3}, tmp_path) == [
        Domain(one_thread_each([0, 1]), (0,)),
        Domain(one_thread_each([2, 3]), (1,)),
    ]


def test_a_machine_that_does_not_show_its_sockets_has_one(tmp_path: Path) -> None:
    assert domains("socket", {0, 1}, tmp_path / "absent") == [Domain(one_thread_each([0, 1]), (0,))]
    write_nodes(tmp_path, "0-1", "2-3")
    assert domains("socket", {0, 1, 2, 3}, tmp_path) == [Domain(one_thread_each([0, 1, 2, 3]), (0, 1))]


def test_sockets_have_the_memory_of_their_numa_nodes(two_sockets: Path) -> None:
    everything = set(range(16))
    assert domains("socket", everything, two_sockets) == [
        Domain(one_thread_each(range(0, 16, 2)), (0, 1)),
        Domain(one_thread_each(range(1, 16, 2)), (2, 3)),
    ]
    assert [domain.memory for domain in domains("numa", everything, two_sockets)] == [(0,), (1,), (2,), (3,)]
    # A job may have a part of the machine.
    assert domains("numa", {0, 2, 9}, two_sockets) == [
        Domain(one_thread_each([0, 2]), (0,)),
        Domain(one_thread_each([9]), (3,)),
    ]


@pytest.mark.parametrize("bind", ["socket", "numa"])
def test_both_threads_of_a_core_belong_to_one_process(two_threads: Path, bind: binding.Bind) -> None:
    def cpus_of(processes: int, allowed: Iterable[int] = range(32)) -> list[list[int]]:
        found = domains(bind, set(allowed), two_threads)
        return [sorted(share(found, rank, processes).cpus) for rank in range(processes)]

    assert cpus_of(4) == [
        [0, 1, 2, 3, 16, 17, 18, 19],
        [4, 5, 6, 7, 20, 21, 22, 23],
        [8, 9, 10, 11, 24, 25, 26, 27],
        [12, 13, 14, 15, 28, 29, 30, 31],
    ]
    assert cpus_of(16) == [[core, core + 16] for core in range(16)]
    # With more processes than cores, two processes have the threads of one core.
    assert cpus_of(32) == [[cpu] for core in range(16) for cpu in (core, core + 16)]
    # A job may have a part of the machine, and one thread of a core.
    assert cpus_of(2, [0, 1, 16, 17, 18]) == [[0, 16], [1, 17, 18]]


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), threads=st.integers(1, 2), processes=st.integers(1, 12)
)
def test_no_core_has_two_processes_and_none_is_left_idle(sizes: list[int], threads: int, processes: int) -> None:
    numbers = iter(range(1000))
    found = [
        Domain(tuple(tuple(next(numbers) for _ in range(threads)) for _ in range(size)), (index,))
        for index, size in enumerate(sizes)
    ]
    try:
        shares = [share(found, rank, processes) for rank in range(processes)]
    except BertlineError:
        assert processes > min(sizes) * threads
        return
    assert sorted(cpu for one in shares for cpu in one.cpus) == list(range(sum(sizes) * threads))
    for one in shares:
        for domain in found:
            if set(one.cpus) & set(domain.cpus):
                assert set(domain.memory) <= set(one.memory)


def test_ranges_of_cpus() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}


def test_a_missing_numactl_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BertlineError, match=r"^bind numa: numactl is not installed; install it .*, or bind none$"):
        bound(["python"], "numa", 0, 1)
    assert bound(["python"], "none", 0, 1) == ["python"]


@pytest.mark.skipif(shutil.which("numactl") is None, reason="needs numactl (Debian: apt install numactl)")
@pytest.mark.parametrize("bind", ["socket", "numa"])
def test_a_process_runs_only_on_its_cores(bind: binding.Bind) -> None:
    processes = len(os.sched_getaffinity(0))
    program = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    ran = [
        subprocess.run(bound(program, bind, rank, processes), capture_output=True, text=True, check=True).stdout
        for rank in range(processes)
    ]
    # As many processes as cores.
    assert sorted(ran) == [f"[{cpu}]\n" for cpu in sorted(os.sched_getaffinity(0))]
