"""Console of the commands: one-line errors, progress bars, handlers of signals."""

from __future__ import annotations

import errno
import logging
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, TypeVar

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

T = TypeVar("T")

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
# A path that may not be written or read, that is absent, or a file where a folder is needed, or the reverse.
REFUSED = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST),
    *(errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
# What to do if the disk does not take a file, or does not return it.
DISK_FAILS = {
    errno.EFBIG: "allow larger files (ulimit -f), or name a path on another disk",
    errno.EIO: "check its disk or file server, and run the same command again",
    errno.ESTALE: "check its disk or file server, and run the same command again",
}


# Characters of a message. It begins with the file and ends with what to do; what a file contains is quoted between.
MAX_MESSAGE_LENGTH = 2000
MAX_END_LENGTH = 500


class BertlineError(Exception):
    """A problem the user can act on. Its text is one line: what is wrong, where, what to do.

    The text may quote a file: line breaks and other control characters are escaped, and credentials and the middle of a
    long text are left out.
    """

    def __init__(self, message: str) -> None:
        if len(message) > 4 * MAX_MESSAGE_LENGTH:  # the search for credentials takes quadratic time
            message = f"{message[: 2 * MAX_MESSAGE_LENGTH]} ... {message[-2 * MAX_MESSAGE_LENGTH :]}"
        message = without_credentials(message)
        if not message.isprintable():
            message = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        if len(message) > MAX_MESSAGE_LENGTH:
            message = f"{message[: MAX_MESSAGE_LENGTH - MAX_END_LENGTH - 5]} ... {message[-MAX_END_LENGTH:]}"
        super().__init__(message)


def without_credentials(text: str) -> str:
    """Return `text` without the user names, passwords and queries (which may contain keys) of its URLs.

    Fragments with a =, such as #access_token=..., are left out as well.

    A password may contain any character but a space: up to the last @ everything belongs to it. Of http and https, one
    slash is enough: so pathlib writes an address that was given for a path.
    """
    text = re.sub(rf"{_SCHEME_END}(?:[^\s/@:]*:\S*|[^\s/@]*)@", r"\1", text)
    text = re.sub(rf"{_SCHEME_END}([^\s?#]*)\?[^\s#]*", r"\1\2?...", text)
    return re.sub(rf"{_SCHEME_END}([^\s#]*)#[^\s=]*=\S*", r"\1\2#...", text)


_SCHEME_END = r"(://|(?i:\bhttps?:/))"


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Set up logging, and exit as `exit_on_errors` does."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    with exit_on_errors():
        yield


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Turn expected failures into one line on stderr and exit status 1.

    `BertlineError`, full and failing disks and paths that may not be used are expected; anything else is a bug and
    keeps its traceback.
    """
    try:
        yield
    except BertlineError as error:
        traceback.clear_frames(error.__traceback__)  # ends progress bars, which would be drawn below the message
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno in DISK_IS_FULL:
            where = error.filename or "the output"
            room = "quota" if error.errno == errno.EDQUOT else "space"
            sys.exit(f"error: no {room} left while writing {where}; free some space and run the same command again")
        if error.filename and error.errno in REFUSED:
            todo = "or make it first" if error.errno == errno.ENOENT else "or allow it"
            sys.exit(f"error: {BertlineError(f'{error.filename}: {error.strerror}; name another path, {todo}')}")
        if error.filename and error.errno in DISK_FAILS:
            sys.exit(f"error: {BertlineError(f'{error.filename}: {error.strerror}; {DISK_FAILS[error.errno]}')}")
        raise


def progress(
    items: Iterable[T], *, description: str, unit: str, total: int | None = None, shown: bool = True
) -> Iterable[T]:
    """Wrap `items` in a progress bar, which is updated every 15 seconds if stderr is a file."""
    return tqdm(items, desc=description, unit=f" {unit}", total=total, **_options(shown=shown))


def progress_of_bytes(*, description: str, total: int | None, shown: bool = True) -> tqdm[NoReturn]:
    """Make a progress bar that counts bytes; call its `update` with their number."""
    return tqdm(desc=description, total=total, unit="B", unit_scale=True, unit_divisor=1024, **_options(shown=shown))


def _options(*, shown: bool) -> dict[str, Any]:
    return {"mininterval": 0.5 if sys.stderr.isatty() else 15.0, "dynamic_ncols": True, "disable": not shown}


@contextmanager
def progress_below_log(*, done: int, total: int, unit: str, shown: bool) -> Iterator[tqdm[NoReturn]]:
    """Yield a progress bar below the log lines, shown only if `shown` and on a terminal. `update` may be negative."""
    disable = None if shown else True  # None disables the bar if stderr is a file
    with (
        tqdm(initial=done, total=total, unit=f" {unit}", disable=disable, dynamic_ncols=True) as bar,
        nullcontext() if bar.disable else logging_redirect_tqdm(),
    ):
        yield bar


def handle_signals(numbers: Iterable[int], handler: Callable[[int, Any], Any]) -> None:
    """Install a handler of signals, but not of SIGHUP, a closed terminal, if that is ignored, as under nohup."""
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
