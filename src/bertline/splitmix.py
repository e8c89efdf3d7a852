"""The output function of SplitMix64 on 64-bit integers that wrap around.

Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB

Words = npt.NDArray[np.uint64]


def mix(values: Words) -> Words:
    """Hash each element: uint64 array -> uint64 array of the same shape."""
    with np.errstate(over="ignore"):
        return finalize(values + np.uint64(GOLDEN))


def finalize(values: Words) -> Words:
    """Let each bit of an element depend on all its bits: uint64 array -> uint64 array of the same shape."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(FIRST)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(SECOND)
        return values ^ (values >> np.uint64(31))
