"""Predictions and features in the plan: the model that a name means, and what an output may be."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertline.console import BertlineError
from bertline.finetuning.features import extract_features
from bertline.fingerprint import STAGE_VERSIONS
from bertline.planning import targets
from bertline.planning.inputs import predictions_of_choice
from bertline.planning.plan import Plan
from bertline.planning.predictions import model_folder
from bertline.planning.resolve import make_plan

ROOT = Path(__file__).parents[2]
TABLE = {"kind": "classification", "train": "t.csv", "dev": "t.csv", "texts": ["text"], "label": "label"}


def write_config(folder: str, architecture: str) -> None:
    content = {"vocab_size": 100, "architectures": [architecture]}
    Path(folder, "config.json").write_text(json.dumps(content))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("theirs").mkdir()
    for name in ("model.safetensors", "vocab.txt"):
        Path("theirs", name).touch()
    write_config("theirs", "BertForSequenceClassification")
    Path("t.csv").write_text("text,label\na,b\n")
    Path("new.txt").write_text("a\n")
    Path("new.tsv").write_text("text\na\n")


def plan_of(*, kind: str = "predict", keep: str = "best", sections: dict[str, Any] | None = None, **entry: Any) -> Plan:
    inputs = ["new.tsv"] if kind == "predict" else ["new.txt"]
    config = {
        "evaluation": {"tables": {"t": TABLE}},
        "runs": {"theirs": {"pretrained": "theirs", "finetune": {"tables": {"t": {"seeds": 2, "keep": keep}}}}},
        kind: {"new": {"model": "results/runs/theirs/table/t", "inputs": inputs, **entry}},
    } | (sections or {})
    return resolved(config)


def resolved(config: dict[str, Any]) -> Plan:
    return make_plan(config, ROOT / "config/config.schema.yaml", ROOT / "config/models")


def entry_of(plan: Plan) -> dict[str, Any]:
    (entry,) = plan.predictions.values()
    return entry


def test_a_name_means_the_choice_of_a_task_a_seed_or_a_folder(tmp_path: Path) -> None:
    plan = plan_of()
    kept = plan.runs["theirs"]["kept"]["table/t"]
    seed = plan.runs["theirs"]["finetunings"]["table/t/seed2"]
    for given, folder in {
        "results/runs/theirs/table/t": f"results/kept/{kept}/model",
        "results/runs/theirs/table/t/model": f"results/kept/{kept}/model",
        "results/runs/theirs/table/t/seed2": f"results/finetunings/{seed}/huggingface",
        f"{tmp_path}/results/runs/theirs/table/t/model": f"results/kept/{kept}/model",
        "./results/runs/theirs/table/t/seed2": f"results/finetunings/{seed}/huggingface",
        "theirs": "theirs",
    }.items():
        assert model_folder(entry_of(plan_of(model=given))["model"]) == folder


@pytest.mark.parametrize("ending", ["", "/model", "/seed2", "/seed2/model"])
def test_a_table_may_be_called_model(ending: str) -> None:
    runs = {"theirs": {"pretrained": "theirs", "finetune": {"tables": {"model": {"seeds": 2}}}}}
    given = f"results/runs/theirs/table/model{ending}"
    plan = plan_of(model=given, sections={"evaluation": {"tables": {"model": TABLE}}, "runs": runs})
    assert entry_of(plan)["model"].keys() == ({"finetuning"} if "seed" in ending else {"kept"})


def test_an_output_may_be_anywhere_but_in_place_of_an_input(tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / "elsewhere.jsonl"
    assert list(plan_of(output=str(elsewhere)).predictions) == [str(elsewhere)]
    assert list(plan_of(output=str(Path("out.jsonl").absolute())).predictions) == ["out.jsonl"]
    inputs = tmp_path / "new.jsonl"
    inputs.write_text('{"text": "a"}\n')
    for name in ("./new.jsonl", str(inputs)):
        with pytest.raises(BertlineError, match=r"predict\.new\.output: new\.jsonl is also an input"):
            plan_of(output=name, inputs=["new.jsonl"])


def test_a_link_of_a_run_of_another_configuration_is_a_folder(tmp_path: Path) -> None:
    for given in ("results/runs/other/table/t/model", f"{tmp_path}/results/runs/other/table/t/model"):
        with pytest.raises(BertlineError, match=r"predict\.new\.model: given \S+, allowed are results/runs/theirs"):
            plan_of(model=given)
    shutil.copytree("theirs", "results/runs/other/table/t/model")
    with pytest.raises(BertlineError, match=r"predict\.new\.model: given results/runs/other/table/t, allowed are"):
        plan_of(model="results/runs/other/table/t")  # as after the run was renamed
    for given in ("results/runs/other/table/t/model", f"{tmp_path}/results/runs/other/table/t/model"):
        assert Path(model_folder(entry_of(plan_of(model=given))["model"])).samefile("results/runs/other/table/t/model")


GLUE = {"glue": "glue"}
BOOKS = {"books": {"source": "files", "paths": ["texts/*"]}}
BUILT = {"corpora": ["books"], "shards": 2, "tokenizer": {"file": "tokenizer.json"}}
HIDDEN = {"hidden": {"model": "theirs", "inputs": ["others/*.tsv"]}}
OWN = {"t": {**TABLE, "train": "./own.tsv"}}


@pytest.mark.parametrize(
    ("output", "sections", "key"),
    [
        ("glue/CoLA/dev.tsv", {"evaluation": {"tables": {"t": TABLE}, **GLUE}}, "evaluation.glue"),
        ("own.tsv", {"evaluation": {"tables": OWN}}, "evaluation.tables.t.train"),
        ("texts/book.tsv", {"corpora": BOOKS}, "corpora.books.paths"),
        ("tokenizer.json", {"corpora": BOOKS, "datasets": {"d": BUILT}}, "datasets.d.tokenizer.file"),
        ("others/one.tsv", {"features": HIDDEN}, "features.hidden"),
        ("new.tsv", {}, "predict.new"),
    ],
)
@pytest.mark.parametrize("absolute", [False, True])
def test_an_output_is_no_input_of_the_configuration(
    tmp_path: Path, output: str, sections: dict[str, Any], key: str, absolute: bool
) -> None:
    for name in ("texts/book.tsv", "others/one.tsv"):
        Path(name).parent.mkdir()
        Path(name).write_text("text\na\n")
    write_config("theirs", "BertForQuestionAnswering")
    given = str(tmp_path / output) if absolute else output
    line = f"configuration: predict.new.output: {output} is also an input, of {key}; choose another file"
    with pytest.raises(BertlineError, match=f"^{re.escape(line)}$"):
        plan_of(output=given, sections=sections, model="theirs")
    assert plan_of(output=str(Path(output).with_name("free.tsv")).replace("glue", "g"), sections=sections)


def test_the_options_of_features_are_those_of_the_function_that_extracts_them() -> None:
    options = entry_of(plan_of(kind="features", model="theirs"))["options"]
    assert options.keys() < inspect.signature(extract_features).parameters.keys()
    assert "layers" in options


def test_a_choice_that_may_delete_a_model_waits_for_the_predictions_with_it() -> None:
    for given, waits in {"table/t/seed2": True, "table/t": False}.items():
        plan = plan_of(model=f"results/runs/theirs/{given}")
        (choice,) = plan.kept
        assert predictions_of_choice(plan, choice) == ["results/predictions/new.jsonl"] * waits
    plan = plan_of(model="results/runs/theirs/table/t/seed2", inputs=["absent.txt"])
    assert predictions_of_choice(plan, next(iter(plan.kept))) == []


def test_a_fingerprint_follows_the_model_the_inputs_and_the_options_and_no_place() -> None:
    first = entry_of(plan_of())["fingerprint"]
    assert entry_of(plan_of())["sha256"] == {"new.tsv": hashlib.sha256(Path("new.tsv").read_bytes()).hexdigest()}
    assert entry_of(plan_of(output="elsewhere/x.jsonl"))["fingerprint"] == first
    others = [{"precision": "bf16"}, {"model": "theirs"}, {"output": "x.tsv"}, {"keep": "all"}, {"columns": ["a"]}]
    assert first not in {entry_of(plan_of(**other))["fingerprint"] for other in others}
    Path("theirs").rename("moved")
    Path("theirs").mkdir()
    moved = entry_of(plan_of(model="moved"))["fingerprint"]
    Path("theirs").rmdir()
    Path("moved").rename("theirs")
    assert moved == entry_of(plan_of(model="theirs"))["fingerprint"]
    Path("new.csv").write_bytes(Path("new.tsv").read_bytes())
    assert entry_of(plan_of(inputs=["new.csv"]))["fingerprint"] != first
    Path("new.tsv").write_text("text\nb\n")
    assert entry_of(plan_of())["fingerprint"] != first


@pytest.mark.parametrize(
    ("kind", "precision", "is_renamed"),
    [("predict", "fp32", False), ("predict", "bf16", True), ("features", "bf16", False)],
)
def test_the_version_of_half_precision_alters_predictions_in_it_and_no_features(
    monkeypatch: pytest.MonkeyPatch, kind: str, precision: str, is_renamed: bool
) -> None:
    before = entry_of(plan_of(kind=kind, model="theirs", precision=precision))["fingerprint"]
    monkeypatch.setitem(STAGE_VERSIONS, "half_precision", 0)
    assert (entry_of(plan_of(kind=kind, model="theirs", precision=precision))["fingerprint"] != before) == is_renamed


@pytest.mark.parametrize(
    ("word", "file", "is_renamed"), [(0, "new.conllu", True), (1, "new.conllu", False), (0, "new.conll", False)]
)
@pytest.mark.parametrize("model", ["results/runs/theirs/table/t", "tagger"])
def test_the_version_of_conll_u_alters_predictions_whose_words_were_in_another_column(
    monkeypatch: pytest.MonkeyPatch, word: int, file: str, is_renamed: bool, model: str
) -> None:
    for name in ("new.conll", "new.conllu"):
        Path(name).write_text("1\ta\tB-X\n\n")
    shutil.copytree("theirs", "tagger")
    write_config("tagger", "BertForTokenClassification")
    Path("tagger/task.json").write_text(json.dumps({"task": "table/t", "table": {"kind": "tagging", "word": word}}))
    table = {"kind": "tagging", "train": "new.conll", "dev": "new.conll", "word": word, "tag": 2}
    given = {"model": model, "inputs": [file], "sections": {"evaluation": {"tables": {"t": table}}}}
    before = entry_of(plan_of(**given))["fingerprint"]
    monkeypatch.setitem(STAGE_VERSIONS, "conll_u", 0)
    assert (entry_of(plan_of(**given))["fingerprint"] != before) == is_renamed


def test_predictions_of_a_folder_follow_its_task_and_a_training_from_its_weights_does_not() -> None:
    tasks = ["", '{"null_threshold": 0.5}', '{"null_threshold": 0.6}']
    predicted, trained = set(), set()
    for task in tasks:
        if task:
            Path("theirs/task.json").write_text(task)
        plan = plan_of(model="theirs")
        predicted.add(entry_of(plan)["fingerprint"])
        trained.add(tuple(plan.finetunings))
    assert (len(predicted), len(trained)) == (len(tasks), 1)


@pytest.mark.parametrize("kind", ["predict", "features"])
def test_a_file_that_is_given_twice_is_read_once(kind: str) -> None:
    """As by a corpus, in the order of the first; the outputs of two orders of repetitions had one fingerprint."""
    Path("other.tsv").write_text("text\nb\n")
    both = entry_of(plan_of(kind=kind, inputs=["other.tsv", "new.tsv"]))
    for more in (["new.tsv", "./other.tsv"], ["other.tsv", "new.tsv"], ["*.tsv"]):
        assert entry_of(plan_of(kind=kind, inputs=["other.tsv", *more])) == both
    assert both["inputs"] == ["other.tsv", "new.tsv"]


def test_absent_inputs_block_nothing_else() -> None:
    plan = plan_of(inputs=["absent/*.txt"])
    assert not plan.problems
    assert plan.warnings == [
        "configuration: predict.new.inputs: no file matches 'absent/*.txt'; put it there or change the key"
    ]
    assert "results/predictions/new.jsonl" not in targets.everything(plan)
    assert targets.predictions(plan, "predict") == ["results/predictions/new.jsonl"]
    assert "results/predictions/new.jsonl" in targets.everything(plan_of())


def test_options_that_a_model_or_an_input_may_use_are_accepted() -> None:
    Path("new.conll").write_text("a\n")
    Path("new.csv").write_text("w\na\n")
    write_config("theirs", "BertForQuestionAnswering")
    assert plan_of(model="theirs", n_best=3, null_threshold=1.0).predictions
    tagger = {"t": {"kind": "tagging", "train": "new.conll", "dev": "new.conll"}}
    words = {"columns": ["w"], "inputs": ["new.conll", "new.csv"], "output": "new-tags.conll"}
    assert plan_of(**words, sections={"evaluation": {"tables": tagger}}).predictions
    assert plan_of(inputs=["absent/*.pdf"]).predictions


@pytest.mark.parametrize("model", ["table/t", "table/t/model", "table/t/seed2"])
def test_a_prediction_of_a_task_whose_data_is_absent_is_left_out_with_it(model: str) -> None:
    Path("t.csv").unlink()
    plan = plan_of(model=f"results/runs/theirs/{model}")
    line = f"results/runs/theirs/{model} is of a task whose data is absent; both are left out"
    assert f"configuration: predict.new.model: {line}" in plan.warnings
    assert "results/predictions/new.jsonl" not in targets.everything(plan)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"model": "results/runs/theirs/t"},
            "predict.new.model: given results/runs/theirs/t, allowed are results/runs/",
        ),
        ({"model": "results/runs/theirs/export"}, "predict.new.model: given results/runs/theirs/export, allowed are"),
        (
            {"model": "pretrained"},
            "predict.new.model: pretrained is a pretrained model: config.json names none with the head of a task; name",
        ),
        (
            {"model": "dpr"},
            "predict.new.model: dpr/config.json: its architecture is BertForDpr, whose head cannot be read; allowed",
        ),
        (
            {"keep": "none"},
            "predict.new.model: given results/runs/theirs/table/t, but runs.theirs.finetune.tables.t.keep is none",
        ),
        ({"n_best": 3}, "predict.new.n_best: given 3, but the model answers no questions; leave it out"),
        (
            {"null_threshold": 1.5, "model": "results/runs/theirs/table/t/seed2"},
            "predict.new.null_threshold: given 1.5, but the model answers no questions; leave it out",
        ),
        (
            {"columns": ["w"], "inputs": ["new.conll"], "model": "tagger"},
            "predict.new.columns: given w, but .conll files have no named columns; leave it out",
        ),
        (
            {"columns": ["w"], "inputs": ["NEW.CONLL"], "model": "tagger"},
            "predict.new.columns: given w, but .conll files have no named columns; leave it out",
        ),
        (
            {"kind": "features", "columns": ["a", "b"]},
            "features.new.columns: given a, b, but .txt files have no named columns; leave it out",
        ),
        (
            {"inputs": ["new.tsv", "new.txt"]},
            "predict.new.inputs: given 'new.txt', allowed for this model are .tsv, .csv, .jsonl, .parquet; convert",
        ),
        (
            {"inputs": ["new.conll"]},
            "predict.new.inputs: given 'new.conll', allowed for this model are .tsv, .csv, .jsonl, .parquet; convert",
        ),
        ({"output": "out.json"}, "predict.new.output: given 'out.json', allowed for this model are .jsonl, .tsv"),
        ({"output": "out.conll"}, "predict.new.output: given 'out.conll', allowed for this model are .jsonl, .tsv"),
        ({"columns": ["a", "b"]}, "predict.new.columns: given a, b; this model needs 1, of text"),
        (
            {"model": "answers", "n_best": 3, "output": "x.json"},
            "predict.new.n_best: given 3, but x.json has one answer per question; write a .jsonl",
        ),
        ({"model": "answers", "output": "x.conll"}, "predict.new.output: given 'x.conll', allowed for this model are"),
        (
            {"kind": "features", "inputs": ["pic.pdf"]},
            "features.new.inputs: given 'pic.pdf', allowed are .txt, .tsv, .csv, .jsonl, .parquet; convert the file",
        ),
        ({"output": "results/runs/x.jsonl"}, "predict.new.output: results/runs/x.jsonl is a path of another result"),
        ({"output": "./results/runs/x.jsonl"}, "predict.new.output: results/runs/x.jsonl is a path of another result"),
        ({"output": "a/../results/x.jsonl"}, "predict.new.output: results/x.jsonl is a path of another result"),
        ({"output": "x.pickle"}, "predict.new.output: given 'x.pickle'"),
        ({"output": "$(touch me).jsonl"}, "predict.new.output: given '$(touch me).jsonl'"),
        ({"kind": "features", "layers": []}, "features.new.layers: given []"),
        (
            {"kind": "features", "model": "theirs", "layers": [-14]},
            "features.new.layers: given -14, allowed are -13 to 12",
        ),
        (
            {"kind": "features", "layers": [3, 13]},  # of a fine-tuned model
            "features.new.layers: given 13, allowed are -13 to 12",
        ),
        (
            {"kind": "features", "model": "theirs", "max_sequence_length": 513},
            "features.new.max_sequence_length: given 513, allowed is at most the model's max_position_embeddings, 512",
        ),
    ],
)
def test_an_impossible_prediction_is_one_line(entry: dict[str, Any], message: str) -> None:
    for name in ("new.conll", "NEW.CONLL", "pic.pdf"):
        Path(name).write_text("a\n")
    heads = {"answers": "QuestionAnswering", "tagger": "TokenClassification", "pretrained": "PreTraining", "dpr": "Dpr"}
    for name, head in heads.items():
        shutil.copytree("theirs", name)
        write_config(name, f"BertFor{head}")
    with pytest.raises(BertlineError) as caught:
        plan_of(**entry)
    assert str(caught.value).startswith(f"configuration: {message}")


RANKING = {"collection": "c.tsv", "train": {"tfrecords": "c.tsv"}, "dev": {"tfrecords": "c.tsv"}}
CANDIDATES = dict.fromkeys(("collection", "queries", "candidates"), "c.tsv")


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"model": "results/runs/theirs/ranking/r", "inputs": ["new.tsv"]},
            "inputs: given, but the model ranks passages for queries; give collection, queries and candidates instead",
        ),
        (
            {"model": "results/runs/theirs/table/t", **CANDIDATES},
            "model: it was trained for table/t and does not rank passages; name a model of a ranking",
        ),
        ({"model": "results/runs/theirs/ranking/r", **CANDIDATES}, None),
    ],
)
def test_passages_are_ranked_by_models_that_rank(entry: dict[str, Any], line: str | None) -> None:
    for name in ("c.tsv", "tags.conll"):
        Path(name).write_text("a\tb\n\n")
    tagging = {"kind": "tagging", "train": "tags.conll", "dev": "tags.conll"}
    config = {
        "evaluation": {"tables": {"t": tagging}, "ranking": {"r": RANKING}},
        "runs": {"theirs": {"pretrained": "theirs", "finetune": {"tables": {"t": {}}, "ranking": {"r": {}}}}},
        "predict": {"new": entry},
    }
    if line is None:
        assert resolved(config).predictions
        return
    with pytest.raises(BertlineError, match=f"^{re.escape(f'configuration: predict.new.{line}')}$"):
        resolved(config)


def test_a_later_version_of_collections_alters_rankings_and_what_is_trained_to_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first version is in no name: finished trainings are older than its place there."""
    Path("c.tsv").write_text("a\tb\n")
    sections = {
        "evaluation": {"tables": {"t": TABLE}, "ranking": {"r": RANKING}},
        "runs": {"theirs": {"pretrained": "theirs", "finetune": {"tables": {"t": {}}, "ranking": {"r": {}}}}},
        "predict": {
            "ranked": {"model": "theirs", **CANDIDATES},
            "texts": {"model": "theirs", "inputs": ["new.tsv"], "output": "texts.tsv"},
        },
    }

    def names() -> dict[str, str]:
        plan = resolved(sections)
        predictions = {output: entry["fingerprint"] for output, entry in plan.predictions.items()}
        return plan.runs["theirs"]["finetunings"] | predictions

    first = names()
    monkeypatch.setitem(STAGE_VERSIONS, "collection", 2)
    second = names()
    assert {name for name in first if second[name] != first[name]} == {
        "results/predictions/ranked.trec",
        *(name for name in first if name.startswith("ranking/r")),
    }


@pytest.mark.parametrize(
    ("task", "entry", "line"),
    [
        (
            "rte",
            CANDIDATES,
            "model: it was trained for glue/rte and does not rank passages; name a model of a ranking",
        ),
        (
            "ranking/r",
            {"inputs": ["new.tsv"]},
            "inputs: given, but the model ranks passages for queries; give collection, queries and candidates instead",
        ),
        ("ranking/r", CANDIDATES, None),
        (None, CANDIDATES, None),  # a model of another program
    ],
)
def test_a_folder_s_model_ranks_unless_it_names_another_task(
    task: str | None, entry: dict[str, Any], line: str | None
) -> None:
    Path("c.tsv").write_text("a\tb\n")
    if task is not None:
        Path("theirs/task.json").write_text(json.dumps({"task": task}))
    sections = {"predict": {"new": {"model": "theirs", **entry}}}
    if line is None:
        assert plan_of(sections=sections).predictions
        return
    with pytest.raises(BertlineError, match=f"^{re.escape(f'configuration: predict.new.{line}')}$"):
        plan_of(sections=sections)


def test_the_files_of_a_ranking_are_no_patterns() -> None:
    Path("c.tsv").write_text("a\tb\n")
    for name, absent in {"c.tsv": False, "*.tsv": True}.items():
        entry = {"model": "theirs", **CANDIDATES, "collection": name}
        plan = plan_of(sections={"predict": {"new": entry}})
        assert entry_of(plan)["absent"] == absent
        assert len(plan.warnings) == absent
