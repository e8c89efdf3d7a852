"""A cluster for these tests: a real API server, and Pods as processes of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

# Helpers of other tests.
for folder in ("unit", "workflow"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
