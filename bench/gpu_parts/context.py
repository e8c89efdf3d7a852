"""What a part of the benchmark is given: where it writes, how long it has, and what earlier parts found."""

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
    """The circumstances of a part.

    Attributes
    ----------
    folder: with results.jsonl, which holds what was found so far.
    deadline: in seconds of `time.time`; the part is killed soon after.
    tiny: networks and matrices of a size for a CPU.
    network: which of `speed.NETWORKS`, for the parts that take one.
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
        """Yield what an earlier part found, also in an earlier start that wrote to the same folder."""
        path = results_file(self.folder)
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            result = json.loads(line)
            if result["part"] == part:
                yield result


def results_file(folder: Path) -> Path:
    """Return the file that results are appended to, one JSON object a line."""
    return folder / "results.jsonl"
