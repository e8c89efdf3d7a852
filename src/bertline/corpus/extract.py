"""One part of a dump through wikiextractor, and an account of every page that it holds.

wikiextractor is a program of its own (its licence is AGPL-3.0, so it is started, never imported). It stops at nothing:
it ends with success when no article came out, and hangs for ever on a truncated file. So we read the dump ourselves,
count its pages on the way, and pass it on through a pipe. When we are killed the pipe closes and it ends too.
"""

from __future__ import annotations

import bz2
import html
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

from bertline.console import BertlineError, progress
from bertline.files import fsync_directory, write_json

logger = logging.getLogger(__name__)

PROGRAM = [sys.executable, "-P", "-m", "wikiextractor.WikiExtractor"]
PATIENCE_SECONDS = 600.0  # without a byte in or out, as when one of its workers was killed for lack of memory

_PAGE_ID = re.compile(rb"<id>(\d+)</id>")
_NAMESPACE = re.compile(rb"<ns>(-?\d+)</ns>")


class Article(NamedTuple):
    """What the dump itself says about a page that is an article: in namespace 0 and not a redirect."""

    id: str
    headings: list[str]  # of its sections, as wikitext


def extract_part(part: Path | str, output: Path | str, processes: int = 1) -> None:
    """Extract the articles of one part of a dump into a folder.

    The folder appears complete or not at all. It holds `articles.jsonl`, wikiextractor's own output (one JSON object an
    article: id, revid, url, title, text), `headings.jsonl` (one `[id, [heading, ...]]` for each article of the dump, in
    the same order) and `pages.json` (see `scan_pages`).

    Parameters
    ----------
    part: a `.xml.bz2` of Wikimedia.
    output: the folder to make; one that is there is replaced.
    processes: how many wikiextractor may use beside the two that read and write.

    Raises BertlineError if the part is missing, truncated or damaged, or if no article came out.
    """
    part, output = Path(part), Path(output)
    unfinished = output.with_name(f".{output.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        counts = _run_wikiextractor(part, unfinished, processes)
        if not counts["articles"]:
            raise BertlineError(
                f"{part} holds no articles ({counts['pages']} pages, of these {counts['redirects']} redirects and "
                f"{counts['other_namespaces']} outside the main namespace); name a dump of pages-articles"
            )
        if not (unfinished / "articles.jsonl").stat().st_size:
            raise BertlineError(
                f"wikiextractor found no articles in {part}, which holds {counts['articles']}; "
                "it needs the <siteinfo> with the names of the namespaces at the beginning of the file"
            )
        write_json(unfinished / "pages.json", counts)
        shutil.rmtree(output, ignore_errors=True)
        unfinished.replace(output)
        fsync_directory(output.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_dump(part: Path | str) -> Iterator[bytes]:
    """The lines of a `.xml.bz2`. Raises BertlineError if it is missing, damaged, or ends before its last tag."""
    line = b""
    try:
        with bz2.open(part, "rb") as file:
            for line in file:
                yield line
    except FileNotFoundError:
        raise BertlineError(f"{part} does not exist") from None
    except EOFError:
        raise BertlineError(f"{part} is truncated; delete it and download it again") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise BertlineError(f"{part} is damaged ({error}); delete it and download it again") from None
    # A file may also be cut between two of the streams that a multistream dump consists of.
    if b"</mediawiki>" not in line:
        raise BertlineError(f"{part} is truncated: it ends before </mediawiki>; delete it and download it again")


def scan_pages(lines: Iterable[bytes], counts: dict[str, int]) -> Iterator[Article]:
    """Yield the articles of a dump while its lines stream by.

    `counts` is filled in on the way: `pages` is the sum of `redirects` (in the main namespace), `other_namespaces`
    (with their redirects) and `articles`. Tags stand one on a line in dumps, and text never holds a literal `<`.
    """
    counts.update(pages=0, redirects=0, other_namespaces=0, articles=0)
    page_id, namespace, is_redirect, in_text = b"", b"", False, False
    headings: list[str] = []
    for line in lines:
        if in_text:
            if line.startswith(b"=="):
                headings.append(html.unescape(line.decode("utf-8", "replace")).rstrip())
            in_text = b"</text>" not in line
        elif b"<text" in line:
            content = line.partition(b">")[2]
            in_text = b"</text>" not in line and not line.rstrip().endswith(b"/>")
            if content.startswith(b"=="):
                headings.append(html.unescape(content.decode("utf-8", "replace")).rstrip())
        elif b"<page>" in line:
            page_id, namespace, is_redirect, headings = b"", b"", False, []
        elif b"<redirect" in line:
            is_redirect = True
        elif not page_id and (match := _PAGE_ID.search(line)):
            page_id = match[1]
        elif not namespace and (match := _NAMESPACE.search(line)):
            namespace = match[1]
        elif b"</page>" in line:
            counts["pages"] += 1
            if namespace != b"0":
                counts["other_namespaces"] += 1
            elif is_redirect:
                counts["redirects"] += 1
            else:
                counts["articles"] += 1
                yield Article(page_id.decode(), headings)


def _run_wikiextractor(part: Path, folder: Path, processes: int) -> dict[str, int]:
    """Pass the dump through the program, writing articles.jsonl and headings.jsonl; return the counts of its pages."""
    command = [*PROGRAM, "--json", "--no-templates", "--html-safe", "", "--processes", str(processes)]
    command += ["-o", "-", "/dev/stdin"]
    counts: dict[str, int] = {}
    log, articles = folder / "wikiextractor.log", folder / "articles.jsonl"
    with log.open("wb") as messages, articles.open("wb") as output:
        program = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=output, stderr=messages, start_new_session=True
        )
    pipe = cast(IO[bytes], program.stdin)
    fed = 0

    def pass_on(lines: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal fed
        for line in lines:
            pipe.write(line)
            fed += len(line)
            yield line

    try:
        with (
            _killed_when_idle(program, lambda: (fed, articles.stat().st_size)) as was_idle,
            (folder / "headings.jsonl").open("w", encoding="utf-8") as headings,
        ):
            try:
                found = scan_pages(pass_on(read_dump(part)), counts)
                for article in progress(found, description=part.name, unit="articles"):
                    headings.write(json.dumps(article, ensure_ascii=False) + "\n")
                pipe.close()
                program.wait()
            except BrokenPipeError:
                program.wait()
    finally:
        _kill_group(program)
        program.wait()
        with suppress(BrokenPipeError):
            pipe.close()
    last_words = log.read_text(errors="replace").strip().rpartition("\n")[2]
    log.unlink()
    if was_idle.is_set():
        raise BertlineError(
            f"wikiextractor stood still for {PATIENCE_SECONDS:g} s on {part} and was stopped; one of its processes "
            f"may have been killed for lack of memory, then give the job more; its last words: {last_words or 'none'}"
        )
    if program.returncode != 0:
        raise BertlineError(f"wikiextractor failed on {part} with status {program.returncode}: {last_words}")
    logger.info("wikiextractor: %s", last_words)
    return counts


@contextmanager
def _killed_when_idle(program: subprocess.Popen[bytes], position: Callable[[], object]) -> Iterator[threading.Event]:
    """Kill the program when `position` has not changed for PATIENCE_SECONDS; the event says whether that happened."""
    finished, was_idle = threading.Event(), threading.Event()

    def watch() -> None:
        last = None
        while not finished.wait(PATIENCE_SECONDS):
            current = position()
            if current == last:
                was_idle.set()
                _kill_group(program)
                return
            last = current

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield was_idle
    finally:
        finished.set()
        watcher.join()


def _kill_group(program: subprocess.Popen[bytes]) -> None:
    """Kill the program and the workers it started, which share its process group; no harm if all have ended."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
