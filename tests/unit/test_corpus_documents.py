"""The documents format: what is written is read back, and what is wrong is named."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fault_counts import TIMES, drawing
from hypothesis import given, settings
from hypothesis import strategies as st
from pyzstd import SeekableZstdFile

from bertline.console import BertlineError
from bertline.corpus.compressed import FRAME_BYTES, read_compressed, write_compressed
from bertline.corpus.documents import (
    _REPLACEMENTS,
    Document,
    Dropped,
    problem_of,
    read_documents,
    tidy,
    validate_documents,
    write_documents,
)
from bertline.corpus.removal import read_removals
from bertline.files import read_json


def document(**changes: Any) -> Document:
    return {"id": "1", "title": "Title", "text": "One.\nTwo.", "source": "s", "url": "", **changes}  # type: ignore[typeddict-item]


paragraphs = st.text(max_size=60).map(tidy).filter(bool)
documents = st.builds(
    Document,
    id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    title=st.text().map(tidy),
    text=st.lists(paragraphs, min_size=1, max_size=5).map("\n".join),
    source=st.text(st.characters(exclude_categories=["Cs"])),
    url=st.text(st.characters(exclude_categories=["Cs"])),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(documents, max_size=6))
def test_documents_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, given_documents: Any) -> None:
    folder = tmp_path_factory.mktemp("documents")
    write_documents(given_documents, folder / "a.jsonl.zst", folder / "a.counts.json")
    assert list(read_documents(folder / "a.jsonl.zst")) == given_documents
    assert validate_documents(folder / "a.jsonl.zst", folder / "a.counts.json") == len(given_documents)


@settings(deadline=None, max_examples=50)
@given(st.text())
def test_a_tidy_line_is_tidy(line: str) -> None:
    result = tidy(line)
    assert tidy(result) == result
    assert unicodedata.is_normalized("NFC", result)
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in result)
    assert "  " not in result
    assert result == result.strip()
    assert result.encode().decode() == result


def plainly_tidy(line: str) -> str:
    """As the docstring has it, every character looked at."""
    return " ".join(unicodedata.normalize("NFC", line.translate(_REPLACEMENTS)).split())


def test_every_character_is_tidied_as_by_the_plain_rule() -> None:
    for code in (*range(0x20000), *range(0xE0000, 0xE1000)):
        line = f"e{chr(code)}\u0301 b"
        assert tidy(line) == plainly_tidy(line), hex(code)


@given(st.text(st.one_of(st.characters(), st.sampled_from("\t\u00ad\u200b\u0301\x85\ufeff\ud800e \u00a0"))))
def test_a_line_is_tidied_as_by_the_plain_rule(line: str) -> None:
    assert tidy(line) == plainly_tidy(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("e\u0301le\u0300ve", "élève"),
        (" a\u00a0b\u2003c\td ", "a b c d"),
        ("bell\x07rings", "bell rings"),
        ("co\u00adoperate\u200b", "cooperate"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("one\u2028two", "one two"),
        ("\u202bشارع\u202c (\u202aStreet\u202c) \u202dx\u202e", "شارع (Street) x"),  # directions
    ],
)
def test_tidy_by_example(line: str, expected: str) -> None:
    assert tidy(line) == expected


def test_nothing_is_dropped_without_being_counted(tmp_path: Path) -> None:
    more = {"pages": 9}
    records = [document(), Dropped("short"), document(text="Grün."), Dropped("empty"), Dropped("short")]
    write_documents(records, tmp_path / "a.jsonl.zst", tmp_path / "a.counts.json", more)
    assert read_json(tmp_path / "a.counts.json") == {
        "read": 5,
        "kept": 2,
        "dropped": {"short": 2, "empty": 1},
        "characters": 14,
        "bytes": 15,
        "pages": 9,
    }


def test_an_error_while_reading_leaves_nothing(tmp_path: Path) -> None:
    def records() -> Any:
        yield document()
        raise BertlineError("the source broke")

    with pytest.raises(BertlineError, match="the source broke"):
        write_documents(records(), tmp_path / "a.jsonl.zst", tmp_path / "a.counts.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (document(id=""), "id is empty"),
        (document(text=""), "text is empty"),
        (document(text="a\n\nb"), "paragraph 2 is empty"),
        (document(text="a\nb  c"), "paragraph 2 is not NFC"),
        (document(title="e\u0301"), "title is not NFC"),
        (document(url=None), "url is not text"),
        ({"id": "1"}, "keys are not id, title, text, source, url"),
        (document() | {"more": ""}, "keys are not"),
        ([], "keys are not"),
    ],
)
def test_the_validator_names_what_is_wrong(wrong: Any, problem: str) -> None:
    assert problem in str(problem_of(wrong))
    assert problem_of(document()) is None


def test_the_validator_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    with write_compressed(path) as file:
        file.write(json.dumps(document()).encode() + b"\n" + json.dumps(document(text=" x")).encode() + b"\n")
    with pytest.raises(BertlineError, match=r"a\.jsonl\.zst, line 2: its paragraph 1"):
        validate_documents(path)
    with write_compressed(path) as file:
        file.write(b"{}\nnonsense\n")
    with pytest.raises(BertlineError, match="line 2 is not JSON"):
        list(read_documents(path))
    with write_compressed(path) as file:
        file.write(b"[" * 100_000 + b"]" * 100_000 + b"\n")
    with pytest.raises(BertlineError, match="line 1 is not JSON"):
        list(read_documents(path))
    with pytest.raises(BertlineError, match="line 1 is invalid"):
        read_removals(path)


def test_counts_that_do_not_add_up_are_an_error(tmp_path: Path) -> None:
    paths = tmp_path / "a.jsonl.zst", tmp_path / "a.counts.json"
    write_documents([document(), Dropped("short")], *paths)
    paths[1].write_text(json.dumps(read_json(paths[1]) | {"dropped": {}}))
    with pytest.raises(BertlineError, match="does not match the 1 documents"):
        validate_documents(*paths)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"kept": 1}', "lacks the key 'read'"),
        ("[]", "is damaged (it is not a JSON object)"),
        ('{"kept": 1, "read": 1, "dropped": []}', "is damaged ('list' object has no attribute 'values')"),
        ('{"kept": 1, "read": 1, "dropped": {"short": null}}', "is damaged (unsupported operand type(s)"),
        ('{"kept": "1", "read": 1, "dropped": {}}', "does not match the 1 documents"),
    ],
)
def test_damaged_counts_are_one_line(tmp_path: Path, content: str, problem: str) -> None:
    paths = tmp_path / "a.jsonl.zst", tmp_path / "a.counts.json"
    write_documents([document()], *paths)
    paths[1].write_text(content)
    with pytest.raises(BertlineError) as caught:
        validate_documents(*paths)
    assert f"{paths[1]} {problem}" in str(caught.value)


def test_the_script_prints_the_number_of_documents_or_what_is_wrong(tmp_path: Path) -> None:
    script = [sys.executable, Path(__file__).parents[2] / "workflow/scripts/validate_documents.py"]
    part, counts = tmp_path / "a.jsonl.zst", tmp_path / "a.counts.json"
    write_documents([document(), Dropped("short")], part, counts)
    done = subprocess.run([*script, part], check=True, capture_output=True, text=True)
    assert done.stdout == f"{part}: 1 documents\n"
    counts.write_text(json.dumps(read_json(counts) | {"kept": 2}))
    done = subprocess.run([*script, part], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {counts} does not match the 1 documents of {part}; make both again\n"


def test_frames_are_indexed_and_zstd_reads_them(tmp_path: Path) -> None:
    content = b"".join(b"%d and a line of text\n" % number for number in range(200_000))
    path = tmp_path / "a.zst"
    with write_compressed(path) as file:
        file.write(content)
    with read_compressed(path) as file:
        file.seek(3_000_000)
        assert file.read(100) == content[3_000_000:3_000_100]
    with SeekableZstdFile(path) as reference:  # which others wrote from the description of the format
        assert reference.seek_table_info is not None
        assert reference.seek_table_info[0] == -(-len(content) // FRAME_BYTES)
        reference.seek(3_000_000)
        assert reference.read(100) == content[3_000_000:3_000_100]
    try:
        unpacked = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("the program zstd is not installed")
    assert unpacked == content


def test_files_written_without_checksums_are_read(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(3 * FRAME_BYTES)  # noqa: S311
    path = tmp_path / "a.zst"
    with SeekableZstdFile(path, "w", max_frame_content_size=FRAME_BYTES) as file:
        file.write(content)
    with read_compressed(path) as reader:
        assert reader.read() == content
        assert reader.seek(0, 2) == len(content)
        reader.seek(2 * FRAME_BYTES - 5)
        assert reader.read(10) == content[2 * FRAME_BYTES - 5 :][:10]


FLIPS = 400 * TIMES


def flipped(path: Path) -> Iterator[None]:
    """Write the file with one of its bits flipped, FLIPS times."""
    content = path.read_bytes()
    for bit in drawing("flipped bits").choices(range(8 * len(content)), k=FLIPS):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        yield


@pytest.mark.fault(row="inputs")
def test_a_flipped_bit_in_documents_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr("bertline.corpus.compressed.FRAME_BYTES", 250)
    path = tmp_path / "a.jsonl.zst"
    written = [document(id=str(number), text=f"the {number}th text") for number in range(9)]
    write_documents(written, path, tmp_path / "c")
    messages = []
    for _ in flipped(path):
        try:
            assert list(read_documents(path)) == written
        except BertlineError as error:
            messages.append(str(error))
    assert len(messages) > 0.9 * FLIPS  # the headers have a few bits that mean nothing
    record_property("faults", FLIPS)
    wanted = re.compile(rf"{re.escape(str(path))} is damaged \(.*\); delete it and make it again")
    assert [message for message in messages if not wanted.fullmatch(message)] == []


@pytest.mark.fault(row="inputs")
def test_a_flipped_bit_is_told_to_a_reader_of_a_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr("bertline.corpus.compressed.FRAME_BYTES", 100)
    path = tmp_path / "a.txt.zst"
    content = b"".join(b"sentence %d\n" % number for number in range(30))
    with write_compressed(path) as file:
        file.write(content)
    for _ in flipped(path):
        for first, last in ((0, 20), (110, 120), (190, 230), (305, len(content))):
            with suppress(BertlineError), read_compressed(path) as reader:
                reader.seek(first)
                assert reader.read(last - first) == content[first:last]
                assert reader.seek(0, 2) == len(content)
    record_property("faults", FLIPS)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "another format", "empty"])
def test_a_damaged_file_is_reported(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.jsonl.zst"
    write_documents([document(id=str(number)) for number in range(1000)], path, tmp_path / "c")
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        del content[-100:]
    elif damage == "flipped":
        content[40] ^= 0xFF
    else:
        content = bytearray(gzip.compress(b"x") if damage == "another format" else b"")
    path.write_bytes(content)
    with pytest.raises(BertlineError, match=r"a\.jsonl\.zst.*is damaged"):
        list(read_documents(path))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match="does not exist"):
        list(read_documents(tmp_path / "absent"))
