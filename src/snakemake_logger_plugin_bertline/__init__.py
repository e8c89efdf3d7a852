"""Snakemake's logger plugin `bertline`: on a terminal, a line for each finished job, below them progress and time left.

A dry run lists the jobs, also if its output is not a terminal. Snakemake's own log is complete in .snakemake/log. With
VERBOSE=1, or if the output of a real run is not a terminal, Snakemake prints that log itself.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_bertline.display import Display, is_shown
from snakemake_logger_plugin_bertline.dry_run import DryRun


class LogHandler(LogHandlerBase):
    """Shows a run of the graph on the terminal."""

    def __post_init__(self) -> None:
        verbose = os.environ.get("VERBOSE", "0") not in ("", "0")
        self.display: Display | DryRun | None = None
        if self.common_settings.dryrun and not verbose:
            self.display = DryRun()
        elif sys.stderr.isatty() and not verbose:
            self.display = Display()
        self.has_failed = False
        self.runs_graph = False
        self.messages: list[str] = []  # that the display does not show, before a run

    def emit(self, record: logging.LogRecord) -> None:
        """Show an event of the run. An error of the display is one line, and the run goes on."""
        if self.display is None:
            return
        event = getattr(record, "event", None)
        if event == LogEvent.WORKFLOW_STARTED:
            self.runs_graph = True
        elif event is None and record.msg is not None and not self.runs_graph and not is_shown(record):
            self.messages.append(record.getMessage())
        self._try(partial(self.display.show, record))

    def close(self) -> None:
        """Leave the terminal as it was.

        Where no graph was run, or would be, as with --unlock or --delete-all-output, say what Snakemake has said.
        """
        if self.display is not None:
            self._try(self.display.stop)
            if not self.runs_graph:
                for message in self.messages:
                    print(message, file=sys.stderr)
                self.messages.clear()
        super().close()

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if not self.has_failed:
                self.has_failed = True
                with suppress(OSError):  # of a terminal that was closed
                    print(f"the display has failed ({error!r}), the run goes on; VERBOSE=1 shows it", file=sys.stderr)

    @property
    def writes_to_stream(self) -> bool:
        """Whether Snakemake leaves the terminal to this plugin."""
        return self.display is not None

    @property
    def writes_to_file(self) -> bool:
        """False: Snakemake writes the file."""
        return False

    @property
    def has_filter(self) -> bool:
        """True: Snakemake's own filter would need --quiet."""
        return True

    @property
    def has_formatter(self) -> bool:
        """True: nothing is formatted as Snakemake does it."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """Whether the graph of the rules is sent, too."""
        return False
