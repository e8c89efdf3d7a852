"""What is found in a person's own text, and the configuration that is proposed for it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyzstd import compress

from bertline.console import BertlineError
from bertline.corpus.plain_text import decoded_lines
from bertline.corpus.unpacking import Allowance, open_unpacked
from bertline.planning import machine as machines
from bertline.planning.corpora import expand
from bertline.planning.machine import Machine, this_machine
from bertline.planning.new_configuration import make_configuration
from bertline.planning.own_encoding import advice_on_encoding
from bertline.planning.own_files import Corpus, corpora_of
from bertline.planning.own_table import describe_table
from bertline.planning.own_text import OwnText, look_at
from bertline.planning.proposal import (
    BYTES_PER_WEIGHT,
    EPOCHS,
    NETWORKS,
    REFERENCE,
    Amount,
    Network,
    Proposal,
    default_seconds,
    processes_for,
    propose,
    seconds_of,
    vocabulary_size,
)
from bertline.planning.proposal_file import configuration, duration
from bertline.planning.resolve import make_plan
from bertline.settings.configuration import load_schema, read_yaml
from bertline.training.distributed import process_group

ROOT = Path(__file__).parents[2]
SCHEMA = load_schema(ROOT / "config/config.schema.yaml")
SENTENCES = [
    "The old wall of the town was built by people who came from the north.",
    "Nobody knew why the river had left its bed in that summer.",
    "She read the letter twice, and then she put it back into the drawer.",
    "There are many ways to cook a fish, but only one of them is good.",
    "When the train arrived, the children were already asleep.",
]
LAPTOP = Machine(cores=2, memory=16_000_000_000, disk=10**14)
SERVER = Machine(cores=16, memory=128_000_000_000, disk=10**14, gpus=("H100",), gpu_memory=80_000_000_000)


def text_of(number: int) -> str:
    return " ".join(SENTENCES[(number + shift) % 5] for shift in range(20))


def write_texts(folder: Path, count: int = 8) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.txt").write_text(text_of(number))
    return folder


def split_text() -> str:
    return "\n\n".join("\n".join(SENTENCES[number % 5 :] + SENTENCES[: number % 5]) for number in range(30)) + "\n"


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "story"], *([number, text_of(number)] for number in range(9))])


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for number in range(6):
            content = text_of(number).encode()
            info = tarfile.TarInfo(f"texts/{number}.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(6):
            archive.writestr(f"{number}.txt", text_of(number))


def write_wet(path: Path) -> None:
    records = []
    for number in range(6):
        content = text_of(number).encode()
        head = (
            f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <urn:uuid:{number}>\r\nContent-Type: text/plain\r\n"
        )
        records.append(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content + b"\r\n\r\n")
    path.write_bytes(gzip.compress(b"".join(records)))


def write_dump(path: Path) -> None:
    pages = "".join(
        f"<page><title>P{number}</title><ns>0</ns><id>{number}</id><revision><id>1</id><text>{text_of(number)}</text>"
        "</revision></page>\n"
        for number in range(1, 9)
    )
    names = '<namespaces><namespace key="6" case="first-letter">File</namespace></namespaces>'
    path.write_text(f"<mediawiki><siteinfo><base>https://x/wiki/M</base>{names}</siteinfo>\n{pages}</mediawiki>\n")


FORMS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "a.txt": (lambda path: path.write_text(split_text()), {"source": "files", "sentences": "lines"}),
    "a.txt.gz": (
        lambda path: path.write_bytes(gzip.compress(split_text().encode())),
        {"source": "files", "sentences": "lines"},
    ),
    "a.txt.zst": (lambda path: path.write_bytes(compress(split_text().encode())), {"sentences": "lines"}),
    "a.raw": (lambda path: path.write_text(split_text()), {"source": "files", "sentences": "lines"}),
    "deu-sentences.txt": (
        lambda path: path.write_text("".join(f"{number}\t{SENTENCES[number % 5]}\n" for number in range(900))),
        {"format": "leipzig", "sentences": "lines"},
    ),
    "a.jsonl": (
        lambda path: path.write_text("".join(json.dumps({"body": text_of(n)}) + "\n" for n in range(9))),
        {"source": "files", "text": "body"},
    ),
    "a.csv": (write_csv, {"source": "files", "text": "story"}),
    "a.parquet": (
        lambda path: pyarrow.parquet.write_table(pyarrow.table({"text": [text_of(n) for n in range(9)]}), path),
        {"source": "files"},
    ),
    "a.tar.gz": (write_tar, {"source": "files"}),
    "a.zip": (write_zip, {"source": "files"}),
    "a.warc.wet.gz": (write_wet, {"source": "warc"}),
    "a.xml": (write_dump, {"source": "wikimedia"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_files_of_each_form_are_recognised_and_read(tmp_path: Path, name: str) -> None:
    write, expected = FORMS[name]
    write(tmp_path / name)
    found = look_at([str(tmp_path / name)], SCHEMA)
    assert expected.items() <= found.corpora[0].settings.items()
    assert found.language == "en"
    assert found.documents >= 6
    assert 1000 < found.characters == found.bytes


def test_the_text_of_a_table_that_is_packed_very_well_is_found_in_many_rows(tmp_path: Path) -> None:
    rows = 5000
    stories = ["", *(f"{30 * SENTENCES[0]}{number}" for number in range(1, rows))]
    table = pyarrow.table({"key": [f"key {number}" for number in range(rows)], "story": stories})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    assert look_at([str(tmp_path)], SCHEMA).corpora[0].settings["text"] == "story"


def test_tables_with_their_texts_in_other_columns_are_one_line_whatever_their_order(tmp_path: Path) -> None:
    def write(name: str, column: str) -> None:
        rows = ({"id": f"{name} {number}", column: text_of(number)} for number in range(9))
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    for names in (["a", "b", "c"], ["b", "c", "a"]):
        write(f"{names[0]}.jsonl", "story")
        write(f"{names[1]}.jsonl", "story")
        write(f"{names[2]}.jsonl", "inhalt")
        message = (
            rf"{names[2]}\.jsonl has its text in the column 'inhalt', other tables in 'story'; give COLUMN= if all"
        )
        with pytest.raises(BertlineError, match=message):
            look_at([str(tmp_path)], SCHEMA)
    write("a.jsonl", "story")
    (tmp_path / "empty.jsonl").touch()
    assert look_at([str(tmp_path)], SCHEMA).corpora[0].reasons["text"] == "the column with the longest texts"
    assert look_at([str(tmp_path)], SCHEMA, column="story").corpora[0].reasons["text"] == "the column of the text"


def test_a_folder_becomes_a_corpus_for_each_kind_of_files(tmp_path: Path) -> None:
    write_texts(tmp_path / "in" / "deep")
    (tmp_path / "in" / "page.html").write_text(f"<html><body><p>{text_of(1)}</p></body></html>")
    (tmp_path / "in" / "photo.jpg").write_bytes(b"\xff\xd8\0")
    found = look_at([str(tmp_path)], SCHEMA)
    assert {corpus.name: corpus.settings["paths"] for corpus in found.corpora} == {
        "texts": [f"{tmp_path}/**/*.txt"],
        "pages": [f"{tmp_path}/**/*.html"],
    }
    assert found.documents == 9
    assert found.not_read == {".jpg": 1}


def test_linked_folders_are_read_and_hidden_ones_are_not(tmp_path: Path) -> None:
    for folder in ("elsewhere", "texts/own", "texts/.hidden"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text("one\n")
    (tmp_path / "texts/linked").symlink_to(tmp_path / "elsewhere")
    [corpus], _ = corpora_of([str(tmp_path / "texts")])
    assert corpus.files == [tmp_path / "texts/linked/a.txt", tmp_path / "texts/own/a.txt"]
    [pattern] = corpus.settings["paths"]
    assert expand([], "paths", [pattern]) == corpus.files


def test_a_link_to_a_folder_above_it_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "texts/../texts/own/deep").mkdir(parents=True)
    (tmp_path / "texts/own/a.txt").write_text("one\n")
    (tmp_path / "texts/own/deep/back").symlink_to("..")
    (tmp_path / "other").symlink_to("texts")
    (tmp_path / "texts/other").symlink_to("../other")
    given = f"{tmp_path}/texts/../texts"
    [corpus], _ = corpora_of([given])
    assert corpus.files == [Path(given, "own/a.txt")]
    assert expand([], "paths", [f"{given}/**/*.txt", f"{tmp_path}/other/*/*.txt"]) == [
        Path(given, "own/a.txt"),
        tmp_path / "other/own/a.txt",
    ]


def test_paragraphs_are_the_documents_of_a_single_text(tmp_path: Path) -> None:
    path = tmp_path / "novel.txt"
    path.write_text("\n\n".join(text_of(number) for number in range(40)))
    found = look_at([str(path)], SCHEMA)
    assert found.documents == 40
    assert found.corpora[0].settings["sentences"] == "lines"
    assert "held out" in found.corpora[0].reasons["sentences"]


def test_much_text_is_extrapolated_from_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.planning.own_text.SAMPLE_FILES", 40)
    write_texts(tmp_path, 400)
    found = look_at([str(tmp_path)], SCHEMA)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert found.corpora[0].documents_read == 40
    assert found.documents == pytest.approx(400, rel=0.02)
    assert found.characters == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("kind", ["txt", "txt.gz", "jsonl"])
def test_several_encodings_change_no_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """They are chosen before anything is counted, however often a file is read for that."""
    monkeypatch.setattr("bertline.planning.own_text.SAMPLE_CHARACTERS", 2_000_000)
    size = 0
    for number in range(1 if kind == "txt" else 8):
        text = 1000 * (text_of(number) + "\n\n")
        size += len(text) * (4 if kind == "txt" else 1)
        content = {"txt": 4 * text, "txt.gz": text, "jsonl": 1000 * (json.dumps({"text": text_of(number)}) + "\n")}[
            kind
        ]
        packed = gzip.compress(content.encode(), 1) if kind == "txt.gz" else content.encode()
        (tmp_path / f"{number}.{kind}").write_bytes(packed)
    found = [look_at([str(tmp_path)], SCHEMA, encoding=encoding) for encoding in ("utf-8", "utf-8,latin-1")]
    assert found[0].characters == pytest.approx(size, rel=0.2)
    assert found[1].characters == pytest.approx(found[0].characters, rel=0.06)


def latin1(folder: Path) -> None:
    (write_texts(folder) / "b.txt").write_bytes("Ein Stück Käse.".encode("latin-1"))


def languages(folder: Path) -> None:
    for number, line in enumerate(
        (
            "Der alte Mann ging langsam durch die Straßen.",
            "Она прочитала письмо дважды.",
            "El tren llega tarde otra vez.",
        )
    ):
        for copy in range(3):
            (folder / f"{number}-{copy}.txt").write_text(10 * f"{line} ")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: folder.rmdir(), r"does not exist; give a folder of texts or a file, as TEXT=folder$"),
        (lambda folder: None, r"no readable text \(it is empty\); give \.txt, "),
        (lambda folder: (folder / "a.pdf").write_bytes(b"%PDF"), r"no readable text \(1 \.pdf\); give \.txt, "),
        (lambda folder: (folder / "a.txt").write_text("\n"), r"the files have no text; give a folder with some"),
        (lambda folder: write_texts(folder, 2), r"2 documents are too few to hold one out \(5 or more are needed\)"),
        (
            latin1,
            r"b\.txt is not utf-8, as 1 of \d+ files \(b\.txt\): byte 6 is 0xfc; if latin-1 reads it well \('Stück'\), "
            r"give ENCODING=utf-8,latin-1, otherwise another encoding, or convert the files \(iconv .*\)$",
        ),
        (languages, r"no language is clear \(.*%.*\); give its ISO 639 code, as LANGUAGE=en"),
        (
            lambda folder: (folder / "a.jsonl").write_text('{"n": 1}\n'),
            r"has no column of text; give its name, as COLUMN=text",
        ),
    ],
)
def test_text_that_cannot_be_used_is_one_line(tmp_path: Path, write: Callable[[Path], Any], message: str) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    write(folder)
    with pytest.raises(BertlineError, match=message) as raised:
        look_at([str(folder)], SCHEMA)
    assert str(raised.value).startswith(str(folder))


def test_the_encodings_to_give_are_told_and_never_guessed(tmp_path: Path) -> None:
    def refusal(encoding: str = "utf-8") -> str:
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, language="de", encoding=encoding)
        return str(raised.value)

    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number}: {text_of(number)}")
    (tmp_path / "2.txt").write_bytes(("a" * 100_000 + " Ein Stück Käse.").encode("latin-1"))
    (tmp_path / "5.txt").write_bytes("Noch ein Stück.".encode("latin-1"))
    line = refusal()
    assert "2.txt is not utf-8, as 2 of 8 files (2.txt, 5.txt): byte 100007 is 0xfc; if latin-1 reads it well" in line
    assert "('Stück'), give ENCODING=utf-8,latin-1" in line
    found = look_at([str(tmp_path)], SCHEMA, language="de", encoding="utf-8,latin-1")
    assert found.corpora[0].settings["encoding"] == ["utf-8", "latin-1"]
    assert "ENCODING=utf-8,latin-1" in refusal("ascii,utf-8").replace("ascii,", "")
    # What Windows calls Unicode.
    (tmp_path / "2.txt").write_bytes("Ein Stück Käse.".encode("utf-16"))
    (tmp_path / "5.txt").write_bytes("Noch ein Stück.".encode("utf-16"))
    assert refusal().endswith("it begins with the mark of utf-16; give ENCODING=utf-8,utf-16")
    look_at([str(tmp_path)], SCHEMA, language="de", encoding="utf-8,utf-16")
    assert "has NUL characters; it begins with the mark of utf-16; give ENCODING=utf-16" in refusal("latin-1")
    # No text at all.
    (tmp_path / "2.txt").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "5.txt").unlink()
    assert "it has NUL bytes; leave it out if it is no text; text in UTF-16 without a mark has to be" in refusal()
    assert "latin-1 reads it well" not in refusal()
    for unknown in ("utf8000", "utf-8,nonsense", "latin-1,utf-8"):
        assert refusal(unknown).startswith("the encoding '")


def test_the_encodings_to_give_are_accepted(tmp_path: Path) -> None:
    """In their order: `latin-1`, which decodes anything, stays the last."""
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number}: {text_of(number)}")
    (tmp_path / "1.txt").write_bytes("Ein Stück Käse.".encode("latin-1"))
    (tmp_path / "2.txt").write_bytes("Ein Stück Käse.".encode("utf-16"))
    given = "utf-8"
    for following in ("utf-8,latin-1", "utf-8,utf-16,latin-1"):
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, encoding=given, language="de")
        given = str(raised.value).partition("ENCODING=")[2].partition(", otherwise")[0]
        assert given == following
    assert look_at([str(tmp_path)], SCHEMA, encoding=given, language="de").documents == 8


@pytest.mark.parametrize(
    ("encoding", "content", "message"),
    [
        (
            "utf-8,cp1252",
            3000 * text_of(1).encode() + b"\0",
            "2.txt is not any of utf-8, cp1252, as 1 of 8 files (2.txt):"
            " it has NUL characters; leave it out if it is no text",
        ),
        (
            "utf-16",
            b"A line.",
            "0.txt is not utf-16, as 8 of 8 files (0.txt, 1.txt, 2.txt, ...): UTF-16 stream does not "
            "start with BOM; give another ENCODING, or convert the files",
        ),
        ("utf-8,utf-16", "A line.".encode("utf-16")[:-1], "(2.txt): it begins with the mark of utf-16; replace it"),
    ],
)
def test_a_text_without_a_wrong_byte_has_the_reason_why_it_cannot_be_read(
    tmp_path: Path, encoding: str, content: bytes, message: str
) -> None:
    (write_texts(tmp_path) / "2.txt").write_bytes(content)
    with pytest.raises(BertlineError, match=re.escape(message)):
        look_at([str(tmp_path)], SCHEMA, encoding=encoding, language="de")


def test_only_what_is_read_with_the_encoding_is_checked_and_not_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal() -> str:
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, language="de")
        return str(raised.value)

    stories = [f"Ein Stück Käse. {text_of(number)}" for number in range(9)]
    pyarrow.parquet.write_table(pyarrow.table({"text": stories}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("text\n" + "\n".join(f'"{story}"' for story in stories))
    (tmp_path / "c.csv").write_bytes((tmp_path / "b.csv").read_text().encode("latin-1"))
    assert f"{tmp_path}/c.csv is not utf-8, as 1 of 2 files (c.csv): byte 12 is 0xfc; " in refusal()
    monkeypatch.setattr("bertline.planning.own_encoding.BYTES_TO_CHECK", 100)
    assert "c.csv is not utf-8, as 1 of the 1 files that were checked (c.csv): byte 12 is 0xfc; " in refusal()
    assert "give ENCODING=utf-8,latin-1" in refusal()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_the_text_before_a_wrong_byte_is_not_kept_in_memory(tmp_path: Path, name: str) -> None:
    size = 40 << 20
    content = 20 * os.urandom(1 << 20).hex().encode() + b" \xfc"
    (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    del content
    tracemalloc.start()
    try:
        with (
            pytest.raises(BertlineError, match=rf"byte {size + 1} is 0xfc; if latin-1 reads it well \('ü'\)"),
            advice_on_encoding([tmp_path / name], "utf-8"),
            open_unpacked(tmp_path / name, Allowance(tmp_path / name, 1000)) as stream,
        ):
            for _ in decoded_lines(stream, str(tmp_path / name), "utf-8"):
                pass
        assert tracemalloc.get_traced_memory()[1] < size // 2
    finally:
        tracemalloc.stop()


def test_a_brace_in_a_name_and_capitals_in_a_suffix(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.TXT").write_text(f"{number}: {text_of(number)}")
    found = look_at([str(tmp_path)], SCHEMA, language="de")
    assert found.corpora[0].settings["paths"] == [f"{tmp_path}/**/*.TXT"]
    assert found.documents == 8
    (tmp_path / "a{b}.txt").write_text("text")
    with pytest.raises(BertlineError, match=r"a\{b\}\.txt: Snakemake takes braces for wildcards; rename it$"):
        look_at([str(tmp_path)], SCHEMA)


def test_a_given_language_and_encoding_are_taken(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_bytes(20 * "Ein Stück Käse. ".encode("latin-1"))
    found = look_at([str(tmp_path)], SCHEMA, language="bar", encoding="latin-1")
    assert (found.language, found.share) == ("bar", 1.0)
    assert found.corpora[0].settings["encoding"] == "latin-1"


def test_files_without_text_make_the_sample_no_smaller(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text(f"The {number}th keeper of the lighthouse wrote a letter. " * 40)
    alone = look_at([str(tmp_path)], SCHEMA)
    (tmp_path / "empty.jsonl").write_text('{"text": " "}\n')
    assert look_at([str(tmp_path)], SCHEMA).sample == alone.sample


@pytest.mark.parametrize("notes", [400, 40_000])
def test_the_language_is_that_of_most_characters_not_of_most_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: int
) -> None:
    """Neither many short documents nor a second kind of files, of which as much is read, have more weight."""
    monkeypatch.setattr("bertline.planning.own_text.SAMPLE_CHARACTERS", 4_000_000)
    monkeypatch.setattr("bertline.planning.own_text.KEPT_CHARACTERS", 1_000_000)
    german = "Der alte Mann ging langsam über die Brücke und dachte an seine Kinder, die in der Stadt wohnten. "
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(notes * german)
    with (tmp_path / "notes.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": f"{SENTENCES[number % 5]} {number}"}) + "\n" for number in range(notes))
    found = look_at([str(tmp_path)], SCHEMA)
    assert found.language == "de"
    assert found.share == pytest.approx(0.93, abs=0.04)
    assert sum(map(len, found.sample)) < 1_100_000


def found_text(folder: Path, **changes: Any) -> OwnText:
    corpus = Corpus("texts", {"source": "files", "paths": [f"{folder}/*.txt"]}, [])
    whole = OwnText([corpus], 100, 10**7, 10**7, 1_700_000, "en", 1.0, {}, "LATIN", True, 80, ["text"], 1, {})
    return replace(whole, **changes)


def simulated(flops: float) -> Callable[[Network, int, int], float]:
    """A machine that computes so many operations a second."""
    return lambda network, length, batch: flops / network.flops_per_token(8000, length)


def proposed(
    size: int, machine: Machine, flops: float, seconds: float | None = None, documents: int = 1000
) -> Proposal:
    amount = Amount(size, size, size // 4, documents)
    vocab_size = vocabulary_size(size, 80)
    return propose(amount, vocab_size, machine, seconds=seconds or default_seconds(size), speed=simulated(flops))


machine_strategy = st.builds(
    Machine,
    cores=st.integers(1, 256),
    memory=st.integers(4 * 10**9, 10**12),
    disk=st.just(10**15),
    gpus=st.integers(0, 8).map(lambda count: ("H100",) * count),
    gpu_memory=st.integers(8 * 10**9, 2 * 10**11),
    has_fast_bf16=st.booleans(),
    has_compiler=st.booleans(),
)


@given(
    size=st.integers(1000, 10**12),
    documents=st.integers(5, 10**9),
    machine=machine_strategy,
    speed=st.floats(1e9, 1e17),
    seconds=st.one_of(st.none(), st.floats(1, 1e7)),
    language=st.sampled_from(["en", "de", "no", "ja", "th", "ko", "hi", "gag"]),
    alphabet=st.integers(20, 9000),
)
@settings(max_examples=60, deadline=None)
def test_any_text_and_machine_give_a_configuration_that_is_accepted(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    documents: int,
    machine: Machine,
    speed: float,
    seconds: float | None,
    language: str,
    alphabet: int,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "own"
    write_texts(folder, 5)
    vocab_size = vocabulary_size(size, alphabet)
    amount = Amount(size, size, size // 4, documents)
    chosen = propose(amount, vocab_size, machine, seconds=seconds or default_seconds(size), speed=simulated(speed))
    found = found_text(folder, bytes=size, characters=size, documents=documents, language=language)
    path = folder / "own.yaml"
    path.write_text(configuration("own", str(path), found, chosen, machine), encoding="utf-8")
    plan = make_plan(read_yaml(path), ROOT / "config/config.schema.yaml", ROOT / "config/models")
    assert not plan.problems
    assert list(plan.runs) == ["own"]
    # A process holds the weights, their gradients and two moments.
    needed = BYTES_PER_WEIGHT * chosen.network.all_weights(vocab_size)
    if machine.gpus:
        assert needed < machine.gpu_memory
        assert chosen.processes == len(machine.gpus)
    else:
        assert chosen.processes * needed < machine.memory
        assert 1 <= chosen.processes <= machine.cores
    assert chosen.precision == ("bf16" if machine.has_fast_bf16 else "fp16" if machine.gpus else "fp32")
    assert 1 <= chosen.shards <= documents


@given(sizes=st.lists(st.integers(10**4, 10**12), min_size=2, max_size=2), machine=st.sampled_from([LAPTOP, SERVER]))
@settings(max_examples=200, deadline=None)
def test_more_text_gives_a_larger_vocabulary_a_network_no_smaller_and_more_training(
    sizes: list[int], machine: Machine
) -> None:
    flops = 1e11 if machine is LAPTOP else 3e14
    less, more = (proposed(size, machine, flops) for size in sorted(sizes))
    assert less.vocab_size <= more.vocab_size
    # A larger vocabulary costs time, so at a border the network may be one step smaller.
    assert NETWORKS.index(less.network) <= NETWORKS.index(more.network) + 1
    assert less.seconds <= 1.5 * more.seconds
    for proposal in (less, more):
        assert proposal.tokens <= 1.1 * EPOCHS * max(sizes) or sum(phase.steps for phase in proposal.phases) <= 40


@given(seconds=st.floats(600, 1e6), size=st.integers(10**6, 10**11))
@settings(max_examples=200, deadline=None)
def test_the_time_is_kept(seconds: float, size: int) -> None:
    chosen = proposed(size, LAPTOP, 1e11, seconds, documents=10**5)
    training = sum(phase.seconds for phase in chosen.phases)
    assert training <= 1.1 * seconds
    if chosen.limit == "time" and chosen.other_seconds < seconds / 2:
        assert chosen.seconds == pytest.approx(seconds, rel=0.3)


def test_a_quarter_of_an_hour_of_two_cores_is_for_a_tiny_network_and_a_day_of_a_gpu_for_a_base_one() -> None:
    small = proposed(10_000_000, LAPTOP, 1e11)
    assert small.network.hidden == 128
    assert [phase.sequence_length for phase in small.phases] == [32, 128]
    large = proposed(20_000_000_000, SERVER, 3e14)
    assert large.network.name in ("bert-base", "bert-large")
    assert large.vocab_size == 30522
    assert [phase.sequence_length for phase in large.phases] == [128, 512]
    assert large.compiled


def test_of_the_networks_only_the_chosen_one_is_timed_also_with_a_table() -> None:
    """Besides that whose speed predicts the others'. A trial of a large network takes minutes."""
    timed = set()

    def speed(network: Network, length: int, batch: int) -> float:
        timed.add(network)
        return simulated(1e11)(network, length, batch)

    amount = Amount(10**7, 10**7, 2_500_000, 1000)
    chosen = propose(amount, 4864, LAPTOP, seconds=900, speed=speed, fine_tuned_tokens=2e6)
    assert timed == {REFERENCE, chosen.network}


def test_training_compiles_also_when_the_network_is_chosen() -> None:
    """Compiled, bert-mini is so fast that it sees 20 tokens for each weight in this time."""
    weights = NETWORKS[2].weights
    speed = simulated(1e11)
    amount = Amount(10**8, 10**8, 25_000_000, 10**5)
    seconds = 1.1 * 20 * weights / speed(NETWORKS[2], 128, 2048) / 1.25 + 600
    assert propose(amount, 8000, LAPTOP, seconds=seconds, speed=speed).network == NETWORKS[2]
    slow = replace(LAPTOP, has_compiler=False)
    assert propose(amount, 8000, slow, seconds=seconds, speed=speed).network == NETWORKS[1]


@pytest.mark.parametrize(("words", "rows", "is_long"), [(8, 8000, False), (90, 8000, True)])
def test_the_time_of_fine_tuning_is_that_of_the_rows(tmp_path: Path, words: int, rows: int, is_long: bool) -> None:
    """Short rows leave most of the time to pretraining; if the rows need more than the time, a line says so."""
    texts = write_texts(tmp_path / "in", 40)
    for number, path in enumerate(texts.iterdir()):
        path.write_text(100 * text_of(number))
    table = tmp_path / "t.csv"
    table.write_text(
        "text,label\n" + "".join(f"{number}{words * ' word'},{'ab'[number % 2]}\n" for number in range(rows))
    )

    def time_steps(network: Network, length: int, batch: int, vocab_size: int) -> dict[str, float]:
        seconds = batch / (25_000 if network.hidden == 128 else 10_000)
        return {"step_seconds": seconds, "busy_seconds": seconds, "tokens": batch}

    made = make_configuration(
        [str(texts)],
        tmp_path / "own.yaml",
        LAPTOP,
        seconds=600,
        language="en",
        encoding="utf-8",
        column=None,
        table=[str(table)] * 2,
        time_steps=time_steps,
    )
    lines = made.content.splitlines()
    assert lines[2].startswith("# The given time, 10 minutes, is too short: everything but the training") is is_long
    minutes = int(re.search(r"including (\d+) minutes of training", lines[1])[1])  # type: ignore[index]
    assert minutes in ((2, 3) if is_long else (5, 6, 7))
    tokens = re.search(r"bert-tiny: ([0-9.]+) tokens for each weight of its layers; the aim is 20", made.content)
    assert tokens is not None
    assert (float(tokens[1]) < 20) is is_long


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "10 seconds"),
        (34, "30 seconds"),
        (57, "1 minute"),
        (7000, "117 minutes"),
        (7200, "2.0 hours"),
        (90000, "25 hours"),
        (200000, "2.3 days"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_size_of_a_text_without_spaces_is_in_characters(tmp_path: Path) -> None:
    write_texts(tmp_path / "in")
    chosen = proposed(10**7, LAPTOP, 1e11)
    first = configuration("own", "own.yaml", found_text(tmp_path / "in", language="ja"), chosen, LAPTOP).splitlines()[0]
    assert "about 10,000,000 characters, language ja" in first


def test_little_memory_and_disk_are_one_line_each() -> None:
    with pytest.raises(BertlineError, match=r"0\.1 GB of memory are too little for the smallest network; close"):
        proposed(10**7, replace(LAPTOP, memory=10**8), 1e11)
    with pytest.raises(BertlineError, match=r"has 1\.0 GB left; about .* GB are needed; free some"):
        proposed(10**9, replace(LAPTOP, disk=10**9), 1e11)
    assert processes_for(NETWORKS[-1], 30522, replace(LAPTOP, memory=10**10)) == 0


def test_the_file_is_ordered_commented_and_read_back(tmp_path: Path) -> None:
    write_texts(tmp_path / "in")
    path = tmp_path / "own.yaml"
    chosen = proposed(10**7, LAPTOP, 1e11)
    path.write_text(configuration("own", str(path), found_text(tmp_path / "in"), chosen, LAPTOP))
    content = read_yaml(path)
    assert list(content) == ["experiment", "corpora", "datasets", "sequence_lengths", "runs"]
    phases = content["runs"]["own"]["phases"]
    assert [phases[name]["steps"] for name in ("phase1", "phase2")] == [phase.steps for phase in chosen.phases]
    assert all(isinstance(phase["learning_rate"], float) for phase in phases.values())
    lines = path.read_text().splitlines()
    assert all("# " in line for line in lines if line and not line.endswith(":"))
    assert max(map(len, lines[4:])) < 140
    command = next(line for line in lines if line.startswith("#     snakemake"))
    assert f"--configfile={path}" in command
    assert f"processes_per_node={chosen.processes}" in command


def test_sizes_are_those_of_the_recipes_at_their_own_sizes() -> None:
    assert vocabulary_size(5_000_000, 80) == 4096
    assert vocabulary_size(16_000_000_000, 80) == 30522
    assert vocabulary_size(100_000, 4000) == 8000
    assert default_seconds(10_000_000) == 840
    assert default_seconds(10**12) == 86400


@pytest.mark.parametrize(
    ("time", "seconds"), [("15m", 900), ("10min", 600), ("2 h", 7200), ("2h", 7200), ("1d", 86400), ("1.5h", 5400)]
)
def test_times_have_a_unit(time: str, seconds: float) -> None:
    assert seconds_of(time) == seconds


@pytest.mark.parametrize("time", ["15", "m", "-1h", "0m", "two hours"])
def test_a_time_without_a_unit_is_one_line(time: str) -> None:
    with pytest.raises(BertlineError, match=f"TIME={time}: give a number and s, m, h or d, such as 15m, 2h or 1d"):
        seconds_of(time)


def test_a_table_is_divided_and_described(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as file:
        rows = [[number, f"{text_of(number)} {number}", "good" if number % 3 else "bad"] for number in range(200)]
        csv.writer(file).writerows([["id", "text", "opinion"], *rows])
    table = describe_table([str(path)], tmp_path / "out")
    assert table["name"] == "reviews"
    assert table["settings"]["kind"] == "classification"
    assert (table["settings"]["texts"], table["settings"]["label"]) == (["text"], "opinion")
    parts = [Path(table["settings"][part]).read_text().splitlines() for part in ("train", "dev")]
    assert sum(map(len, parts)) == 200
    assert not set(parts[0]) & set(parts[1])
    assert 15 < len(parts[1]) < 65


def test_a_short_second_text_is_used_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    """A hypothesis of some words beside a long premise is a text; an address or a name of two words is none."""
    path = tmp_path / "pairs.jsonl"

    def described(**more: str) -> tuple[list[str], str]:
        rows = [
            {"premise": f"{text_of(n)} {n}", "author": f"Ann Lee {n % 60}", "url": f"https://example.org/{n}.html"}
            | {"hypothesis": f"The wall is old, {n}", "label": "ab"[n % 2], **more}
            for n in range(100)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        table = describe_table([str(path)], tmp_path / "out")
        return table["settings"]["texts"], table["reasons"]["texts"]

    assert described() == (["premise", "hypothesis"], "the columns of text")
    more = {"note": "a third text of some words"}
    assert described(**more) == (["premise"], "the columns of text; not used: hypothesis, note")


def test_a_table_of_numbers_is_a_regression(tmp_path: Path) -> None:
    rows = [{"a": text_of(number), "b": text_of(number + 1), "score": number / 7} for number in range(100)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [str(tmp_path / "pairs.jsonl")] * 2
    table = describe_table(files, tmp_path)
    assert table["settings"] == {
        "kind": "regression",
        "train": files[0],
        "dev": files[1],
        "texts": ["a", "b"],
        "label": "score",
    }


def test_a_file_whose_name_is_not_utf_8_is_one_line(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("some words\n")
    with pytest.raises(BertlineError, match=r"/caf\\udce9\.txt: its name is not UTF-8; rename it"):
        look_at([str(tmp_path)], SCHEMA)
    with pytest.raises(BertlineError, match=r"/caf\\udce9\.txt: its name is not UTF-8; rename it"):
        expand([], "corpora.books.paths", [f"{tmp_path}/*.txt"])


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_table_of_arrow_without_rows_has_no_text(tmp_path: Path, kind: str) -> None:
    new = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as file:
        new(file, pyarrow.schema([("text", pyarrow.string())])).close()
    with pytest.raises(BertlineError, match=r"a\.arrow has no column of text"):
        look_at([str(tmp_path)], SCHEMA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoding": "nonsense"}, "the encoding 'nonsense' is unknown"),
        ({"encoding": "base64"}, "the encoding 'base64' is unknown"),
        ({"language": "../../x"}, r"LANGUAGE=\.\./\.\./x: give a code of two or three letters"),
    ],
)
def test_an_encoding_or_a_language_that_is_none_is_one_line(
    tmp_path: Path, given: dict[str, str], message: str
) -> None:
    settings: dict[str, Any] = {"language": None, "encoding": "utf-8", **given}
    with pytest.raises(BertlineError, match=message):
        make_configuration(
            [str(tmp_path)],
            tmp_path / "mine.yaml",
            this_machine(0),
            seconds=None,
            column=None,
            table=(),
            time_steps=lambda *_: {},
            **settings,
        )


def test_documents_that_begin_alike_are_not_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.planning.own_text.KEPT_CHARACTERS", 1000)
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{text_of(0)} This is document number {number}.")
    (tmp_path / "8.txt").write_text((tmp_path / "7.txt").read_text())
    found = look_at([str(tmp_path)], SCHEMA)
    assert len(set(found.sample)) == 1
    assert found.different == 8


GOOD = "".join(f'{{"text": "a text of number {n} here", "label": "{"ab"[n % 2]}"}}\n' for n in range(40))


def test_all_rows_of_a_class_that_training_would_lack_are_trained_on(tmp_path: Path) -> None:
    """And the same rows are on the same side, however often they occur there."""
    rows = [{"text": f"some words of row {n // 2}", "label": "ab"[n % 2]} for n in range(80)]
    # Of these rows the hash says that they are for the scores.
    rare = next(
        row
        for row in ({"text": f"a rare one, {n}", "label": "rare"} for n in range(1000))
        if hashlib.sha256(json.dumps(row).encode()).digest()[0] < 51
    )
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rare, rare]))
    described = describe_table([str(tmp_path / "t.jsonl")], tmp_path / "out")
    train, dev = (Path(described["settings"][part]).read_text() for part in ("train", "dev"))
    assert (train.count("rare one"), dev.count("rare one")) == (2, 0)
    assert len(train.splitlines()) + len(dev.splitlines()) == described["rows"] == 82


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["good.jsonl", "good.jsonl", "good.jsonl"], r"3 files; give one, or one for training and one to score"),
        (["good.jsonl", "absent.jsonl"], r"absent\.jsonl does not exist"),
        (["good.jsonl", "header.csv"], r"header\.csv has no rows; give rows to score on"),
        (["good.jsonl", "other.csv"], r"other\.csv: line 1: no column 'text', it has words, label"),
        (
            ["good.jsonl", "class.csv"],
            r"class\.csv: the label 'c' is not among those of .*good\.jsonl; add a row there",
        ),
    ],
)
def test_two_tables_that_do_not_go_together_are_one_line(tmp_path: Path, files: list[str], message: str) -> None:
    (tmp_path / "good.jsonl").write_text(GOOD)
    (tmp_path / "header.csv").write_text("text,label\n")
    (tmp_path / "other.csv").write_text("words,label\nsome,a\n")
    (tmp_path / "class.csv").write_text("text,label\nsome,a\nsome,c\n")
    with pytest.raises(BertlineError, match=message):
        describe_table([str(tmp_path / name) for name in files], tmp_path / "out")


@pytest.mark.parametrize("label", [datetime(2026, 1, 1), b"a", Decimal("1.5"), {"a": 1}])
def test_labels_of_a_kind_that_no_class_has_are_one_line(tmp_path: Path, label: object) -> None:
    path = tmp_path / "t.parquet"
    columns = {"text": [f"some words {number}" for number in range(40)], "label": [label] * 40}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    with pytest.raises(BertlineError, match=r"t\.parquet: row 1: column 'label': given .*, allowed is a class"):
        describe_table([str(path)], tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", "", r"given '\.xlsx', allowed are \.tsv, \.csv, \.jsonl, \.parquet; convert the file"),
        ("absent.csv", None, "does not exist; give a table with a column of texts and one of labels"),
        ("a.csv", "x,y\n1,2\n", r"no column of labels among x, y; name one 'label'"),
        ("a.csv", "label\n" + "a\nb\n" * 40, "no column of texts besides 'label'; add one"),
        ("a.csv", "text,label\nsome text,a\n", r"has 1 rows; 20 or more are needed"),
        ("a.jsonl", "[1, 2]\n" * 30, r"a\.jsonl: line 1: no JSON object"),
        ("a.jsonl", GOOD + "3\n", r"a\.jsonl: line 41: no JSON object"),
        ("a.jsonl", GOOD + '{"text": "no label"}\n', r"a\.jsonl: line 41: no column 'label'"),
        ("a.jsonl", GOOD + '{"text": "\\ud800", "label": "a"}\n', r"a\.jsonl: line 41: not JSON"),
        ("a.jsonl", GOOD + "[" * 100_000 + "\n", r"a\.jsonl: line 41: not JSON \(too many levels\)"),
        ("a.jsonl", GOOD + '{"text": 5, "label": "a"}\n', r"line 41: column 'text': given 5, allowed is text"),
        (
            "a.jsonl",
            GOOD + '{"text": "x", "label": null}\n',
            r"line 41: column 'label': given None, allowed is a class",
        ),
        ("a.jsonl", GOOD.replace('"a"', "null").replace('"b"', "null"), r"column 'label': given None"),
        ("a.jsonl", GOOD.replace('"a"', "NaN").replace('"b"', "NaN"), r"column 'label': given nan"),
        ("a.jsonl", GOOD.replace('"a"', '["a"]').replace('"b"', "[]"), r"column 'label': given \['a'\]"),
        ("a.jsonl", GOOD.replace('"a"', '"b"'), r"all labels in 'label' are 'b'; give rows of two classes or more"),
        ("a.jsonl", "", r"a\.jsonl has no rows; give a table"),
        ("a.csv", "", r"a\.csv has no rows; give a table"),
        ("a.csv", "text,label\n" + "a nice text\n" * 40, r"line 2: no column 'label', it has 1 of 2"),
        ("a.csv", "text,label\n" + "a nice text,a,more\n" * 40, r"line 2: too many columns, it has 3 of 2"),
        (
            "a.csv",
            "".join(f"some words {n},{'ab'[n % 2]}\n" for n in range(40)),
            r"'a' is the name of a column and one",
        ),
        ("a.csv", "text,label\n" + "the same text,a\nthe other text,b\n" * 40, r"rows are all alike and cannot be"),
        ("a.parquet", "PAR1 this is not", r"a\.parquet is damaged or truncated"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(BertlineError, match=message):
        describe_table([str(tmp_path / name)], tmp_path)


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_gpus", lambda: ((), 0, False))
    with pytest.raises(BertlineError, match=r"GPUS=1: this machine has none .*; give GPUS=0 to train on the CPUs"):
        this_machine(1)
    assert this_machine().gpus == ()


def test_a_pytorch_without_gpus_on_a_machine_with_one_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_gpus", lambda: (("NVIDIA H100",), 80 * 10**9, True))
    monkeypatch.setattr(machines.metadata, "version", lambda name: "2.13.0+cpu")
    with pytest.raises(
        BertlineError, match=r"has a GPU \(NVIDIA H100\), but .* 2\.13\.0\+cpu is a build for CPUs; remove"
    ):
        this_machine()
    assert this_machine(0).gpus == ()
    monkeypatch.setattr(machines.metadata, "version", lambda name: "2.13.0+cu130")
    assert this_machine().gpus == ("NVIDIA H100",)


def test_a_trainer_reports_that_its_pytorch_cannot_use_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    group = process_group.Group(0, 1, torch.device("cpu"))
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(process_group, "NVIDIA_DRIVER", tmp_path / "absent")
    assert process_group.describe(group) == "one process on CPUs"
    monkeypatch.setattr(process_group, "NVIDIA_DRIVER", tmp_path)
    assert re.search(
        "this machine has a GPU, but PyTorch .* is a build for CPUs: .* without TORCH_OPTIONS",
        process_group.describe(group),
    )


@pytest.mark.parametrize(
    ("texts", "output", "message"),
    [
        ([20 * "Der alte Mann. " for _ in range(6)], "mine.yaml", "1,794 characters are too few to learn from (10,000"),
        (
            [200 * "Der alte Mann. " for _ in range(6)],
            "mine.yaml",
            "the documents are equal but for 1, too few to hold",
        ),
        (
            [200 * "Der alte Mann. " for _ in range(6)],
            "none/mine.yaml",
            "none/mine.yaml cannot be written: No such file",
        ),
        ([200 * "Der alte Mann. " for _ in range(6)], "/proc/mine.yaml", "/proc/mine.yaml cannot be written: "),
    ],
)
def test_what_cannot_become_a_configuration_is_told_before_anything_is_timed(
    tmp_path: Path, texts: list[str], output: str, message: str
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text)
    script = ROOT / "workflow/scripts/new_configuration.py"
    command = [sys.executable, script, folder, "--output", tmp_path / output, "--language", "de"]
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert "timing" not in done.stderr
    assert "Traceback" not in done.stderr
