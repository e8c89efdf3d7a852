"""What is found in a user's texts: their forms, amount and language."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from corpus_recipe import read
from pyzstd import compress
from user_texts import ROOT, SCHEMA, SENTENCES, text_of, write_texts

from bertline.console import BertlineError
from bertline.planning.corpora import expand
from bertline.proposal.corpora import corpora_of
from bertline.proposal.machine import Machine, this_machine
from bertline.proposal.new_configuration import NewConfiguration, make_configuration
from bertline.proposal.sizes import Network
from bertline.proposal.text import look_at


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
    assert (found.documents, any(corpus.is_extrapolated for corpus in found.corpora)) == (9, False)
    assert found.not_read == {".jpg": 1}


@pytest.mark.parametrize("given", [["t", "t/0.txt"], ["t/0.txt", "t"], ["t/deep", "./t"], ["t", "./t/../t"]])
def test_a_file_that_is_given_twice_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(Path("t"), 7)
    write_texts(Path("t/deep"), 1).joinpath("0.txt").rename("t/deep/8.txt")
    Path("t/deep/photo.jpg").touch()
    [corpus], not_read, _ = corpora_of(given)
    assert not_read == {".jpg": 1}
    assert len(corpus.files) == 8
    assert len(corpus.settings["paths"]) == 1
    assert corpus.bytes == sum(path.stat().st_size for path in Path("t").rglob("*.txt"))


def test_a_file_without_a_usual_suffix_is_read_if_it_is_given_itself(tmp_path: Path) -> None:
    (write_texts(tmp_path, 7) / "8.raw").write_text("one\n")
    assert corpora_of([str(tmp_path)]).not_read == {".raw": 1}
    found = corpora_of([str(tmp_path), str(tmp_path / "8.raw")])
    assert (len(found.corpora[0].files), found.not_read) == (8, {})


def write_table(path: Path, rows: int = 30) -> str:
    path.write_text("".join(json.dumps({"text": text_of(n), "label": "ab"[n % 2]}) + "\n" for n in range(rows)))
    return str(path)


def test_a_table_to_fine_tune_on_is_not_among_the_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_texts(Path("t"), 7)
    table = write_table(Path("t/train.jsonl"))
    found = look_at(["t"], SCHEMA, tables=[f"./{table}"])
    assert ([corpus.name for corpus in found.corpora], found.documents) == (["texts"], 7)
    assert found.left_out == [Path(table)]
    two = [table, write_table(Path("t/dev.jsonl"))]
    assert look_at(["t"], SCHEMA, tables=two).left_out == [Path("t/dev.jsonl"), Path(table)]
    # A pattern cannot leave it out.
    write_table(Path("t/more.jsonl"))
    message = (
        r"^TABLE=t/train\.jsonl is among the texts, as t/\*\*/\*\.jsonl finds it, too: .*; move it to another folder$"
    )
    with pytest.raises(BertlineError, match=message):
        look_at(["t"], SCHEMA, tables=[table])
    assert look_at(["t/more.jsonl", table], SCHEMA, tables=[table]).documents == 30
    with pytest.raises(BertlineError, match=r"^t/train\.jsonl: no text besides TABLE=t/train\.jsonl; give others$"):
        look_at([table], SCHEMA, tables=[table])


@pytest.mark.parametrize("texts", ["resources", ".", "resources/tables/own/t-dev.jsonl"])
@pytest.mark.parametrize("is_divided", [False, True])
def test_the_rows_of_a_divided_table_are_not_among_the_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: str, is_divided: bool
) -> None:
    """Whether the table is divided already, by an earlier proposal, or is going to be."""
    monkeypatch.chdir(tmp_path)
    Path("resources/tables/own").mkdir(parents=True)
    write_table(Path("resources/posts.jsonl"))
    table = write_table(Path("t.csv"))
    if is_divided or texts.endswith(".jsonl"):
        for part in ("train", "dev"):
            write_table(Path(f"resources/tables/own/t-{part}.jsonl"))
    before = [path.name for path in Path("resources/tables/own").iterdir()]
    message = (
        r"(resources/tables/own/t-(train|dev)\.jsonl, a part of TABLE, is among the texts, as .*jsonl finds it|"
        "no text besid)"
    )
    with pytest.raises(BertlineError, match=message):
        made([texts], table=[table])
    assert [path.name for path in Path("resources/tables/own").iterdir()] == before


def test_a_table_may_be_divided_into_a_folder_of_texts_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the same command, with FORCE=yes, is accepted again."""
    monkeypatch.chdir(tmp_path)
    for path in write_texts(Path("resources"), 8).iterdir():
        path.write_text(20 * text_of(int(path.stem)) + path.stem)
    table = str(tmp_path.with_name(f"{tmp_path.name}.jsonl"))
    write_table(Path(table))
    for _ in range(2):
        found = made(["resources"], table=[table])
        assert "jsonl" not in found.content.partition("evaluation:")[0]
    assert len(found.left_out) == 2


def made(texts: list[str], **settings: Any) -> NewConfiguration:
    """For ten minutes on a small machine that is idle."""

    def time_steps(network: Network, length: int, batch: int, vocab_size: int) -> dict[str, Any]:
        return {"fits": True, "step_seconds": batch / 10_000, "busy_seconds": batch / 10_000, "tokens": batch}

    given = {"language": "en", "encoding": "utf-8", "column": None, "table": [], "force": True} | settings
    machine = Machine(cores=2, memory=16_000_000_000, disk=10**14)
    return make_configuration(texts, Path("own.yaml"), machine, seconds=600, time_steps=time_steps, **given)


def test_what_was_guessed_of_a_table_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in write_texts(Path("texts"), 8).iterdir():
        path.write_text(20 * text_of(int(path.stem)) + path.stem)
    rows = [{"words": f"{text_of(n)} {n}", "opinion": "ab"[n % 2], "city": "xyz"[n % 3]} for n in range(60)]
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = made(["texts"], table=["t.jsonl"])
    assert "Of TABLE=t.jsonl taken as label: opinion, not city; " in found.summary[-1]
    assert "not taken: city; name the right one 'label'" in found.content


def test_a_column_without_a_table_is_one_line(tmp_path: Path) -> None:
    write_texts(tmp_path)
    with pytest.raises(BertlineError, match=rf"^COLUMN=body: no table is among {tmp_path}; leave COLUMN out$"):
        look_at([str(tmp_path)], SCHEMA, column="body")


def test_linked_folders_are_read_and_hidden_ones_are_not(tmp_path: Path) -> None:
    for folder in ("elsewhere", "texts/own", "texts/.hidden"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.txt").write_text("one\n")
    (tmp_path / "texts/linked").symlink_to(tmp_path / "elsewhere")
    [corpus], *_ = corpora_of([str(tmp_path / "texts")])
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
    [corpus], *_ = corpora_of([given])
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
    assert found.corpora[0].settings["separator"] == "\n"
    assert "held out" in found.corpora[0].reasons["separator"]


def test_paragraphs_of_a_single_wrapped_book_are_whole(test_data: Path, tmp_path: Path) -> None:
    book = test_data / "books/carroll-alice.txt"
    found = look_at([str(book)], SCHEMA)
    assert "sentences" not in found.corpora[0].settings
    (whole,), _ = read(tmp_path, book)
    assert found.sample == whole["text"].split("\n")


@pytest.mark.parametrize("characters_read", [500_000, 10_000_000])
def test_a_text_that_the_reader_divides_is_one_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters_read: int
) -> None:
    """Whether the sample ends in its first piece, as in a file of 80 MB, or has many pieces."""
    monkeypatch.setattr("bertline.corpus.plain_text.MAX_DOCUMENT_LENGTH", 700_000)
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", characters_read)
    path = tmp_path / "novel.txt"
    path.write_text("\n\n".join(text_of(number) for number in range(4000)))
    found = look_at([str(path)], SCHEMA)
    assert found.corpora[0].settings["separator"] == "\n"
    assert found.documents > 1000


def test_a_long_text_without_empty_lines_has_the_pieces_that_the_reader_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.corpus.plain_text.MAX_DOCUMENT_LENGTH", 2000)
    path = tmp_path / "novel.txt"
    path.write_text("\n".join(text_of(number) for number in range(100)))
    found = look_at([str(path)], SCHEMA)
    assert "separator" not in found.corpora[0].settings | found.corpora[0].reasons
    assert found.documents == 50


def test_much_text_is_extrapolated_from_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.proposal.sample.SAMPLE_FILES", 40)
    write_texts(tmp_path, 400)
    found = look_at([str(tmp_path)], SCHEMA)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert (found.corpora[0].documents_read, found.corpora[0].is_extrapolated) == (40, True)
    assert found.documents == pytest.approx(400, rel=0.02)
    assert found.characters == pytest.approx(size, rel=0.02)


@pytest.mark.parametrize("kind", ["txt", "txt.gz", "jsonl"])
def test_several_encodings_change_no_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """They are chosen before anything is counted, however often a file is read for that."""
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", 2_000_000)
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
        (lambda folder: write_texts(folder, 2), r"2 documents, too few to hold one out \(5 or more are needed\)"),
        (
            latin1,
            r"b\.txt is not utf-8, as 1 of \d+ files \(b\.txt\): byte 6 is 0xfc; if latin-1 reads it well \('Stück'\), "
            r"give ENCODING=utf-8,latin-1, otherwise another encoding, or convert the files \(iconv .*\)$",
        ),
        (languages, r"no language is clear \(.*%.*\); give its ISO 639 code, as LANGUAGE=en"),
        (
            lambda folder: (folder / "a.jsonl").write_text('{"n": 1}\n'),
            r"a\.jsonl has no column of text; give its name, as COLUMN=text",
        ),
        (
            lambda folder: (folder / "a.csv").write_text("text,label\n"),
            r"a\.csv has no rows; give a table with texts",
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


def test_a_brace_in_a_name_and_capitals_in_a_suffix(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.TXT").write_text(f"{number}: {text_of(number)}")
    found = look_at([str(tmp_path)], SCHEMA, language="de")
    assert found.corpora[0].settings["paths"] == [f"{tmp_path}/**/*.TXT"]
    assert found.documents == 8
    (tmp_path / "a{b}.txt").write_text("text")
    with pytest.raises(BertlineError, match=r"a\{b\}\.txt: Snakemake takes braces for wildcards; rename it$"):
        look_at([str(tmp_path)], SCHEMA)
    (tmp_path / "a{b}.txt").rename(tmp_path / "a<results>.txt")
    with pytest.raises(BertlineError, match=r"a<results>\.txt: Snakemake takes <results> for a variable; rename it$"):
        look_at([str(tmp_path)], SCHEMA)
    (tmp_path / "a<results>.txt").rename(tmp_path / "a<2> < b >.txt")
    assert look_at([str(tmp_path)], SCHEMA, language="de").corpora[0].files


def test_a_given_language_and_encoding_are_taken(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_bytes(20 * "Ein Stück Käse. ".encode("latin-1"))
    found = look_at([str(tmp_path)], SCHEMA, language="bar", encoding="latin-1")
    assert (found.language, found.share) == ("bar", 1.0)
    assert found.corpora[0].settings["encoding"] == "latin-1"


@pytest.mark.parametrize(("text", "has_case"), [("雨が降っていました。BERT", False), ("雨が。It rained.", True)])
def test_a_text_has_case_if_most_of_its_letters_have(tmp_path: Path, text: str, has_case: bool) -> None:
    for number in range(6):
        (tmp_path / f"{number}.txt").write_text(20 * text + str(number))
    assert look_at([str(tmp_path)], SCHEMA, language="ja").has_case is has_case


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
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", 4_000_000)
    monkeypatch.setattr("bertline.proposal.text.KEPT_CHARACTERS", 1_000_000)
    german = "Der alte Mann ging langsam über die Brücke und dachte an seine Kinder, die in der Stadt wohnten. "
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(notes * german)
    with (tmp_path / "notes.jsonl").open("w") as file:
        file.writelines(json.dumps({"text": f"{SENTENCES[number % 5]} {number}"}) + "\n" for number in range(notes))
    found = look_at([str(tmp_path)], SCHEMA)
    assert found.language == "de"
    assert found.share == pytest.approx(0.93, abs=0.04)
    assert sum(map(len, found.sample)) < 1_100_000


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
    with pytest.raises(BertlineError, match=r"a\.arrow has no rows; give a table with texts"):
        look_at([str(tmp_path)], SCHEMA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoding": "nonsense"}, "the encoding 'nonsense' is unknown"),
        ({"encoding": "base64"}, "the encoding 'base64' is unknown"),
        ({"language": "../../x"}, r"LANGUAGE=\.\./\.\./x: give a code of two or three letters"),
        ({"language": "jpn"}, r"LANGUAGE=jpn: give the code of two letters, LANGUAGE=ja"),
        ({"language": "lav"}, r"LANGUAGE=lav: give the code of two letters, LANGUAGE=lv"),
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
    monkeypatch.setattr("bertline.proposal.text.KEPT_CHARACTERS", 1000)
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{text_of(0)} This is document number {number}.")
    (tmp_path / "8.txt").write_text((tmp_path / "7.txt").read_text())
    found = look_at([str(tmp_path)], SCHEMA)
    assert len(set(found.sample)) == 1
    assert found.different == 8


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
        ([200 * "Der alte Mann. " for _ in range(6)], "texts", "texts is a folder; give OUTPUT=name.yaml"),
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
    script = ROOT / "workflow/scripts/mine.py"
    command = [sys.executable, script, folder, "--output", tmp_path / output, "--language", "de", "--force"]
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert "timing" not in done.stderr
    assert "Traceback" not in done.stderr


GERMAN = "Der alte Mann ging langsam über die Brücke und dachte an seine Kinder, die in der Stadt wohnten. "


def write_large(path: Path, text: str) -> None:
    """A file of its own form with about a million characters."""
    lines = 1_000_000 // len(text)
    if ".jsonl" in path.name:
        rows = [json.dumps({"text": f"{20 * text}{number}"}) for number in range(lines // 20)]
        content = "\n".join(rows).encode()
    else:
        content = "\n".join(f"{text}{number}\n" for number in range(lines)).encode()
    if path.name.endswith(".parquet"):
        table = pyarrow.table({"text": [f"{20 * text}{number}" for number in range(lines // 20)]})
        pyarrow.parquet.write_table(table, path)
    elif path.name.endswith(".tar"):
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("a.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    else:
        path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)


@pytest.mark.parametrize("kind", ["txt", "txt.gz", "jsonl", "parquet", "tar"])
def test_of_each_of_some_large_files_a_part_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Whichever comes first: the language is that of most of them, and the amount that of all."""
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", 1_200_000)
    monkeypatch.setattr("bertline.proposal.sample.MIN_SHARE", 150_000, raising=False)
    names = "abcdef"
    first = min(names, key=lambda name: hashlib.sha256(f"{name}.{kind}".encode()).digest())
    for name in names:
        write_large(tmp_path / f"{name}.{kind}", SENTENCES[0] if name == first else GERMAN)
    found = look_at([str(tmp_path)], SCHEMA)
    assert found.language == "de"
    assert found.share == pytest.approx(5 / 6, abs=0.08)
    assert found.corpora[0].characters_read < 2_500_000
    if kind in ("txt", "parquet"):  # of the others a megabyte is read at a time
        assert found.characters == pytest.approx(6_000_000, rel=0.15)
    assert kind != "txt" or found.documents == 6


def test_a_large_file_is_not_missed_among_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", 400_000)
    monkeypatch.setattr("bertline.proposal.sample.MIN_SHARE", 50_000, raising=False)
    for kind in ("txt", "jsonl"):
        folder = tmp_path / kind
        folder.mkdir()
        for number in range(30):
            text = 100 * f"{SENTENCES[number % 5]} "
            (folder / f"{number}.{kind}").write_text(json.dumps({"text": text}) if kind == "jsonl" else text)
        write_large(folder / f"large.{kind}", GERMAN)
        assert look_at([str(folder)], SCHEMA).language == "de"


def test_each_kind_of_files_has_its_part_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", 400_000)
    monkeypatch.setattr("bertline.proposal.sample.MIN_SHARE", 50_000, raising=False)
    for name in ("a.txt", "b.txt", "a.jsonl", "b.jsonl"):
        write_large(tmp_path / name, GERMAN)
    found = look_at([str(tmp_path)], SCHEMA)
    assert all(150_000 < corpus.characters_read < 300_000 for corpus in found.corpora)


def test_the_files_that_are_read_are_spread_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.proposal.sample.SAMPLE_FILES", 10)
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(10 * (GERMAN if number >= 15 else f"{SENTENCES[0]} "))
    found = look_at([str(tmp_path)], SCHEMA)
    assert (found.language, found.corpora[0].documents_read) == ("de", 10)


@pytest.mark.parametrize(("size", "documents"), [(300, 8), (3000, 800)])
def test_paragraphs_are_the_documents_of_some_large_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, documents: int
) -> None:
    """Of which two would be too much to hold out."""
    monkeypatch.setattr("bertline.proposal.text.HELD_OUT_BYTES", 2 * 100 * 2000, raising=False)
    for number in range(8):
        parts = (f"{size // 300 * text_of(part)[:280]} {number}" for part in range(100))
        (tmp_path / f"{number}.txt").write_text("\n\n".join(parts))
    assert look_at([str(tmp_path)], SCHEMA).documents == documents


def test_the_share_of_a_language_does_not_depend_on_the_bytes_of_its_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.proposal.text.SAMPLE_CHARACTERS", 400_000)
    write_large(tmp_path / "a.txt", "Она прочитала письмо дважды, и потом она положила его обратно в ящик стола. ")
    for name in ("b.txt", "c.txt"):
        write_large(tmp_path / name, GERMAN)
    found = look_at([str(tmp_path)], SCHEMA)
    assert (found.language, found.share) == ("de", pytest.approx(2 / 3, abs=0.04))
    assert found.characters == pytest.approx(3_000_000, rel=0.06)


def test_a_bar_of_the_texts_read_is_for_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the output of `make mine` to a pipe or a file it would be a line of no use."""
    write_texts(tmp_path / "texts")
    look_at([str(tmp_path / "texts")], SCHEMA)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    look_at([str(tmp_path / "texts")], SCHEMA)
    assert "8/8" in capsys.readouterr().err
