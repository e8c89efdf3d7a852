"""Reading shards: one sentence a line, an empty line after each document, zstd with indexed frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyzstd import SeekableZstdFile, ZstdError

from bertline.console import BertlineError

BLOCK_BYTES = 4_000_000


def open_shard(path: Path | str) -> SeekableZstdFile:
    """Open a shard to read its uncompressed bytes. Raises BertlineError when it is missing or cut short."""
    try:
        return SeekableZstdFile(path, "r")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; run `snakemake encode`") from None
    except (ZstdError, OSError, EOFError) as error:
        raise BertlineError(f"{path} is not a complete zstd file ({error}); delete it and make it again") from None


def size_of_shard(path: Path | str) -> int:
    """Uncompressed bytes, from the index of the frames."""
    with open_shard(path) as file:
        return file.seek(0, 2)


def read_block(file: SeekableZstdFile, path: Path | str, size: int) -> bytes:
    """At most `size` bytes from where `file` stands. Raises BertlineError where the file is damaged."""
    try:
        return file.read(size)
    except (ZstdError, EOFError, OSError) as error:
        raise BertlineError(f"{path} is damaged ({error}); delete it and make it again") from None


def decode_block(block: bytes, path: Path | str) -> str:
    """UTF-8 to text. Raises BertlineError for bytes that are not UTF-8."""
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path} is not UTF-8 ({error.reason}); delete it and make it again") from None


def read_text_blocks(path: Path | str, block_bytes: int = BLOCK_BYTES) -> Iterator[str]:
    """The shard's text in blocks of whole lines of about `block_bytes`, so that memory does not grow with the shard."""
    rest = b""
    with open_shard(path) as file:
        while block := read_block(file, path, block_bytes):
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
                continue
            yield decode_block(rest + block[:end], path)
            rest = block[end:]
    if rest:
        raise BertlineError(f"{path} ends inside a line; delete it and make it again")
