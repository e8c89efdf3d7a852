"""Predictions of fine-tuned models, our own and those of other programs, for single texts and for files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pyarrow
import pyarrow.parquet
import pytest
import torch
import transformers
from finetuning_helpers import NAMES, NO_DROPOUT, PLACES, WORDS, recipe_for, write_cola, write_conll, write_squad
from finetuning_helpers import write_tokenizer as write_test_tokenizer

from bertline.console import BertlineError
from bertline.files import Json
from bertline.finetuning import prediction_files
from bertline.finetuning.options import Options
from bertline.finetuning.prediction import SETTINGS, answer, load_finetuned
from bertline.finetuning.prediction_files import predict_files, predictions
from bertline.finetuning.prediction_options import Precision, check_answer_options
from bertline.finetuning.squad_windows import Question, SquadFile
from bertline.finetuning.train import finetune
from bertline.settings.configuration import defaults_of, load_schema

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with finished fine-tunings: cola, stsb, squad_v1, squad_v2 and names; their data is next to them."""
    folder = tmp_path_factory.mktemp("finished")
    tokenizer = write_test_tokenizer(folder / "tokenizer.json")
    rows = [f"{NAMES[index % 12]}\t{PLACES[index // 3]}\t{index / 6:.3f}\n" for index in range(30)]
    (folder / "stsb.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    recipes = {
        "cola": recipe_for("cola", write_cola(folder / "cola.tsv"), epochs=40, model=NO_DROPOUT),
        "stsb": recipe_for("stsb", folder / "stsb.tsv", epochs=40, model=NO_DROPOUT),
        "squad_v1": recipe_for("squad_v1", write_squad(folder / "squad_v1.json"), epochs=20),
        "squad_v2": recipe_for("squad_v2", write_squad(folder / "squad_v2.json", version_2=True), epochs=20),
        "names": recipe_for("table/names", write_conll(folder / "names.conll"), epochs=10)
        | {"table": {"kind": "tagging", "word": 0, "tag": -1}},
    }
    for name, recipe in recipes.items():
        finetune(recipe, tokenizer, folder / name, options=Options(threads=1))
    # With the columns that CoLA's test set has; its training set has no header.
    sentences = [line.split("\t")[3] for line in (folder / "cola.tsv").read_text().splitlines()]
    lines = "".join(f"{index}\t{sentence}\n" for index, sentence in enumerate(sentences))
    (folder / "cola_test.tsv").write_text("index\tsentence\n" + lines)
    return folder


def test_the_words_of_a_conll_file_are_in_the_column_of_the_training_data(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished / "names/huggingface", tmp_path / "model"))
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**task, "table": {**task["table"], "word": 1}}))
    words = [line.split()[0] for line in (finished / "names.conll").read_text().splitlines()[:3]]
    (tmp_path / "numbered.conll").write_text("".join(f"{number} {word} O\n" for number, word in enumerate(words)))
    predict_files(load_finetuned(folder), [tmp_path / "numbered.conll"], tmp_path / "out.conll")
    assert [line.split()[0] for line in (tmp_path / "out.conll").read_text().splitlines() if line] == words


@pytest.mark.parametrize("table", [{"word": 0}, {"word": 2}, None])
def test_the_words_of_conll_u_are_its_forms_whatever_a_model_was_trained_with(
    finished: Path, tmp_path: Path, table: dict[str, int] | None
) -> None:
    folder = Path(shutil.copytree(finished / "names/huggingface", tmp_path / "model"))
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").unlink()
    if table is not None:
        (folder / "task.json").write_text(json.dumps({**task, "table": {**task["table"], **table}}))
    forms = ["n1", "was", "born"]
    rows = [f"{number}\t{form}\tlemma{7 * chr(9)}_\n" for number, form in enumerate(forms, start=1)]
    (tmp_path / "TREE.CONLLU").write_text("# sent_id = 1\n" + "".join(rows) + "\n")
    predict_files(load_finetuned(folder), [tmp_path / "TREE.CONLLU"], tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["words"] == forms


def test_a_text_that_is_not_utf_8_is_one_line(finished: Path) -> None:
    script = REPOSITORY / "workflow/scripts/predict.py"
    command = [sys.executable, script, finished / "cola/huggingface", "--text", b"caf\xe9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "error: --text is not UTF-8; convert it")


@pytest.mark.parametrize(
    ("task", "inputs", "scored"),
    [
        ("cola", "cola_test.tsv", "predictions.tsv"),
        ("cola", "cola.tsv", "predictions.tsv"),  # without a header, as it was read for training
        ("squad_v1", "squad_v1.json", "predictions.json"),
        ("squad_v2", "squad_v2.json", "predictions.json"),
        ("names", "names.conll", "predictions.conll"),
    ],
)
def test_predictions_of_the_dev_file_are_those_that_were_scored(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, inputs: str, scored: str
) -> None:
    monkeypatch.setattr(prediction_files, "CHUNK", 7)  # chunks change nothing
    output = (tmp_path / "ours").with_suffix(Path(scored).suffix)
    predict_files(load_finetuned(finished / task / "huggingface"), [finished / inputs], output)
    ours, theirs = output.read_text(), (finished / task / scored).read_text()
    if output.suffix == ".json":
        assert json.loads(ours) == json.loads(theirs)
        assert len(set(json.loads(ours).values())) > 5
    else:
        assert ours.strip() == theirs.strip()


@pytest.mark.parametrize(
    ("task", "inputs", "suffix"),
    [
        ("cola", "cola_test.tsv", ".tsv"),
        ("cola", "cola_test.tsv", ".jsonl"),
        ("squad_v1", "squad_v1.json", ".json"),
        ("names", "names.conll", ".conll"),
    ],
)
def test_capitals_in_a_suffix_make_no_difference(
    finished: Path, tmp_path: Path, task: str, inputs: str, suffix: str
) -> None:
    model, given = load_finetuned(finished / task / "huggingface"), tmp_path / inputs.upper()
    shutil.copy(finished / inputs, given)
    predict_files(model, [finished / inputs], tmp_path / f"out{suffix}")
    predict_files(model, [given], tmp_path / f"OUT{suffix.upper()}")
    assert (tmp_path / f"OUT{suffix.upper()}").read_text() == (tmp_path / f"out{suffix}").read_text()


def test_a_text_without_a_word_has_no_tag(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": ""}\n{"text": "n1 was born"}\n{"text": " "}\n')
    model = load_finetuned(finished / "names/huggingface")
    assert predict_files(model, [tmp_path / "in.jsonl"], tmp_path / "out.jsonl") == 3
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["words"] for row in rows] == [[], ["n1", "was", "born"], []]
    assert [len(row["tags"]) for row in rows] == [0, 3, 0]


def test_empty_inputs_are_reported(finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Such as lines after the last text of a .tsv with one column."""
    path = tmp_path / "in.tsv"
    path.write_text("text\nn1 was born\n\n\n")
    assert predict_files(load_finetuned(finished / "names/huggingface"), [path], tmp_path / "out.jsonl") == 3
    assert f"{path}: line 3: an empty text; 2 of 3 inputs of the file have one" in caplog.messages


def test_a_conll_file_has_no_place_for_a_text_without_a_word(finished: Path, tmp_path: Path) -> None:
    """Sentences behind it would be counted wrong."""
    (tmp_path / "first.tsv").write_text("text\nn1\nn2\n")
    (tmp_path / "in.tsv").write_text("text\nn1 was born\n \nx\n")
    model, inputs = load_finetuned(finished / "names/huggingface"), [tmp_path / "first.tsv", tmp_path / "in.tsv"]
    line = "in.tsv: input 2 has no word, and so no place in a .conll; remove it, or write a .jsonl"
    with pytest.raises(BertlineError, match=f"{re.escape(line)}$"):
        predict_files(model, inputs, tmp_path / "out.CONLL")
    assert not (tmp_path / "out.CONLL").exists()


def test_what_is_cut_off_is_reported(finished: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="bertline")
    asked = {"context": "n0 was born in p1 ."}
    given: dict[str, list[Json]] = {
        "cola": [{"texts": ["n1 " * 31]}, {"texts": ["n1"]}],
        "names": [{"words": ["n1"] * 31}, {"words": ["n1"] * 30}, {"words": []}],
        "squad_v1": [{"id": "1", "question": "where " * 9, **asked}, {"id": "2", "question": "where " * 8, **asked}],
    }
    for task, records in given.items():
        list(predictions(load_finetuned(finished / task / "huggingface"), records))
    assert caplog.messages == [
        "inputs: 1 of 2 inputs are longer than max_sequence_length 32; their end is cut off",
        "inputs: 1 of 61 words are beyond max_sequence_length 32; they are cut off",
        "inputs: 1 of 2 questions are longer than max_query_length 8; their end is cut off",
    ]


def test_numbers_are_those_that_were_scored_and_clipped_for_a_submission(finished: Path, tmp_path: Path) -> None:
    model = load_finetuned(finished / "stsb/huggingface")
    assert predict_files(model, [finished / "stsb.tsv"], tmp_path / "out.jsonl") == 30
    ours = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    scored = [line.split("\t")[1] for line in (finished / "stsb/predictions.tsv").read_text().splitlines()[1:]]
    assert [row["prediction"] for row in ours] == pytest.approx([float(cell) for cell in scored], rel=1e-5)
    assert [row["index"] for row in ours] == list(range(30))
    with torch.no_grad():
        model.network.classifier.bias += 100
    predict_files(model, [finished / "stsb.tsv"], tmp_path / "out.tsv")
    assert (tmp_path / "out.tsv").read_text().splitlines() == [
        "index\tprediction",
        *(f"{index}\t5.000" for index in range(30)),
    ]


def test_several_files_of_several_kinds_are_one_list(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,more\nn1 was born,1\nn2 died,2\n")
    (tmp_path / "b.jsonl").write_text('{"text": "n1 was born"}\n')
    model = load_finetuned(finished / "cola/huggingface")
    inputs = [tmp_path / "a.csv", tmp_path / "b.jsonl"]
    assert predict_files(model, inputs, tmp_path / "out.jsonl", columns=["text"]) == 3
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2]
    # The last bits of a row of a matrix product depend on its place.
    assert rows[0]["probabilities"] == pytest.approx(rows[2]["probabilities"], abs=1e-6)
    assert rows[0] == rows[2] | {"index": 0, "probabilities": rows[0]["probabilities"]}
    assert rows[0]["prediction"] == max(rows[0]["probabilities"], key=rows[0]["probabilities"].__getitem__)
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)


def test_a_table_of_another_layout_is_read_as_the_training_reads_it(finished: Path, tmp_path: Path) -> None:
    """MRPC's columns are others in a Parquet file; any of them may be named."""
    folder = Path(shutil.copytree(finished / "stsb/huggingface", tmp_path / "model"))
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**task, "task": "mrpc"}))
    rows = [line.split("\t")[:2] for line in (finished / "stsb.tsv").read_text().splitlines()[1:]]
    for names in (("sentence1", "sentence2"), ("a", "b")):
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / f"{names[0]}.parquet")
    (tmp_path / "official.tsv").write_text("#1 String\t#2 String\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    model = load_finetuned(folder)
    written = []
    for name, given in (("sentence1.parquet", []), ("a.parquet", ["a", "b"]), ("official.tsv", [])):
        predict_files(model, [tmp_path / name], tmp_path / "out.jsonl", columns=given)
        written.append((tmp_path / "out.jsonl").read_text())
    assert written == written[:1] * 3


def test_a_threshold_decides_which_questions_stay_without_an_answer(finished: Path) -> None:
    model = load_finetuned(finished / "squad_v2/huggingface")
    record = {"id": "1", "question": "where was born ?", "context": "n0 was born in p1 and n0 died in p2 ."}
    ((always,),), ((never,),) = (list(predictions(model, [record], 3, threshold)) for threshold in (1e6, -1e6))
    assert always["prediction"] != never["prediction"] == ""
    assert len(always["n_best"]) == 3
    assert {"text", "probability", "start_logit", "end_logit"} == always["n_best"][0].keys()


def test_a_question_at_the_threshold_is_answered(finished: Path) -> None:
    model = load_finetuned(finished / "squad_v2/huggingface")
    record = {"id": "1", "question": "where was born ?", "context": "n0 was born in p1 ."}
    asked = SquadFile([record["context"]], [Question("1", record["question"], 0, ())], [])
    threshold = answer(model, asked)["1"].null_difference
    ((at,),) = predictions(model, [record], 1, threshold)
    ((below,),) = predictions(model, [record], 1, threshold - 0.01)
    assert at["prediction"] != below["prediction"] == ""
    assert "n_best" not in at


def test_having_no_answer_is_an_answer_of_models_with_a_threshold_only(finished: Path) -> None:
    record = {"id": "1", "question": "where was born ?", "context": "n0 was born in p1 ."}
    listed = {}
    for task in ("squad_v1", "squad_v2"):
        ((row,),) = predictions(load_finetuned(finished / task / "huggingface"), [record], 20)
        assert sum(one["probability"] for one in row["n_best"]) == pytest.approx(1.0)
        listed[task] = "" in {one["text"] for one in row["n_best"]}
    assert listed == {"squad_v1": False, "squad_v2": True}


def test_a_model_of_transformers_gives_the_probabilities_of_transformers(finished: Path, tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=5 + 2 + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        id2label={0: "bad", 1: "good", 2: "better"},
    )
    theirs = transformers.BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(finished / "cola/huggingface")
    tokenizer.save_pretrained(tmp_path / "model")
    model = load_finetuned(tmp_path / "model")
    pairs = [("n1 was born", "n2"), ("n3", "n4 died in p3 .")]
    (rows,) = predictions(model, [{"texts": pair} for pair in pairs])
    given = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = theirs(**given).logits.softmax(1)
    for row, probabilities in zip(rows, expected, strict=True):
        assert list(row["probabilities"]) == ["bad", "good", "better"]
        assert list(row["probabilities"].values()) == pytest.approx(probabilities.tolist(), abs=1e-6)


def test_models_of_other_programs_answer_questions_with_the_settings_of_our_fine_tunings() -> None:
    assert SETTINGS.items() <= defaults_of("squad").items()


@pytest.mark.parametrize(("given", "limit"), [(None, 512), (int(1e30), 512), (400, 400)])
def test_a_model_of_another_program_reads_texts_as_long_as_its_tokenizer_and_its_positions_allow(
    finished: Path, tmp_path: Path, given: int | None, limit: int
) -> None:
    """Not as long as a window of SQuAD, 384 tokens."""
    folder, tokenizer = tmp_path / "model", transformers.AutoTokenizer.from_pretrained(finished / "cola/huggingface")
    torch.manual_seed(1)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    theirs = transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **shape)
    ).eval()
    theirs.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"model_max_length": given}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    text = " ".join((*NAMES, *PLACES)[index % 17] for index in range(600))
    with torch.inference_mode():
        expected = theirs(**tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")).logits.softmax(1)
    ((row,),) = predictions(load_finetuned(folder), [{"texts": [text]}])
    assert list(row["probabilities"].values()) == pytest.approx(expected[0].tolist(), abs=1e-5)


def test_inputs_are_as_long_as_the_positions_allow_whatever_a_model_says(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished / "cola/huggingface", tmp_path / "model"))
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps({**task, "settings": {"max_sequence_length": 1000}}))
    model = load_finetuned(folder)
    assert model.settings["max_sequence_length"] == 64
    assert list(predictions(model, [{"texts": ["n1 " * 100]}]))


# Bad input


def test_a_model_that_cuts_off_the_beginning_is_one_line(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished / "cola/huggingface", tmp_path / "model"))
    (folder / "task.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for side in ("right", "left"):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"truncation_side": side}))
        if side == "right":
            load_finetuned(folder)
    with pytest.raises(BertlineError, match=r"^\S+tokenizer_config\.json: truncation_side is 'left', but long inputs"):
        load_finetuned(folder)


def test_a_model_without_a_head_for_a_task_is_one_line(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"nowhere/config\.json does not exist; name the folder of a fine-tuned"):
        load_finetuned(tmp_path / "nowhere")
    config = json.loads((finished / "cola/huggingface/config.json").read_text())
    line = (
        r"is a pretrained model: config\.json names none with the head of a task; name the folder of a fine-tuned one"
    )
    for pretrained in ({"architectures": ["BertForPreTraining"]}, {"architectures": ["BertModel"]}, {}):
        without = {key: value for key, value in config.items() if key != "architectures"}
        (tmp_path / "config.json").write_text(json.dumps(without | pretrained))
        with pytest.raises(BertlineError, match=line):
            load_finetuned(tmp_path)
    # Of another network than the one that config.json describes.
    for other in ("BertForMultipleChoice", "ModernBertForSequenceClassification"):
        (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": [other]}))
        with pytest.raises(
            BertlineError, match=f"architecture is {other}, whose head cannot be read; allowed are Bert"
        ):
            load_finetuned(tmp_path)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("cola", {"problem_type": "multi_label_classification"}, "'multi_label_classification', only 'single_label_"),
        ("cola", {"problem_type": "regression"}, "'regression', only 'single_label_classification' can be read with 2"),
        ("stsb", {"problem_type": "single_label_classification"}, "only 'regression' can be read with 1 output"),
        ("cola", {"classifier_pooling": "mean"}, "classifier_pooling is 'mean', only 'cls' can be read"),
    ],
)
def test_a_head_that_we_would_compute_differently_is_refused_in_one_line(
    finished: Path, tmp_path: Path, task: str, change: dict[str, str], message: str
) -> None:
    shutil.copytree(finished / task / "huggingface", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps(config | change))
    with pytest.raises(BertlineError, match=message) as caught:
        load_finetuned(tmp_path / "model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", ["squad_v1", "names"])
def test_keys_of_another_head_are_ignored(finished: Path, tmp_path: Path, task: str) -> None:
    shutil.copytree(finished / task / "huggingface", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    config |= {"classifier_pooling": "mean", "problem_type": None}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    assert load_finetuned(tmp_path / "model").head == load_finetuned(finished / task / "huggingface").head


@pytest.mark.parametrize("task", ["cola", "names"])
def test_classes_of_one_name_are_one_line(finished: Path, tmp_path: Path, task: str) -> None:
    """One of their probabilities would get lost."""
    shutil.copytree(finished / task / "huggingface", tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    config["id2label"] |= {"0": "x", "1": "x"}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    line = r"^\S+config\.json: id2label gives two classes the name 'x'; give them different ones$"
    with pytest.raises(BertlineError, match=line):
        load_finetuned(tmp_path / "model")


def test_weights_without_the_head_are_one_line(finished: Path, tmp_path: Path) -> None:
    for path in (finished / "cola/huggingface").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForQuestionAnswering"]}))
    with pytest.raises(BertlineError, match=r"model\.safetensors lacks the weights of the head of a BertForQuestion"):
        load_finetuned(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        ("cola_test.tsv", "out.parquet", r"output: given '\S+out\.parquet', allowed for this model are \.jsonl, \.tsv"),
        (
            "stsb.tsv",
            "out.tsv",
            r"stsb\.tsv: line 1: no column 'sentence', it has sentence1, sentence2, score; "
            "name its columns with `columns`, or correct the file$",
        ),
        ("squad_v1.json", "out.tsv", r"inputs: given '\S+squad_v1\.json', allowed for this model are \.tsv, "),
        ("empty.tsv", "out.tsv", r"empty\.tsv: no input; name files with at least one"),
    ],
)
def test_files_that_do_not_fit_are_one_line_and_leave_nothing(
    finished: Path, tmp_path: Path, inputs: str, output: str, message: str
) -> None:
    (finished / "empty.tsv").write_text("sentence\n")
    with pytest.raises(BertlineError, match=message):
        predict_files(load_finetuned(finished / "cola/huggingface"), [finished / inputs], tmp_path / output)
    assert not list(tmp_path.iterdir())


def test_ids_of_questions_may_be_integers(finished: Path, tmp_path: Path) -> None:
    record = {"id": 7, "question": "where was born ?", "context": "n0 was born in p1 ."}
    (tmp_path / "in.jsonl").write_text(json.dumps(record) + "\n")
    table = {name: [value] for name, value in (record | {"id": 8}).items()}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "in.parquet")
    model, inputs = load_finetuned(finished / "squad_v1/huggingface"), [tmp_path / "in.jsonl", tmp_path / "in.parquet"]
    predict_files(model, inputs, tmp_path / "out.json")
    assert list(json.loads((tmp_path / "out.json").read_text())) == ["7", "8"]
    for changed in ({"id": True}, {"id": 7.5}, {"question": 7}):
        (tmp_path / "in.jsonl").write_text(json.dumps(record | changed) + "\n")
        with pytest.raises(
            BertlineError, match=r"in\.jsonl: line 1: column '\w+': given \S+, allowed is text; correct"
        ):
            predict_files(model, inputs[:1], tmp_path / "out.json")


@pytest.mark.parametrize("suffix", [".json", ".tsv"])
def test_an_id_that_appears_twice_is_one_line(finished: Path, tmp_path: Path, suffix: str) -> None:
    record = '{"id": "1", "question": "where was born ?", "context": "n0 was born in p1 ."}\n'
    (tmp_path / "in.jsonl").write_text(2 * record)
    model = load_finetuned(finished / "squad_v1/huggingface")
    message = r"in\.jsonl: input 2: the id '1' appears twice in the inputs; make ids unique"
    with pytest.raises(BertlineError, match=message):
        predict_files(model, [tmp_path / "in.jsonl"], tmp_path / f"out{suffix}")
    assert not (tmp_path / f"out{suffix}").exists()
    assert predict_files(model, [tmp_path / "in.jsonl"], tmp_path / "out.jsonl") == 2


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("cola", ["a", "b"], "the model was trained on single texts; given two texts"),
        ("squad_v1", ["a", "b"], "columns: given a, b; this model needs 3, of id, question and context"),
        ("names", ["a", "b"], "columns: given a, b; this model needs 1, of the text"),
        ("stsb", ["a"], "the model was trained on pairs: two columns, or --text and --text-pair; given one text"),
    ],
)
def test_columns_that_the_model_cannot_take_are_one_line(
    finished: Path, tmp_path: Path, task: str, columns: list[str], message: str
) -> None:
    (tmp_path / "in.csv").write_text("a,b\nborn,died\n")
    with pytest.raises(BertlineError, match=message):
        predict_files(
            load_finetuned(finished / task / "huggingface"),
            [tmp_path / "in.csv"],
            tmp_path / "o.jsonl",
            columns=columns,
        )


@pytest.mark.parametrize(
    ("task", "names", "columns", "message"),
    [
        ("names", ["names.conll"], ["a"], "columns: given a, but .conll files have no named columns; leave it out"),
        ("names", ["IN.CONLLU", "names.conll"], ["a"], "columns: given a, but .conll, .conllu files have no named"),
        ("squad_v1", ["squad_v1.json"], ["a", "b", "c"], "columns: given a, b, c, but .json files have no named"),
    ],
)
def test_columns_of_inputs_that_have_none_are_one_line(
    finished: Path, tmp_path: Path, task: str, names: list[str], columns: list[str], message: str
) -> None:
    (finished / "IN.CONLLU").write_text("1\tn1\n")
    model, inputs = load_finetuned(finished / task / "huggingface"), [finished / name for name in names]
    with pytest.raises(BertlineError, match=f"^{re.escape(message)}"):
        predict_files(model, inputs, tmp_path / "o.jsonl", columns=columns)


def test_the_scripts_take_the_precisions_of_the_schema() -> None:
    schema = load_schema(REPOSITORY / "config/config.schema.yaml")
    assert list(get_args(Precision)) == schema["$defs"]["precision"]["enum"]


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("predict.py", "model --text a --n-best 21", '"21" for --n-best. Must be <= 20.'),
        ("predict.py", "model --text a --threads 0", '"0" for --threads. Must be >= 1.'),
        ("extract_features.py", "model in.txt --output o.jsonl --threads -3", '"-3" for --threads. Must be >= 1.'),
        (
            "extract_features.py",
            "model in.txt --output o.jsonl --max-sequence-length 2",
            '"2" for --max-sequence-length. Must be >= 3.',
        ),
    ],
)
def test_numbers_of_the_scripts_have_the_ranges_of_the_schema(script: str, arguments: str, message: str) -> None:
    command = [sys.executable, REPOSITORY / "workflow/scripts" / script, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())


def run_script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "workflow/scripts/predict.py", *map(str, arguments)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_answers_a_question(finished: Path) -> None:
    context = "n0 was born in p1 and n0 died in p2 ."
    asked = ("--question", "where was born ?", "--context", context, "--n-best", "2")
    done = run_script(finished / "squad_v1/huggingface", *asked)
    answer = json.loads(done.stdout)
    assert answer["prediction"] in context
    assert len(answer["n_best"]) == 2


def test_the_script_reports_what_the_model_needs(finished: Path) -> None:
    done = run_script(finished / "squad_v1/huggingface", "--text", "n1 was born")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("squad_v1/huggingface needs --question and --context")
    done = run_script(finished / "cola/huggingface", "--text", "a", "--inputs", "b.tsv")
    assert done.stderr.splitlines()[-1] == "error: give --text, or --question and --context, or --inputs and --output"


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("names", "--text a --text-pair b", "names/huggingface tags one text; leave out --text-pair"),
        (
            "squad_v1",
            "--question a --context b --text-pair c",
            "--text-pair is the second text of --text; leave it out",
        ),
        ("cola", "--text a --n-best 1", "n_best: given 1, but the model answers no questions; leave it out"),
        ("cola", "--text a --null-threshold 0", "null_threshold: given 0.0, but the model answers no questions; leave"),
        ("cola", "--text a --columns b", "--columns are those of --inputs; leave them out"),
        (
            "squad_v1",
            "--inputs squad_v1.json --output o.tsv --n-best 2",
            "but o.tsv has one answer per question; write",
        ),
    ],
)
def test_an_option_that_would_be_ignored_is_one_line(finished: Path, task: str, arguments: str, message: str) -> None:
    done = run_script(finished / task / "huggingface", *arguments.split())
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("given", ["nan", "inf"])
def test_a_threshold_is_a_finite_number(given: str) -> None:
    with pytest.raises(BertlineError, match=f"^null_threshold: given {given}, allowed is a finite number$"):
        check_answer_options("answer", None, float(given))


@pytest.mark.parametrize("option", [{"count": 2}, {"null_threshold": 1.0}])
def test_a_classifier_has_no_options_of_answers(finished: Path, tmp_path: Path, option: dict[str, float]) -> None:
    with pytest.raises(BertlineError, match=r"given .*, but the model answers no questions; leave it out"):
        predict_files(
            load_finetuned(finished / "cola/huggingface"),
            [finished / "cola_test.tsv"],
            tmp_path / "o.jsonl",
            **option,  # type: ignore[arg-type]
        )
    assert not list(tmp_path.iterdir())
