"""Unpacking of a dump in a 7z archive, streamed by libarchive."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import create_string_buffer, string_at
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.unpacking import UNPACKED_DUMP_FILES

BLOCK_BYTES = 1 << 18


def unpack_seven_zip(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yield the content of the only `.xml` in an archive in pieces, each with the archive's bytes that were read.

    Raises EOFError for a damaged archive (the checksum is compared at the end), and BertlineError for one with several
    files of XML or none, and without the library libarchive.
    """
    try:
        import libarchive
        from libarchive.ffi import read_data
    except (AttributeError, OSError, TypeError):  # it is absent
        raise BertlineError(
            f"{path} cannot be unpacked without libarchive; install it (Debian: libarchive13, conda: libarchive), or "
            "unpack the file with 7z"
        ) from None
    block, any_yet = create_string_buffer(BLOCK_BYTES), False
    try:
        # No other format that libarchive reads is of use here.
        with libarchive.file_reader(str(path), "7zip", "none") as archive:
            for entry in archive:
                if not entry.isreg or not UNPACKED_DUMP_FILES.search(str(entry.pathname)):
                    continue
                if any_yet:
                    raise BertlineError(f"{path} holds several dumps; unpack it, and name its .xml files")
                any_yet = True
                # Not `get_blocks`: it continues after a wrong checksum, which is a negative size and not an exception.
                while size := read_data(archive._pointer, block, BLOCK_BYTES):
                    if size < 0:
                        raise EOFError("its checksum is wrong")
                    yield string_at(block, size), archive.bytes_read
    except libarchive.ArchiveError as error:
        raise EOFError(error.msg or "it is not a 7z archive, or its end is missing") from None
    if not any_yet:
        raise BertlineError(f"{path} holds no .xml; name the archive of a dump")
