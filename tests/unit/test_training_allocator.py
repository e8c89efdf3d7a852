"""Freed memory: the next micro-batch's tensors take the pages of the last one's."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

import pytest

TIMES, BYTES = 60, 9 << 22  # a tensor of 38 MB is larger than any block that glibc keeps by default
PAGES = BYTES // resource.getpagesize()
# Makes and frees the tensor several times; prints how many pages the system has given it in all.
PROGRAM = """
import ctypes, resource, torch
from bertline.training.distributed.claims import claim_device
from bertline.training.distributed.process_group import join_group

PR_SET_THP_DISABLE = 41  # a huge page would count as one
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
torch.set_num_threads(1)
{start}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({times}):
    torch.ones({bytes} // 4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PLACE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def page_faults(start: str, **environment: str) -> int:
    given = {**os.environ, **PLACE, "CUDA_VISIBLE_DEVICES": "", **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(start=start, times=TIMES, bytes=BYTES)],
        env=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc has this setting")
@pytest.mark.parametrize("start", ["claim_device()", "join_group(1)"])
def test_processes_on_a_cpu_keep_freed_memory_unless_the_environment_says_otherwise(start: str) -> None:
    assert page_faults(start) < TIMES * PAGES / 2  # small objects that take its place move it about ten times
    assert page_faults(start, MALLOC_MMAP_THRESHOLD_=str(1 << 20)) >= TIMES * PAGES
    assert page_faults("pass") >= TIMES * PAGES
