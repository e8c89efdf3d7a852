"""The list of files of a Wikimedia dump."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.download import download, name_of_mirror, obtain
from bertline.corpus.dump_files import natural_order
from bertline.corpus.expected_file import Expected, SourceRefused
from bertline.corpus.http_download import http_session
from bertline.corpus.unpacking import DUMP_FILES
from bertline.files import Json, one_line_damage, parse_json, read_object, write_json

# Both contain the same pages; small or old dumps may have only the latter.
JOBS = ("articlesmultistreamdump", "articlesdump")
MAX_STATUS_BYTES = 1 << 26  # that of the English Wikipedia has 2 MB
# Beyond what any wiki has: the English Wikipedia is in some dozens of parts, of up to some GB.
MAX_PARTS = 10_000
MAX_PART_BYTES = 1 << 40
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def list_parts(wiki: str, dump: str, mirrors: list[str], output: Path, contact: str | None = None) -> None:
    """Write the parts of a dump, as the first mirror lists them that does.

    The listing is `{"wiki", "dump", "parts": {"part-00000": {"file", "size", "sha1", "path"}, ...}}` in the order of
    the pages; `path` is relative to a mirror.

    Args:
        wiki: the wiki's database name, such as `enwiki`.
        dump: the dump's date, such as `20261101`.
        mirrors: URLs, or folders with a copy (such as a site's /public/dumps), tried in order;
            `{mirror}/{wiki}/{dump}/dumpstatus.json` is read, see
            https://meta.wikimedia.org/wiki/Data_dumps/Status_format.
        output: the listing to write.
        contact: an e-mail address or a URL; Wikimedia blocks requests without one.

    Raises BertlineError with the response of each mirror.
    """
    answers = []
    for mirror in mirrors:
        try:
            status = _dump_status(mirror, wiki, dump, contact)
            return write_json(output, {"wiki": wiki, "dump": dump, "parts": _parts(status, wiki, dump)})
        except SourceRefused as problem:
            answers.append(f"{name_of_mirror(mirror)}: {problem}")
    raise BertlineError(f"no mirror lists the dump {dump} of {wiki}: {'; '.join(answers)}; name another date or mirror")


def download_part(listing: Path, part: str, mirrors: list[str], output: Path, contact: str | None = None) -> None:
    """Download a part, and verify its size and checksum.

    Args:
        listing: the parts.json that `list_parts` wrote.
        part: the part's name in the listing.
        mirrors: URLs, or folders with a copy; tried in order.
        output: the file to write.
        contact: an e-mail address or a URL; Wikimedia blocks requests without one.

    Raises BertlineError if the listing does not contain the part or no mirror has it.
    """
    with one_line_damage(listing):
        known = dict(read_object(listing)["parts"])
        if part not in known:
            raise BertlineError(f"{listing} has no '{part}'; it has {', '.join(list(known)[:3])} ({len(known)} in all)")
        expected, path = _expected(known[part]), str(known[part]["path"])
    download([f"{mirror.rstrip('/')}/{path}" for mirror in mirrors], output, expected, contact=contact)


def _dump_status(mirror: str, wiki: str, dump: str, contact: str | None) -> Json:
    location = f"{mirror.rstrip('/')}/{wiki}/{dump}/dumpstatus.json"
    with http_session(contact) as session, tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "dumpstatus.json")
        try:
            obtain(session, location, answer, Expected(max_size=MAX_STATUS_BYTES))
            return parse_json(answer.read_text(encoding="utf-8"))
        except SourceRefused as refusal:
            raise SourceRefused(f"{refusal} ({wiki}/{dump}/dumpstatus.json)") from None
        except ValueError:
            raise SourceRefused(f"{wiki}/{dump}/dumpstatus.json is not JSON") from None


def _expected(described: Json) -> Expected:
    """Return the size and the checksum of a file. Raises the errors of an unexpected form."""
    size, sha1 = described["size"], described["sha1"]
    if type(size) is not int or not 1 <= size <= MAX_PART_BYTES:
        raise ValueError(f"a size of {str(size)[:50]}")
    if not re.fullmatch("[0-9a-fA-F]{40}", sha1):
        raise ValueError(f"the sha1 {sha1[:50]!r}")
    return Expected(size=size, sha1=sha1)


def _is_page_content(name: str) -> bool:
    return name.endswith(".bz2") and DUMP_FILES.search(name) is not None


def _parts(status: Json, wiki: str, dump: str) -> Json:
    """Return the page-content files of the first job that is done, in the order of their pages."""
    try:
        jobs = {job: status["jobs"][job] for job in JOBS if job in status["jobs"]}
        states = {job: description["status"] for job, description in jobs.items()}
        done = next((job for job in jobs if states[job] == "done"), None)
        if done is None:
            described = ", ".join(f"{job} is '{state}'" for job, state in states.items()) or f"it has no {JOBS[0]}"
            raise SourceRefused(f"the dump is not done: {described}")
        files = {name: file for name, file in jobs[done]["files"].items() if _is_page_content(name)}
        if not files:
            raise SourceRefused(f"{done} lists no page content (*.xml*.bz2)")
        if len(files) > MAX_PARTS:
            raise SourceRefused(f"{done} lists {len(files):,} files; at most {MAX_PARTS:,} are taken")
        for name in files:
            if not _PLAIN_NAME.fullmatch(name):  # it becomes a local path, so it may not lead elsewhere
                raise SourceRefused(f"{done} lists {name!r}, which is not the name of a file")
        return {
            f"part-{index:05d}": {
                "file": name,
                "size": _expected(files[name]).size,
                "sha1": _expected(files[name]).sha1,
                "path": f"{wiki}/{dump}/{name}",
            }
            for index, name in enumerate(sorted(files, key=natural_order))
        }
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise SourceRefused(f"its dumpstatus.json has an unknown form ({error!r})") from None
