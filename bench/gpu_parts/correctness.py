"""Outcomes of tests/unit/test_on_a_real_gpu.py as they end; with pytest-xdist, several tests run at a time."""

from __future__ import annotations

import importlib.util
import os
import queue
import threading
from collections.abc import Iterator

import pytest

from gpu_parts.context import ROOT, Context, Result

TESTS = ROOT / "tests/unit/test_on_a_real_gpu.py"
CORES_OF_A_TEST = 2  # which compiles for most of its time
# Tests that run on a CPU, in seconds each: compiling takes minutes, fp16 needs a GPU.
TINY = "not compiled and not fifty_steps and not two_gpus and not fp16"


class _Recorder:
    """A pytest plugin that puts each test's outcome into a queue."""

    def __init__(self, results: queue.Queue[Result | None]) -> None:
        self._results = results

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            case = report.nodeid.split("::", 1)[1]
            result = {"case": case, "outcome": report.outcome, "seconds": round(report.duration, 1)}
            if report.outcome == "failed":
                print(f"\n==== {case}\n{report.longreprtext}", flush=True)
                crash = getattr(report.longrepr, "reprcrash", None)
                result["error"] = crash.message.splitlines()[0] if crash else ""
            self._results.put(result)


def run(context: Context) -> Iterator[Result]:
    """Yield the outcome of each test as it ends; the part's log contains the tracebacks of failures."""
    if context.tiny:
        os.environ["BERTLINE_REHEARSE_GPU"] = "1"
    arguments = [str(TESTS), "-q", "-s", "-p", "no:cacheprovider", *(["-k", TINY] if context.tiny else [])]
    if importlib.util.find_spec("xdist") and context.threads > 1:
        arguments += ["-n", str(max(1, context.threads // CORES_OF_A_TEST)), "--dist", "worksteal"]
    results: queue.Queue[Result | None] = queue.Queue()
    status: list[int] = []

    def run_tests() -> None:
        status.append(int(pytest.main(arguments, plugins=[_Recorder(results)])))
        results.put(None)

    thread = threading.Thread(target=run_tests)
    thread.start()
    while (result := results.get()) is not None:
        yield result
    thread.join()
    if status[0] not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with status {status[0]}, see the log")
