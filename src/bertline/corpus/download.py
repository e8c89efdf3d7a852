"""Downloads that resume, verify size and checksum, and identify the client.

Data is written to `{destination}.part`, which is renamed once its size and checksum are right. A `.part` left by an
earlier attempt is continued with HTTP Range. Servers are untrusted: no more bytes are written than are expected or
allowed, bodies are stored as sent, and without a checksum a redirect must not leave https.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import tenacity

from bertline import __version__
from bertline.console import BertlineError, progress_of_bytes, without_credentials
from bertline.corpus.unpacking import Allowance, as_damage_error, zip_members
from bertline.files import fsync_directory, write_atomically

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 16  # small, because an interrupted piece is lost
TIMEOUT_SECONDS = (30, 60)  # to connect; between two pieces of the response
ATTEMPTS = 6  # failures in a row, without a byte of progress, after which a source is abandoned
FIRST_WAIT_SECONDS = 2.0  # doubled after each failure; a longer Retry-After is honoured
MAX_WAIT_SECONDS = 600.0
MAX_BYTES = 1 << 36  # of a file whose size is not known beforehand; MS MARCO's triples have 2 ** 34.7
MAX_UNSTATED_BYTES = 1 << 32  # if the server does not state it, either
MAX_ZIP_RATIO = 100  # of bytes unpacked to bytes packed; text reaches 10
DIGITS = 15  # of a number in a header, at most
# A busy or restarting server; any other status but success is final.
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class SourceRefused(Exception):
    """Raised if a source does not provide the requested file, or no usable one; the text is its response or why."""


class _Interrupted(Exception):
    """Raised if an attempt fails in a way that may be temporary."""

    def __init__(self, answer: str, retry_after: float = 0.0) -> None:
        super().__init__(answer)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Expected:
    """Expected size of a file in bytes, and its checksums in hexadecimal; without a size, at most `max_size` bytes."""

    size: int | None = None
    sha1: str | None = None
    sha256: str | None = None
    max_size: int = MAX_BYTES

    @property
    def has_checksum(self) -> bool:
        """Whether the file can be verified, so that it cannot be replaced in transit."""
        return self.sha1 is not None or self.sha256 is not None

    def problem_of(self, path: Path) -> str | None:
        """Return how the file at `path` differs from what is expected, or None."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"{size} bytes instead of {self.size}"
        for algorithm, wanted in (("sha1", self.sha1), ("sha256", self.sha256)):
            if wanted is not None:
                with path.open("rb") as file:
                    found = hashlib.file_digest(file, algorithm).hexdigest()
                if found != wanted.lower():
                    return f"wrong checksum, {algorithm} {found[:12]}... instead of {wanted[:12]}..."
        return None


def download(
    sources: list[str],
    destination: Path,
    expected: Expected,
    *,
    contact: str | None = None,
    token: str | None = None,
) -> None:
    """Download one file from the first source that has it.

    Args:
        sources: URLs (http, https) or paths of local files, tried in this order.
        destination: written only when complete and verified.
        expected: the size and checksums to verify. Without a checksum the `.part` of an earlier run is not continued,
            because it may be the beginning of another file.
        contact: an e-mail address or URL for the User-Agent; Wikimedia blocks requests without one.
        token: proves the right to read, to the sources' own hosts only.

    Raises BertlineError with the response of each source.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(f"{destination.name}.part")
    if not expected.has_checksum:
        part.unlink(missing_ok=True)
    answers = []
    with http_session(contact) as session:
        if token:
            session.headers["Authorization"] = f"Bearer {token}"
        for source in sources:
            try:
                if _is_url(source):
                    _host_of(source)
                obtain(session, source, part, expected)
            except SourceRefused as refusal:
                answers.append(f"{name_of_mirror(source)}: {refusal}")
                continue
            part.replace(destination)
            fsync_directory(destination.parent)
            return
    raise BertlineError(
        f"{destination.name} could not be downloaded ({'; '.join(answers)}); "
        "run the same command again later or name another source"
    )


def download_file(
    url: str, output: Path, *, sha256: str | None = None, member: str | None = None, contact: str | None = None
) -> None:
    """Download a file, or one file of a zip archive. Raises BertlineError.

    The archive is next to `output`, hidden, until the file is unpacked.

    Args:
        url: of the file, or of the archive that contains it.
        output: the file to write.
        sha256: of the file at the URL.
        member: the file's path in the archive.
        contact: an e-mail address or a URL, for the User-Agent.
    """
    if member is None:
        return download([url], output, Expected(sha256=sha256), contact=contact)
    archive, shown = output.with_name(f".{output.name}.zip"), without_credentials(url)
    download([url], archive, Expected(sha256=sha256), contact=contact)
    try:
        allowance = Allowance(archive, MAX_ZIP_RATIO, advice="name another archive")
        with as_damage_error(shown):
            for _, packed in zip_members(archive, allowance, Counter(), member.__eq__):
                with write_atomically(output) as temporary, temporary.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked)
                return
        raise BertlineError(f"{shown} holds no file '{member}'; name another archive")
    finally:
        archive.unlink(missing_ok=True)


def http_session(contact: str | None) -> requests.Session:
    """Return a session with the User-Agent required by https://foundation.wikimedia.org/wiki/Policy:User-Agent_policy."""
    session = requests.Session()
    described = f" ({contact})" if contact else ""
    session.headers["User-Agent"] = f"bertline/{__version__}{described}".encode("ascii", "replace").decode()
    session.headers["Accept-Encoding"] = "identity"  # the checksums are those of the file as stored
    session.hooks["response"].append(_without_body_of_redirect)
    return session


def _without_body_of_redirect(response: requests.Response, **_: Any) -> None:
    if response.is_redirect:
        response.close()  # requests would unpack all of it into memory


def name_of_mirror(source: str) -> str:
    """Return the host of a URL, or the path."""
    if not _is_url(source):
        return source
    try:
        return _host_of(source)
    except SourceRefused:
        return "an address"  # any part of it may be a password


def _is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def _host_of(url: str) -> str:
    """Return the host and port of a URL. Raises SourceRefused for what is none, without quoting it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.removesuffix(".").encode("idna")  # empty and too long names
    except ValueError:
        host, port = "", None
    if not host or re.search(r"[\s\\]", url) or not url.isprintable():
        raise SourceRefused("is not a URL; percent-encode what is special in its path, name and password")
    host = f"[{host}]" if ":" in host else host  # an address of IPv6
    return host if port is None else f"{host}:{port}"


def obtain(session: requests.Session, source: str, part: Path, expected: Expected) -> None:
    """Download `part` from one source and verify it; a wrong file is deleted. Raises SourceRefused."""
    was_there = part.exists()
    if source.lower().startswith("http://") and not expected.has_checksum:
        logger.warning("%s: neither https nor a checksum protects this file", without_credentials(source))
    while True:
        if _is_url(source):
            _fetch_patiently(session, source, part, expected)
        else:
            _copy(Path(source), part)
        problem = expected.problem_of(part)
        if problem is None:
            with part.open("rb") as file:
                os.fsync(file.fileno())
            return
        part.unlink()
        if not was_there:
            raise SourceRefused(f"{problem}; it was deleted")
        # The old `.part` may have been the beginning of another file: start again.
        logger.info("%s, continued from an earlier attempt: %s; starting again", part.name, problem)
        was_there = False


def _copy(source: Path, part: Path) -> None:
    try:
        with source.open("rb") as original:
            size = source.stat().st_size
            _write(iter(lambda: original.read(PIECE_BYTES), b""), part, "wb", size, size)
    except FileNotFoundError:
        raise SourceRefused("does not exist") from None
    except (PermissionError, IsADirectoryError) as error:
        raise SourceRefused(str(error.strerror).lower()) from None


def _fetch_patiently(session: requests.Session, source: str, part: Path, expected: Expected) -> None:
    failures, furthest = 0, _size(part)

    def attempt() -> None:
        nonlocal failures, furthest
        try:
            _fetch_once(session, source, part, expected)
        except _Interrupted:
            # A server that ignores Range sends everything again, so only bytes never reached before are progress.
            failures = 1 if _size(part) > furthest else failures + 1
            furthest = max(furthest, _size(part))
            raise

    def wait(state: tenacity.RetryCallState) -> float:
        interruption = state.outcome.exception() if state.outcome else None
        asked_for = interruption.retry_after if isinstance(interruption, _Interrupted) else 0.0
        return min(max(FIRST_WAIT_SECONDS * 2 ** (failures - 1), asked_for), MAX_WAIT_SECONDS)

    def announce(state: tenacity.RetryCallState) -> None:
        answer, seconds = state.outcome and state.outcome.exception(), state.upcoming_sleep
        logger.info("%s: %s; retrying in %.0f s", name_of_mirror(source), answer, seconds)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_Interrupted),
        stop=lambda _: failures >= ATTEMPTS,
        wait=wait,
        before_sleep=announce,
        reraise=True,
    )
    try:
        retrying(attempt)
    except _Interrupted as interruption:
        raise SourceRefused(f"{interruption}, after {ATTEMPTS} failed attempts") from None


def _fetch_once(session: requests.Session, source: str, part: Path, expected: Expected) -> None:
    """Request the missing bytes of `part` once."""
    offset = _size(part)
    if expected.size is not None and offset >= expected.size:
        if offset == expected.size:
            part.touch()  # an empty file may not be there yet
            return
        part.unlink()
        offset = 0
    try:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with session.get(source, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
            _check_way(response, expected)
            is_continuation = _is_continuation(response, part, offset, expected)
            if is_continuation or response.status_code == requests.codes.ok:
                start = offset if is_continuation else 0  # a server may ignore Range and send everything
                length = _number_in(response.headers.get("Content-Length", ""))
                total = None if length is None else start + length
                most = expected.max_size if total is not None else min(expected.max_size, MAX_UNSTATED_BYTES)
                response.raw.headers.pop("Content-Encoding", None)  # so that the body is not decoded
                body = response.iter_content(PIECE_BYTES)
                _write(body, part, "ab" if start else "wb", total, expected.size or most)
    except requests.RequestException as error:
        if isinstance(error, ValueError):  # not a URL, not a header; the text may quote a password
            raise SourceRefused(f"cannot be asked ({type(error).__name__}), or redirects to what is no URL") from None
        name = type(error).__name__
        raise _Interrupted(f"connection lost after {_size(part)} bytes ({name})") from None
    except ValueError as error:  # of urllib3, for some redirects
        raise SourceRefused(f"redirects to what is no URL ({type(error).__name__})") from None
    if expected.size is not None and _size(part) < expected.size:
        raise _Interrupted(f"connection lost after {_size(part)} of {expected.size} bytes")


def _is_continuation(response: requests.Response, part: Path, offset: int, expected: Expected) -> bool:
    """Return whether the response's body continues at `offset`. Raises for every response without a usable body."""
    status = response.status_code
    stated = response.headers.get("Content-Range", "")
    if status == requests.codes.ok:
        return False
    if status == requests.codes.partial_content:
        sent = re.fullmatch(rf"bytes {offset}-([0-9]{{1,{DIGITS}}})/([0-9]{{1,{DIGITS}}})", stated)
        # With a size, the rest is asked for; without one, the end of an answer is taken for that of the file.
        if sent is None and expected.size is not None and stated.startswith(f"bytes {offset}-"):
            return True
        if sent and (expected.size is not None or int(sent[1]) + 1 == int(sent[2])):
            return True
    if status in (requests.codes.partial_content, requests.codes.requested_range_not_satisfiable):
        if re.fullmatch(rf"bytes \*/{offset}", stated):
            return False  # nothing is missing
        part.unlink(missing_ok=True)
        raise _Interrupted(f"HTTP {status} with range '{stated}'")
    if status in _PASSING_STATUS:
        raise _Interrupted(f"HTTP {status}", _retry_after(response.headers.get("Retry-After", "")))
    raise SourceRefused(f"HTTP {status}")


def _check_way(response: requests.Response, expected: Expected) -> None:
    """Raise SourceRefused for a redirect from https to http without a checksum, or an unrequested encoding."""
    way = [*(answer.url for answer in response.history), response.url]
    if not expected.has_checksum and any(a.startswith("https:") and b.startswith("http:") for a, b in pairwise(way)):
        raise SourceRefused(f"redirects from https to {without_credentials(way[-1])}; give a checksum, or another URL")
    encoding = response.headers.get("Content-Encoding", "identity")
    # Some servers describe a .gz file as the encoded form of another file, and send it as it is.
    if encoding not in ("", "identity") and not urlsplit(response.url).path.endswith((".gz", ".tgz")):
        raise SourceRefused(f"sends the file encoded ({encoding}), which was not asked for")


def _write(pieces: Iterator[bytes], part: Path, mode: str, size: int | None, most: int) -> None:
    """Write the pieces to `part`. Raises SourceRefused, and deletes it, when it would have more than `most` bytes."""
    with part.open(mode) as file, progress_of_bytes(description=part.stem, total=size) as bar:
        left = most - file.tell()
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                break
            file.write(piece)
            bar.update(len(piece))
        else:
            return
    part.unlink()
    raise SourceRefused(f"sends more than {most:,} bytes; what came was deleted")


def _retry_after(header: str) -> float:
    """Return the seconds to wait by a Retry-After header, which is a number or a date; 0 if it is neither."""
    if (seconds := _number_in(header)) is not None:
        return float(seconds)
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _number_in(header: str) -> int | None:
    return int(header) if re.fullmatch(rf"[0-9]{{1,{DIGITS}}}", header) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
