"""Downloads of single files, verified, from the first of several sources that has them.

Data is written to `{destination}.part`, which is renamed once its size and checksum are right. A `.part` left by an
earlier attempt is continued, if a checksum can show that both halves are of one file. Only one process downloads a
file at a time.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import requests

from bertline.console import BertlineError, without_credentials
from bertline.corpus.download_lock import lock_of
from bertline.corpus.expected_file import Expected, SourceRefused, write_part
from bertline.corpus.http_download import fetch, host_of, http_session, is_url
from bertline.corpus.unpacking import Allowance, as_damage_error, zip_members
from bertline.files import fsync_directory, write_atomically

logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20
MAX_ZIP_RATIO = 100  # of bytes unpacked to bytes packed; text reaches 10


def download(
    sources: list[str],
    destination: Path,
    expected: Expected,
    *,
    contact: str | None = None,
    token: str | None = None,
    pause: float = 0.0,
) -> None:
    """Download one file from the first source that has it.

    If another process is downloading the same file, wait for it and take its result.

    Args:
        sources: URLs (http, https) or paths of local files, tried in this order.
        destination: written only when complete and verified.
        expected: the size and checksums to verify. Without a checksum nothing that another source or an earlier run
            sent is continued, because it may be the beginning of another file.
        contact: an e-mail address or URL for the User-Agent; Wikimedia blocks requests without one.
        token: proves the right to read, to the sources' own hosts only.
        pause: seconds to wait after each URL.

    Raises BertlineError with the response of each source.
    """
    part = destination.with_name(f"{destination.name}.part")
    answers = []
    with lock_of(destination) as is_made, http_session(contact, token) as session:
        if is_made and expected.problem_of(destination) is None:
            return
        for source in sources:
            try:
                obtain(session, source, part, expected)
            except SourceRefused as refusal:
                answers.append(f"{name_of_mirror(source)}: {refusal}")
            else:
                part.replace(destination)
                fsync_directory(destination.parent)
                return
            finally:
                if pause and is_url(source):
                    time.sleep(pause)
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
    with lock_of(output) as is_made:
        if is_made:
            return
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


def name_of_mirror(source: str) -> str:
    """Return the host of a URL, or the path."""
    if not is_url(source):
        return source
    try:
        return host_of(source)
    except SourceRefused:
        return "an address"  # any part of it may be a password


def obtain(session: requests.Session, source: str, part: Path, expected: Expected) -> None:
    """Download `part` from one source and verify it; a wrong file is deleted. Raises SourceRefused."""
    if is_url(source):
        host_of(source)
    if not expected.has_checksum:
        part.unlink(missing_ok=True)
        if source.lower().startswith("http://"):
            logger.warning("%s: neither https nor a checksum protects this file", without_credentials(source))
    was_there = part.exists()
    while True:
        if is_url(source):
            fetch(session, source, part, expected)
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
        original = source.open("rb")
    except FileNotFoundError:
        raise SourceRefused("does not exist") from None
    except OSError as error:
        raise SourceRefused(str(error.strerror).lower()) from None
    with original:
        size = os.fstat(original.fileno()).st_size
        write_part(iter(lambda: original.read(COPY_BYTES), b""), part, "wb", size, size)
