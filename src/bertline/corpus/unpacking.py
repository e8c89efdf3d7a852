"""Streaming of packed files: gzip, bzip2, xz, zstd, tar, zip. Nothing is written to disk.

Packed files are untrusted input. Unpacked bytes are counted against an allowance of a multiple of the file's size. The
names of members become ids of documents, so a name that leads out of the archive is rejected. Truncated or damaged
archives are errors, even where the standard library silently stops reading.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from pyzstd import ZstdError, ZstdFile

from bertline.console import BertlineError
from bertline.corpus.documents import tidy
from bertline.corpus.streams import BUFFER_BYTES, Streams

# Ends of the names of packed files, those of packed tar files last.
GZIP, BZIP2, XZ, ZSTD = (".gz", ".tgz"), (".bz2", ".tbz", ".tbz2"), (".xz", ".txz"), (".zst", ".tzst")
SHORT_TARS = (*GZIP[1:], *BZIP2[1:], *XZ[1:], *ZSTD[1:])
ARCHIVES = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", *SHORT_TARS, ".zip")
WEB_PAGES = (".html", ".htm", ".xhtml")
TEXTS = (".txt", *WEB_PAGES)  # members of archives that are read
# Names of a wiki's dump; a large one has parts, such as enwiki-20260101-pages-articles1.xml-p1p41242.bz2.
_XML = r"\.xml(-p[0-9]+p[0-9]+)?"
DUMP_FILES = re.compile(rf"({_XML}(\.(bz2|gz|xz|zst|7z))?|\.7z)$", re.IGNORECASE)
UNPACKED_DUMP_FILES = re.compile(rf"{_XML}$", re.IGNORECASE)  # in a 7z archive
CRAWLS = (".warc", ".wet", ".wat")
OFFICE = (".rtf", ".doc", ".docx", ".odt", ".xls", ".xlsx", ".ppt", ".pptx")
FORMATTED = (*OFFICE, ".pdf", ".epub", ".mobi", ".fb2", ".mht", ".mhtml", ".feather")
OTHERWISE_PACKED = (".rar", ".lzma", ".lz", ".lz4", ".z", ".br", ".lzo")
UNPACK_RATIO = 100.0  # of files for which a configuration sets none
ALWAYS_ALLOWED_BYTES = 1 << 24  # small files that compress very well are harmless
MAX_HEADER_BYTES = 1 << 20  # of a tar's member; tarfile reads it whole
MAX_ZIP_END_BYTES = 22 + 0xFFFF  # with its comment
ZIP64 = 0xFFFF  # replaces a number that does not fit
MAX_XZ_MEMORY = 1 << 28  # bytes; `xz -9` needs 2 ** 26
XZ_START = b"\xfd7zXZ\0"
# What files are, by how they begin; no text begins so.
PACKED_STARTS = {
    b"\x1f\x8b\x08": "packed by gzip",
    **{b"\x1f\x9d%c" % (0x80 | bits): "packed by compress" for bits in range(9, 17)},
    **{b"BZh%d1AY&SY" % level: "packed by bzip2" for level in range(1, 10)},
    XZ_START: "packed by xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"\x04\x22\x4d\x18": "packed by lz4",
    b"LZIP\x01": "packed by lzip",
    b"PK\x03\x04": "packed by zip",
    b"7z\xbc\xaf\x27\x1c": "packed by 7-Zip",
    b"Rar!\x1a\x07": "packed by RAR",
    b"%PDF-": "a PDF",
}
TAR_MARK = slice(257, 265)  # of the header of a tar's first member
START_BYTES = TAR_MARK.stop
_COMPRESSION = re.compile(r"\.(gz|bz2|xz|zst)$", re.IGNORECASE)
_SENTENCES = re.compile(r"[-_]sentences\.txt(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)


class Allowance:
    """The number of bytes that a file may still unpack to, over all of its layers and members."""

    def __init__(
        self, path: Path, ratio: float, *, advice: str = "if it is not meant to harm, raise the corpus's unpack_ratio"
    ) -> None:
        self.path, self.ratio, self.advice = path, ratio, advice
        self.left = max(ALWAYS_ALLOWED_BYTES, int(ratio * path.stat().st_size))

    def take(self, size: int) -> None:
        """Count unpacked bytes. Raises BertlineError if they are too many."""
        self.left -= size
        if self.left < 0:
            raise BertlineError(f"{self.path} unpacks to more than {self.ratio:g} times its size; {self.advice}")


class _OneWay(io.RawIOBase):
    """A stream that is read from its start to its end, and cannot go back."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self._is_start = stream, True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        read: Callable[[int], bytes] = self.stream.read1  # type: ignore[attr-defined]  # loses nothing before damage
        content = read(len(buffer))
        # The first member of a gzip file, or frame of zstd, may be shorter than what tells the kind of its content.
        while self._is_start and len(content) < START_BYTES and (more := read(len(buffer) - len(content))):
            content += more
        self._is_start = False
        buffer[: len(content)] = content
        return len(content)


class _Counted(_OneWay):
    """A stream whose bytes are taken from an allowance."""

    def __init__(self, stream: BinaryIO, allowance: Allowance) -> None:
        super().__init__(stream)
        self.allowance = allowance

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = super().readinto(buffer)
        self.allowance.take(size)
        return size


@contextmanager
def as_damage_error(name: str) -> Iterator[None]:
    """Turn the libraries' errors for damaged, truncated or missing files into a BertlineError about `name`."""
    try:
        yield
    except FileNotFoundError:
        raise BertlineError(f"{name} does not exist; check the path") from None
    except IsADirectoryError:
        raise BertlineError(f"{name} is a folder; name the files in it, such as {name}/*.txt") from None
    except PermissionError:
        raise BertlineError(f"{name} cannot be read: permission denied; ask its owner, or see `ls -l`") from None
    except NotImplementedError as error:  # a zip of a later version
        raise BertlineError(f"{name} cannot be unpacked ({error}); pack it again") from None
    except (OSError, *DAMAGE) as error:
        # Without a number: of gzip and bz2. With this one: a position before the start.
        if getattr(error, "errno", None) not in (None, errno.EINVAL):
            raise
        if "emory" in str(error):  # of zstd and xz
            advice = "unpack it, or pack it again with a smaller window or dictionary (without --long)"
            raise BertlineError(
                f"{name} needs more memory to be unpacked than is allowed ({error}); {advice}"
            ) from None
        raise BertlineError(f"{name} is damaged or truncated ({error}); replace it") from None


# Errors of damaged files, besides an OSError without a number.
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, ZstdError, tarfile.TarError, zipfile.BadZipFile)


def name_without_compression(name: str) -> str:
    """Return `book.txt` for `book.txt.gz`."""
    return _COMPRESSION.sub("", name)


def is_compressed(name: str) -> bool:
    """Return whether a file is compressed, by its name.

    Parquet is inside; Arrow is not, as Hugging Face's datasets write it.
    """
    return name_without_compression(name) != name or name.lower().endswith((*SHORT_TARS, ".zip", ".7z", ".parquet"))


def check_is_text(path: Path | str) -> None:
    """Raise BertlineError for a file that is no text by its name: its markup would be taken for text."""
    name = name_without_compression(Path(path).name.lower())
    if DUMP_FILES.search(Path(path).name):
        what = "XML" if ".xml" in name else "a 7-Zip archive"
        raise BertlineError(
            f"{path} is {what}, not plain text; of a wiki's dump use `source: wikimedia`, or extract the text to .txt"
        )
    if name.endswith(CRAWLS):
        raise BertlineError(
            f"{path} is of a web crawl, not plain text; use `source: warc`, which reads WET files (.warc.wet.gz)"
        )
    if name.endswith(FORMATTED):
        raise BertlineError(f"{path} is no plain text by its name; convert it to .txt or .html, or leave it out")
    if name.endswith(OTHERWISE_PACKED):
        raise BertlineError(
            f"{path} is packed in a format that is not read; pack it again as .gz, .xz, .zip or .tar.gz"
        )


def check_is_unpacked(stream: BinaryIO, name: str) -> None:
    """Raise BertlineError for content that is packed, or a PDF, though its name does not say so.

    Many encodings decode it.

    Args:
        stream: a buffered one, at its start.
        name: for the error.
    """
    start = cast(io.BufferedReader, stream).peek(START_BYTES)
    found = (what for packed_start, what in PACKED_STARTS.items() if start.startswith(packed_start))
    what = "a tar archive" if start[TAR_MARK] in (tarfile.POSIX_MAGIC, tarfile.GNU_MAGIC) else next(found, None)
    if what:
        raise BertlineError(f"{name} is {what}, which its name does not say; unpack, convert or rename it")


def is_archive(name: str) -> bool:
    """Return whether the name is that of an archive whose members are read."""
    return name.lower().endswith(ARCHIVES)


def is_web_page(name: str) -> bool:
    """Return whether the name is that of a file of HTML."""
    return name_without_compression(name.lower()).endswith(WEB_PAGES)


@contextmanager
def open_unpacked(path: Path, allowance: Allowance) -> Iterator[BinaryIO]:
    """Yield a file's bytes, unpacked if its name ends with one of GZIP, BZIP2, XZ or ZSTD."""
    with path.open("rb") as file:
        yield unpacked(file, path.name, allowance)


def unpacked(stream: BinaryIO, name: str, allowance: Allowance) -> BinaryIO:
    """Return the content of an open file, unpacked as `open_unpacked` does.

    Raises EOFError for a gzip file without a byte: Python takes what a full disk leaves for an empty text.
    """
    given, name = name, name.lower()
    if name.endswith(GZIP):
        if not cast(io.BufferedReader, stream).peek(1):
            raise EOFError(f"{given} is empty")
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
    elif name.endswith(BZIP2):
        stream = _buffered(Streams(stream, bz2.BZ2Decompressor, b"BZh"))
    elif name.endswith(XZ):
        limited = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
        stream = _buffered(Streams(stream, limited, XZ_START, padding=b"\0"))
    elif name.endswith(ZSTD):
        stream = cast(BinaryIO, ZstdFile(stream, "r"))
    else:
        return stream
    return _counted(stream, allowance)


def _counted(stream: BinaryIO, allowance: Allowance) -> BinaryIO:
    return _buffered(_Counted(stream, allowance))


def _buffered(stream: io.RawIOBase) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(stream, BUFFER_BYTES))


def is_text(name: str) -> bool:
    """Return whether a member of an archive is a text, by its name."""
    return name_without_compression(name).lower().endswith(TEXTS)


def is_sentences(name: str) -> bool:
    """Return whether a file or a member of an archive has the sentences of a Leipzig corpus, by its name."""
    return _SENTENCES.search(name) is not None


def without_lists(names: Iterable[str]) -> list[str]:
    """Leave out what lies beside the sentences of a Leipzig corpus: `x-words.txt` beside `x-sentences.txt`."""
    names = list(names)
    beside = tuple(_SENTENCES.sub(lambda end: end[0][0], name) for name in names if is_sentences(name))
    return [name for name in names if is_sentences(name) or is_archive(name) or not name.startswith(beside)]


def members(
    path: Path, allowance: Allowance, skipped: Counter[str], is_wanted: Callable[[str], bool] = is_text
) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the names and bytes of an archive's texts (`.txt` and `.html`, also compressed), in the archive's order.

    Consume each before requesting the next. `skipped` counts the other members: `link`, `special file` (devices, pipes,
    sparse files) and `not a text`; folders are not counted.

    Raises BertlineError for a member outside the archive, and the errors that `as_damage_error` catches.
    """
    of_kind = zip_members if path.suffix.lower() == ".zip" else _tar_members
    for name, stream in of_kind(path, allowance, skipped, is_wanted):
        yield name, unpacked(stream, name, allowance)


def zip_members(
    path: Path, allowance: Allowance, skipped: Counter[str], is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the names and bytes of the members of a zip whose names are wanted, as `members` does."""
    try:
        yield from _zip_members(path, allowance, skipped, is_wanted)
    except UnicodeDecodeError:  # whoever reads a member decodes it
        raise zipfile.BadZipFile("the name of a member is not UTF-8, as it states") from None


def _zip_members(
    path: Path, allowance: Allowance, skipped: Counter[str], is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, BinaryIO]]:
    with zipfile.ZipFile(path) as archive:
        if (stated := _stated_members(path)) not in (len(archive.infolist()), ZIP64):
            raise zipfile.BadZipFile(f"it lists {len(archive.infolist())} members, but states that it has {stated}")
        for info in archive.infolist():
            name = _safe_name(path, info.filename)
            mode = info.external_attr >> 16 if info.create_system == 3 else 0  # 3: made on Unix
            if info.filename.endswith("/"):  # info.is_dir() fails for an empty name
                continue
            is_regular = stat.S_IFMT(mode) in (0, stat.S_IFREG)
            if reason := _reason_to_skip(name, is_link=stat.S_ISLNK(mode), is_regular=is_regular, is_wanted=is_wanted):
                skipped[reason] += 1
            elif info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise BertlineError(f"{path}: its member '{name}' is encrypted or not packed by deflate; pack it again")
            else:
                with archive.open(info) as stream:
                    yield name, _counted(cast(BinaryIO, stream), allowance)


def _stated_members(path: Path) -> int:
    """Return the number of members stated in a zip, which zipfile does not check. PKWARE's APPNOTE 4.3.16."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_ZIP_END_BYTES))
        end = file.read()
    found = end.rfind(b"PK\x05\x06")
    return int.from_bytes(end[found + 10 : found + 12], "little")


_LONG_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class _Member(tarfile.TarInfo):
    """A tar's member. tarfile treats a damaged header as the end of the archive, and accepts any size in a header."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _LONG_HEADERS and self.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


def _tar_members(
    path: Path, allowance: Allowance, skipped: Counter[str], is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, BinaryIO]]:
    with (
        open_unpacked(path, allowance) as stream,
        tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member, encoding="utf-8") as archive,
    ):
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # otherwise it keeps all of them
            name = _safe_name(path, member.name)
            if member.isdir():
                continue
            is_link, is_regular = member.issym() or member.islnk(), member.isreg() and not member.issparse()
            if reason := _reason_to_skip(name, is_link=is_link, is_regular=is_regular, is_wanted=is_wanted):
                skipped[reason] += 1
            else:
                # Not the member's own stream: asked for `seekable`, it raises AttributeError in this mode.
                yield name, _buffered(_OneWay(cast(BinaryIO, archive.extractfile(member))))
        # tarfile stops at the first block of zeros, but gzip checks its content only at its end.
        while rest := cast(BinaryIO, archive.fileobj).read(BUFFER_BYTES):
            if rest.strip(b"\0"):
                raise tarfile.ReadError("something follows its end")


def _reason_to_skip(name: str, *, is_link: bool, is_regular: bool, is_wanted: Callable[[str], bool]) -> str | None:
    if is_link or not is_regular:
        return "link" if is_link else "special file"
    pure = PurePosixPath(name)
    is_of_macos = "__MACOSX" in pure.parts or pure.name.startswith("._")  # attributes of the file of that name
    return None if is_wanted(name) and not is_of_macos else "not a text"


def _safe_name(path: Path, name: str) -> str:
    """Return a member's tidy name, which becomes an id. Raises BertlineError if it leads out of the archive."""
    name = tidy(name) or "?"
    pure = PurePosixPath(name.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or re.match("[A-Za-z]:", name):
        raise BertlineError(f"{path}: its member '{name}' leads out of the archive; pack it again with plain names")
    return name
