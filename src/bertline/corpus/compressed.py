"""Text files compressed with zstd in indexed frames, so that a range can be read without the data before it.

The format is zstd's "seekable format": ordinary frames and, at the end, a table of their sizes. `zstd -d` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyzstd import SeekableFormatError, SeekableZstdFile, ZstdError

from bertline.console import BertlineError
from bertline.files import write_atomically

# Larger frames save little (0.7 % at 4 MiB on English Wikipedia) and make random access slower.
FRAME_BYTES = 1 << 20
LEVEL = 3


@contextmanager
def write_compressed(path: Path | str) -> Iterator[SeekableZstdFile]:
    """Yield a binary file to write to; `path` is created, complete, when the block ends without an error."""
    with (
        write_atomically(path) as temporary,
        SeekableZstdFile(temporary, "w", level_or_option=LEVEL, max_frame_content_size=FRAME_BYTES) as file,
    ):
        yield file


@contextmanager
def read_compressed(path: Path | str) -> Iterator[SeekableZstdFile]:
    """Yield a binary file to read lines or ranges from. Raises BertlineError if it is missing or damaged."""
    try:
        with SeekableZstdFile(path, "r") as file:
            yield file
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; check the path, or make it first") from None
    except (ZstdError, SeekableFormatError, EOFError) as error:
        raise BertlineError(f"{path} is damaged ({error}); delete it and make it again") from None
