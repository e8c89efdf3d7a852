"""Processes bound to sockets and NUMA nodes: each has cores of its own and the memory next to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
        topology = tmp_path / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{cpu % 2}\n")
    for node, cpus in enumerate(("0,2,4,6", "8,10,12,14", "1,3,5,7", "9,11,13,15")):
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(f"{cpus}\n")
    return tmp_path


def test_sockets_have_the_memory_of_their_numa_nodes(two_sockets: Path) -> None:
    everything = set(range(16))
    assert domains("socket", everything, two_sockets) == [
        Domain(tuple(range(0, 16, 2)), (0, 1)),
        Domain(tuple(range(1, 16, 2)), (2, 3)),
    ]
    assert [domain.memory for domain in domains("numa", everything, two_sockets)] == [(0,), (1,), (2,), (3,)]
    # A job may have a part of the machine.
    assert domains("numa", {0, 2, 9}, two_sockets) == [Domain((0, 2), (0,)), Domain((9,), (3,))]


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), processes=st.integers(1, 12))
def test_no_core_has_two_processes_and_none_is_left_idle(sizes: list[int], processes: int) -> None:
    numbers = iter(range(1000))
    found = [Domain(tuple(next(numbers) for _ in range(size)), (index,)) for index, size in enumerate(sizes)]
    try:
        shares = [share(found, rank, processes) for rank in range(processes)]
    except BertlineError:
        assert processes > min(sizes)
        return
    assert sorted(cpu for one in shares for cpu in one.cpus) == list(range(sum(sizes)))
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
