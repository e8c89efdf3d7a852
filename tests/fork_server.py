"""Processes that start at once: a fork server has already imported what they import.

A process has one fork server, and its list of modules is set as a whole. Files that start processes add to one list.
"""

from __future__ import annotations

import gc
from multiprocessing.context import ForkServerContext, ForkServerProcess


class ForkedProcess(ForkServerProcess):
    """A process whose garbage collector leaves alone what the server imported: half of a dry run's time."""

    def run(self) -> None:
        gc.freeze()
        super().run()


class ForkedContext(ForkServerContext):
    """Starts such processes."""

    Process = ForkedProcess


CONTEXT = ForkedContext()
MODULES: list[str] = []


def forking_with(*modules: str) -> ForkedContext:
    """Return the context whose processes have these modules, beside those of other files."""
    MODULES.extend(modules)
    CONTEXT.set_forkserver_preload(MODULES)
    return CONTEXT
