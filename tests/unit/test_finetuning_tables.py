"""Tables of one's own: classification, regression and tagging."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.encoding.masking import IGNORED
from bertline.encoding.tokenizer import make_tokenizer, read_tokenizer, save_tokenizer
from bertline.finetuning.examples import read_examples, read_labels, read_texts
from bertline.finetuning.prepared import prepare_task
from bertline.finetuning.submissions import write_predictions
from bertline.finetuning.tables import read_columns
from bertline.finetuning.tag_task import TaggedFile, read_conll, tag_inputs
from bertline.finetuning.text_task import text_task_of
from bertline.tasks.registry import TASKS
from bertline.tasks.task import TextTask

Row = tuple[str, str, str]
TASK = TextTask(title="", texts=("premise", "claim"), label="verdict", labels=("no", "yes"))
NAMES = ("premise", "claim", "verdict")
SETTINGS = {"max_sequence_length": 12}


def write_tsv(path: Path, rows: list[Row]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in [NAMES, *rows]), encoding="utf-8", newline="\n")


def write_csv(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows])


def write_jsonl(path: Path, rows: list[Row]) -> None:
    lines = [json.dumps(dict(zip(NAMES, row, strict=True)) | {"more": None}) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))


def write_parquet(path: Path, rows: list[Row]) -> None:
    columns = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    pyarrow.parquet.write_table(pyarrow.table({name: list(cells) for name, cells in columns.items()}), path)


WRITERS = {".csv": write_csv, ".jsonl": write_jsonl, ".parquet": write_parquet}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def test_a_line_without_content_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    for end in ("", " \r\n"):
        path.write_text(f'{{"t": "a", "l": "yes"}}\n\n{end}')
        with pytest.raises(BertlineError, match="line 2 is empty; remove it, or restore its record"):
            list(read_columns(path, ["t", "l"]))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(TEXT, TEXT, st.sampled_from(TASK.labels)), min_size=1, max_size=5))
def test_every_kind_of_file_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    for suffix, write in WRITERS.items():
        write(folder / f"data{suffix}", rows)
        read = read_examples(folder / f"data{suffix}", TASK)
        assert list(zip(read.first, read.second or [], strict=True)) == [row[:2] for row in rows]
        assert [TASK.labels[target] for target in read.targets] == [row[2] for row in rows]
        assert read_labels(folder / f"data{suffix}", "verdict") == tuple(sorted({row[2] for row in rows}))


def test_a_cell_of_a_tsv_is_the_text_between_two_tabs(tmp_path: Path) -> None:
    rows = [('"a', "b\u2028c", "yes"), ("", " ", "no")]
    write_tsv(tmp_path / "data.tsv", rows)
    read = read_examples(tmp_path / "data.tsv", TASK)
    assert list(zip(read.first, read.second or [], strict=True)) == [row[:2] for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", 'premise,claim,verdict\na,b,"yes\n', "line 2: not CSV"),
        ("d.csv", "premise,claim,verdict\na,b\n", "line 2: no column 'verdict', it has 2 of 3"),
        ("d.csv", "premise,verdict\na,yes\n", "line 1: no column 'claim', it has premise, verdict"),
        (
            "d.csv",
            "premise,claim,verdict\n\na,b,maybe\n",
            "line 3: column 'verdict': given 'maybe', allowed are no, yes",
        ),
        ("d.csv", "premise,claim,verdict\n", "contains no example"),
        ("d.csv", "premise;claim;verdict\na, b;c;yes\n", "its columns are divided by semicolons; convert it to CSV"),
        ("d.csv", "premise\tclaim\tverdict\na\tb\tyes\n", "its columns are divided by tabs; convert it to CSV"),
        ("d.tsv", "premise;claim;verdict\na;b;yes\n", "its columns are divided by semicolons; convert it to CSV"),
        ("d.jsonl", '{"premise": "a"}\n', "line 1: no column 'claim', it has premise"),
        (
            "d.jsonl",
            '{"premise": 3, "claim": "b", "verdict": "no"}',
            "line 1: column 'premise': given 3, allowed is text",
        ),
        ("d.jsonl", '{"premise": "a", "claim": "b", "verdict": "no"}\n{', "line 2: not JSON"),
        ("d.jsonl", "[1]\n", "line 1: no JSON object"),
        ("d.jsonl", "", "contains no example"),
        ("d.parquet", "PAR", "is damaged or truncated"),
        ("d.xlsx", "", "given '.xlsx', allowed are .tsv, .csv, .jsonl, .parquet"),
        ("d.csv", b"premise,claim,verdict\n\xff,b,yes\n", "is not UTF-8"),
        ("d.jsonl", None, "does not exist"),
        ("d.csv", "premise,claim,verdict,verdict\na,b,no,yes\n", "the column 'verdict' appears 2 times"),
        ("d.tsv", "premise\tpremise\tclaim\tverdict\n", "line 1: the column 'premise' appears 2 times"),
        ("d.jsonl", '{"premise": "a", "claim": "b", "claim": "c", "verdict": "no"}', "the key 'claim' appears twice"),
        ("d.jsonl", '{"premise": "\\ud83d", "claim": "b", "verdict": "no"}', "line 1: not JSON ('utf-8' codec can't"),
        ("d.jsonl", "[" * 200_000, "line 1: not JSON (too many levels)"),
        ("d.jsonl", '{"premise": ' + "1" * 5000 + "}", "line 1: not JSON (Exceeds the limit"),
        (
            "d.jsonl",
            '{"premise": "a", "claim": "b", "verdict": null}',
            "line 1: column 'verdict': given None, allowed is",
        ),
        (
            "d.jsonl",
            '{"premise": "a", "claim": null, "verdict": "no"}',
            "line 1: column 'claim': given None, allowed is",
        ),
        ("d.jsonl", '{"premise": "a", "claim": "b", "verdict": ["no"]}', "column 'verdict': given ['no'], allowed is"),
    ],
)
def test_a_bad_table_is_one_line_with_its_place(
    tmp_path: Path, name: str, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BertlineError) as caught:
        read_examples(path, TASK)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cell", ["null", "NaN", "[]", '{"no": 1}', '""', '" "', "Infinity"])
def test_a_label_that_names_no_class_makes_no_class(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"t": "a", "l": "no"}\n{"t": "b", "l": CELL}\n{"t": "c", "l": "yes"}\n'.replace("CELL", cell))
    with pytest.raises(BertlineError, match=r"d\.jsonl: line 2: column 'l': given .*, allowed is a class; ") as caught:
        text_task_of({"kind": "classification", "texts": ["t"], "label": "l"}, str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "line", "message"),
    [
        (("0", "1", "0.0"), 3, "given 0.0, and 0 in another record; write both alike"),
        (("2.0", "1", "2"), 3, "given 2, and 2.0 in another record; write both alike"),
    ],
)
def test_an_integer_and_the_same_number_with_a_point_are_not_two_classes(
    tmp_path: Path, cells: tuple[str, ...], line: int, message: str
) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(f'{{"l": {cell}}}\n' for cell in cells))
    with pytest.raises(BertlineError, match=rf"d\.jsonl: line {line}: column 'l': {re.escape(message)}$"):
        read_labels(path, "l")
    path.write_text("".join(f'{{"l": {cell}}}\n' for cell in (*cells[:2], '"7"', "7.0", "1.5")))
    assert len(read_labels(path, "l")) == 5  # a text is no number


def test_an_empty_cell_is_not_a_class_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("t,l\na,no\nb,\nc,yes\n")
    with pytest.raises(BertlineError, match=r"d\.csv: line 3: column 'l': given '', allowed is a class"):
        read_labels(tmp_path / "d.csv", "l")


@pytest.mark.parametrize("cell", ["true", '"1_000"', "1e39", "-1e39", '"nan"', "NaN", "null", "[1]", "1" + "0" * 400])
def test_a_number_beyond_float32_is_not_a_target(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"t": "a", "l": "2.5"}\n{"t": "b", "l": CELL}\n'.replace("CELL", cell))
    task = text_task_of({"kind": "regression", "texts": ["t"], "label": "l"}, "unused")
    with pytest.raises(BertlineError, match=r"line 2: column 'l': given .*, allowed is a number"):
        read_examples(path, task)


def test_numbers_and_truth_values_may_be_classes(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"t": "a", "l": 3}\n{"t": "b", "l": 10}\n')
    task = text_task_of({"kind": "classification", "texts": ["t"], "label": "l", "labels": [3, 10]}, "unused")
    assert task.labels == ("3", "10")
    assert read_examples(tmp_path / "d.jsonl", task).targets.tolist() == [0, 1]


def test_the_classes_of_booleans_have_python_s_names_or_those_of_json(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"t": "a", "l": true}\n{"t": "b", "l": false}\n')
    for labels in ({}, {"labels": ["false", "true"]}):
        task = text_task_of({"kind": "classification", "texts": ["t"], "label": "l", **labels}, str(path))
        assert task.labels == (("false", "true") if labels else ("False", "True"))
        assert read_examples(path, task).targets.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("table", "metrics"),
    [
        ({"kind": "classification", "labels": ["a", "b"]}, ("accuracy", "f1", "matthews")),
        ({"kind": "classification", "labels": ["a", "b", "c"]}, ("accuracy", "f1_macro", "matthews")),
        ({"kind": "classification", "labels": ["a", "b"], "metrics": ["f1"]}, ("f1",)),
        ({"kind": "regression"}, ("pearson", "spearman")),
    ],
)
def test_a_table_is_scored_as_asked_or_as_usual(table: dict[str, Any], metrics: tuple[str, ...]) -> None:
    task = text_task_of({"texts": ["t"], "label": "l", **table}, "unused")
    assert task.metrics == metrics


def test_a_metric_of_the_other_kind_is_refused() -> None:
    with pytest.raises(BertlineError, match="metrics: given 'f1', allowed for regression are pearson, spearman"):
        text_task_of({"kind": "regression", "texts": ["t"], "label": "l", "metrics": ["f1"]}, "unused")


@pytest.mark.parametrize("labels", [{}, {"labels": ["a", "b", "c"]}])
def test_f1_of_one_class_is_refused_if_there_are_more_than_two(tmp_path: Path, labels: dict[str, Any]) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(f'{{"t": "x", "l": "{label}"}}\n' for label in "abc"))
    table = {"kind": "classification", "texts": ["t"], "label": "l", **labels}
    line = r"^metrics: given 'f1', which is [^\n]* but there are 3; write f1_macro, their mean$"
    with pytest.raises(BertlineError, match=line):
        text_task_of({**table, "metrics": ["f1", "accuracy"]}, str(path))
    assert text_task_of({**table, "metrics": ["f1_macro"]}, str(path)).metrics == ("f1_macro",)


# Preparing


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    words = ["we", "met", "ada", "##da", "in", "tarn", "##ia", "-", "."]
    save_tokenizer(
        make_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], lowercase=True, source="the test"), path
    )
    return path


def test_a_table_is_prepared_with_its_train_file_s_labels_and_its_test_set_predicted(
    tmp_path: Path, tokenizer: Path
) -> None:
    (tmp_path / "train.csv").write_text("t,l\nwe met,warm\nin tarn,cold\nwe,warm\n")
    (tmp_path / "dev.csv").write_text("t,l\nmet,warm\n")
    (tmp_path / "test.csv").write_text("t\nada\ntarn\n")
    data = {split: str(tmp_path / f"{split}.csv") for split in ("train", "dev", "test")}
    table = {"kind": "classification", "texts": ["t"], "label": "l"}
    task = prepare_task("table/mine", data, SETTINGS, tokenizer, table)
    assert (task.head, task.outputs, task.train_targets.tolist()) == ("sequence", 2, [1, 0, 1])
    assert task.baselines == {"majority": 100.0}
    outputs = np.eye(2, dtype=np.float32)
    evaluation = task.predicted[1].evaluate(outputs)
    evaluation.write_predictions(tmp_path)
    assert evaluation.scores == {}
    assert (tmp_path / "predictions_test.tsv").read_text() == "index\tprediction\n0\tcold\n1\twarm\n"
    (tmp_path / "dev.csv").write_text("t,l\nmet,hot\n")
    with pytest.raises(BertlineError, match=r"dev\.csv: line 2: column 'l': given 'hot', allowed are cold, warm"):
        prepare_task("table/mine", data, SETTINGS, tokenizer, table)


def test_examples_that_are_also_in_the_training_set_are_counted(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "train.csv").write_text("t,u,l\nwe,met,warm\nin,tarn,cold\nwe,in,warm\n")
    (tmp_path / "dev.csv").write_text("t,u,l\nwe,met,warm\nwe,met,cold\nmet,we,warm\n")
    (tmp_path / "test.csv").write_text("t,u\nin,met\n")
    data = {split: str(tmp_path / f"{split}.csv") for split in ("train", "dev", "test")}
    table = {"kind": "classification", "texts": ["t", "u"], "label": "l"}
    task = prepare_task("table/mine", data, SETTINGS, tokenizer, table)
    assert (task.examples["dev_in_train"], task.examples["test_in_train"]) == (2, 0)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "dev: 2 of 3 examples have the texts of a training example"
    ]

    (tmp_path / "train.conll").write_text(CONLL)
    (tmp_path / "dev.conll").write_text("in O\nTarnia B-PER\n. O\n\nTarnia B-LOC\n")
    data = {split: str(tmp_path / f"{split}.conll") for split in ("train", "dev")}
    task = prepare_task("table/names", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": -1})
    assert task.examples["dev_in_train"] == 1


def test_examples_with_an_empty_text_are_counted_and_reported_in_one_line(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "train.csv").write_text("t,u,l\nwe,met,warm\n,tarn,cold\nwe, ,warm\n,,cold\n")
    (tmp_path / "dev.csv").write_text("t,u,l\nin,met,warm\n")
    (tmp_path / "test.jsonl").write_text('{"t": "in", "u": ""}\n')
    data = {"train": "train.csv", "dev": "dev.csv", "test": "test.jsonl"}
    data = {split: str(tmp_path / name) for split, name in data.items()}
    table = {"kind": "classification", "texts": ["t", "u"], "label": "l"}
    task = prepare_task("table/mine", data, SETTINGS, tokenizer, table)
    assert {name: count for name, count in task.examples.items() if "empty" in name} == {
        "train_empty": 3,
        "test_empty": 1,
    }
    assert (len(task.train), task.examples["train"]) == (4, 4)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"{data['train']}: line 3: an empty text; 3 of 4 examples of the file have one",
        f"{data['test']}: line 1: an empty text; 1 of 1 examples of the file have one",
    ]


CONLL = "-DOCSTART- -X- O O\n\nWe PRP O\nmet VB O\nAdada NNP B-PER\n\nin IN O\nTarnia NNP B-LOC\n. . O\n"


def test_words_and_tags_are_read_from_columns(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    read = read_conll(tmp_path / "a.conll", word=0, tag=-1)
    assert read == TaggedFile(
        [["We", "met", "Adada"], ["in", "Tarnia", "."]], [["O", "O", "B-PER"], ["O", "B-LOC", "O"]]
    )
    assert read_conll(tmp_path / "a.conll", word=0, tag=1).tags[0] == ["PRP", "VB", "NNP"]
    (tmp_path / "b.conll").write_text("New York\tB-LOC\r\n\r\n\r\nit\tO")
    assert read_conll(tmp_path / "b.conll", word=0, tag=1) == TaggedFile([["New York"], ["it"]], [["B-LOC"], ["O"]])


def test_columns_behind_the_words_and_tags_may_vary_between_sentences(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("We O\n\nmet O x\nAda B-PER x\n")
    assert read_conll(tmp_path / "a.conll", word=0, tag=1).words == [["We"], ["met", "Ada"]]
    with pytest.raises(BertlineError, match=r"a\.conll: line 3: 3 columns, the lines before have 2"):
        read_conll(tmp_path / "a.conll", word=0, tag=-1)


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\u3000", "\x85"])
def test_only_spaces_and_tabs_separate_columns(tmp_path: Path, space: str) -> None:
    word = f"10{space}000"
    (tmp_path / "a.conll").write_text(f" {word}  O \nkm O\n", encoding="utf-8")
    assert read_conll(tmp_path / "a.conll", word=0, tag=-1).words == [[word, "km"]]
    (tmp_path / "words.conll").write_text(f"{word}\nkm\n", encoding="utf-8")
    assert read_conll(tmp_path / "words.conll", word=0, tag=0, tagged=False).words == [[word, "km"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"We O\nmet\n", "line 2: 1 columns, words are in column 0 and tags in 1"),
        (b"\n\n", "contains no sentence"),
        (b"We O\nna\xefve O\n", "line 2: not UTF-8"),
        (b"We O\nmet X O\n", "line 2: 3 columns, the lines before have 2; correct the line"),
        (b"We\tO\nmet\t\n", "line 2: column 1 is empty"),
        (b"We\tO\n\tO\n", "line 2: column 0 is empty"),
    ],
)
def test_a_bad_file_of_columns_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.conll").write_bytes(content)
    with pytest.raises(BertlineError, match=message):
        read_conll(tmp_path / "a.conll", word=0, tag=1)


def test_a_word_may_be_a_space_that_separates_no_columns(tmp_path: Path) -> None:
    for column in ("\t", " "):
        lines = [f"{word}{column}O\n" for word in ("We", "\u00a0", "\u3000", "met")]
        (tmp_path / "a.conll").write_text("".join(lines), encoding="utf-8")
        assert read_conll(tmp_path / "a.conll", word=0, tag=1).words == [["We", "\u00a0", "\u3000", "met"]]
    (tmp_path / "words.conll").write_text("We\n\u3000\nmet\n \t\nthem\n", encoding="utf-8")
    assert read_conll(tmp_path / "words.conll", word=0, tag=0, tagged=False).words == [
        ["We", "\u3000", "met"],
        ["them"],
    ]


def test_words_do_not_replace_tags(tmp_path: Path, tokenizer: Path) -> None:
    """Nor do the tags of another column, in a line that lacks one; but a file to predict may have words only."""
    (tmp_path / "words.conll").write_text("We\nmet\n\nAdada\n")
    for tag, message in ((-1, "in column 0 and tags in -1"), (0, "in column 0 and tags in 0")):
        with pytest.raises(BertlineError, match=f"line 1: 1 columns, words are {message}; correct"):
            read_conll(tmp_path / "words.conll", word=0, tag=tag)
    (tmp_path / "a.conll").write_text(CONLL)
    (tmp_path / "gap.conll").write_text(CONLL.replace("NNP B-PER", "NNP") + "\nWe PRP\n")
    with pytest.raises(BertlineError, match="line 5: 2 columns, the lines before have 3"):
        read_conll(tmp_path / "gap.conll", word=0, tag=-1)
    (tmp_path / "gap.conll").write_text(f"{CONLL}\nWe PRP\n")
    with pytest.raises(BertlineError, match="line 11: 2 columns, the lines before have 3"):
        read_conll(tmp_path / "gap.conll", word=0, tag=-1)
    assert read_conll(tmp_path / "gap.conll", word=0, tag=1).tags[-1] == ["PRP"]
    table = {"kind": "tagging", "word": 0, "tag": -1}
    data = {name: str(tmp_path / "a.conll") for name in ("train", "dev")} | {"test": str(tmp_path / "words.conll")}
    task = prepare_task("table/names", data, SETTINGS, tokenizer, table)
    assert (task.labels, task.examples["test"]) == (("B-LOC", "B-PER", "O"), 2)
    with pytest.raises(BertlineError, match=r"words\.conll: line 1: 1 columns"):
        prepare_task("table/names", data | {"dev": data["test"]}, SETTINGS, tokenizer, table)


@pytest.mark.parametrize("content", ["We\nmet\n", "We O\nmet\n", "We\tO\nmet\t\n"])
def test_a_file_to_predict_needs_its_words_only(tmp_path: Path, tokenizer: Path, content: str) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    (tmp_path / "new.conll").write_text(content)
    for tag in (1, -1, 3):
        assert read_conll(tmp_path / "new.conll", word=0, tag=tag, tagged=False).words == [["We", "met"]]
    data = {name: str(tmp_path / "a.conll") for name in ("train", "dev")} | {"test": str(tmp_path / "new.conll")}
    task = prepare_task("table/names", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": -1})
    assert task.predicted[1].evaluate(np.ones((4, 3), dtype=np.float32)).scores == {}
    (tmp_path / "new.conll").write_text("We O\n\tO\n")
    with pytest.raises(BertlineError, match=r"new\.conll: line 2: column 0 is empty"):
        read_conll(tmp_path / "new.conll", word=0, tag=1, tagged=False)
    with pytest.raises(BertlineError, match=r"new\.conll: line 1: 2 columns, words are in column 2; correct"):
        read_conll(tmp_path / "new.conll", word=2, tag=0, tagged=False)


def test_a_tagger_needs_another_tag_than_o(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.conll").write_text("We O\nmet O\n")
    data = dict.fromkeys(("train", "dev"), str(tmp_path / "a.conll"))
    with pytest.raises(BertlineError, match=r"a\.conll: column -1 contains only the tag O; a task needs two or more"):
        prepare_task("table/names", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": -1})


def test_a_dev_file_needs_another_tag_than_o(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    (tmp_path / "o.conll").write_text("We O\nmet O\n")
    data = {"train": str(tmp_path / "a.conll"), "dev": str(tmp_path / "o.conll")}
    with pytest.raises(BertlineError, match=r"o\.conll: column -1 contains only the tag O; without a span there is no"):
        prepare_task("table/names", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": -1})


def test_a_test_file_whose_tags_are_all_o_is_predicted_and_not_scored(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "a.conll").write_text(CONLL)
    (tmp_path / "blind.conll").write_text("We PRP O\nmet VB O\n")
    data = {name: str(tmp_path / "a.conll") for name in ("train", "dev")} | {"test": str(tmp_path / "blind.conll")}
    task = prepare_task("table/names", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": -1})
    assert f"{data['test']}: each word has the tag O, so it is predicted and not scored" in caplog.messages
    evaluation = task.predicted[1].evaluate(np.eye(4, 3, dtype=np.float32))
    assert evaluation.scores == {}
    evaluation.write_predictions(tmp_path)
    assert (tmp_path / "predictions_test.conll").read_text().split() == ["We", "B-PER", "met", "O"]


CONLL_U = (
    "# sent_id = 1\n# text = We didn't.\n1\tWe\twe\tPRON\t_\t_\t2\tnsubj\t_\t_\n"
    "2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_\n2\tdid\tdo\tAUX\t_\t_\t0\troot\t_\t_\n"
    "2.1\tso\tso\tADV\t_\t_\t_\t_\t_\t_\n3\tn't\tnot\tPART\t_\t_\t2\tadvmod\t_\t_\n\n"
)


def test_of_conll_u_the_words_of_the_tree_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(CONLL_U)
    read = read_conll(tmp_path / "a.conllu", word=1, tag=3)
    assert read == TaggedFile([["We", "did", "n't"]], [["PRON", "AUX", "PART"]])
    for content, line in ((CONLL_U, 1), (CONLL_U.split("\n", 2)[2], 2)):
        (tmp_path / "a.conll").write_text(content)
        with pytest.raises(
            BertlineError, match=rf"a\.conll: line {line}: of CoNLL-U; let the file's name end in \.conllu"
        ):
            read_conll(tmp_path / "a.conll", word=1, tag=3)
    (tmp_path / "a.conll").write_text("# O\n1-2 B-NUM\n")  # words
    assert read_conll(tmp_path / "a.conll", word=0, tag=1).words == [["#", "1-2"]]


@pytest.mark.parametrize("separator", [" ", "\t"])
@pytest.mark.parametrize("name", ["a.conll", "a.conllu", "A.CONLLU"])
def test_a_word_may_begin_as_a_comment_does(tmp_path: Path, name: str, separator: str) -> None:
    rows = [["see", "O"], ["#text", "B-X"], ["#nlp", "B-X"], [], ["#newdoc", "O"], ["#text", "O"], [], ["#", "O"]]
    (tmp_path / name).write_text("".join(f"{separator.join(row)}\n" for row in rows))
    read = read_conll(tmp_path / name, word=0, tag=1)
    assert read.words == [["see", "#text", "#nlp"], ["#newdoc", "#text"], ["#"]]
    (tmp_path / name).write_text("#text\nsee\n\n#nlp\n")
    assert read_conll(tmp_path / name, word=0, tag=0, tagged=False).words == [["#text", "see"], ["#nlp"]]


def test_a_comment_of_conll_u_is_none_of_its_words(tmp_path: Path) -> None:
    (tmp_path / "A.CONLLU").write_text(f"# newdoc\n# a\n\n#b\n{CONLL_U}")
    assert read_conll(tmp_path / "A.CONLLU", word=1, tag=3).words == [["We", "did", "n't"]]
    for comment in ("# sent_id = 1", "# text = a", "# newdoc id = 1", "# newdoc"):  # with as many columns as the words
        (tmp_path / "a.conll").write_text(f"{comment}\nWe PRP O O\n")
        with pytest.raises(BertlineError, match=r"a\.conll: line 1: of CoNLL-U; let the file's name end in \.conllu"):
            read_conll(tmp_path / "a.conll", word=0, tag=3)


def test_a_comment_of_any_name_is_none_of_the_words_to_tag(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("# source = web page\n1\tWe\twe\tPRON\n2\tmet\tmeet\tVERB\n")
    with pytest.raises(BertlineError, match=r"a\.conll: line 1: of CoNLL-U; let the file's name end in \.conllu"):
        read_conll(tmp_path / "a.conll", word=1, tag=3, tagged=False)
    (tmp_path / "a.conll").write_text("# sign = SYM\n1 we = PRP\n")  # as many columns as the words
    assert read_conll(tmp_path / "a.conll", word=0, tag=3, tagged=False).words == [["#", "1"]]


def test_labels_are_on_the_first_piece_of_each_word(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    data = dict.fromkeys(("train", "dev"), str(tmp_path / "a.conll"))
    table = {"kind": "tagging", "word": 0, "tag": -1}
    task = prepare_task("table/names", data, SETTINGS, tokenizer, table)
    assert (task.head, task.outputs) == ("tokens", 3)
    outside, person, place = 2, 1, 0  # sorted: B-LOC, B-PER, O
    no = IGNORED
    assert task.train_targets.tolist() == [
        *(no, outside, outside, person, no, no),  # [CLS] we met ada ##da [SEP]
        *(no, outside, place, no, outside, no),  # [CLS] in tarn ##ia . [SEP]
    ]
    outputs = np.zeros((12, 3), dtype=np.float32)
    outputs[np.arange(12), np.where(task.train_targets == no, 0, task.train_targets)] = 1
    right = task.dev.evaluate(outputs)
    assert right.scores == {"precision": 100.0, "recall": 100.0, "f1": 100.0, "accuracy": 100.0}
    right.write_predictions(tmp_path)
    assert read_conll(tmp_path / "predictions.conll", word=0, tag=1) == read_conll(tmp_path / "a.conll", word=0, tag=-1)
    outputs[3] = [1, 0, 0]
    assert task.dev.evaluate(outputs).scores["f1"] == pytest.approx(50.0)
    assert task.baselines == {"majority": 0.0}


def test_the_labels_of_a_tagger_decide_what_a_span_is_and_no_prediction_does(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "train.conll").write_text("We B-PER\nmet I-PER\nin O\nTarnia X\n")
    (tmp_path / "dev.conll").write_text("We B-PER\nmet I-PER\nin O\n")
    data = {name: str(tmp_path / f"{name}.conll") for name in ("train", "dev")}
    task = prepare_task("table/names", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": -1})
    for last in ("O", "X"):
        outputs = np.zeros((5, len(task.labels)), dtype=np.float32)
        for place, tag in enumerate(("B-PER", "O", last), start=1):
            outputs[place, task.labels.index(tag)] = 1
        assert task.dev.evaluate(outputs).scores["recall"] == pytest.approx(50.0)


def test_a_tag_outside_the_list_is_named(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "a.conll").write_text(CONLL)
    data = dict.fromkeys(("train", "dev"), str(tmp_path / "a.conll"))
    table = {"kind": "tagging", "word": 0, "tag": -1, "labels": ["O", "B-PER"]}
    with pytest.raises(BertlineError, match=r"sentence 2: given the tag 'B-LOC', allowed are O, B-PER"):
        prepare_task("table/names", data, SETTINGS, tokenizer, table)


def test_words_that_are_cut_off_count_as_misses(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "a.conll").write_text("".join(f"{word} B-X\n" for word in ["We"] * 9 + ["Tarnia"] * 3))
    data = dict.fromkeys(("train", "dev"), str(tmp_path / "a.conll"))
    task = prepare_task("table/x", data, SETTINGS, tokenizer, {"kind": "tagging", "word": 0, "tag": 1})
    assert task.dev.inputs.lengths.tolist() == [11]  # no half word at the end
    assert task.examples["dev_words_cut_off"] == 3
    told = "3 of 12 words are beyond max_sequence_length 12; they are cut off"
    assert [line for line in caplog.messages if "beyond" in line] == [f"train: {told}", f"dev: {told}"]
    chosen = np.zeros((11, 2), dtype=np.float32)
    chosen[:, 0] = 1  # B-X everywhere
    scores = task.dev.evaluate(chosen).scores
    assert (scores["precision"], scores["recall"]) == (100.0, pytest.approx(75.0))


def test_a_sentence_that_fits_exactly_keeps_its_last_word(tokenizer: Path) -> None:
    file = TaggedFile([["We", "met", "Adada"]], [["O", "O", "B-PER"]])
    made = {
        limit: tag_inputs(file, read_tokenizer(tokenizer), limit) for limit in (6, 5)
    }  # [CLS] we met ada ##da [SEP]
    assert [(one.words_of.tolist(), one.sequences.lengths.tolist()) for one in made.values()] == [
        ([3], [6]),
        ([2], [4]),
    ]


def test_a_first_word_that_is_too_long_is_cut_off_within(tokenizer: Path) -> None:
    file = TaggedFile([["Adadada", "met"], ["we"]], [["B-PER", "O"], ["O"]])
    made = tag_inputs(file, read_tokenizer(tokenizer), 4)
    assert (made.words_of.tolist(), made.sequences.lengths.tolist()) == ([1, 1], [4, 3])
    assert made.first_pieces.tolist() == [1, 5]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.sampled_from(["we", "adada", "\u200b", "tarnia", "zz", "ada-da"]), min_size=1), min_size=1))
def test_every_kept_word_has_one_place_in_its_input(words: list[list[str]]) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "we", "ada", "##da", "tarn", "##ia", "-"]
    made = make_tokenizer(vocabulary, lowercase=True, source="the test")
    inputs = tag_inputs(TaggedFile(words, words), made, 8)
    assert inputs.sequences.lengths.max() <= 8
    places = np.split(inputs.first_pieces, np.cumsum(inputs.words_of)[:-1])
    for sentence, (found, begin, end) in enumerate(
        zip(places, inputs.sequences.offsets, inputs.sequences.offsets[1:], strict=False)
    ):
        assert 1 <= len(found) <= len(words[sentence])
        assert np.all(np.diff(found) > 0)
        assert begin < found[0]
        assert found[-1] < end - 1
        for word, place in zip(words[sentence], found, strict=False):
            first = (made.encode(word, add_special_tokens=False).ids or [1])[0]
            assert inputs.sequences.tokens[place] == first


def test_a_text_of_100_000_characters_is_truncated_and_reported(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    write: Callable[[str], int] = (tmp_path / "long.csv").write_text
    write("t,l\n" + "we met ada " * 10_000 + ",a\nwe,b\n")
    data = dict.fromkeys(("train", "dev"), str(tmp_path / "long.csv"))
    task = prepare_task("table/x", data, SETTINGS, tokenizer, {"kind": "classification", "texts": ["t"], "label": "l"})
    assert task.train.lengths.tolist() == [12, 3]
    told = "1 of 2 inputs are longer than max_sequence_length 12; their end is cut off"
    assert [message for message in caplog.messages if "longer" in message] == [f"train: {told}", f"dev: {told}"]


@pytest.mark.parametrize("cell", ["x" * 20, None, 1])
def test_a_parquet_that_unpacks_to_very_much_is_refused(
    tmp_path: Path, cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.corpus.unpacking.ALWAYS_ALLOWED_BYTES", 1 << 16)
    path = tmp_path / "bomb.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"] * 60_000, "label": [cell] * 60_000}), path)
    assert path.stat().st_size < 5_000
    with pytest.raises(
        BertlineError, match=r"bomb\.parquet unpacks to more than 100 times its size; if it is not meant"
    ):
        for _ in read_columns(path, ["text", "label"]):
            pass


def test_labels_that_are_equal_as_text_are_refused() -> None:
    table = {"kind": "classification", "texts": ["text"], "label": "label", "labels": [1, "1"]}
    with pytest.raises(BertlineError, match=r"^labels: given '1' more than once"):
        text_task_of(table, "train.tsv")


def test_white_space_in_a_label_adds_no_cell_to_the_predictions(tmp_path: Path) -> None:
    write_predictions(tmp_path / "predictions.tsv", ["ja\tnein", "two\nlines", "plain"])
    rows = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert rows == ["index\tprediction", "0\tja nein", "1\ttwo lines", "2\tplain"]


def test_a_label_of_many_digits_is_a_class(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": "a", "label": 10**400 + n % 2}) + "\n" for n in range(4)))
    assert read_labels(path, "label") == (str(10**400), str(10**400 + 1))


def test_a_table_of_as_many_columns_is_not_taken_for_one_without_a_header(tmp_path: Path) -> None:
    cola = TASKS["cola"]
    assert isinstance(cola, TextTask)
    (tmp_path / "in_domain.tsv").write_text("gj04\t1\t\tThe water is cold.\ngj04\t0\t*\tWater the cold is.\n")
    assert list(read_texts(tmp_path / "in_domain.tsv", ("sentence",), cola)) == [
        ("The water is cold.",),
        ("Water the cold is.",),
    ]
    (tmp_path / "own.tsv").write_text("id\tauthor\tyear\ttext\n1\tA\t1999\tThe water is cold.\n")
    with pytest.raises(BertlineError, match="no column 'sentence', it has id, author, year, text"):
        list(read_texts(tmp_path / "own.tsv", ("sentence",), cola))


def test_texts_to_predict_from_are_divided_by_commas(tmp_path: Path) -> None:
    path = tmp_path / "semi.csv"
    path.write_text("id;text\n1;The water is cold.\n")
    line = r"semi\.csv: its columns are divided by semicolons; convert it to CSV with commas \(.*\), or to \.jsonl$"
    with pytest.raises(BertlineError, match=line):
        list(read_texts(path, ["text"]))
    path.write_text("a;b\nThe water is cold; it is deep.\n")  # a name that is given as it is
    assert list(read_texts(path, ["a;b"])) == [("The water is cold; it is deep.",)]


def test_capitals_in_a_suffix_change_nothing(tmp_path: Path) -> None:
    rows = [("a", "b", "yes"), ("c", "d", "no")]
    for suffix, write in {**WRITERS, ".tsv": write_tsv}.items():
        path = tmp_path / f"Data{suffix.upper()}"
        write(path, rows)
        read = read_examples(path, TASK)
        assert (read.first, read.second, read.targets.tolist()) == (["a", "c"], ["b", "d"], [1, 0])
        assert list(read_texts(path, ["claim"])) == [("b",), ("d",)]
    (tmp_path / "Other.PARQUET").write_bytes((tmp_path / "Data.PARQUET").read_bytes())
    named = TextTask(title="", texts=("x", "y"), label="z", labels=("no", "yes"), parquet_columns=NAMES)
    assert read_examples(tmp_path / "Other.PARQUET", named).first == ["a", "c"]
    cola = TASKS["cola"]
    assert isinstance(cola, TextTask)
    (tmp_path / "Own.TSV").write_text("gj04\t1\t\tThe water is cold.\n")
    assert list(read_texts(tmp_path / "Own.TSV", ("sentence",), cola)) == [("The water is cold.",)]


def test_white_space_around_a_label_makes_no_other_class(tmp_path: Path, tokenizer: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\na,pos\nb, neg\nc,pos \nd,neg\n")
    assert read_labels(path, "label") == ("neg", "pos")
    task = TextTask(title="", texts=("text",), label="label", labels=("neg", "pos"))
    assert read_examples(path, task).targets.tolist() == [1, 0, 1, 0]
    assert text_task_of({"kind": "classification", "texts": ["text"], "label": "label", "labels": ["neg ", "pos"]}, "")
    (tmp_path / "t.conll").write_text("We\tB-X\nmet\tB-X \n")
    assert read_conll(tmp_path / "t.conll", word=0, tag=1).tags == [["B-X", "B-X"]]


def test_an_empty_line_of_a_csv_with_one_column_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text\nfoo\n\nbar\n")
    with pytest.raises(BertlineError, match=r't\.csv: line 3 is empty; remove it, or write "" for an empty text'):
        list(read_texts(path, ["text"]))
    path.write_text('text\nfoo\n""\nbar\n')
    assert list(read_texts(path, ["text"])) == [("foo",), ("",), ("bar",)]
    path.write_text("text\nfoo\n\n\n")  # the end of the file
    assert list(read_texts(path, ["text"])) == [("foo",)]
    path.write_text("text,label\nfoo,a\n\n")  # no row of two columns
    assert list(read_texts(path, ["text"])) == [("foo",)]
