"""GLUE: the official files and the metrics."""

from __future__ import annotations

import csv
import logging
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertline.console import BertlineError
from bertline.files import Recipe, write_json
from bertline.finetuning.digest import digest_of_examples
from bertline.finetuning.examples import read_examples
from bertline.finetuning.metrics.texts import compute_metrics
from bertline.finetuning.sequences import truncate_pair
from bertline.finetuning.submissions import (
    choose_submissions,
    write_submission_file,
    zip_submission,
)
from bertline.tasks.glue import GLUE_TASKS

LABELS = st.integers(min_value=0, max_value=1)
NUMBERS = st.integers(min_value=-50, max_value=50).map(lambda value: value / 10)


def pairs(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(st.tuples(values, values), min_size=1, max_size=60)


# Metrics


@settings(deadline=None)
@given(pairs(LABELS))
@pytest.mark.filterwarnings("ignore")
def test_classification_metrics_agree_with_scikit_learn_and_with_their_definitions(data: list) -> None:
    predictions, references = map(np.array, zip(*data, strict=True))
    scores = compute_metrics(("accuracy", "f1", "matthews"), predictions, references)
    assert scores["accuracy"] == pytest.approx(accuracy_score(references, predictions))
    assert scores["accuracy"] == pytest.approx((predictions == references).mean())
    assert scores["f1"] == pytest.approx(f1_score(references, predictions, zero_division=0.0))
    right = (predictions & references).sum()
    assert scores["f1"] == pytest.approx(2 * right / (predictions.sum() + references.sum()) if right else 0.0)
    assert scores["matthews"] == pytest.approx(matthews_corrcoef(references, predictions))
    constant = len(set(predictions)) == 1 or len(set(references)) == 1
    assert scores["matthews"] == pytest.approx(0.0 if constant else np.corrcoef(predictions, references)[0, 1])


@settings(deadline=None)
@given(pairs(NUMBERS))
def test_correlations_agree_with_their_definitions(data: list) -> None:
    predictions, references = map(np.array, zip(*data, strict=True))
    scores = compute_metrics(("pearson", "spearman"), predictions, references)
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        assert scores == {"pearson": 0.0, "spearman": 0.0}
        return
    assert scores["pearson"] == pytest.approx(np.corrcoef(predictions, references)[0, 1], abs=1e-9)
    ranks = rankdata(predictions), rankdata(references)
    assert scores["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-9)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews", "pearson", "spearman"])
def test_scoring_nothing_is_an_error(metric: str) -> None:
    with pytest.raises(BertlineError, match="no example"):
        compute_metrics([metric], [], [])


def test_predictions_of_a_diverged_training_are_an_error() -> None:
    with pytest.raises(BertlineError, match="not a finite number"):
        compute_metrics(["pearson"], [1.0, float("nan")], [1.0, 2.0])


def test_a_missing_prediction_is_an_error() -> None:
    with pytest.raises(BertlineError, match="2 predictions do not fit 3 references"):
        compute_metrics(["accuracy"], [1, 0], [1, 0, 1])


# Files


@pytest.mark.parametrize(
    ("task", "file", "examples", "first", "target"),
    [
        ("cola", "CoLA/train.tsv", 8551, "Our friends won't buy this analysis, let alone the next one we propose.", 1),
        ("sst2", "SST-2/dev.tsv", 872, "it 's a charming and often affecting journey . ", 1),
        ("mrpc", "MRPC/train.tsv", 3667, 'Amrozi accused his brother , whom he called " the witness "', 1),
        ("rte", "RTE/dev.tsv", 277, "Dana Reeve, the widow of the actor Christopher Reeve, has died", 1),
        ("stsb", "STS-B/train.tsv", 5749, "A plane is taking off.", 5.0),
        ("wnli", "WNLI/dev.tsv", 71, "The drain is clogged with hair.", 0),
        ("qnli", "QNLI/dev-first1500.tsv", 1500, "What came into force after the new constitution was herald?", 0),
        ("qqp", "layout-fixtures/QQP/dev.tsv", 1, "Why are African-Americans so beautiful?", 0),
        ("mnli", "layout-fixtures/MNLI/train.tsv", 1, "Conceptually cream skimming has two basic dimensions", 2),
        ("mnli", "layout-fixtures/MNLI/dev_matched.tsv", 1, "The new rights are nice enough", 2),
    ],
)
def test_official_files_are_read_whole(
    test_data: Path, task: str, file: str, examples: int, first: str, target: float
) -> None:
    read = read_examples(test_data / "glue" / file, GLUE_TASKS[task])
    assert len(read.first) == len(read.targets) == examples
    assert read.first[0].startswith(first)
    assert read.targets[0] == target
    assert read.skipped == 0
    assert (read.second is None) == (task in ("cola", "sst2"))


@pytest.mark.parametrize(
    ("task", "file", "examples", "column"),
    [
        ("cola", "CoLA/test.tsv", 1063, "index"),
        ("sst2", "SST-2/test.tsv", 1821, "index"),
        ("mrpc", "MRPC/test.tsv", 1725, "index"),
        ("stsb", "STS-B/test.tsv", 1379, "index"),
        ("rte", "RTE/test.tsv", 3000, "index"),
        ("wnli", "WNLI/test.tsv", 146, "index"),
        ("mnli", "layout-fixtures/MNLI/test_matched.tsv", 1, "index"),
        ("qqp", "layout-fixtures/QQP/test.tsv", 1, "id"),
    ],
)
def test_official_test_files_are_read_without_labels_and_are_numbered_from_0(
    test_data: Path, task: str, file: str, examples: int, column: str
) -> None:
    path = test_data / "glue" / file
    read = read_examples(path, GLUE_TASKS[task], labelled=False)
    assert (len(read.first), len(read.targets)) == (examples, 0)
    assert all(read.first)
    rows = list(csv.DictReader(path.open(encoding="utf-8-sig"), delimiter="\t", quoting=csv.QUOTE_NONE))
    # A submission names examples by this number, and ours counts the rows.
    assert [row[column] for row in rows] == [str(number) for number in range(examples)]


# The class that each number of nyu-mll/glue represents, from the dataset's card.
HUB_CLASSES = {
    "mnli": ["entailment", "neutral", "contradiction"],
    "qnli": ["entailment", "not_entailment"],
    "rte": ["entailment", "not_entailment"],
}
HUB_COLUMNS = {
    "cola": ("CoLA/dev.tsv", {"sentence": "sentence"}, "acceptability"),
    "sst2": ("SST-2/dev.tsv", {"sentence": "sentence"}, "label"),
    "mrpc": ("MRPC/dev.tsv", {"sentence1": "#1 String", "sentence2": "#2 String"}, "Quality"),
    "stsb": ("STS-B/dev.tsv", {"sentence1": "sentence1", "sentence2": "sentence2"}, "score"),
    "qqp": ("layout-fixtures/QQP/dev.tsv", {"question1": "question1", "question2": "question2"}, "is_duplicate"),
    "mnli": (
        "layout-fixtures/MNLI/dev_mismatched.tsv",
        {"premise": "sentence1", "hypothesis": "sentence2"},
        "gold_label",
    ),
    "qnli": ("QNLI/dev-first1500.tsv", {"question": "question", "sentence": "sentence"}, "label"),
    "rte": ("RTE/dev.tsv", {"sentence1": "sentence1", "sentence2": "sentence2"}, "label"),
    "wnli": ("WNLI/dev.tsv", {"sentence1": "sentence1", "sentence2": "sentence2"}, "label"),
}


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_the_parquet_of_the_hub_gives_the_examples_of_the_official_file(
    test_data: Path, tmp_path: Path, task: str
) -> None:
    file, texts, label = HUB_COLUMNS[task]
    columns = ["source", "acceptability", "original_judgement", "sentence"] if task == "cola" else None
    with (test_data / "glue" / file).open(encoding="utf-8-sig", newline="\n") as opened:
        rows = list(csv.DictReader(opened, columns, delimiter="\t", quoting=csv.QUOTE_NONE))
    numbers = [row[label] for row in rows]
    classes = HUB_CLASSES.get(task)
    values = [classes.index(value) if classes else float(value) if task == "stsb" else int(value) for value in numbers]
    table = {name: [row[official] for row in rows] for name, official in texts.items()}
    path = tmp_path / "validation-00000-of-00001.parquet"
    pyarrow.parquet.write_table(pyarrow.table({**table, "label": values, "idx": list(range(len(rows)))}), path)
    ours, official = read_examples(path, GLUE_TASKS[task]), read_examples(test_data / "glue" / file, GLUE_TASKS[task])
    assert (ours.first, ours.second) == (official.first, official.second)
    np.testing.assert_array_equal(ours.targets, official.targets)


@pytest.mark.parametrize("task", ["cola", "sst2", "mrpc", "stsb", "rte", "wnli"])
def test_the_official_dev_set_is_recognised_whatever_its_format_and_order(
    test_data: Path, tmp_path: Path, task: str
) -> None:
    described = GLUE_TASKS[task]
    official = read_examples(test_data / "glue" / described.files["dev"], described)
    # As in nyu-mll/glue: 32-bit numbers, and classes by their number.
    classes = described.numbered_labels or described.labels
    values = [value if task == "stsb" else classes.index(described.labels[value]) for value in official.targets]
    label = pyarrow.array(values, "float32" if task == "stsb" else "int64")
    columns = [official.first, *([official.second] if official.second else []), label]
    names = described.parquet_columns or (*described.texts, described.label)
    table = pyarrow.table(dict(zip(names, columns, strict=True)))
    path = tmp_path / "validation-00000-of-00001.parquet"
    backwards = pyarrow.array(range(len(values) - 1, -1, -1))

    def is_official(written: pyarrow.Table) -> bool | None:
        pyarrow.parquet.write_table(written, path)
        found = digest_of_examples(read_examples(path, described).labelled(described))
        return described.is_official("dev", {"dev": found})

    assert is_official(table.take(backwards)) is True
    assert is_official(table.slice(1)) is False
    texts = pyarrow.array([*official.first[:-1], official.first[-1] + " "])
    assert is_official(table.set_column(0, names[0], texts)) is False
    # A set of the same size with one other label.
    other = pyarrow.array([*values[:-1], 0 if values[-1] else 1], label.type)
    assert is_official(table.set_column(len(columns) - 1, names[-1], other)) is False


def test_mrpc_made_from_its_source_by_the_official_list_of_pairs_is_recognised(test_data: Path) -> None:
    """The files whose SHA-256 Hugging Face's loader of GLUE pins."""
    folder = test_data / "glue/MRPC"

    def rows(name: str) -> Iterator[list[str]]:
        text = (folder / name).read_text(encoding="utf-8-sig")
        return (line.split("\t") for line in text.split("\n") if line)

    listed = {tuple(pair) for pair in rows("dev_ids.tsv")}
    pairs = (row for row in rows("msr_paraphrase_train.txt") if tuple(row[1:3]) in listed)
    found = digest_of_examples((first, second, quality) for quality, _, _, first, second in pairs)
    assert GLUE_TASKS["mrpc"].is_official("dev", {"dev": found})


def test_the_unlabelled_examples_of_the_hub_are_refused_if_labels_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "test-00000-of-00001.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"sentence1": ["a"], "sentence2": ["b"], "label": [-1]}), path)
    assert read_examples(path, GLUE_TASKS["rte"], labelled=False).first == ["a"]
    with pytest.raises(BertlineError, match=r"row 1: column 'label': given '-1', allowed are entailment"):
        read_examples(path, GLUE_TASKS["rte"])


def test_a_broken_row_of_a_test_file_is_not_skipped(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("id\tquestion1\tquestion2\n0\ta\tb\n1\tc\n")
    with pytest.raises(BertlineError, match="line 3: no column 'question2'"):
        read_examples(path, GLUE_TASKS["qqp"], labelled=False)


# Submissions


def test_a_submission_has_the_server_s_file_names_header_and_labels(tmp_path: Path) -> None:
    names = {name for task in GLUE_TASKS.values() for name in task.submissions.values()}
    assert names == {
        *("AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv", "QQP.tsv", "RTE.tsv"),
        *("SST-2.tsv", "STS-B.tsv", "WNLI.tsv"),
    }
    path = tmp_path / "submission.tsv"
    write_submission_file(path, GLUE_TASKS["stsb"], np.array([[-0.2], [3.14159], [5.7]], dtype=np.float32))
    assert path.read_bytes() == b"index\tprediction\n0\t0.000\n1\t3.142\n2\t5.000\n"
    write_submission_file(path, GLUE_TASKS["mnli"], np.eye(3, dtype=np.float32))
    assert path.read_bytes() == b"index\tprediction\n0\tcontradiction\n1\tentailment\n2\tneutral\n"
    write_submission_file(path, GLUE_TASKS["cola"], np.eye(2, dtype=np.float32))
    assert path.read_bytes() == b"index\tprediction\n0\t0\n1\t1\n"


def finished(name: str, task: str, score: float, *names: str) -> str:
    folder = Path("results/finetunings", name)
    write_json(folder / "metrics.json", {"task": task, "primary": "accuracy", "scores": {"accuracy": score}})
    (folder / "submission").mkdir()
    for name in names:
        (folder / "submission" / name).write_text(f"{folder.name} of {name}\n")
    return folder.name


def test_a_submission_takes_the_best_of_each_task_and_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    finetunings = [
        finished("a", "sst2", 80.0, "SST-2.tsv"),
        finished("b", "sst2", 90.0, "SST-2.tsv"),
        finished("c", "sst2", 90.0, "SST-2.tsv"),
        finished("d", "mnli", 70.0, "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"),
    ]
    with caplog.at_level(logging.INFO):
        zip_submission(Recipe({"finetunings": finetunings}), output=tmp_path / "one.zip")
    assert "sst2: results/finetunings/b, 90.00 on dev" in caplog.messages
    assert caplog.messages[-1].endswith("missing: CoLA.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, QNLI.tsv, RTE.tsv, WNLI.tsv")
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert archive.namelist() == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "SST-2.tsv"]
        assert archive.read("SST-2.tsv") == b"b of SST-2.tsv\n"
    os.utime("results/finetunings/b/submission/SST-2.tsv", (1e9, 1e9))
    zip_submission(Recipe({"finetunings": ["d", "b", "c"]}), output=tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_a_fine_tuning_without_test_predictions_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertlineError, match="a has no predictions of test sets; set predict_test"):
        choose_submissions([finished("a", "sst2", 80.0)])


MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("mrpc", b"", "line 1: no column '#1 String', it is empty"),
        ("mrpc", b"Quality\t#1 ID\t#2 ID\t#1 String\n", "line 1: no column '#2 String', it has Quality, #1 ID"),
        ("mrpc", f"{MRPC}1\t2\t3\ta\tb\n0\t2\t3\ta\n".encode(), "line 3: no column '#2 String', it has 4 of 5"),
        ("mrpc", f"{MRPC}1\t2\t3\ta\tb\tc\n".encode(), "line 2: too many columns"),
        ("mrpc", f"{MRPC}2\t2\t3\ta\tb\n".encode(), "line 2: column 'Quality': given '2', allowed are 0, 1"),
        ("mrpc", MRPC.encode(), "contains no example"),
        ("cola", b"gj04\t1\t\tFine.\ngj04\t1\n", "line 2: no column 'original_judgement', it has 2 of 4"),
        ("sst2", b"sentence\tlabel\nna\xefve\t1\n", "line 2: not UTF-8"),
        ("stsb", b"sentence1\tsentence2\tscore\na\tb\tmuch\n", "line 2: column 'score': given 'much'"),
        ("stsb", b"sentence1\tsentence2\tscore\na\tb\tnan\n", "line 2: column 'score': given 'nan'"),
    ],
)
def test_a_bad_file_is_one_line_with_file_line_and_column(
    tmp_path: Path, task: str, content: bytes, message: str
) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(content)
    with pytest.raises(BertlineError) as caught:
        read_examples(path, GLUE_TASKS[task])
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"absent\.tsv does not exist"):
        read_examples(tmp_path / "absent.tsv", GLUE_TASKS["rte"])


def test_quotes_and_unusual_line_separators_belong_to_the_sentence(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    sentences = ['" The unbalanced quote', "A line\u2028separator and a form\ffeed", "", " plain "]
    path.write_text("sentence\tlabel\n" + "".join(f"{sentence}\t1\n" for sentence in sentences), encoding="utf-8")
    assert read_examples(path, GLUE_TASKS["sst2"]).first == sentences


def test_broken_rows_of_qqp_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n4\t5\t6\tc\n")
    read = read_examples(path, GLUE_TASKS["qqp"])
    assert (read.first, read.skipped) == (["a"], 1)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 40))
def test_truncation_takes_tokens_from_the_longer_one_by_one(first: int, second: int, limit: int) -> None:
    a, b = list(range(first)), list(range(second))
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    assert truncate_pair(list(range(first)), list(range(second)), limit) == (a, b)
