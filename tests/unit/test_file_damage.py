"""Damage to files that the project itself wrote: what is read is what was written, or one line names the file.

A file without a digest may be damaged such that it is another valid one. `UNCHECKED` lists these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fault_counts import TIMES, drawing
from finetuning_helpers import write_tokenizer
from ranking_files import tokenized, write_files
from test_corpus_damage import mutate
from test_input_damage import outcome

from bertline.corpus.documents import Document, write_documents
from bertline.corpus.index import read_index, write_index
from bertline.corpus.signatures import SignatureFiles, write_signatures
from bertline.encoding.tokenizer import read_tokenizer
from bertline.finetuning.ranking.collection import Collection, open_collection

MUTATIONS_OF_EACH_KIND = 40 * TIMES


class Reader(NamedTuple):
    """A file, and what reads it into something that can be compared."""

    path: Path
    read: Callable[[], Any]


def index(folder: Path) -> Reader:
    write_index(folder / "part.index.npy", [(0, 10, 7, 2), (10, 25, 8, 3), (35, 5, 9, 1)])
    return Reader(folder / "part.index.npy", lambda: read_index(folder / "part.index.npy").tolist())


def signatures(folder: Path) -> Reader:
    texts = (Document(id=str(number), title="", text=f"text {number}", source="", url="") for number in range(3))
    documents, counts, path = folder / "part.jsonl.zst", folder / "part.counts.json", folder / "part.npy"
    write_documents(texts, documents, counts)
    write_signatures(documents, counts, path)
    return Reader(path, lambda: [rows.tolist() for _, rows in SignatureFiles([path]).blocks(2)])


def collection(name: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        whole = Path(tokenized(folder, write_files(folder / "files")["collection"]))
        tokenizer = read_tokenizer(write_tokenizer(folder / "tokenizer.json"))
        return Reader(whole / name, lambda: content_of(open_collection(whole, tokenizer)))

    return make


def content_of(found: Collection) -> list[Any]:
    """Everything of a collection that a ranking uses, each number used as it would be."""
    texts = found.passages
    words = [texts.tokens[start:end].tolist() for start, end in zip(texts.offsets, texts.offsets[1:], strict=False)]
    return [words, texts.find([b"p001", b"p999"]).tolist(), texts.ids.tolist(), found.document_frequency.tolist()]


ARRAYS = {
    "index.npy": index,
    "signatures.npy": signatures,
    **{
        name: collection(name)
        for name in ("passages.tokens", "passages.offsets", "passages.ids.npy", "passages.order.npy")
    },
    "document_frequency.npy": collection("document_frequency.npy"),
}
UNCHECKED = {"signatures.npy", "passages.tokens", "passages.offsets", "passages.ids.npy", "passages.order.npy"}
UNCHECKED |= {"document_frequency.npy"}


def read_or_refused(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or the line that refuses it."""
    found: list[Any] = []
    message = outcome(lambda: found.append(read()))
    return None if message else found[0], message


def assert_damage_is_found(reader: Reader, kind: str, contents: list[bytes], *, checked: bool, least: float) -> None:
    """Read each of the contents: it is refused in a line with the file's name, or read; if checked, as it was."""
    path, read = reader
    whole, results, before = read(), Counter[bool](), path.read_bytes()
    for number, content in enumerate(contents):
        path.write_bytes(content)
        found, message = read_or_refused(read)
        assert not message or path.name in message, (kind, number, message)
        assert message or not checked or found == whole, (kind, number, content[:2000])
        results[bool(message)] += 1
    path.write_bytes(before)
    assert results[True] >= least * len(contents), (kind, results)


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", ARRAYS)
def test_changed_bytes_of_arrays_are_read_or_refused(
    tmp_path: Path, kind: str, no_hang: Callable[[], None], record_property: Any
) -> None:
    reader, draw = ARRAYS[kind](tmp_path), drawing(f"bytes of {kind}")
    no_hang()
    content = reader.path.read_bytes()
    damaged = [mutate(content, draw) for _ in range(MUTATIONS_OF_EACH_KIND)]
    if kind.endswith(".npy"):  # and of the header alone, which numpy parses as Python
        damaged += [mutate(content[:128], draw) + content[128:] for _ in range(MUTATIONS_OF_EACH_KIND)]
    assert_damage_is_found(reader, kind, damaged, checked=kind not in UNCHECKED, least=0.3)
    record_property("faults", len(damaged))


HEADERS = {
    "a bracket that is not closed": ("'<i8', 'fortran_order': False, 'shape': (5"),
    "no Python": ("'<i8' 'fortran_order' = False, 'shape': (5,)"),
    "more than the memory": ("'<i8', 'fortran_order': False, 'shape': (1000000000000000000,)"),
    "more than a number of the machine": (f"'<i8', 'fortran_order': False, 'shape': ({'9' * 30},)"),
    "a truth value as a size": ("'<i8', 'fortran_order': False, 'shape': (True,)"),
    "a type with one part": ("('<i8',), 'fortran_order': False, 'shape': (5,)"),
    "deep": ("(" * 300 + ")" * 300 + ", 'fortran_order': False, 'shape': (5,)"),
    "a pickle": ("'O', 'fortran_order': False, 'shape': (5,)"),
}


@pytest.mark.parametrize("kind", ["index.npy", "signatures.npy", "document_frequency.npy"])
@pytest.mark.parametrize("header", HEADERS)
def test_any_header_of_an_array_is_one_line(tmp_path: Path, kind: str, header: str) -> None:
    path, read = ARRAYS[kind](tmp_path)
    text = f"{{'descr': {HEADERS[header]}}}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(40))
    assert path.name in outcome(read)
    path.write_bytes(b"PK\x03\x04 no archive")
    assert path.name in outcome(read)


def test_an_array_with_fewer_rows_than_bytes_is_one_line(tmp_path: Path) -> None:
    """Its documents would be numbered as those of another file."""
    path, read = signatures(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"(3,)", b"(2,)"))
    assert "more bytes than its 2 rows" in outcome(read)
