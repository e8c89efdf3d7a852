"""How the files that a user gives are grouped into corpora, by their names."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from test_corpus_unpacking import zip_bytes
from user_texts import text_of

from bertline.console import BertlineError
from bertline.planning.patterns import find_files
from bertline.proposal.corpora import Corpus, corpora_of, find_shape


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("<mediawiki>\n" if ".xml" in name else "1\tOne.\n")


def patterns_of(folder: Path) -> dict[str, list[str]]:
    """The corpora of a folder, with their patterns, which match their files and no others."""
    corpora = corpora_of([str(folder)])[0]
    for corpus in corpora:
        found = {file for pattern in corpus.settings["paths"] for file in find_files(pattern)[0]}
        assert found == set(map(str, corpus.files))
    return {
        corpus.name: [pattern.removeprefix(f"{folder}/**/") for pattern in corpus.settings["paths"]]
        for corpus in corpora
    }


def test_the_parts_of_a_large_dump_are_one_pattern(tmp_path: Path) -> None:
    put(tmp_path, "w1.xml-p1p9.bz2", "w2.xml-p10p99.bz2", "w3.xml-p100p101", "w.xml", "notes.txt")
    assert patterns_of(tmp_path) == {
        "texts": ["*.txt"],
        "wiki": ["*.xml", "*.xml-p[0-9]*p[0-9]*.bz2", "*.xml-p[0-9]*p[0-9]*"],
    }
    [corpus], *_ = corpora_of([str(tmp_path / "w1.xml-p1p9.bz2")])
    assert corpus.settings == {"source": "wikimedia", "paths": [f"{tmp_path}/w1.xml-p1p9.bz2"]}


def test_xml_that_is_no_wiki_s_dump_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "notes.txt")
    other = tmp_path / "sub/config.xml"
    other.parent.mkdir()
    other.write_text("<TEI><p>It rained.</p></TEI>")
    found = corpora_of([str(tmp_path)])
    assert ([corpus.name for corpus in found.corpora], found.not_read) == (["texts"], {".xml": 1})
    with pytest.raises(BertlineError, match=r"config\.xml is XML, not plain text; of a wiki's dump use"):
        corpora_of([str(other)])
    put(tmp_path, "w.xml-p1p9")
    assert corpora_of([str(tmp_path)]).not_read == {".xml": 1}
    put(tmp_path, "w.xml")
    message = r"config\.xml is no dump of a wiki, but .*/\*\*/\*\.xml finds it, too; move it to another folder$"
    for given in ([tmp_path], [tmp_path, other.parent]):
        with pytest.raises(BertlineError, match=message):
            corpora_of(list(map(str, given)))


def test_a_file_that_is_given_alone_is_read_whatever_its_name(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "b.log", "c.log")
    found = corpora_of([str(tmp_path), str(tmp_path / "b.log")])
    assert ([corpus.files for corpus in found.corpora], found.not_read) == (
        [[tmp_path / "a.txt", tmp_path / "b.log"]],
        {".log": 1},
    )


def test_files_are_in_the_order_of_their_numbers_in_whatever_order_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    names = ["1.txt", "2.txt", "10.txt", "b/1.md", "b/9.txt", "b/10.txt"]
    put(tmp_path, *names)
    for given in ([tmp_path], [tmp_path / name for name in names[::-1]], [tmp_path / "b", *tmp_path.glob("*.txt")]):
        (corpus,) = corpora_of(list(map(str, given))).corpora
        assert corpus.files == [tmp_path / name for name in names]


def test_files_with_capitals_in_their_suffix_are_of_the_same_kinds(tmp_path: Path) -> None:
    names = ("A.CSV", "B.Jsonl.GZ", "C.TSV", "D.ZIP", "E.TXT.GZ", "F.HTML", "G.XML.BZ2", "H.WARC.WET.GZ")
    put(tmp_path, *names)
    assert patterns_of(tmp_path) == {
        "tables": ["*.CSV", "*.Jsonl.GZ", "*.TSV"],
        "archives": ["*.ZIP"],
        "texts": ["*.TXT.GZ"],
        "pages": ["*.HTML"],
        "wiki": ["*.XML.BZ2"],
        "web": ["*.WARC.WET.GZ"],
    }


@pytest.mark.parametrize(
    ("name", "content", "pack", "settings"),
    [
        ("A.CSV.GZ", "id,story\n1,It rained for a long time.\n", gzip.compress, {"text": "story"}),
        ("A.TSV", "id\tstory\n1\tIt rained for a long time.\n", bytes, {"text": "story"}),
        ("A.ZIP", text_of(1), lambda content: zip_bytes({"a.txt": content}), {}),
    ],
)
def test_the_column_and_the_lines_of_such_files_are_found(
    tmp_path: Path, name: str, content: str, pack: Callable[[bytes], bytes], settings: dict[str, str]
) -> None:
    (tmp_path / name).write_bytes(pack(content.encode()))
    assert shaped(tmp_path).settings == {"source": "files", "paths": [f"{tmp_path}/**/*{name[1:]}"], **settings}


def shaped(folder: Path) -> Corpus:
    [corpus], *_ = corpora_of([str(folder)])
    find_shape(corpus, "utf-8", None)
    return corpus


@pytest.mark.parametrize(("split", "is_by_lines"), [(1, False), (2, True)])
def test_sentences_are_lines_if_they_are_in_most_files(tmp_path: Path, split: int, is_by_lines: bool) -> None:
    for number in range(3):
        text = "It rained.\nIt was cold.\nNobody came.\n\n" * 20 if number < split else text_of(number)
        (tmp_path / f"{number}.txt").write_text(text)
    assert (shaped(tmp_path).settings.get("sentences") == "lines") is is_by_lines


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        ({"document": "D00001", "speech": text_of(1)}, "speech"),
        ({"sentence": "12", "remark": "Seen."}, "remark"),
        ({"notes": text_of(1), "Text": text_of(1)[:500]}, "Text"),
        ({"notes": text_of(1), "body": "short", "content": text_of(1)[:500]}, "content"),
        ({"when": "20260101120000.123456789", "remark": "It rained."}, "remark"),
        ({"text": "", "remark": "It rained."}, "remark"),
    ],
)
def test_a_column_is_taken_by_its_name_if_its_texts_are_long(tmp_path: Path, rows: dict[str, str], column: str) -> None:
    (tmp_path / "a.csv").write_text(",".join(rows) + "\n" + 9 * (",".join(rows.values()).replace(", ", " ") + "\n"))
    assert shaped(tmp_path).settings["text"] == column


@pytest.mark.parametrize(
    ("name", "content", "marks"),
    [
        ("a.csv", "id;content;label\n1;It rained.;a\n", "semicolons"),
        ("a.csv", 'id;content;label\n1;First, then,"quoted";a\n', "semicolons"),
        ("a.csv", "id;content;label\n", "semicolons"),
        ("a.CSV", "id\tcontent\n1\tIt rained, and more.\n", "tabs"),
        ("a.tsv", "id;content\n1;It rained.\n", "semicolons"),
        ("a.csv", 'id;content\n1;"It rained\nall day\nand all night."\n', "semicolons"),
        ("a.csv", "text|label\nIt rained.|a\nIt, again, rained.|b\n", "vertical bars"),
        ("a.csv", '"id";"content"\n"1";"It rained."\n', "semicolons"),
        ("a.csv", '"id, old"|"content"\n"1"|"It rained."\n', "vertical bars"),
        ("a.csv", '"id"\t"content"\n"1"\t"It rained."\n', "tabs"),
    ],
)
def test_a_table_divided_by_another_mark_is_told(tmp_path: Path, name: str, content: str, marks: str) -> None:
    (tmp_path / name).write_text(content)
    [corpus], *_ = corpora_of([str(tmp_path)])
    for column in (None, "content"):
        with pytest.raises(BertlineError, match=rf"/{name}: its columns are divided by {marks}; convert it to CSV"):
            find_shape(corpus, "utf-8", column)


@pytest.mark.parametrize(
    ("rows", "is_row"),
    [
        (["1,It rained on the old town.", "2,Nobody came that day."], True),
        (["1,雨が降っていました。とても寒かったです。", "2,みんな家にいました。とても静かでした。"], True),
        (["id,What did you like about it?", f"1,{9 * 'It was the sea. '}", f"2,{20 * 'The sea. '}"], False),
        (["text,What did you like about it?", "It was very good.,The sea.", "It was good.,The wind."], False),
        (["id,customer_review_translated", "1,It was good.", "2,It rained."], False),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_a_row_in_the_place_of_the_names_is_told(tmp_path: Path, name: str, rows: list[str], is_row: bool) -> None:
    columns, *others = [row.split(",") for row in rows]
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in others]
    (tmp_path / name).write_text(
        "\n".join(lines if name == "a.jsonl" else rows).replace(",", "\t" if name == "a.tsv" else ",")
    )
    [corpus], *_ = corpora_of([str(tmp_path)])
    if not is_row or name == "a.jsonl":
        find_shape(corpus, "utf-8", None)
        return
    message = (
        rf"/{name}: its first line seems to be a row, as '{columns[1]}' is as long as a text; add a first line with "
        r"names, or rename this one 'text'$"
    )
    with pytest.raises(BertlineError, match=message):
        find_shape(corpus, "utf-8", None)
    find_shape(corpus, "utf-8", columns[1])


def test_numbers_with_a_comma_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Preis,Menge\n" + '"5,3","1.200,50"\n"12,75","1,200,000"\n' * 9)
    with pytest.raises(BertlineError, match=r"a\.csv has no column of text; give its name, as COLUMN=text$"):
        shaped(tmp_path)


def test_the_column_of_the_text_is_judged_by_many_rows(tmp_path: Path) -> None:
    rows = ["1,kurz,", *(f'{number},kurz,"{text_of(number)}"' for number in range(2, 9))]
    (tmp_path / "a.csv").write_text("\n".join(["nr,art,inhalt", *rows, ""]))
    assert shaped(tmp_path).settings["text"] == "inhalt"


@pytest.mark.parametrize("content", ['{\n  "a": 1\n}\n', "[1, 2]\n", '"a"\n'])
def test_json_that_is_no_table_is_told_to_be_moved(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(BertlineError, match=r"a\.json, line 1.*; if it is no text, move the file to another folder$"):
        shaped(tmp_path)


def test_hidden_and_special_files_are_told(tmp_path: Path) -> None:
    put(tmp_path, "a.txt", ".b.txt")
    for folder in (".old/deep", "sub/.old", ".empty"):
        (tmp_path / folder).mkdir(parents=True)
    put(tmp_path / ".old", "a.txt")
    put(tmp_path / ".old/deep", "b.txt")
    put(tmp_path / "sub/.old", "a.txt")
    put(tmp_path / "sub", ".c.txt", ".given.txt")
    os.mkfifo(tmp_path / "sub/pipe.txt")
    found = corpora_of([str(tmp_path), str(tmp_path / "sub"), str(tmp_path / "sub/.given.txt")])
    assert found.not_read == {
        f"in {tmp_path}/.old": 2,
        f"in {tmp_path}/sub/.old": 1,
        "with a dot before the name": 2,
        "special (a pipe, a socket or a device)": 1,
    }
    assert [len(corpus.files) for corpus in found.corpora] == [2]
    assert f"in {tmp_path}/.old" not in corpora_of([str(tmp_path), str(tmp_path / ".old")]).not_read


@pytest.mark.parametrize("name", ["a\nb", "a\tb"])
def test_a_path_that_a_configuration_cannot_name_is_one_line(tmp_path: Path, name: str) -> None:
    """A file that is found by a pattern may have such a name."""
    folder, file = tmp_path / name, tmp_path / f"{name}.txt"
    folder.mkdir()
    put(folder, "a.txt")
    put(tmp_path, file.name)
    for path in (folder, file):
        with pytest.raises(BertlineError) as raised:
            corpora_of([str(path)])
        shown = str(path).encode("unicode_escape").decode()
        assert str(raised.value) == f"{shown}: a configuration cannot name a path with a line break or a tab; rename it"
    (corpus,) = corpora_of([str(tmp_path)]).corpora
    assert len(corpus.files) == 2


def test_only_hidden_files_are_no_text(tmp_path: Path) -> None:
    put(tmp_path, ".a.txt")
    with pytest.raises(BertlineError, match=r"no readable text \(1 with a dot before the name\); give \.txt"):
        corpora_of([str(tmp_path)])


def test_a_table_of_tabs_with_quotes_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('"id"\t"content"\n"1"\t"It rained."\n')
    [corpus], *_ = corpora_of([str(tmp_path)])
    with pytest.raises(
        BertlineError, match=r"/a\.tsv: its names are in quotes, which are a part of the text in \.tsv; c"
    ):
        find_shape(corpus, "utf-8", None)
    find_shape(corpus, "utf-8", '"content"')
    assert corpus.settings["text"] == '"content"'


def test_a_column_that_is_given_may_have_a_semicolon_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text; cleaned\n"It rained; it was cold."\n')
    [corpus], *_ = corpora_of([str(tmp_path)])
    find_shape(corpus, "utf-8", "text; cleaned")
    assert corpus.settings["text"] == "text; cleaned"


@pytest.mark.parametrize("header", ["satz; kommentar", "satz | kommentar"])
def test_a_single_column_may_have_a_mark_in_its_name_that_does_not_divide_its_rows(tmp_path: Path, header: str) -> None:
    rows = ["Es regnet seit Tagen.", "Es ist kalt; es regnet | und so fort.", '"Kalt, aber schön."', "Es wird Tag."]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows, ""]))
    assert shaped(tmp_path).settings["text"] == header


def test_of_an_unpacked_leipzig_corpus_only_the_sentences_count(tmp_path: Path) -> None:
    put(tmp_path, *(f"deu_news-{kind}.txt" for kind in ("sentences", "words", "sources", "inv_so", "co_n")))
    corpus = shaped(tmp_path)
    assert (corpus.settings["format"], corpus.settings["sentences"]) == ("leipzig", "lines")
    assert corpus.files == [tmp_path / "deu_news-sentences.txt"]
    assert corpus.bytes == corpus.files[0].stat().st_size


@pytest.mark.parametrize(
    ("name", "advice"),
    [("a.warc.gz", "use `source: warc`"), ("a.rtf", "convert it to .txt or .html")],
)
def test_a_single_file_that_is_no_text_by_its_name_is_one_line(tmp_path: Path, name: str, advice: str) -> None:
    (tmp_path / name).write_text("{\\rtf1 It rained.}")
    with pytest.raises(BertlineError) as raised:
        corpora_of([str(tmp_path / name)])
    assert str(raised.value).startswith(f"{tmp_path}/{name} is ")
    assert advice in str(raised.value)
