"""Reading the text of shards: one sentence a line, an empty line after each document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed

BLOCK_BYTES = 4_000_000


def size_of_shard(path: Path | str) -> int:
    """Uncompressed bytes, from the index of the frames."""
    with read_compressed(path) as file:
        return file.seek(0, 2)


def decode_block(block: bytes, path: Path | str) -> str:
    """UTF-8 to text. Raises BertlineError for bytes that are not UTF-8."""
    try:
        return block.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path} is not UTF-8 ({error.reason}); delete it and make it again") from None


def read_text_blocks(path: Path | str, block_bytes: int = BLOCK_BYTES) -> Iterator[str]:
    """The shard's text in blocks of whole lines of about `block_bytes`, so that memory does not grow with the shard."""
    rest = b""
    with read_compressed(path) as file:
        while block := file.read(block_bytes):
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
                continue
            yield decode_block(rest + block[:end], path)
            rest = block[end:]
    if rest:
        raise BertlineError(f"{path} ends inside a line; delete it and make it again")
