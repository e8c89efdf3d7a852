"""JSON Lines and arrays of objects, read one object at a time."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import pyzstd
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.corpus import encodings, json_rows
from bertline.corpus.json_rows import json_objects
from bertline.corpus.unpacking import Allowance, open_unpacked

CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(), CONTENT, max_size=4), max_size=5)


def buffered(content: bytes, size: int = 8192) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content), size)  # type: ignore[arg-type]


def objects(content: bytes) -> list[dict[str, Any]]:
    return [row for _, row in json_objects(buffered(content), Path("a.json"))]


@settings(deadline=None)
@given(rows=OBJECTS, indent=st.none() | st.integers(0, 3), ascii_only=st.booleans(), chunk=st.integers(1, 40))
def test_an_array_of_any_layout_gives_its_objects(rows, indent, ascii_only, chunk) -> None:
    content = json.dumps(rows, indent=indent, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings, "CHUNK_BYTES", chunk)
        assert objects(content) == rows
        assert objects(b"\xef\xbb\xbf\r\n \t" + content.replace(b"\n", b"\r\n") + b"\r\n") == rows


@settings(deadline=None)
@given(rows=OBJECTS.filter(len), data=st.data())
def test_an_array_that_is_cut_short_anywhere_is_an_error_after_its_whole_objects(rows, data) -> None:
    content = json.dumps(rows, indent=1, ensure_ascii=False)
    cut = data.draw(st.integers(1, len(content) - 1))
    found: list[dict[str, Any]] = []
    with pytest.raises(BertlineError, match=r"^a\.json.*(cut short|ends within its array)"):
        found.extend(row for _, row in json_objects(buffered(content[:cut].encode()), Path("a.json")))
    assert found == rows[: len(found)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a": 1},\n {"b": }]', "row 2 is not JSON (Expecting value, line 2), or cut short; fix the file"),
        ('[{"a":\n1},\n{"b": }]', "row 2 is not JSON (Expecting value, line 3), or cut short; fix the file"),
        ('[{"a":\n\n x}, {"b": 2}]', "row 1 is not JSON (Expecting value, line 3), or cut short; fix the file"),
        (
            '[{"a": 1}\n {"b": 2}]',
            "line 2: row 1 of the array is followed by neither a comma nor its end; fix",
        ),
        ('[{"a": 1},\n]', "line 2: row 2 of the array is not a JSON object; fix the file"),
        ('[\n["a", "b"]]', "line 2: row 1 of the array is not a JSON object; fix the file"),
        ('[{"a": 1}, "b"]', "line 1: row 2 of the array is not a JSON object; fix the file"),
        ('[{"a": 1}]\n[{"a": 2}]', "line 2: there is text after the end of the array; fix the file"),
        ('[{"a": 1},', "the file ends within its array, after row 1; copy it again"),
        ("[" + '{"a":' * 100_000, "row 1 is not JSON"),
        ('[{}, {"a": ' + "1" * 5_000 + "}]", "row 2 is not JSON (Exceeds the limit (4300 digits)"),
        ('{\n"a": 1}', "line 1 is not JSON"),
    ],
)
def test_what_is_no_array_of_objects_is_one_line(content: str, message: str) -> None:
    with pytest.raises(BertlineError) as caught:
        objects(content.encode())
    assert f"a.json, {message}" in str(caught.value) or f"a.json: {message}" in str(caught.value)


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("space", [b"\n" * 20_000, BOM + b" \r\n" * 7_000, BOM + b" ", b"\t" * 8192], ids=len)
def test_any_white_space_may_precede_the_first_object(space: bytes) -> None:
    array, lines = b'[{"a": 1},\n{"a": 2}]', b'{"a": 1}\n{"a": 2}'
    assert objects(space + array) == objects(space + lines) == [{"a": 1}, {"a": 2}]
    number = space.count(b"\n") + 2
    with pytest.raises(BertlineError, match=f"line {number}: row 2 of the array is not a JSON object"):
        objects(space + b'[{"a": 1},\n2]')
    with pytest.raises(BertlineError, match=f"line {number} is not a JSON object"):
        objects(space + b'{"a": 1}\n2')
    assert objects(space) == []


def test_a_byte_order_mark_begins_a_file_and_no_later_line() -> None:
    assert objects(BOM + b'{"a": 1}\n{"a": 2}') == [{"a": 1}, {"a": 2}]
    assert objects(BOM + b'[{"a": 1}]') == [{"a": 1}]
    with pytest.raises(BertlineError, match=r"line 2 is not JSON .*BOM"):
        objects(b'{"a": 1}\n' + BOM + b'{"a": 2}')


@pytest.mark.parametrize("space", [BOM, b"\n", BOM + b"\n "])
@pytest.mark.parametrize("packing", [gzip.compress, pyzstd.compress])
def test_the_first_member_of_a_packed_file_may_be_white_space(tmp_path: Path, space: bytes, packing: Any) -> None:
    for number, content in enumerate((b'[{"a": 1},\n{"a": 2}]', b'{"a": 1}\n{"a": 2}')):
        path = tmp_path / f"{number}.json{'.gz' if packing is gzip.compress else '.zst'}"
        path.write_bytes(packing(space) + packing(content))
        with open_unpacked(path, Allowance(path, 100)) as stream:
            assert [row for _, row in json_objects(stream, path)] == [{"a": 1}, {"a": 2}]


def test_a_long_array_is_read_element_by_element_in_memory_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if all of it is one line, which is longer than a row may be."""
    monkeypatch.setattr(json_rows, "MAX_ROW_LENGTH", 1000)
    monkeypatch.setattr(encodings, "CHUNK_BYTES", 100)
    stream = buffered(b"[" + b",".join([b'{"text": "abc"}'] * 10_000) + b"]", 100)
    found = json_objects(stream, Path("a.json"))
    assert next(found) == ("a.json, row 1", {"text": "abc"})
    assert stream.tell() <= 300
    assert sum(1 for _ in found) == 9_999
    with pytest.raises(BertlineError, match=r"row 2 is not JSON .*, or has more than 1000 characters"):
        objects(b'[{}, {"text": "' + b"x" * 5_000 + b'"}]')


def test_a_long_row_takes_time_in_proportion_to_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            tries.append(len(s) - idx)
            return super().raw_decode(s, idx)

    monkeypatch.setattr(json_rows, "_DECODER", Decoder())
    monkeypatch.setattr(encodings, "CHUNK_BYTES", 1000)
    text = "x" * 1_000_000
    assert objects(f'[{{"text": "{text}"}}]'.encode()) == [{"text": text}]
    assert sum(tries) < 4 * len(text)
