"""Assignment of work to ranks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def assign(costs: Mapping[Key, int], ranks: int) -> dict[Key, int]:
    """Assign work to ranks: the most expensive first, each to the rank with the least so far."""
    loads = [0] * ranks
    owners = {}
    for key in sorted(costs, key=lambda key: -costs[key]):
        owners[key] = loads.index(min(loads))
        loads[owners[key]] += costs[key]
    return owners
