"""GLUE: the official files and the metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertline.console import BertlineError
from bertline.finetuning.glue import GLUE_TASKS, read_glue
from bertline.finetuning.glue_metrics import compute_metrics
from bertline.finetuning.sequences import truncate_pair

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
    read = read_glue(test_data / "glue" / file, GLUE_TASKS[task])
    assert len(read.first) == len(read.targets) == examples
    assert read.first[0].startswith(first)
    assert read.targets[0] == target
    assert read.skipped == 0
    assert (read.second is None) == (task in ("cola", "sst2"))


MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("mrpc", b"", "line 1: no column '#1 String', found are nothing"),
        ("mrpc", b"Quality\t#1 ID\t#2 ID\t#1 String\n", "line 1: no column '#2 String', found are Quality, #1 ID"),
        ("mrpc", f"{MRPC}1\t2\t3\ta\tb\n0\t2\t3\ta\n".encode(), "line 3: no column '#2 String', it has 4 of 5"),
        ("mrpc", f"{MRPC}1\t2\t3\ta\tb\tc\n".encode(), "line 2: too many columns"),
        ("mrpc", f"{MRPC}2\t2\t3\ta\tb\n".encode(), "line 2: column 'Quality': given '2', allowed are 0, 1"),
        ("mrpc", MRPC.encode(), "holds no example"),
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
        read_glue(path, GLUE_TASKS[task])
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"absent\.tsv does not exist"):
        read_glue(tmp_path / "absent.tsv", GLUE_TASKS["rte"])


def test_quotes_and_unusual_line_separators_belong_to_the_sentence(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    sentences = ['" The unbalanced quote', "A line\u2028separator and a form\ffeed", "", " plain "]
    path.write_text("sentence\tlabel\n" + "".join(f"{sentence}\t1\n" for sentence in sentences), encoding="utf-8")
    assert read_glue(path, GLUE_TASKS["sst2"]).first == sentences


def test_broken_rows_of_qqp_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n4\t5\t6\tc\n")
    read = read_glue(path, GLUE_TASKS["qqp"])
    assert (read.first, read.skipped) == (["a"], 1)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 40))
def test_truncation_takes_tokens_from_the_longer_one_by_one(first: int, second: int, limit: int) -> None:
    a, b = list(range(first)), list(range(second))
    while len(a) + len(b) > limit:
        (a if len(a) > len(b) else b).pop()
    assert truncate_pair(list(range(first)), list(range(second)), limit) == (a, b)
