"""Console output of the commands: one-line errors, log lines, progress bars."""

from __future__ import annotations

import argparse
import errno
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NoReturn, TypeVar

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

T = TypeVar("T")


class BertlineError(Exception):
    """A problem the user can act on. Its text is one line: what is wrong, where, what to do."""


class HelpFormatter(argparse.HelpFormatter):
    """Help that states each option's default and keeps the layout of the examples below it, for copying."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default in (None, False, "", argparse.SUPPRESS) or "(default: " in (action.help or "")
        return action.help if silent or not action.option_strings else f"{action.help} (default: %(default)s)"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example"):
            return text
        return "\n\n".join(super(HelpFormatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))


def run_command(main: Callable[[], None]) -> None:
    """Run a script's `main`; turn expected failures into one line on stderr and exit status 1.

    `BertlineError` and full disks are expected; anything else is a bug and keeps its traceback.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    try:
        main()
    except BertlineError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = error.filename or "the output's file system"
            sys.exit(f"error: no space left while writing {where}; free some space and run the same command again")
        raise


def progress(items: Iterable[T], *, description: str, unit: str, total: int | None = None) -> Iterable[T]:
    """Wrap `items` in a progress bar, which is updated every 15 seconds if stderr is a file."""
    interval = 0.5 if sys.stderr.isatty() else 15.0
    return tqdm(items, desc=description, unit=f" {unit}", total=total, mininterval=interval, dynamic_ncols=True)


@contextmanager
def progress_below_log(*, done: int, total: int, unit: str, shown: bool) -> Iterator[tqdm[NoReturn]]:
    """Yield a progress bar below the log lines, shown only if `shown` and on a terminal. `update` may be negative."""
    disable = None if shown else True  # None disables the bar if stderr is a file
    with (
        tqdm(initial=done, total=total, unit=f" {unit}", disable=disable, dynamic_ncols=True) as bar,
        nullcontext() if bar.disable else logging_redirect_tqdm(),
    ):
        yield bar
