"""Reading of `.npy` files. numpy parses their header as Python, so a damaged one raises almost any exception."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.console import BertlineError

NOT_AN_ARRAY = (
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, SyntaxError, TokenError),
    *(MemoryError, RecursionError, zipfile.BadZipFile),
)


def read_array(
    path: Path | str,
    kind: str,
    dtype: npt.DTypeLike | None = None,
    *,
    content: bytes | None = None,
    mapped: bool = False,
) -> npt.NDArray[Any]:
    """Read or map a `.npy` of one dimension; no pickle is loaded.

    Args:
        path: the file.
        kind: what it should be, for errors: `an index`.
        dtype: its type; None allows any.
        content: its bytes, if they were read already.
        mapped: whether to map it, read-only.

    Raises BertlineError if the file is missing, damaged, or of another type.
    """
    try:
        found = np.load(path if content is None else io.BytesIO(content), "r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; check the path, or make it first") from None
    except NOT_AN_ARRAY as error:
        raise BertlineError(f"{path} is not {kind} ({error}); delete it and make it again") from None
    if not isinstance(found, np.ndarray):
        raise BertlineError(f"{path} is not {kind} (it is a zip archive); delete it and make it again")
    if found.ndim != 1 or (dtype is not None and found.dtype != dtype):
        layout = f"the layout {found.dtype}, not {np.dtype(dtype)}" if found.ndim == 1 else f"{found.ndim} dimensions"
        raise BertlineError(f"{path} has {layout}; delete it and make it again")
    size = Path(path).stat().st_size if content is None else len(content)
    if size != _size_of_header(path) + found.nbytes:
        raise BertlineError(f"{path} has more bytes than its {len(found)} rows; delete it and make it again")
    return found


def _size_of_header(path: Path | str) -> int:
    with open(path, "rb") as file:
        start = file.read(12)  # 6 of the magic, 2 of the version, then the length of the rest in 2 or 4 bytes
    length = start[8:10] if start[6] == 1 else start[8:]
    return 8 + len(length) + int.from_bytes(length, "little")
