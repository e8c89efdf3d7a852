"""The fork server from which tests start processes at once: it has already imported what they import.

A process has one fork server, and its list of modules is set as a whole. Files that start processes add to one list.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

CONTEXT = multiprocessing.get_context("forkserver")
MODULES: list[str] = []


def forking_with(*modules: str) -> ForkServerContext:
    """Return the context whose processes have these modules, beside those of other files."""
    MODULES.extend(modules)
    CONTEXT.set_forkserver_preload(MODULES)
    return CONTEXT
