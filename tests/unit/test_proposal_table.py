"""The table to fine-tune on that is given with a user's texts."""

from __future__ import annotations

import csv
import hashlib
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from user_texts import text_of

from bertline.console import BertlineError
from bertline.proposal.table import describe_table, files_of


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


@pytest.mark.parametrize("name", ["Reviews.CSV", "Reviews.Tsv", "Reviews.JSONL", "Reviews.PARQUET"])
def test_a_table_with_capitals_in_its_suffix_is_read(tmp_path: Path, name: str) -> None:
    texts, labels = [f"{text_of(n)} {n}" for n in range(40)], ["ab"[n % 2] for n in range(40)]
    path = tmp_path / name
    if name.endswith("PARQUET"):
        pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": labels}), path)
    elif name.endswith("JSONL"):
        path.write_text(GOOD)
    else:
        with path.open("w", newline="") as file:
            rows = [("text", "label"), *zip(texts, labels, strict=True)]
            csv.writer(file, delimiter="," if name.endswith("CSV") else "\t").writerows(rows)
    described = describe_table([str(path)], tmp_path / "out")
    assert (described["name"], described["rows"], described["settings"]["label"]) == ("Reviews", 40, "label")


def test_a_short_second_text_is_used_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    """A hypothesis of some words beside a long premise is a text; an address or a name of two words is none."""
    path = tmp_path / "pairs.jsonl"

    def described(**more: str) -> tuple[list[str], str, list[str]]:
        rows = [
            {"premise": f"{text_of(n)} {n}", "author": f"Ann Lee {n % 60}", "url": f"https://example.org/{n}.html"}
            | {"hypothesis": f"The wall is old, {n}", "label": "ab"[n % 2], **more}
            for n in range(100)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        table = describe_table([str(path)], tmp_path / "out", force=True)
        return table["settings"]["texts"], table["reasons"]["texts"], table["notes"]

    assert described() == (["premise", "hypothesis"], "the columns of text", [])
    note = f"Of TABLE={path} taken as text: premise, not hypothesis, note; to read two of them, remove the others."
    assert described(note="a third text of some words") == (
        ["premise"],
        "the columns of text; not used: hypothesis, note",
        [note],
    )


@pytest.mark.parametrize(
    ("columns", "label", "others"),
    [
        (["city", "opinion"], "opinion", ["city"]),
        (["stars", "sentiment"], "stars", ["sentiment"]),
        (["opinion", "rating"], "rating", ["opinion"]),
        (["label", "city"], "label", []),
        (["opinion"], "opinion", []),
    ],
)
def test_other_possible_labels_are_told(tmp_path: Path, columns: list[str], label: str, others: list[str]) -> None:
    values = {"city": 3}
    rows = [
        {"text": f"{text_of(n)} {n}", "note": f"some words {n % 9}"}
        | {column: f"{column}-{n % values.get(column, 2)}" for column in columns}
        for n in range(100)
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = describe_table([str(path)], tmp_path / "out")
    others += [] if label == "label" else ["note"]
    assert (table["settings"]["label"], table["settings"]["texts"]) == (label, ["text"])
    told = f"; not taken: {', '.join(others)}; name the right one 'label'" if others else ""
    assert table["reasons"]["label"] == f"2 different values{told}"
    told = f"taken as label: {label}, not {', '.join(others)}; if that is wrong, name the right one 'label'"
    assert table["notes"] == ([f"Of TABLE={path} {told}."] if others else [])


SHA = {"sha": "{:064x}"}
ADDRESS = {"url": "https://example.org/articles/2026/a-long-name-of-an-article-{}.html"}


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        (SHA | {"text": "It rained, {}."}, ["text"]),
        (ADDRESS | {"text": "It rained, {}, on the old town of the north."}, ["text"]),
        (
            SHA | {"title": "The rain of the old town, {}, and more", "text": "It rained, {}, on the old town."},
            ["title", "text"],
        ),
        (ADDRESS | {"text": "雨が降っていました{}。とても寒かったです。みんな家にいました。"}, ["text"]),
        ({"text": "雨が降っていました{}。", "title": "雨{}"}, ["text"]),
        ({"word": "lovely{}", "serial": "12345678{}"}, ["word"]),
    ],
)
def test_digests_addresses_and_numbers_are_no_texts_beside_one(
    tmp_path: Path, columns: dict[str, str], texts: list[str]
) -> None:
    rows = [{name: form.format(n) for name, form in columns.items()} | {"label": "ab"[n % 2]} for n in range(100)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert describe_table([str(tmp_path / "t.jsonl")], tmp_path / "out")["settings"]["texts"] == texts


def test_a_table_of_numbers_is_a_regression(tmp_path: Path) -> None:
    rows = [{"a": text_of(number), "b": text_of(number + 1), "score": number / 7} for number in range(100)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "dev.jsonl").write_text((tmp_path / "pairs.jsonl").read_text())
    files = [str(tmp_path / name) for name in ("pairs.jsonl", "dev.jsonl")]
    table = describe_table(files, tmp_path)
    assert table["settings"] == {
        "kind": "regression",
        "train": files[0],
        "dev": files[1],
        "texts": ["a", "b"],
        "label": "score",
    }


@pytest.mark.parametrize(
    ("scores", "kind"),
    [
        ([number / 8 for number in range(40)], "regression"),
        ([f"{number % 9 / 2 + 1:.1f}" for number in range(40)], "regression"),
        ([number % 5 + 1 for number in range(40)], "classification"),
        ([f"{number % 2}.0" for number in range(40)], "classification"),
        ([(0.5, 1.5, "none", "inf")[number % 4] for number in range(40)], "classification"),
    ],
)
def test_numbers_that_are_not_whole_are_no_classes(tmp_path: Path, scores: list[object], kind: str) -> None:
    rows = [{"text": f"{text_of(number)} {number}", "score": score} for number, score in enumerate(scores)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert describe_table([str(tmp_path / "a.jsonl")], tmp_path / "out")["settings"]["kind"] == kind


@pytest.mark.parametrize(
    ("largest", "reason"),
    [(5, "more than 50 different values"), (-6, "more than 50 different values; scale the numbers to about -5 to 5")],
)
def test_large_numbers_to_predict_are_told_to_be_scaled(tmp_path: Path, largest: int, reason: str) -> None:
    rows = [{"text": f"{text_of(number)} {number}", "rating": largest * number / 99} for number in range(100)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    described = describe_table([str(tmp_path / "a.jsonl")], tmp_path / "out")
    assert (described["settings"]["kind"], described["reasons"]["label"]) == ("regression", reason)


def test_the_files_of_a_table_are_divided_by_commas() -> None:
    assert files_of(None) == files_of("") == []
    assert files_of("my table.csv") == ["my table.csv"]
    assert files_of("train.csv, dev.csv") == ["train.csv", "dev.csv"]
    for given in ("train.csv,", ",", "train.csv, ,dev.csv"):
        with pytest.raises(BertlineError, match=rf"^TABLE={given}: a name is empty; give one file, or one for train"):
            files_of(given)


def test_one_file_is_not_for_training_and_for_scores(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(GOOD)
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    for other in ("a.jsonl", "b.jsonl"):
        with pytest.raises(
            BertlineError, match=r"^TABLE=.*a\.jsonl,.*\.jsonl is one file: .*; give it once, then a part"
        ):
            describe_table([str(tmp_path / "a.jsonl"), str(tmp_path / other)], tmp_path / "out")


def test_a_divided_table_does_not_overwrite_that_of_another_configuration(tmp_path: Path) -> None:
    """Both are of a mine.yaml, in two folders."""
    first, second = tmp_path / "a/t.jsonl", tmp_path / "b/t.jsonl"
    for path, content in ((first, GOOD), (second, GOOD.replace("number", "count"))):
        path.parent.mkdir()
        path.write_text(content)
    folder = tmp_path / "resources/mine"
    train, dev = (describe_table([str(first)], folder)["settings"][split] for split in ("train", "dev"))
    before = [Path(file).read_text() for file in (train, dev)]
    describe_table([str(first)], folder)
    with pytest.raises(BertlineError, match=rf"^{train} has other rows than those of {second}, .*, or FORCE=yes to"):
        describe_table([str(second)], folder)
    assert [Path(file).read_text() for file in (train, dev)] == before
    assert {path.name for path in folder.iterdir()} == {"t-train.jsonl", "t-dev.jsonl"}
    describe_table([str(second)], folder, force=True)
    assert "count" in Path(train).read_text()


@pytest.mark.parametrize(
    ("scores", "example"),
    [
        ([f"{number // 7},{number:02}" if number % 3 else f"{number}" for number in range(90)], "0,01"),
        ([f"{number % 5},{number % 2}" for number in range(40)], "0,0"),
        ([str(number) if number % 5 else "1,5" for number in range(20)], "1,5"),
        ([f"{number % 5},000" for number in range(40)], "0,000"),
        ([f"1,{number:03},000.5" for number in range(60)], "1,000,000.5"),
    ],
)
def test_numbers_with_a_comma_are_no_classes(tmp_path: Path, scores: list[str], example: str) -> None:
    path = tmp_path / "a.csv"
    rows = [f'some words of row {number},"{score}"\n' for number, score in enumerate(scores)]
    path.write_text("".join(["text,score\n", *rows]))
    message = (
        rf"a\.csv: column 'score' has numbers with a comma, such as {example}; write a point, or nothing where it "
        r"marks thousands$"
    )
    with pytest.raises(BertlineError, match=message):
        describe_table([str(path)], tmp_path / "out")


def test_classes_may_have_commas(tmp_path: Path) -> None:
    rows = [{"text": f"some words {n}", "label": ("1,2,3", "4,5", "none")[n % 3]} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert describe_table([str(tmp_path / "a.jsonl")], tmp_path / "out")["settings"]["kind"] == "classification"


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
        (["good.jsonl", "a<b>.csv"], r"^TABLE=.*a<b>\.csv: Snakemake takes <b> for a variable; rename it$"),
        (["good.jsonl", "a\nb.csv"], r"^TABLE=.*/a\\nb\.csv: a configuration cannot name a path with a line break"),
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


@pytest.mark.parametrize("files", [1, 2])
def test_a_number_in_two_ways_is_not_proposed_as_two_classes(tmp_path: Path, files: int) -> None:
    """The fine-tuning would refuse it: 1 and 1.0, which a program that joins tables writes, are one class."""

    def written(name: str, grades: list[object]) -> str:
        rows = [{"text": f"{text_of(n)} {n}", "label": grades[n % len(grades)]} for n in range(60)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    given = [written("train.jsonl", [0, 1, 1.0]), written("dev.jsonl", [0, 1])][:files]
    message = r"train\.jsonl: line 3: column 'label': given 1\.0, and 1 in another record; write both alike$"
    with pytest.raises(BertlineError, match=message):
        describe_table(given, tmp_path / "out")
    written("train.jsonl", [0, "1", 1.0])
    assert describe_table(given[:1], tmp_path / "out")["settings"]["kind"] == "classification"  # a text is no number


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
        ("a.csv", "id;text;label\n1;some text;a\n", r"a\.csv: its columns are divided by semicolons; convert it"),
        ("a.csv", "text;label\nsome, or more;a\n", r"a\.csv: its columns are divided by semicolons; convert it"),
        ("a.CSV", "text\tlabel\nsome text\ta\n", r"a\.CSV: its columns are divided by tabs; convert it"),
        ("a.csv", '"Nr";"Text"\n"1";"some text"\n', r"a\.csv: its columns are divided by semicolons; convert it"),
        ("a.csv", '"Nr"\t"Text"\n"1"\t"some text"\n', r"a\.csv: its columns are divided by tabs; convert it"),
        ("a.csv", '"Nr, old"|"Text"\n"1"|"some"\n', r"a\.csv: its columns are divided by vertical bars; convert"),
        ("a.csv", "Nr|Text\n1|some text\n", r"a\.csv: its columns are divided by vertical bars; convert it"),
        ("a.csv", '"Nr" x,Text\n1,some text\n', r"a\.csv: line 1: not CSV \(',' expected after '\"'\); correct"),
        ("a.tsv", '"text"\t"label"\n"some text"\t"a"\n', r"a\.tsv: its names are in quotes, which are a part of the"),
        ("a.csv", "label\n" + "a\nb\n" * 40, "no column of texts besides 'label'; add one"),
        ("a.csv", "text,label\n" + "12345,a\n12346,b\n" * 40, "no column of texts besides 'label'; add one"),
        (
            "a.csv",
            b"text,label\n" + b"some words,a\n" * 9 + b"caf\xe9 \x96 x,b\n",
            r"a\.csv is not UTF-8: byte 131 is 0xe9 \(.*\); convert the file, as cp1252 if that reads it well "
            r"\(iconv -f cp1252 -t utf-8\)$",
        ),
        (
            "a.tsv",
            b"text\tlabel\ncaf\xe9 x\tb\n",
            r"a\.tsv: line 2: not UTF-8: byte 14 is 0xe9 \(.*\); convert the file, as latin-1 if that reads it well",
        ),
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
        (
            "a.csv",
            "text,tag\n" + "".join(f"some words {n},tag {n}\n" for n in range(40)),
            r"a\.csv: column 'tag' has 40 different labels in 40 rows: it is no class; name a column of",
        ),
        (
            "a.csv",
            "".join(f"some words {n},{n % 8 / 8}\n" for n in range(100)),
            r"a\.csv: its first line is a row, as '0\.0' is the name of the labels' column; add a first line with",
        ),
        (
            "a.csv",
            "".join(f"The {n}th train did not arrive,{'ab'[n % 2]}\n" for n in range(40)),
            r"a\.csv: its first line seems to be a row, as 'The 0th train did not arrive' is as long as a text; add a",
        ),
        ("a.parquet", "PAR1 this is not", r"a\.parquet is damaged or truncated"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(
    tmp_path: Path, name: str, content: str | bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BertlineError, match=message):
        describe_table([str(tmp_path / name)], tmp_path)
