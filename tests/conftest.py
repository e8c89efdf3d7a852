"""Fixtures shared by all tests, and the order in which files go to the processes of pytest-xdist."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Files that share a graph which takes more than a minute: one process runs them all.
TOGETHER = {"tests/workflow/test_bad_input.py", "tests/workflow/test_reruns.py"}
# Files of a minute or more that the alphabet has near its end: one process would run them when the others have ended.
EARLY = {"test_training_fsdp.py", "test_training_survival.py"}


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real test data; tests that need it are skipped where it is absent."""
    folder = os.environ.get("BERTLINE_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("BERTLINE_TEST_DATA does not name a folder of real test data")
    return Path(folder)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, distribute by file, but as one those that share a graph."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "together" if file in TOGETHER else file

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Append what a test of faults came to, to the file that `bench/faults.py` names; processes share it."""
    report = yield
    mark, file = item.get_closest_marker("fault"), os.environ.get("BERTLINE_FAULTS_FILE")
    if mark and file and (report.when == "call" or report.outcome != "passed"):
        properties = dict(report.user_properties)
        line = {
            "row": mark.kwargs["row"],
            "test": item.nodeid,
            "outcome": report.outcome,
            "faults": properties.pop("faults", 1),
            "seconds": report.duration,
            "reason": report.longrepr[2].removeprefix("Skipped: ") if report.skipped else "",
            "measured": properties,
        }
        with open(file, "a", encoding="utf-8") as appended:
            appended.write(json.dumps(line) + "\n")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import all files without the garbage collector, which takes a quarter of that time, and finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, so that no single process runs one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name not in EARLY, item.path not in slow))
