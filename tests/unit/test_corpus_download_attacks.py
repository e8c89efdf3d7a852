"""Servers that answer a download with more than was asked for, outside the body that is stored."""

from __future__ import annotations

import socket
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from raw_server import raw_server

from bertline.corpus.download import download
from bertline.corpus.expected_file import Expected

REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /end\r\nConnection: close\r\n"
BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
LIMIT = 16 << 20


@contextmanager
def server(answer: Callable[[], Iterator[bytes]]) -> Iterator[str]:
    """A server that answers every path but /end with these bytes."""

    def give(connection: socket.socket) -> None:
        path = connection.recv(1 << 16).split()[1]
        with suppress(OSError):  # the client has enough
            for piece in iter([BODY]) if path == b"/end" else answer():
                connection.sendall(piece)

    with raw_server(give) as address:
        yield address


def endless() -> Iterator[bytes]:
    yield REDIRECT + b"\r\n"
    for _ in range(16 * LIMIT >> 16):
        yield bytes(1 << 16)


def bomb() -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(16 * LIMIT >> 20)) + packer.flush()
    yield REDIRECT + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    yield packed


@pytest.mark.parametrize("answer", [endless, bomb])
def test_the_body_of_a_redirect_is_not_read(answer: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    with server(answer) as url:
        tracemalloc.start()
        try:
            download([url], tmp_path / "file", Expected())
            assert tracemalloc.get_traced_memory()[1] < LIMIT
        finally:
            tracemalloc.stop()
    assert (tmp_path / "file").read_bytes() == b"ok"
