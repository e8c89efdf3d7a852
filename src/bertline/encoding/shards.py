"""Reading of the text of shards: one sentence per line, an empty line after each document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed

BLOCK_BYTES = 4_000_000
PART_WITHIN_BYTES = 100_000  # a line longer than a block is split at most this far before the block's end


def size_of_shard(path: Path | str) -> int:
    """Return the uncompressed bytes of a shard, from the index of its frames."""
    with read_compressed(path) as file:
        return file.seek(0, 2)


def decode_block(block: bytes, path: Path | str) -> str:
    """Decode UTF-8. Raises BertlineError for bytes that are not UTF-8."""
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path} is not UTF-8 ({error.reason}); delete it and make it again") from None


def read_text_blocks(path: Path | str, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[str, bool]]:
    """Yield the shard's text in blocks of about `block_bytes` that each end with a newline.

    A line longer than a block is split: in each block but its last one the second value is False, the final newline is
    not in the shard, and the space at which the line was split is omitted. This space follows a letter or a digit, so
    that the parts have the tokens of the whole. If a whole block has no such space, the line is split anywhere.
    """
    rest = b""
    with read_compressed(path) as file:
        while block := file.read(block_bytes):
            block = rest + block
            end = block.rfind(b"\n") + 1
            if end:
                yield decode_block(block[:end], path), True
            rest = block[end:]
            while len(rest) > block_bytes + 3:  # so that the character after `block_bytes` is whole
                part, rest = _part_line(rest, block_bytes)
                yield decode_block(part, path) + "\n", False
    if rest:
        raise BertlineError(f"{path} ends inside a line; delete it and make it again")


def _part_line(line: bytes, at_most: int) -> tuple[bytes, bytes]:
    """Split a line in two."""
    end = at_most
    while (end := line.rfind(b" ", max(0, at_most - PART_WITHIN_BYTES), end)) > 0:
        if line[max(0, end - 4) : end].decode("utf-8", "ignore")[-1:].isalnum() and line[end + 1 : end + 2].strip():
            return line[:end], line[end + 1 :]
    end = at_most
    while end < at_most + 3 and line[end] & 0xC0 == 0x80:  # inside a character
        end += 1
    return line[:end], line[end:]
