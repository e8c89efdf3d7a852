"""Opening of HDF5 files: untrusted files from elsewhere, and new files on disks that may be full.

HDF5 can take a dataset's values from any file of the machine (external storage, virtual datasets, links), and can claim
a size for which nothing is stored. Therefore everything that a file describes has to be stored in it.

A failed write is ignored where h5py closes an object that is no longer used, and may end the process where HDF5 closes
the file. Therefore all writes go through a Python file, which keeps the error.
"""

from __future__ import annotations

import errno
import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bertline.console import BertlineError
from bertline.files import write_atomically

MAX_CHUNK = 1 << 30  # bytes; a chunk is unpacked as a whole
MAX_RATIO = 2000  # of a dataset's size to what is stored; gzip reaches 1,032
MAX_ATTRIBUTE = 1 << 16  # bytes
# Type -> NumPy's kinds and the number of dimensions. Strings have a fixed length.
ATTRIBUTES: dict[type, tuple[str, int]] = {int: ("iu", 0), str: ("S", 0), np.ndarray: ("iu", 1)}


class _Output(io.FileIO):
    """A file whose writes never raise; `error` is the first failure, after which nothing is written."""

    error: OSError | None = None

    def write(self, block: Any) -> int:
        left = memoryview(block).cast("B")
        with self._kept_error():
            while left and self.error is None:
                left = left[super().write(left) :]
        return len(block)

    def truncate(self, size: int | None = None) -> int:
        with self._kept_error():
            if self.error is None:
                super().truncate(size)
        return size or 0

    @contextmanager
    def _kept_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = error


@contextmanager
def create_hdf5(path: Path | str, **form: Any) -> Iterator[h5py.File]:
    """Write a file atomically; `form` are options of `h5py.File`. Raises OSError at the end if any write failed."""
    with write_atomically(path) as temporary, _Output(temporary, "w+b") as output:
        try:
            with h5py.File(output, "w", **form) as file:
                yield file
        finally:  # instead of errors that follow from it, as HDF5 reads what was not written
            if output.error:
                raise OSError(output.error.errno, output.error.strerror, str(path))


@contextmanager
def open_hdf5(path: Path, advice: str) -> Iterator[h5py.File]:
    """Yield a file opened for reading, whose datasets are all stored in it. Within, errors of h5py are translated.

    Args:
        path: of the file.
        advice: what to do, the last part of messages.

    Raises BertlineError for a file that is missing, damaged or one too many, and for a dataset that is a link, is
    stored elsewhere, claims more than is stored, or cannot be unpacked.
    """
    try:
        with h5py.File(path, "r") as file:
            for name in file:
                if problem := _problem_of(file, name, path.stat().st_size):
                    raise BertlineError(f"{path}: {name} {problem}; {advice}")
            yield file
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; {advice}") from None
    except (
        *(OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError),
        *(OverflowError, IndexError, MemoryError),
    ) as error:
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            raise BertlineError(
                f"{path} cannot be opened: this process may open no more files; raise the limit (`ulimit -n`)"
            ) from None
        if isinstance(error, IsADirectoryError):
            raise BertlineError(f"{path} is a folder; name the files in it") from None
        reason = " ".join(str(error).split())
        raise BertlineError(f"{path}: is not a complete file of samples ({reason}); {advice}") from None


def _problem_of(file: h5py.File, name: str, file_size: int) -> str | None:
    """Return why a member of a file cannot be read safely; None for groups, which are not read."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        return "is a link, which may lead to any file"
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        return None
    if dataset.external or dataset.is_virtual:
        return "is stored in another file"
    settings = dataset.id.get_create_plist()
    for number, _, _, filter_name in (settings.get_filter(index) for index in range(settings.get_nfilters())):
        if not h5py.h5z.filter_avail(number):
            return f"needs the filter {number} {filter_name.decode(errors='replace')}, which is not installed"
    chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    if chunk > MAX_CHUNK:
        return f"has chunks of {chunk} bytes, allowed are {MAX_CHUNK}"
    size = math.prod(dataset.shape) * dataset.dtype.itemsize if dataset.shape is not None else 0
    stored = min(dataset.id.get_storage_size(), file_size)
    if size > stored * MAX_RATIO or (dataset.chunks is None and size > stored):
        return f"claims {size} bytes, of which {stored} are stored"
    if dataset.chunks is not None:
        chunks = math.prod(
            -(-length // of_chunk) for length, of_chunk in zip(dataset.shape, dataset.chunks, strict=True)
        )
        if (found := dataset.id.get_num_chunks()) < chunks:
            return f"has {chunks} chunks, of which {found} are stored"
    return None


def read_attribute(owner: h5py.File | h5py.Dataset, name: str, kind: type) -> Any:
    """Return an attribute of type int, str or np.ndarray (of integers).

    Raises KeyError if it is absent, and ValueError if it is of another type, large or empty.
    """
    stored = h5py.h5a.open(owner.id, name.encode())
    kinds, dimensions = ATTRIBUTES[kind]
    if (
        stored.shape is None
        or len(stored.shape) != dimensions
        or stored.dtype.kind not in kinds
        or math.prod(stored.shape) * stored.dtype.itemsize > MAX_ATTRIBUTE
    ):
        raise ValueError(f"the attribute {name} is {stored.dtype} {stored.shape}")
    value = owner.attrs[name]
    return value if kind is np.ndarray else value.decode("utf-8") if kind is str else int(value)
