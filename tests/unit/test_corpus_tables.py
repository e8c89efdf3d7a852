"""Tables with one document a row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pyzstd
from corpus_recipe import read
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.corpus import columnar, json_rows, tables
from bertline.corpus.documents import tidy
from bertline.corpus.encodings import MAX_NULS

KINDS = ("json", "json.gz", "jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "parquet", "stream.arrow", "file.arrow")
ROWS = [
    {"text": 'One, and "more".\nA second line.', "key": "a", "name": "First", "n": 1.5},
    {"text": "Two.", "key": "b", "name": None, "n": 2.5},
    {"text": None, "key": "c", "name": "Third", "n": 3.5},
    {"text": "NA", "key": "d", "name": "", "n": None},
]
COLUMNS = {"id": "key", "title": "name"}


def write_table(folder: Path, kind: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = folder / f"table.{kind}"
    names = list(rows[0])
    if kind.startswith("jsonl"):
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    elif kind.startswith("json"):
        content = json.dumps(rows, indent=2).encode()
    elif kind.startswith("csv"):
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode()
    else:
        table = pa.table({name: [row[name] for row in rows] for name in names})
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=2)
        elif kind == "stream.arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        return path
    if kind.endswith(".gz"):
        content = gzip.compress(content)
    elif kind.endswith(".zst"):
        content = pyzstd.compress(content)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_a_document(tmp_path: Path, kind: str) -> None:
    documents, counts = read(tmp_path, write_table(tmp_path, kind), **COLUMNS)
    assert [(document["id"], document["title"], document["text"]) for document in documents] == [
        ("a", "First", 'One, and "more". A second line.'),
        ("b", "", "Two."),
        ("d", "", "NA"),
    ]
    assert (counts["read"], counts["kept"], counts["dropped"]) == (4, 3, {"empty": 1})


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_column_for_ids_rows_are_numbered(tmp_path: Path, kind: str) -> None:
    documents, _ = read(tmp_path, write_table(tmp_path, kind))
    assert [document["id"] for document in documents] == [f"table.{kind}#{number}" for number in (0, 1, 3)]


@settings(deadline=None, max_examples=40)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0\n\r\u2028\x85 a"), max_size=20),
        min_size=1,
        max_size=6,
    ).filter(lambda texts: "".join(texts).count("\0") <= MAX_NULS)
)
@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "parquet", "stream.arrow"])
def test_all_kinds_give_the_same_documents(
    tmp_path_factory: pytest.TempPathFactory, kind: str, texts: list[str]
) -> None:
    """Whatever the text: NULs, line ends of any kind, characters beyond the first plane."""
    folder = tmp_path_factory.mktemp("kinds")
    path = write_table(folder, kind, [{"text": text, "n": 1} for text in texts])
    documents, counts = read(folder, path)
    assert counts["read"] == len(texts) == len(documents) + sum(counts["dropped"].values())
    expected = ["".join(tidy(text).split()) for text in texts if any(map(str.isalnum, text))]
    found = ["".join(document["text"].split()) for document in documents]
    assert len(found) == len(expected)
    assert all(set(one) <= set(other) for one, other in zip(found, expected, strict=True))


def test_lone_surrogates_in_json_become_replacement_characters(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "half \\ud83d pair", "key": "\\udc00"}\n')
    documents, _ = read(tmp_path, tmp_path / "a.jsonl", id="key")
    assert (documents[0]["id"], documents[0]["text"]) == ("\ufffd", "half \ufffd pair")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n\n{"text": \n', r"a\.jsonl, line 3 is not JSON \(Expecting value"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', r"a\.jsonl, line 2 is not a JSON object"),
        ("a.jsonl", b'{"text": "a\xe4"}\n', r"line 1 is not utf-8: its byte 11 is 0xe4"),
        ("a.jsonl", b'{"texts": "a", "id": 1}\n', r"line 1 has no column 'text'; it has texts, id; select columns"),
        ("a.jsonl", b'{"text": "a"}\n\n\n{"text": ["a"]}\n', r"a\.jsonl, line 4: its 'text' is of type list, not text"),
        ("a.json", b'[{"text": "a"},\n\n{"text": ["a"]}]', r"a\.json, row 2: its 'text' is of type list, not text"),
        ("a.jsonl", b'{"text":' * 100_000, r"line 1 is not JSON"),
        ("a.csv", b"id,body\n1,a\n", r"a\.csv has no column 'text'; it has id, body"),
        ("a.csv", b"id, text\n1,a\n", r"a\.csv has no column 'text'; it has id, ' text'; select columns"),
        ("a.jsonl", b'{"\\ufefftext": "a"}\n', r"line 1 has no column 'text'; it has '\\ufefftext'; select columns"),
        ("a.csv", b"text,n,text\na,1,b\n", r"a\.csv has 2 columns 'text'; rename all but the one to read"),
        ("a.tsv", b"id\ttext\n1\ta\n2\n", r"a\.tsv, line 3 has 1 columns, not 2 as in the first"),
        ("a.csv", b"id,text\n1,a\n2\n", r"a\.csv, line 3 has 1 columns, not 2 as in the first"),
        ("a.csv", b'id,text\n1,"a\n', r"a\.csv, line 2 is not CSV \(unexpected end of data\)"),
        ("a.csv", b"id,text\n1,\xe4\n", r"a\.csv is not utf-8: byte 10 is 0xe4"),
        ("a.csv", b"", r"a\.csv is empty: it has no line that names its columns"),
        ("a.tsv", b"\xef\xbb\xbf\n\n", r"a\.tsv is empty: it has no line that names its columns"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), r"a\.csv\.gz is empty: it has no line that names its columns"),
        ("a.parquet", b"PAR1PAR1", r"a\.parquet is damaged or truncated"),
        ("a.parquet.gz", b"", r"Parquet and Arrow are compressed inside"),
        ("a.arrow", b"nonsense", r"a\.arrow is damaged or truncated \(its end mark is missing\)"),
    ],
)
def test_an_invalid_table_is_one_line_naming_the_row(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertlineError, match=message) as caught:
        read(tmp_path, tmp_path / name)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("kind", ["parquet", "stream.arrow", "file.arrow"])
def test_two_columns_of_one_name_are_one_line(tmp_path: Path, kind: str) -> None:
    table, path = pa.table([["a"], ["b"], [1]], names=["text", "text", "n"]), tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        new = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(BertlineError, match=rf"a\.{kind} has 2 columns 'text'; rename all but the one to read"):
        read(tmp_path, path)


def test_quotes_in_a_table_with_tabs_are_text(tmp_path: Path) -> None:
    """As IANA registered text/tab-separated-values."""
    (tmp_path / "a.tsv").write_text('key\ttext\nx\t"To be", he said, "or\ny\t5" of rain.\n')
    packed = tmp_path / "b.TSV.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.tsv").read_bytes()))
    for path in (tmp_path / "a.tsv", packed):
        documents, _ = read(tmp_path, path, id="key")
        assert [(document["id"], document["text"]) for document in documents] == [
            ("x", '"To be", he said, "or'),
            ("y", '5" of rain.'),
        ]


def test_what_a_later_row_of_json_lacks_is_null(tmp_path: Path) -> None:
    rows = [{"text": "One.", "name": "First", "key": "a"}, {"text": "Two.", "key": "b"}, {"key": "c"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents, counts = read(tmp_path, tmp_path / "a.jsonl", **COLUMNS)
    assert [(document["id"], document["title"]) for document in documents] == [("a", "First"), ("b", "")]
    assert (counts["read"], counts["dropped"]) == (3, {"empty": 1})
    (tmp_path / "a.jsonl").write_text('{"text": "One.", "key": "a"}\n{"text": "Two."}\n')
    with pytest.raises(BertlineError, match=r"line 2: its 'key' is empty; take another column as id, or none"):
        read(tmp_path, tmp_path / "a.jsonl", id="key")


def test_a_stream_without_its_end_mark_is_cut_short(tmp_path: Path) -> None:
    """pyarrow takes the end of the file for the end of the stream, so whole batches would be missing unnoticed."""
    path = write_table(tmp_path, "stream.arrow")
    content = path.read_bytes()
    last_batch = content.rindex(b"\xff\xff\xff\xff", 0, len(content) - 8)
    path.write_bytes(content[:last_batch])
    with pa.OSFile(str(path)) as file:
        assert len(list(pa.ipc.open_stream(file))) == 1
    with pytest.raises(BertlineError, match="end mark is missing"):
        read(tmp_path, path)


def test_ids_are_text_or_whole_numbers(tmp_path: Path) -> None:
    path = write_table(tmp_path, "parquet", [{"text": "a", "key": 7, "n": 0.5}, {"text": "b", "key": 8, "n": 0.5}])
    assert [document["id"] for document in read(tmp_path, path, id="key")[0]] == ["7", "8"]
    with pytest.raises(BertlineError, match="row 1: its 'n' is of type float, not text; take another column as id"):
        read(tmp_path, path, id="n")
    path = write_table(tmp_path, "jsonl", [{"text": "a", "key": "7"}, {"text": "b", "key": None}])
    with pytest.raises(BertlineError, match="line 2: its 'key' is empty"):
        read(tmp_path, path, id="key")
    path = write_table(tmp_path, "csv", [{"text": "a\nb", "key": "7"}, {"text": "b", "key": ""}])
    with pytest.raises(BertlineError, match="line 4: its 'key' is empty"):
        read(tmp_path, path, id="key")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_row_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(json_rows if name == "a.jsonl" else tables, "MAX_ROW_LENGTH", 1000)
    (tmp_path / name).write_bytes(b'text\n"' + b"x" * 5_000_000 if name == "a.csv" else b'"' + b"x" * 5_000_000)
    limit = csv.field_size_limit()
    with pytest.raises(BertlineError, match="divide its document"):
        read(tmp_path, tmp_path / name)
    csv.field_size_limit(limit)  # it is one for all of Python


LARGE = 1 << 25  # twice what is always allowed


def one_text(folder: Path, kind: str) -> Path:
    table, path = pa.table({"text": ["x" * LARGE], "n": [1]}), folder / f"bomb.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
        return path
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    new = pa.ipc.new_stream if kind == "stream.arrow" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema, options=options) as writer:
        writer.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["parquet", "stream.arrow", "file.arrow"])
def test_a_text_that_unpacks_to_very_much_is_refused_before_it_is_unpacked(tmp_path: Path, kind: str) -> None:
    path = one_text(tmp_path, kind)
    assert path.stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    peaks = []

    class Watched(tables.Allowance):
        def take(self, size: int) -> None:
            peaks.append(pa.total_allocated_bytes() - before)
            super().take(size)

    with pytest.raises(BertlineError, match=r"unpacks to more than 100 times its size"):
        list(tables.rows(path, tables.Columns(), "utf-8", Watched(path, 100)))
    assert max(peaks) < LARGE // 4


PAGES = [{"data_page_version": "1.0"}, {"data_page_version": "2.0"}]


@pytest.mark.parametrize("options", PAGES)
def test_a_text_of_a_dictionary_is_not_written_out_for_many_rows_at_once(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = tmp_path / "bomb.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["x" * (1 << 22)])
    pq.write_table(pa.table({"text": column}), path, compression="zstd", dictionary_pagesize_limit=1 << 24, **options)
    rows = tables.rows(path, tables.Columns(), "utf-8", tables.Allowance(path, 100))
    assert [len(next(rows)[1]["text"]) for _ in range(3)] == [1 << 22] * 3
    assert pa.total_allocated_bytes() < 1 << 25
    with pytest.raises(BertlineError, match=r"unpacks to more than 100 times its size"):
        list(rows)


def test_what_texts_share_is_not_written_out_for_many_rows_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    table = pa.table({"text": 20 * ["x" * (1 << 22)]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY")
    del table
    before = pa.total_allocated_bytes()
    rows = tables.rows(path, tables.Columns(), "utf-8", tables.Allowance(path, 100))
    assert [len(next(rows)[1]["text"]) for _ in range(3)] == [1 << 22] * 3
    assert pa.total_allocated_bytes() - before < 1 << 25


@pytest.mark.parametrize("options", [*PAGES, {"use_dictionary": False}])
def test_texts_that_are_packed_very_well_are_read_many_rows_at_a_time(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{30 * 'The same to all of you. '}{number}" for number in range(5000)]
    # The name of the column has a point, as the names of columns within others.
    pq.write_table(pa.table({"a.text": texts, "n": range(5000)}), path, compression="zstd", **options)
    for names in (["a.text"], None):
        found = list(columnar.parquet_batches(path, names, lambda names: None, tables.Allowance(path, 100)))
        assert max(batch.num_rows for batch in found) >= 10
        assert [text for batch in found for text in batch["a.text"].to_pylist()] == texts
    rows = columnar.first_rows(path, 50, tables.Allowance(path, 100))
    assert rows == [{"a.text": text, "n": number} for number, text in enumerate(texts[:50])]


@pytest.mark.parametrize("packing", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_the_sizes_of_arrow_s_messages_are_those_that_they_have_when_unpacked(
    tmp_path: Path, kind: str, packing: str | None
) -> None:
    texts = [f"{number} {'word ' * number}" for number in range(500)]
    table = pa.table({"text": texts, "d": pa.array(texts).dictionary_encode(), "n": range(500)})
    path = tmp_path / "t.arrow"
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=packing)
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=100)
    sizes = list(columnar.ipc_sizes(path))
    size = len(sizes) and sum(sizes)
    if packing is None:
        assert size == 0
    else:
        assert 0.9 < size / (sum(map(len, texts)) * 2) < 1.3


READ_DAMAGED = """
import sys
from pathlib import Path
from bertline.console import BertlineError
from bertline.corpus.columnar import first_rows
from bertline.corpus.unpacking import Allowance

path = Path(sys.argv[1])
content = path.read_bytes()
for place in range(len(content)):
    path.write_bytes(content[:place] + b"\\xff" + content[place + 1 :])
    try:
        first_rows(path, 3, Allowance(path, 100.0))
    except BertlineError as error:
        assert "\\n" not in str(error)
"""


def test_no_damaged_byte_of_runs_ends_the_process(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array(["One."]))
    table, path = pa.table({"text": runs}), tmp_path / "runs.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    documents, _ = read(tmp_path, path)
    assert [document["text"] for document in documents] == ["One."] * 3
    command = [sys.executable, "-c", READ_DAMAGED, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_checksums_of_parquet_s_pages_are_verified(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pa.table({"text": ["A plain text."]})
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    for has_checksum in (False, True):
        pq.write_table(table, path, write_page_checksum=has_checksum, **options)
        path.write_bytes(path.read_bytes().replace(b"A plain", b"A plaim"))
        if not has_checksum:
            assert [document["text"] for document in read(tmp_path, path)[0]] == ["A plaim text."]
    with pytest.raises(BertlineError, match=r"a\.parquet is damaged or truncated \(.*checksum"):
        read(tmp_path, path)


def test_a_parquet_file_with_fewer_rows_than_it_states_is_reported(tmp_path: Path) -> None:
    path = write_table(tmp_path, "parquet", [{"text": str(number)} for number in range(50)])
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    # The number of rows of the whole file: a field of 64 bits, twice the number, before those of the groups.
    at = content.index(b"\x16\x64", footer)
    path.write_bytes(content[:at] + b"\x16\x66" + content[at + 2 :])
    with pytest.raises(BertlineError, match=r"parquet is damaged or truncated \(50 rows instead of 51\); replace it"):
        read(tmp_path, path)
