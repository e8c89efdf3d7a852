"""Errors of temporary files, which have no name, name their folder."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from test_hdf5_full_disk import room_of

from bertline import spool
from bertline.spool import BucketSpool, Spool

LIMIT = 8192


def test_a_spool_that_its_disk_does_not_take_names_its_folder(tmp_path: Path) -> None:
    for numbers in (LIMIT // 8 + 1, LIMIT):  # written at the end, and at once
        filling = Spool(tmp_path, np.int64)
        with room_of(LIMIT), pytest.raises(OSError, match="File too large") as error:
            fill(filling, numbers)
        assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(tmp_path))


def fill(filling: Spool, numbers: int) -> None:
    for number in range(numbers):
        filling.append(np.array([number]))
    filling.read()


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_spool_in_buckets_that_its_disk_does_not_take_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(spool, "BLOCK_BYTES", block)
    filling = BucketSpool(tmp_path, np.dtype(np.int64), 2)
    with room_of(LIMIT), pytest.raises(OSError, match="File too large") as error:
        fill_buckets(filling)
    assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(tmp_path))


def fill_buckets(filling: BucketSpool) -> None:
    for _ in range(2):
        filling.append(np.zeros(LIMIT), np.zeros(LIMIT))
    list(filling.read(0))
