"""Extraction of the articles of one part of a dump, with counts of all its pages.

bertline's own extractor is `articles.write_articles`. wikiextractor is a separate program (its licence is AGPL-3.0, so
it is run, never imported). It detects no errors: it exits with success without any article, and hangs on a truncated
file. So this module reads the dump, counts its pages, passes it on through a pipe, and stops the program if it makes no
progress. A guard kills it with all its processes when this process ends for any reason.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

import psutil

from bertline.console import BertlineError, progress
from bertline.corpus.articles import write_articles
from bertline.corpus.dump import headings_of
from bertline.corpus.dump_files import read_pages
from bertline.corpus.given_files import planned_files
from bertline.files import Json, Recipe, write_folder_atomically, write_json

logger = logging.getLogger(__name__)

Guard = subprocess.Popen[bytes]

PROGRAM = [sys.executable, "-P", "-m", "wikiextractor.WikiExtractor"]
PATIENCE_SECONDS = 300.0  # without a page in or a byte out; the longest page of a dump takes less than a minute
STUCK = "it is still working on one of the next pages; use `extractor: bertline`, which does not have this problem"
WAITING = "its processes wait for one that has ended, perhaps killed for lack of memory; give the job more memory"
LOST_SHARE = 0.1  # of that time, if one of its processes has ended, as when the disk is full
POLL_SECONDS = 1.0
FILES = ("articles.jsonl", "headings.jsonl", "pages.json")
IDLE_SHARE = 0.05  # of that time on a processor; less means that its processes only wait for each other


def extract_part(
    recipe: Recipe, part: Path, output: Path, *, slice: tuple[int, int] = (0, 1), processes: int = 1
) -> None:
    """Extract the articles of one part of a dump, or of a slice of it, into a folder.

    The folder is written atomically. It contains `articles.jsonl` (one JSON object per article: id, revid, url, title,
    text), `headings.jsonl` (one `[id, [heading, ...]]` for each article of the dump, in the same order) and
    `pages.json` (the counts of `dump_files.read_pages`; oversized pages are not passed to any extractor).

    Args:
        recipe: of the corpus, a file of results/recipes. It uses the settings of extractors, `salvage`, `unpack_ratio`.
        part: a dump, of a name in `unpacking.DUMP_FILES`.
        output: the folder to write; one that contains nothing but these files is replaced.
        slice: index of the slice to read, from 0, and number of slices.
        processes: how many wikiextractor may use in addition to its reader and its writer.

    Raises BertlineError if the part is missing, truncated, damaged or changed since it was planned, or if a whole part
    gives no article; for a folder with other files, and for a slice that is none.
    """
    extractor, (number, of) = recipe["settings"]["extractor"], slice
    if not 0 <= number < of:
        raise BertlineError(f"--slice {number} {of}: the first number is counted from 0 and below the second")
    with write_folder_atomically(output, replaces=FILES, sources=[part]) as unfinished, planned_files(recipe, [part]):
        if extractor == "bertline":
            counts = write_articles(part, unfinished, number, of, recipe["settings"])
        else:
            counts = _run_wikiextractor(part, unfinished, processes, number, of, recipe["settings"])
        if not counts["articles"] and of == 1:
            raise BertlineError(
                f"{part} holds no articles ({counts['pages']} pages, including {counts['redirects']} redirects and "
                f"{counts['other_namespaces']} in other namespaces or not wikitext); name a dump of pages-articles"
            )
        if counts["articles"] > counts["oversized"] and not (unfinished / "articles.jsonl").stat().st_size:
            raise BertlineError(
                f"{extractor} found no articles in {part}, which holds {counts['articles']}; "
                "it needs the <siteinfo> with the names of the namespaces at the beginning of the file"
            )
        write_json(unfinished / "pages.json", counts)


def _run_wikiextractor(part: Path, folder: Path, processes: int, number: int, of: int, settings: Json) -> Json:
    """Run the program on the dump, writing articles.jsonl and headings.jsonl; return the counts of its pages."""
    command = [*PROGRAM, "--json", "--no-templates", "--html-safe", "", "--processes", str(processes)]
    command += ["-o", "-", "/dev/stdin"]
    counts: Json = {}
    log, articles = folder / "wikiextractor.log", folder / "articles.jsonl"
    # The leader of the process group ends it when its input does. Only this process holds the other end.
    guard = subprocess.Popen(["/bin/sh", "-c", "read line; kill -KILL 0"], stdin=subprocess.PIPE, process_group=0)
    with log.open("wb") as messages, articles.open("wb") as output:
        program = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=output, stderr=messages, process_group=guard.pid
        )
    pipe = cast(IO[bytes], program.stdin)
    try:
        with (
            _killed_without_progress(guard, lambda: (counts.get("pages"), articles.stat().st_size)) as reasons,
            (folder / "headings.jsonl").open("w", encoding="utf-8") as headings,
        ):
            try:
                found = read_pages(part, number, of, settings, counts)
                for page, article in progress(found, description=part.name, unit="pages"):
                    pipe.write(page)
                    if article is not None:
                        headings.write(json.dumps([article, headings_of(page)], ensure_ascii=False) + "\n")
                pipe.close()
                program.wait()
            except BrokenPipeError:
                program.wait()
    finally:
        _kill_group(guard)
        for process in (program, guard):
            process.wait()
            with suppress(BrokenPipeError):
                cast(IO[bytes], process.stdin).close()
    last_line = log.read_text(errors="replace").strip().rpartition("\n")[2]
    log.unlink()
    for reason in reasons:
        raise BertlineError(
            f"wikiextractor made no progress on {part} after {_last_title(articles)}, and was stopped {reason}; "
            f"its last message: {last_line or 'none'}"
        )
    if program.returncode != 0:
        raise BertlineError(
            f"wikiextractor failed on {part} with status {program.returncode}, last message: {last_line or 'none'}; "
            "run it again, or take `extractor: bertline`"
        )
    logger.info("wikiextractor: %s", last_line)
    return counts


@contextmanager
def _killed_without_progress(guard: Guard, position: Callable[[], object]) -> Iterator[list[str]]:
    """Kill the guard's group if `position` has not changed for PATIENCE_SECONDS; the list then has the reason."""
    finished = threading.Event()
    reasons: list[str] = []

    def watch() -> None:
        last, since, seconds_then = None, time.monotonic(), 0.0
        while not finished.wait(POLL_SECONDS):
            current, waited = position(), time.monotonic() - since
            seconds, has_lost_one = _processes_of(guard)
            if current != last:
                last, since, seconds_then = current, time.monotonic(), seconds
            elif waited > PATIENCE_SECONDS or (has_lost_one and waited > PATIENCE_SECONDS * LOST_SHARE):
                is_computing = not has_lost_one and seconds - seconds_then > IDLE_SHARE * waited
                reasons.append(f"after {waited:.1f} s: {STUCK if is_computing else WAITING}")
                _kill_group(guard)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield reasons
    finally:
        finished.set()
        watcher.join()


def _processes_of(guard: Guard) -> tuple[float, bool]:
    """Return the processor time of the processes of the guard's group, and whether one of them has ended."""
    seconds, has_ended = 0.0, False
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == guard.pid:
                times = process.cpu_times()
                seconds += times.user + times.system
                has_ended |= process.status() == psutil.STATUS_ZOMBIE
    return seconds, has_ended


def _last_title(articles: Path) -> str:
    """Return the title of the last article that was written, for an error message."""
    last = b""
    with articles.open("rb") as file:
        for line in file:
            last = line if line.endswith(b"\n") else last
    return f"the article '{json.loads(last)['title']}'" if last else "no article"


def _kill_group(guard: Guard) -> None:
    """Kill the guard, the program and its workers; do nothing if all have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(guard.pid, signal.SIGKILL)
