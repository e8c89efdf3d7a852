"""Context of a part of the benchmark: its output folder, its time limit, and the results of earlier parts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, Any]
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Context:
    """Context of a part.

    Attributes:
        folder: contains results.jsonl, the results so far.
        deadline: in seconds of `time.time`; the part is killed soon after.
        tiny: use networks and matrices small enough for a CPU.
        network: a name in `speed.NETWORKS`, for the parts that take one.
        threads: of this process.
    """

    folder: Path
    deadline: float
    tiny: bool
    network: str
    threads: int

    def seconds_left(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - time.time()

    def results(self, part: str) -> Iterator[Result]:
        """Yield the results of a part, including those of earlier calls with the same folder."""
        path = results_file(self.folder)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            result = json.loads(line)
            if result["part"] == part:
                yield result


def results_file(folder: Path) -> Path:
    """Return the file to which results are appended, one JSON object per line."""
    return folder / "results.jsonl"
