"""Conversion of books and other text files into documents: plain text, archives of it, and tables."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from bertline.console import BertlineError, progress
from bertline.corpus.documents import Document, Dropped, tidy
from bertline.corpus.plain_text import (
    Converter,
    Origin,
    check_encoding,
    decoded_lines,
    divide,
    divide_at_empty_lines,
    lines_of,
    looks_split,
)
from bertline.corpus.tables import columns_of, is_table, rows, text_and_origin
from bertline.corpus.unpacking import (
    ARCHIVES,
    Allowance,
    as_damage_error,
    members,
    name_without_compression,
    open_unpacked,
    refuse_markup,
)
from bertline.files import Json

logger = logging.getLogger(__name__)

NAME_STARTS = "/./"
# At the beginning of a text; lines may have a million characters.
LINES_TO_JUDGE, CHARACTERS_TO_JUDGE = 2000, 1 << 20


def name_of(file: str) -> str:
    """Return a file's name in its documents' ids: the path after `/./` (rsync's mark), or else its last part.

    So ids do not depend on the location of a folder of texts.
    """
    return tidy(file.partition(NAME_STARTS)[2] or Path(file).name) or "?"


def read_part(corpus: Json, part: str, converter: Converter, counts: Json) -> Iterator[Document | Dropped]:
    """Yield the documents of the files of a part, in their order.

    A file's name determines its type: a table (`.jsonl`, `.ndjson`, `.json`, `.csv`, `.parquet`, `.arrow`) has one
    document per row, an archive (`.tar`, `.tar.gz`, `.tgz`, `.tar.zst`, `.zip`) one text per member, and any other file
    is a text. Texts, JSON Lines and CSV may be compressed (`.gz`, `.zst`). Nothing is unpacked to disk.

    Args:
        corpus: its recipe, see `sources`. Ids of documents are made of the files' `name_of`, `!member` for a member of
            an archive, and `#number` for a document of a file with several. The settings are those of `files` in
            config/config.schema.yaml.
        part: its name.
        counts: receives the number of `files`, the members of archives that were not read (`members_skipped`), and how
            many texts taken for one document look like sentences and documents (`look_split`), see `looks_split`.

    Raises BertlineError for a file that is missing, damaged, truncated, not in the encoding (with the offset of the
    first wrong byte) or too large when unpacked, or that has a member or a row that cannot be read.
    """
    files, settings = corpus["parts"][part], corpus["settings"]
    encoding, separator, columns = settings["encoding"], settings.get("separator"), columns_of(settings)
    check_encoding(encoding)
    skipped: Counter[str] = Counter()
    look_split = 0

    def texts_of(file: str, allowance: Allowance) -> Iterator[tuple[str, Origin, BinaryIO]]:
        """Yield each text of a file that is not a table: its name in errors, its origin, its bytes."""
        path, name = Path(file), name_of(file)
        if not path.name.endswith(ARCHIVES):
            with open_unpacked(path, allowance) as stream:
                yield file, Origin(name, _title(name)), stream
            return
        any_text = False
        for member, stream in members(path, allowance, skipped):
            any_text = True
            yield f"{file}, member '{member}',", Origin(f"{name}!{member}", _title(member)), stream
        if not any_text:
            raise BertlineError(f"{file} has no member that is a .txt, .txt.gz or .txt.zst; name another file")

    def records_of(file: str) -> Iterator[Document | Dropped]:
        nonlocal look_split
        refuse_markup(Path(file))
        allowance = Allowance(Path(file), settings["unpack_ratio"])
        if is_table(Path(file)):
            for number, row in enumerate(rows(Path(file), columns, encoding, allowance)):
                where, row_id = f"{file}, row {number + 1}", f"{name_of(file)}#{number}"
                text, origin = text_and_origin(row, columns, where=where, identity=row_id)
                yield from converter.documents(lines_of(text), origin)
            return
        for where, origin, stream in texts_of(file, allowance):
            with as_damage_error(where):
                lines = decoded_lines(stream, where, encoding)
                if separator is None and not converter.lines_are_sentences:
                    first = _beginning(lines)
                    look_split += looks_split(first)
                    yield from converter.documents(chain(first, lines), origin)
                    continue
                texts = divide_at_empty_lines(lines) if separator is None else divide(lines, separator)
                for number, text_lines in enumerate(texts):
                    yield from converter.documents(text_lines, origin._replace(id=f"{origin.id}#{number}"))

    for file in progress(files, description=converter.source, unit="files", total=len(files)):
        with as_damage_error(file):
            yield from records_of(file)
    if skipped:
        logger.info("members of archives that are not read: %s", dict(skipped))
    counts.update(files=len(files), members_skipped=dict(skipped), look_split=look_split)


def _beginning(lines: Iterator[str]) -> list[str]:
    """Take the lines by which a text is judged."""
    taken, characters = [], 0
    for line in islice(lines, LINES_TO_JUDGE):
        taken.append(line)
        characters += len(line)
        if characters >= CHARACTERS_TO_JUDGE:
            break
    return taken


def _title(name: str) -> str:
    return name_without_compression(Path(name).name).removesuffix(".txt")
