"""What tests of faults share: their random numbers, and how many faults to try.

`make faults` runs the tests with the mark `fault` and prints a table of what they recorded: a test counts as one fault,
or as many as it gives to `record_property("faults", number)`.
"""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("BERTLINE_FAULT_SEED", "1"))
# Of the number that a test tries in CI.
TIMES = int(os.environ.get("BERTLINE_FAULT_TIMES", "1"))


def drawing(what: str) -> random.Random:
    """Return a generator for one kind of fault; the same for the same seed."""
    return random.Random(f"{what} {SEED}")  # noqa: S311
