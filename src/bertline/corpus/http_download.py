"""A file from one web server: requests that identify the client, are repeated, and continue with HTTP Range.

Servers are untrusted: no more bytes are written than are expected or allowed, bodies are stored as sent, and without a
checksum a redirect must not leave https, and only the same version of a file is continued.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
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
import urllib3

from bertline import __version__
from bertline.console import without_credentials
from bertline.corpus.expected_file import Expected, SourceRefused, size_of, write_part

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 16  # small, because an interrupted piece is lost
TIMEOUT_SECONDS = (30, 60)  # to connect; between two pieces of the response
ATTEMPTS = 6  # failures in a row, without a byte of progress, after which a source is abandoned
FIRST_WAIT_SECONDS = 2.0  # doubled after each failure; a longer Retry-After is honoured
MAX_WAIT_SECONDS = 600.0
MAX_UNSTATED_BYTES = 1 << 32  # of a file whose size neither the caller nor the server states
DIGITS = 15  # of a number in a header, at most
# A file that changes twice within this time may keep its date: RFC 9110, 8.8.2.2.
SECONDS_OF_A_DATE = 60
# A busy or restarting server; any other status but success is final.
_PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # the first that is set counts


class _Interrupted(Exception):
    """Raised if an attempt fails in a way that may be temporary."""

    def __init__(self, answer: str, retry_after: float = 0.0) -> None:
        super().__init__(answer)
        self.retry_after = retry_after


class _Session(requests.Session):
    """A session whose token no entry of ~/.netrc replaces; as with requests, it does not follow to another host."""

    def rebuild_auth(self, prepared_request: Any, response: Any) -> None:
        if self.auth is None:
            super().rebuild_auth(prepared_request, response)
        elif self.should_strip_auth(response.request.url, prepared_request.url):
            prepared_request.headers.pop("Authorization", None)


def http_session(contact: str | None, token: str | None = None) -> requests.Session:
    """Return a session that names the client, and proves the right to read by `token`, if there is one.

    The User-Agent is that of https://foundation.wikimedia.org/wiki/Policy:User-Agent_policy.
    """
    session = _Session()
    described = f" ({contact})" if contact else ""
    session.headers["User-Agent"] = f"bertline/{__version__}{described}".encode("ascii", "replace").decode()
    session.headers["Accept-Encoding"] = "identity"  # the checksums are those of the file as stored
    session.hooks["response"].append(_without_body_of_redirect)
    if token:

        def authorize(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        session.auth = authorize
    return session


def _without_body_of_redirect(response: requests.Response, **_: Any) -> None:
    if response.is_redirect:
        response.close()  # requests would unpack all of it into memory


def is_url(source: str) -> bool:
    """Return whether a source is asked over the network."""
    return source.lower().startswith(("http://", "https://"))


def host_of(url: str) -> str:
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


@dataclass
class _Transfer:
    """The transfer of a file, in as many attempts as it takes.

    Attributes:
        version: without a checksum, what names the version of the file whose beginning is in `part`, for If-Range; None
            if nothing does, and with a checksum.
    """

    session: requests.Session
    source: str
    part: Path
    expected: Expected
    version: str | None = None


def fetch(session: requests.Session, source: str, part: Path, expected: Expected) -> None:
    """Download `part` from a server, in several attempts if need be. Raises SourceRefused."""
    transfer = _Transfer(session, source, part, expected)
    failures, furthest = 0, size_of(part)

    def attempt() -> None:
        nonlocal failures, furthest
        try:
            _fetch_once(transfer)
        except _Interrupted:
            # A server that ignores Range sends everything again, so only bytes never reached before are progress.
            failures = 1 if size_of(part) > furthest else failures + 1
            furthest = max(furthest, size_of(part))
            raise

    def wait(state: tenacity.RetryCallState) -> float:
        interruption = state.outcome.exception() if state.outcome else None
        asked_for = interruption.retry_after if isinstance(interruption, _Interrupted) else 0.0
        return min(max(FIRST_WAIT_SECONDS * 2 ** (failures - 1), asked_for), MAX_WAIT_SECONDS)

    def announce(state: tenacity.RetryCallState) -> None:
        answer, seconds = state.outcome and state.outcome.exception(), state.upcoming_sleep
        logger.info("%s: %s; retrying in %.0f s", host_of(source), answer, seconds)

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


def _fetch_once(transfer: _Transfer) -> None:
    """Request the missing bytes of the file once."""
    part, expected = transfer.part, transfer.expected
    if expected.size is not None and size_of(part) == expected.size:
        part.touch()  # an empty file may not be there yet
        return
    is_too_long = expected.size is not None and size_of(part) > expected.size
    # Nothing would show that the rest is another file's.
    if is_too_long or not (expected.has_checksum or transfer.version):
        part.unlink(missing_ok=True)
    offset = size_of(part)
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    transfer.version = transfer.version if offset else None
    if transfer.version:
        headers["If-Range"] = transfer.version
    try:
        with _ask(transfer.session, transfer.source, headers) as response:
            is_continuation = _is_continuation(response, transfer, offset)
            _check_way(response, expected)
            if is_continuation or response.status_code == requests.codes.ok:
                start = offset if is_continuation else 0  # a server may ignore Range and send everything
                if not is_continuation and not expected.has_checksum:
                    transfer.version = _version_of(response)
                length = _number_in(response.headers.get("Content-Length", ""))
                total = None if length is None else start + length
                most = expected.max_size if total is not None else min(expected.max_size, MAX_UNSTATED_BYTES)
                response.raw.headers.pop("Content-Encoding", None)  # so that the body is not decoded
                body = response.iter_content(PIECE_BYTES)
                write_part(body, part, "ab" if start else "wb", total, expected.size or most)
    except requests.RequestException as error:
        raise _problem_of(error, size_of(part)) from None
    except ValueError as error:  # of urllib3, for some redirects
        raise SourceRefused(f"redirects to what is no URL ({type(error).__name__})") from None
    if expected.size is not None and size_of(part) < expected.size:
        raise _Interrupted(f"connection lost after {size_of(part)} of {expected.size} bytes")


def _ask(session: requests.Session, source: str, headers: dict[str, str]) -> requests.Response:
    try:
        return session.get(source, headers=headers, stream=True, timeout=TIMEOUT_SECONDS)
    except requests.RequestException:
        raise
    except OSError:  # of requests, before it connects
        name = next((name for name in _CERTIFICATES if os.environ.get(name)), "the package certifi")
        raise SourceRefused(f"cannot be asked: {name} names certificates that do not exist; correct it") from None


def _is_continuation(response: requests.Response, transfer: _Transfer, offset: int) -> bool:
    """Return whether the response's body continues at `offset`. Raises for every response without a usable body."""
    status, expected = response.status_code, transfer.expected
    stated = response.headers.get("Content-Range", "")
    if status == requests.codes.ok:
        return False
    if status == requests.codes.partial_content and not _is_of_another_version(response, transfer):
        sent = re.fullmatch(rf"bytes {offset}-([0-9]{{1,{DIGITS}}})/([0-9]{{1,{DIGITS}}})", stated)
        # With a size, the rest is asked for; without one, the end of an answer is taken for that of the file.
        if sent is None and expected.size is not None and stated.startswith(f"bytes {offset}-"):
            return True
        if sent and (expected.size is not None or int(sent[1]) + 1 == int(sent[2])):
            return True
    if status in (requests.codes.partial_content, requests.codes.requested_range_not_satisfiable):
        if expected.has_checksum and re.fullmatch(rf"bytes \*/{offset}", stated):
            return False  # nothing is missing
        transfer.part.unlink(missing_ok=True)
        raise _Interrupted(f"HTTP {status} with range {stated[:100]!a}")
    if status in _PASSING_STATUS:
        raise _Interrupted(f"HTTP {status}", _retry_after(response.headers.get("Retry-After", "")))
    raise SourceRefused(f"HTTP {status}", response.headers)


def _is_of_another_version(response: requests.Response, transfer: _Transfer) -> bool:
    """Return whether a server continues, in spite of If-Range, with another version of the file."""
    if transfer.version is None:
        return False
    tag, modified = response.headers.get("ETag"), response.headers.get("Last-Modified", transfer.version)
    return transfer.version != (tag if transfer.version.startswith('"') else modified)


def _version_of(response: requests.Response) -> str | None:
    """Return what names this version of the file in If-Range (RFC 9110, 13.1.5): a strong entity tag or an old date."""
    tag, modified = response.headers.get("ETag"), response.headers.get("Last-Modified", "")
    if tag is not None:
        return tag if re.fullmatch(r'"[!#-~]*"', tag) else None
    sent, changed = _date_in(response.headers.get("Date", "")), _date_in(modified)
    if sent is None or changed is None or (sent - changed).total_seconds() < SECONDS_OF_A_DATE:
        return None
    return modified if modified.isascii() and modified.isprintable() else None


def _check_way(response: requests.Response, expected: Expected) -> None:
    """Raise SourceRefused for what was not asked for.

    That is an encoding, and without a checksum a redirect from https to http, or a web page.
    """
    way = [*(answer.url for answer in response.history), response.url]
    names = [urlsplit(url).path for url in way]
    if not expected.has_checksum and any(a.startswith("https:") and b.startswith("http:") for a, b in pairwise(way)):
        raise SourceRefused(f"redirects from https to {without_credentials(way[-1])}; give a checksum, or another URL")
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    # Some servers describe a .gz file as the encoded form of another file, and send it as it is.
    is_packed_file = encoding in ("gzip", "x-gzip") and any(name.endswith((".gz", ".tgz")) for name in names)
    if encoding not in ("", "identity") and not is_packed_file:
        raise SourceRefused(f"sends the file encoded ({encoding}), which was not asked for")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/html" and not expected.has_checksum and not names[0].endswith((".html", ".htm", ".xhtml")):
        raise SourceRefused("sends a web page (text/html) instead of the file")


def _problem_of(error: requests.RequestException, arrived: int) -> SourceRefused | _Interrupted:
    """Return what a failure of a request means, after `arrived` bytes; the error's text may quote a password."""
    errors = list(_chain(error))
    cause = errors[-1]
    reason = (cause.strerror if isinstance(cause, OSError) else None) or type(error).__name__
    if isinstance(error, requests.TooManyRedirects):
        return SourceRefused("redirects without an end")
    if isinstance(error, ValueError) and "SOCKS" in str(error):
        return SourceRefused(
            "cannot be asked through a proxy of SOCKS without PySocks; install it, or name another proxy"
        )
    if isinstance(error, ValueError):  # not a URL, not a header
        return SourceRefused(f"cannot be asked ({type(error).__name__}), or redirects to what is no URL")
    if isinstance(cause, ssl.SSLCertVerificationError):
        return SourceRefused(
            f"its certificate is not accepted ({cause.verify_message}); name those of your site in {_CERTIFICATES[0]}"
        )
    is_connecting = any(isinstance(found, urllib3.exceptions.MaxRetryError) for found in errors)
    if isinstance(error, requests.exceptions.SSLError) and is_connecting and not isinstance(cause, ssl.SSLEOFError):
        return SourceRefused(f"does not speak TLS as expected ({reason})")
    if isinstance(error, requests.exceptions.ProxyError):
        refused = re.search(r"Tunnel connection failed: ([0-9]{3})", str(error))
        return _Interrupted(f"no connection through the proxy ({f'HTTP {refused[1]}' if refused else reason})")
    if any(isinstance(found, urllib3.exceptions.NewConnectionError) for found in errors):
        return _Interrupted(f"no connection ({reason})")
    return _Interrupted(f"connection lost after {arrived} bytes ({reason})")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error of requests and what caused it, in urllib3 and in the system."""
    while error is not None:
        yield error
        inner = (getattr(error, "reason", None), *error.args, error.__cause__)
        error = next((found for found in inner if isinstance(found, BaseException)), None)


def _retry_after(header: str) -> float:
    """Return the seconds to wait by a Retry-After header, which is a number or a date; 0 if it is neither."""
    if (seconds := _number_in(header)) is not None:
        return float(seconds)
    date = _date_in(header)
    return 0.0 if date is None else max(0.0, (date - datetime.now(UTC)).total_seconds())


def _date_in(header: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(header)
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo else None


def _number_in(header: str) -> int | None:
    return int(header) if re.fullmatch(rf"[0-9]{{1,{DIGITS}}}", header) else None
