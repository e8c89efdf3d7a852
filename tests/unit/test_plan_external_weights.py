"""Runs that fine-tune weights from elsewhere: in the plan, in records and in the trainer."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from roberta_folder import train_vocabulary

from bertline.console import BertlineError
from bertline.encoding.tokenizer import make_tokenizer, read_tokenizer, save_tokenizer
from bertline.files import read_json
from bertline.finetuning.options import Options
from bertline.finetuning.train import finetune
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import config_from_dict
from bertline.planning import inputs as job_inputs
from bertline.planning.external_weights import release_files, release_options
from bertline.planning.names import write_links
from bertline.planning.plan import Plan, record
from bertline.planning.recipes import recipe_path, write_recipes
from bertline.planning.resolve import make_plan
from bertline.reporting.page import write_report
from bertline.results.records import read_record
from bertline.tracking.run_tree import lay_out

ROOT = Path(__file__).parents[2]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "élan", "is", "##s", "deep", "."]
TASK = {"epochs": 1, "precision": "fp32", "batch_size": 4, "max_sequence_length": 16}
CONFIG: dict[str, Any] = {
    "evaluation": {"glue": "glue"},
    "runs": {
        "theirs": {"pretrained": "models/theirs", "finetune": {"glue": {"cola": {**TASK, "random_weights": [1e-3]}}}}
    },
}


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that transformers wrote, and a task."""
    monkeypatch.chdir(tmp_path)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained("models/theirs")
    Path("models/theirs/vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    Path("models/theirs/tokenizer_config.json").write_text('{"do_lower_case": false}')
    Path("glue/CoLA").mkdir(parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"t\t{number % 2}\t\tthe river is{' deep' * number} .\n" for number in range(8))
        Path(f"glue/CoLA/{split}.tsv").write_text(rows)


def plan_of(config: dict[str, Any]) -> Plan:
    return make_plan(config, ROOT / "config/config.schema.yaml", ROOT / "config/models")


def test_f1_of_three_classes_is_refused_before_anything_is_trained() -> None:
    table = {
        "kind": "classification",
        "train": "a",
        "dev": "b",
        "texts": ["t"],
        "label": "l",
        "labels": ["x", "y", "z"],
    }
    config = copy.deepcopy(CONFIG) | {"evaluation": {"tables": {"mine": {**table, "metrics": ["f1"]}}}}
    config["runs"]["theirs"]["finetune"] = {"tables": {"mine": {}}}
    line = r"^configuration: evaluation\.tables\.mine\.metrics: given 'f1', [^\n]*there are 3; write f1_macro"
    with pytest.raises(BertlineError, match=line):
        plan_of(config)


def with_directory(directory: str) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    config["runs"]["theirs"]["pretrained"] = directory
    return config


def test_a_run_from_weights_from_elsewhere_needs_neither_dataset_nor_phases() -> None:
    plan = plan_of(CONFIG)
    assert not plan.problems
    assert not plan.phases
    assert not plan.datasets
    assert not plan.trained_runs
    pretrained, random = (
        plan.finetunings[plan.runs["theirs"]["finetunings"][f"glue/cola/{start}seed1"]]
        for start in ("", "random-weights-0.001/")
    )
    assert pretrained["initial_weights"]["directory"] == "models/theirs"
    assert random["initial_weights"] is None
    assert pretrained["tokenizer"] == random["tokenizer"] == "models/theirs/vocab.txt"
    write_links(plan, existing_only=False)
    assert sorted(path.name for path in Path("results/runs/theirs").iterdir()) == ["glue", "record.json"]


def test_fine_tunings_are_distinguished_by_the_weights_and_not_by_their_location() -> None:
    before = plan_of(CONFIG).finetunings.keys()
    shutil.copytree("models/theirs", "elsewhere")
    Path("elsewhere/README.md").write_text("Other words.")
    assert plan_of(with_directory("elsewhere/")).finetunings.keys() == before
    for name in ("vocab.txt", "config.json", "tokenizer_config.json"):
        text = Path("elsewhere", name).read_text()
        Path("elsewhere", name).write_text(f"{text} ")
        assert not plan_of(with_directory("elsewhere")).finetunings.keys() & before, name
        Path("elsewhere", name).write_text(text)
    assert plan_of(with_directory("elsewhere")).finetunings.keys() == before


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "7",
        "{",
        '{"max_position_embeddings": "512"}',
        '{"max_position_embeddings": null}',
        '{"vocab_size": 100, "architecture": "x"}',
        '{"vocab_size": 100, "model_type": "distilbert"}',
        '{"vocab_size": 100, "model_type": ["bert"]}',
        '{"vocab_size": 100, "model_type": "modernbert"}',
        '{"hidden_size": 128}',
    ],
)
def test_a_configuration_of_another_form_is_one_line(content: str) -> None:
    Path("models/theirs/config.json").write_text(content)
    if "architecture" in content:  # which is not a key of Hugging Face's
        assert plan_of(CONFIG).finetunings
        return
    with pytest.raises(BertlineError, match=r"models/theirs/config\.json") as caught:
        plan_of(CONFIG)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            "runs.theirs.pretrained: models/theirs holds its weights as a pickle or a TensorFlow checkpoint, which are "
            "not read; convert them: python workflow/scripts/convert_weights.py models/theirs --output another-folder",
        ),
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            "runs.theirs.pretrained: no file matches 'models/theirs/model.safetensors'; put it there or change the key",
        ),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "model.safetensors.index.json"),
            "runs.theirs.pretrained: models/theirs has its weights in several files; choose a model with one "
            "model.safetensors",
        ),
        (
            lambda folder: (folder / "vocab.txt").unlink(),
            "runs.theirs.pretrained: models/theirs has neither tokenizer.json nor vocab.txt; put one of them there",
        ),
    ],
)
def test_a_directory_that_lacks_something_is_one_problem(spoil: Any, message: str) -> None:
    spoil(Path("models/theirs"))
    assert plan_of(CONFIG).problems == [f"configuration: {message}"]


def test_such_a_run_has_no_phases_of_its_own() -> None:
    config = copy.deepcopy(CONFIG)
    config["runs"]["theirs"]["dataset"] = "both"
    with pytest.raises(
        BertlineError, match=r"runs\.theirs: unknown key 'dataset'; allowed are: description, model_card, register"
    ):
        plan_of(config)


def train(plan: Plan) -> Path:
    """As the graph does; returns the run's record."""
    write_recipes(plan)
    for key, entry in plan.finetunings.items():
        initial = (entry["initial_weights"] or {}).get("directory")
        folder = Path("results/finetunings", key)
        weights = Path(initial) if initial else None
        finetune(
            read_json(recipe_path(key)),
            Path(entry["tokenizer"]),
            folder,
            initial_weights=weights,
            options=Options(threads=1),
        )
    path = Path("results/runs/theirs/record-x.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record(plan, "theirs")))
    return path


def test_such_a_run_is_trained_tracked_and_reported() -> None:
    run = read_record(train(plan_of(CONFIG)))
    assert run.finished
    entry = lay_out(run)
    assert [child.name for child in entry.children] == ["glue/cola"]
    assert "BERT with 1 layer, 8 wide, 2 heads, vocabulary of 12." in entry.description
    pretrained, random = entry.children[0].children
    assert pretrained.parameters["model.hidden_size"] == random.parameters["model.hidden_size"] == "8"
    assert pretrained.tags["bertline.parent_path"] == "models/theirs"
    assert "models/theirs" not in {*pretrained.parameters.values(), *entry.parameters.values()}
    assert "Starts from the weights in models/theirs." in pretrained.description
    page = write_report([run.path], Path("report")).read_text()
    assert "CoLA" in page
    assert not Path("report/model-cards").exists()


def test_a_tokenizer_is_read_as_transformers_does() -> None:
    text = "The rivers, THE Élan is deep; élan 河 is"
    for settings in ({}, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False}):
        Path("models/theirs/tokenizer_config.json").write_text(json.dumps(settings))
        theirs = transformers.BertTokenizer.from_pretrained("models/theirs")
        ours = read_tokenizer("models/theirs/vocab.txt").encode(text)
        assert ours.ids == theirs(text).input_ids, settings
        theirs.save_pretrained("saved")
        assert read_tokenizer("saved/tokenizer.json").encode(text).ids == ours.ids


@pytest.mark.parametrize("network", ["bert", "modernbert", "roberta"])
@pytest.mark.parametrize("named", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None])
@pytest.mark.parametrize("inside", [True, False])
def test_a_tokenizer_with_settings_next_to_it_is_read_as_transformers_does_or_refused(
    network: str, named: str | None, inside: bool
) -> None:
    text, folder = "The rivers, THE Élan is deep; élan 河 is", Path("saved")
    transformers.BertTokenizer("models/theirs/vocab.txt", do_lower_case=inside).save_pretrained(folder)
    Path(folder, "config.json").write_text(json.dumps({"model_type": network}))
    given = json.loads((folder / "tokenizer_config.json").read_text())
    for key in ("tokenizer_class", "do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        given.pop(key, None)
    changes = [{}, {"do_lower_case": inside}, {"do_lower_case": not inside}]
    changes += [{"do_lower_case": inside, "strip_accents": strips} for strips in (None, True, False)]
    changes += [{"do_lower_case": inside, "tokenize_chinese_chars": False}]
    refused = []
    for changed in changes:
        of_class = {"tokenizer_class": named} if named else {}
        (folder / "tokenizer_config.json").write_text(json.dumps(given | changed | of_class))
        if named is None and network == "roberta":
            continue  # transformers finds no vocabulary of RoBERTa
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        try:
            ours = read_tokenizer(folder)
        except BertlineError as error:
            refused.append(str(error))
            normalizer = json.loads(theirs.backend_tokenizer.to_str())["normalizer"]
            settings = tuple(normalizer[key] for key in ("lowercase", "strip_accents", "handle_chinese_chars"))
            assert settings != (inside, None, True)
        else:
            assert ours.encode(text).ids == theirs(text).input_ids, changed
    line = r"saved/tokenizer_config\.json: \w+ means \w+, but tokenizer\.json has \w+; transformers .*; make them equal"
    assert all(re.fullmatch(line, message) for message in refused)
    follows = network != "modernbert" and (str(named).startswith("BertTokenizer") or (named, network) == (None, "bert"))
    assert len(refused) == ((3 if inside else 4) if follows else 0)


@pytest.mark.parametrize("network", ["bert", "modern"])
def test_the_tokenizer_of_a_network_made_here_is_read_again(network: str) -> None:
    vocabulary = make_tokenizer(WORDS, lowercase=True, strip_accents=False, source="x")
    save_tokenizer(vocabulary, "tokenizer.json")
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = config_from_dict({**shape, "architecture": network, "vocab_size": len(WORDS)})
    weights = architecture_of(config).pretraining(config).state_dict()
    export_huggingface(config, weights, Path("tokenizer.json"), Path("export"))
    text = "The rivers, THE Élan is deep; élan 河 is"
    assert read_tokenizer("export").encode(text).ids == vocabulary.encode(text).ids


def test_a_vocabulary_of_words_that_another_program_divides_is_refused() -> None:
    settings = {"tokenizer_class": "BertJapaneseTokenizer", "do_lower_case": False, "word_tokenizer_type": "mecab"}
    Path("models/theirs/tokenizer_config.json").write_text(json.dumps(settings))
    line = r"^models/theirs/tokenizer_config\.json: tokenizer_class is 'BertJapaneseTokenizer', [^\n]*; choose another"
    with pytest.raises(BertlineError, match=line):
        read_tokenizer("models/theirs")
    for named in ("BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast"):
        Path("models/theirs/tokenizer_config.json").write_text(json.dumps({"tokenizer_class": named}))
        assert read_tokenizer("models/theirs").encode("river").tokens == ["[CLS]", "river", "[SEP]"]


def test_a_checkpoint_whose_vocabulary_is_not_the_tokenizer_s_is_one_line() -> None:
    entry = next(iter(plan_of(CONFIG).finetunings.values()))
    Path("other").mkdir()
    Path("other/vocab.txt").write_text("".join(f"{word}\n" for word in [*WORDS[:5], *reversed(WORDS[5:])]))
    with pytest.raises(
        BertlineError, match=r"^models/theirs/vocab\.txt: 'the' is entry 5, but 11 of other/vocab\.txt; "
    ):
        finetune(
            entry,
            Path("other/vocab.txt"),
            Path("out"),
            initial_weights=Path("models/theirs"),
            options=Options(threads=1),
        )
    entry["initial_weights"].pop("content")  # otherwise the recipe shows that a file is missing
    Path("models/theirs/vocab.txt").unlink()
    Path("other/vocab.txt").write_text("".join(f"{word}\n" for word in [*WORDS, "more"]))
    with pytest.raises(BertlineError, match=r"^other/vocab\.txt has 13 entries where models/theirs has 12; name the"):
        finetune(
            entry,
            Path("other/vocab.txt"),
            Path("out"),
            initial_weights=Path("models/theirs"),
            options=Options(threads=1),
        )
    assert not Path("out").exists()


def inputs_of(plan: Plan) -> list[list[str]]:
    functions = (job_inputs.data_of_finetuning, job_inputs.weights_of_finetuning)
    found = [function(plan, key) for key in plan.finetunings for function in functions]
    found += [[job_inputs.tokenizer_of(plan, key)] for key in plan.finetunings]
    return [job_inputs.made(plan, files) for files in found]


def test_moved_data_and_weights_are_the_same_results_of_the_same_inputs() -> None:
    """Snakemake trains again if the set of inputs changes."""
    config = copy.deepcopy(CONFIG)
    before = plan_of(config)
    Path("glue").rename("tasks")
    Path("models/theirs").rename("moved")
    config["evaluation"]["glue"], config["runs"]["theirs"]["pretrained"] = "tasks", "moved"
    after = plan_of(config)
    assert before.finetunings.keys() == after.finetunings.keys()
    assert inputs_of(before) == inputs_of(after)
    config["runs"]["theirs"]["pretrained"] = OF_HUB
    assert [HUB_FOLDER] in inputs_of(plan_of(config))


# Weights that the graph fetches

REVISION = "1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"
OF_HUB = {"hub": "someone/their-bert", "revision": REVISION}
HUB_FOLDER = f"resources/weights/hub/someone/their-bert/{REVISION}"
RELEASE = {"url": "https://host/uncased_L-2_H-8_A-2.zip", "sha256": "0" * 64}


def with_weights(given: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    config["runs"]["theirs"]["pretrained"] = given
    return config


def only_finetuning(plan: Plan, start: str = "pretrained") -> dict[str, Any]:
    (entry,) = (entry for entry in plan.finetunings.values() if entry["start"] == start)
    return entry


def test_weights_of_the_hub_need_nothing_here_before_they_are_fetched() -> None:
    plan = plan_of(with_weights(OF_HUB))
    assert not plan.problems
    assert list(plan.fetched) == [HUB_FOLDER]
    entry = only_finetuning(plan)
    assert entry["initial_weights"]["directory"] == entry["model"]["directory"] == entry["tokenizer"] == HUB_FOLDER
    assert job_inputs.weights_of_finetuning(plan, entry["fingerprint"]) == [HUB_FOLDER]
    assert job_inputs.tokenizer_of(plan, entry["fingerprint"]) == HUB_FOLDER
    random = only_finetuning(plan, "random")
    assert job_inputs.weights_of_finetuning(plan, random["fingerprint"]) == []
    assert job_inputs.tokenizer_of(plan, random["fingerprint"]) == HUB_FOLDER


def test_a_collection_is_planned_for_weights_that_are_not_here() -> None:
    """It follows the commit, the release, or nothing where the folder is absent, which is a problem already."""
    lists = {kind: "glue/CoLA/dev.tsv" for kind in ("queries", "candidates", "qrels")}
    ranking = {"collection": "glue/CoLA/train.tsv", "train": lists, "dev": lists}
    keys = set()
    for given in (OF_HUB, OF_HUB | {"revision": "b" * 40}, {"google": RELEASE}, "absent"):
        config = with_weights(given)
        config["evaluation"] = {"ranking": {"mine": ranking}}
        config["runs"]["theirs"]["finetune"] = {"ranking": {"mine": {}}}
        plan = plan_of(config)
        keys |= plan.collections.keys()
        assert bool(plan.problems) == (given == "absent")
        assert len(plan_of(config).collections) == 1
    assert len(keys) == 4


def test_fetched_weights_are_identified_by_their_commit_and_not_by_what_is_on_disk() -> None:
    before = plan_of(with_weights(OF_HUB)).finetunings.keys()
    shutil.copytree("models/theirs", HUB_FOLDER)
    assert plan_of(with_weights(OF_HUB)).finetunings.keys() == before
    for other in (OF_HUB | {"revision": "b" * 40}, OF_HUB | {"hub": "someone/else"}):
        assert not plan_of(with_weights(other)).finetunings.keys() & before


def test_a_network_that_is_not_here_yet_does_not_limit_the_length_and_one_that_is_does() -> None:
    config = with_weights(OF_HUB)
    config["runs"]["theirs"]["finetune"]["glue"]["cola"]["max_sequence_length"] = 1024
    assert plan_of(config).finetunings
    shutil.copytree("models/theirs", HUB_FOLDER)
    with pytest.raises(BertlineError, match="max_sequence_length: given 1024, allowed is at most the model's"):
        plan_of(config)


def test_windows_overlap_between_the_special_tokens_of_the_tokenizer_that_is_there() -> None:
    """With RoBERTa's, which puts two separators between two texts, 8 tokens of the context are left, else 9."""
    config = copy.deepcopy(CONFIG) | {"evaluation": {"squad_v1": {"train": "squad.json", "dev": "squad.json"}}}
    lengths = {"max_sequence_length": 24, "max_query_length": 12}
    config["runs"]["theirs"]["finetune"] = {"squad_v1": {**TASK, **lengths, "doc_stride": 8}}
    Path("squad.json").write_text("{}")
    assert plan_of(config).finetunings
    train_vocabulary().save_pretrained("models/theirs")
    with pytest.raises(BertlineError, match=r"squad_v1\.doc_stride: given 8, .* tokens has 8 of the context"):
        plan_of(config)
    config["runs"]["theirs"]["finetune"]["squad_v1"]["doc_stride"] = 7
    assert plan_of(config).finetunings


TINY = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (TINY, ""),
        ({}, "hidden_size is 768 there and 128 here, intermediate_size is 3072 there and 512 here, num_att"),
        (
            {"model_type": "modernbert", "global_attn_every_n_layers": 1},
            "architecture is modern there and bert here, hidden_size is 768 there",
        ),
        ({"model_type": "roberta", "max_position_embeddings": 514}, "architecture is roberta there and bert here"),
        ({**TINY, "hidden_act": "relu"}, "hidden_act is relu there and gelu here"),
        ({**TINY, "layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05 there and 1e-12 here"),
        ({**TINY, "type_vocab_size": 1}, "type_vocab_size is 1 there and 2 here"),
    ],
)
def test_a_phase_starts_from_weights_of_the_same_network(theirs: dict[str, Any], message: str) -> None:
    config = started_from(theirs, "bert-tiny")
    if not message:
        plan_of(config)
        return
    with pytest.raises(BertlineError, match=rf"runs\.r\.phases\.phase1\.initial_weights: another network \({message}"):
        plan_of(config)


def test_a_roberta_starts_from_one_whose_positions_are_counted_as_transformers_does() -> None:
    published = {"model_type": "roberta", "layer_norm_eps": 1e-5, "type_vocab_size": 1}
    for padding in ({}, {"pad_token_id": 1}, {"pad_token_id": None}):
        plan_of(started_from({**published, "max_position_embeddings": 514, **padding}, {"architecture": "roberta"}))
    other = started_from({**published, "max_position_embeddings": 512}, {"architecture": "roberta"})
    with pytest.raises(BertlineError, match="max_position_embeddings is 510 there and 512 here"):
        plan_of(other)


def started_from(theirs: dict[str, Any], model: Any) -> dict[str, Any]:
    """A configuration whose only phase starts from a folder with this config.json."""
    Path("shaped").mkdir(exist_ok=True)
    Path("shaped/config.json").write_text(json.dumps({"vocab_size": 100, **theirs}))
    Path("shaped/model.safetensors").touch()
    phase = {"sequence_length": 128, "global_batch_size": 8, "steps": 10, "learning_rate": 1e-3}
    phase["initial_weights"] = {"directory": "shaped"}
    return {
        "corpora": {"own": {"source": "files", "paths": ["shaped/config.json"]}},
        "datasets": {"own": {"corpora": ["own"], "shards": 1, "tokenizer": {"train": "wordpiece", "vocab_size": 100}}},
        "runs": {"r": {"dataset": "own", "model": model, "phases": {"phase1": phase}}},
    }


UNCASED = "".join(f"{word}\n" for word in WORDS)
CASED = UNCASED.replace("river", "River")


def started_with(tokenizer: dict[str, Any], entries: str, **files: str) -> dict[str, Any]:
    """A configuration whose dataset has the tokenizer `own`, with these entries, and whose weights have these files."""
    config = started_from({**TINY, "vocab_size": len(WORDS)}, "bert-tiny")
    for name, content in files.items():
        Path("shaped", {"vocabulary": "vocab.txt", "settings": "tokenizer_config.json"}[name]).write_text(content)
    Path("own.txt").write_text(entries)
    config["datasets"]["own"]["tokenizer"] = {"file": "own.txt", **tokenizer}
    return config


@pytest.mark.parametrize(
    ("tokenizer", "entries", "files", "message"),
    [
        (
            {},
            CASED,
            {},
            r"datasets\.own\.tokenizer\.file: own\.txt has words in upper case, such as 'River'; give .* low",
        ),
        ({"lowercase": False}, CASED, {"vocabulary": CASED}, ""),
        ({"lowercase": False}, CASED, {"vocabulary": CASED, "settings": '{"do_lower_case": false}'}, ""),
        ({}, UNCASED, {"vocabulary": UNCASED, "settings": "{}"}, ""),
        ({}, UNCASED, {}, ""),
        ({"lowercase": False}, UNCASED, {"vocabulary": UNCASED}, ""),
        (
            {"lowercase": False},
            UNCASED,
            {"vocabulary": UNCASED, "settings": "{}"},
            r"initial_weights: shaped: its tokenizer has lowercase: true, and own\.txt false; build the dataset",
        ),
        (
            {"strip_accents": False},
            UNCASED,
            {"vocabulary": UNCASED, "settings": "{}"},
            r"initial_weights: shaped: its tokenizer has strip_accents: true, and own\.txt false; build the data",
        ),
        (
            {"lowercase": False},
            CASED,
            {"vocabulary": UNCASED},
            r"initial_weights: shaped/vocab\.txt: 'river' is entry 6, but none of own\.txt; build the dataset",
        ),
        (
            {},
            f"{UNCASED}more\n",
            {},
            r"initial_weights: own\.txt has 13 entries where shaped has 12; build the dataset",
        ),
    ],
)
def test_a_phase_starts_from_weights_with_the_tokenizer_of_its_dataset(
    tokenizer: dict[str, Any], entries: str, files: dict[str, str], message: str
) -> None:
    config = started_with(tokenizer, entries, **files)
    if not message:
        plan_of(config)
        return
    with pytest.raises(BertlineError, match=rf"^configuration: [^\n]*{message}"):
        plan_of(config)


def test_settings_next_to_a_vocabulary_are_heeded() -> None:
    config = started_with({}, CASED, vocabulary=CASED)
    Path("tokenizer_config.json").write_text('{"do_lower_case": true}')
    plan_of(config)
    Path("tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(BertlineError, match=r"tokenizer\.file: own\.txt: lowercase is true, but .*_case: false"):
        plan_of(config)
    plan_of(started_with({"lowercase": False}, CASED, vocabulary=CASED))


@pytest.mark.parametrize("revision", ["main", "v1.0", "1a2b3c4", REVISION.upper()])
def test_a_branch_or_a_tag_is_refused_with_the_advice_to_pin_a_commit(revision: str) -> None:
    with pytest.raises(
        BertlineError,
        match=rf"^configuration: runs\.theirs\.pretrained\.revision: given '{revision}', allowed is .*\(Pin a commit",
    ):
        plan_of(with_weights(OF_HUB | {"revision": revision}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hub": "someone/their-bert"}, "runs.theirs.pretrained: the key 'revision' is missing"),
        ({"google": {"url": "https://host/a.zip"}}, "runs.theirs.pretrained.google: the key 'sha256' is missing"),
        (OF_HUB | {"hub": "../etc"}, "runs.theirs.pretrained.hub: given '../etc', allowed is text matching"),
        (OF_HUB | {"hub": "a/.."}, "runs.theirs.pretrained.hub: given 'a/..', allowed is text matching"),
        (OF_HUB | {"lowercase": True}, "unknown key 'lowercase'"),
        ({"google": "folder", "revision": REVISION}, "unknown key 'revision'"),
    ],
)
def test_a_wrong_source_of_weights_is_one_line(given: Any, message: str) -> None:
    with pytest.raises(BertlineError) as raised:
        plan_of(with_weights(given))
    assert message in str(raised.value)


def test_a_release_of_google_is_identified_by_its_digest_and_case() -> None:
    first = plan_of(with_weights({"google": RELEASE}))
    (folder,) = first.fetched
    assert folder.startswith("resources/weights/google/")
    options = ["--url", RELEASE["url"], "--sha256", RELEASE["sha256"], "--lowercase"]
    assert release_options(first, folder) == options
    assert release_files(first, folder) == []
    elsewhere = {"google": RELEASE | {"url": "https://mirror/other-name.zip"}, "lowercase": True}
    assert plan_of(with_weights(elsewhere)).finetunings.keys() == first.finetunings.keys()
    for other in ({"google": RELEASE, "lowercase": False}, {"google": RELEASE | {"sha256": "1" * 64}}):
        plan = plan_of(with_weights(other))
        assert not plan.finetunings.keys() & first.finetunings.keys()
        assert list(plan.fetched) != [folder]


def test_a_release_in_a_folder_is_identified_by_its_content() -> None:
    names = ("bert_config.json", "vocab.txt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")
    Path("release").mkdir()
    given = {"google": "release", "lowercase": False}
    assert [line.partition(";")[0] for line in plan_of(with_weights(given)).problems] == [
        f"configuration: runs.theirs.pretrained.google: no file matches 'release/{name}'"
        for name in ("bert_config.json", "vocab.txt", "*.ckpt.index", "*.ckpt.data-*")
    ]
    for name in names:
        Path("release", name).write_text(name)
    plan = plan_of(with_weights(given))
    assert not plan.problems
    (folder,) = plan.fetched
    assert release_files(plan, folder) == [f"release/{name}" for name in names]
    assert release_options(plan, folder) == ["--folder", "release", "--no-lowercase"]
    shutil.copytree("release", "moved")
    moved = plan_of(with_weights(given | {"google": "moved"}))
    assert moved.finetunings.keys() == plan.finetunings.keys()
    assert only_finetuning(moved)["initial_weights"]["name"] == "moved"
    Path("release/vocab.txt").write_text("changed")
    assert not plan_of(with_weights(given)).finetunings.keys() & plan.finetunings.keys()


def test_fetched_weights_start_a_phase_and_predict_and_have_features() -> None:
    Path("texts.txt").write_text("a\n")
    ranked = dict.fromkeys(("collection", "queries", "candidates"), "texts.txt")
    Path("card").mkdir()
    card = {"fingerprint": "d" * 16, "sequence_lengths": {"128": {}}, "corpora": []}
    Path("card/dataset.json").write_text(json.dumps(card))
    phase = {"sequence_length": 128, "global_batch_size": 8, "steps": 4, "learning_rate": 1e-3}
    config: dict[str, Any] = {
        "datasets": {"finished": {"path": "card"}},
        "features": {"hidden": {"model": OF_HUB, "inputs": ["texts.txt"]}},
        "predict": {
            "new": {"model": OF_HUB | {"revision": "c" * 40}, "inputs": ["texts.txt"]},
            "ranked": {"model": OF_HUB, **ranked},
        },
        "runs": {
            "mine": {
                "dataset": "finished",
                "model": "bert-base",
                "phases": {"phase1": {**phase, "initial_weights": {"google": RELEASE}}},
            }
        },
    }
    plan = plan_of(config)
    assert not plan.problems
    ((key, entry),) = plan.phases.items()
    (release,) = (folder for folder in plan.fetched if "google" in folder)
    assert entry["initial_weights"]["directory"] == release
    assert job_inputs.weights_before_phase(plan, key) == [release]
    assert "initial_weights" not in entry["settings"]
    models = {output: job_inputs.model_of_prediction(plan, output) for output in plan.predictions}
    assert models == {
        "results/features/hidden.jsonl": [HUB_FOLDER],
        "results/predictions/new.jsonl": [HUB_FOLDER.replace(REVISION, "c" * 40)],
        "results/predictions/ranked.trec": [HUB_FOLDER],
    }
    assert set(plan.fetched) == {release, *(folder for (folder,) in models.values())}


def test_the_tfrecord_files_of_a_ranking_are_tokenized_for_all_of_its_jobs() -> None:
    for name in ("passages.tsv", "records.tf"):
        Path(name).write_text(name)
    records = {"tfrecords": "records.tf"}
    config: dict[str, Any] = {
        "evaluation": {"ranking": {"marco": {"collection": "passages.tsv", "train": records, "dev": records}}},
        "runs": {"theirs": {"pretrained": "models/theirs", "finetune": {"ranking": {"marco": {"seeds": 2}}}}},
    }
    plan = plan_of(config)
    assert not plan.problems
    folders = {entry["source"]: f"results/collections/{key}" for key, entry in plan.collections.items()}
    assert folders.keys() == {"passages.tsv", "records.tf"}
    for finetuning in plan.finetunings.values():
        assert finetuning["data"] == {
            "collection": folders["passages.tsv"],
            **dict.fromkeys(("train_tfrecords", "dev_tfrecords"), folders["records.tf"]),
        }


def test_a_run_of_fetched_weights_is_trained_and_described_by_their_name() -> None:
    plan = plan_of(with_weights(OF_HUB))
    shutil.copytree("models/theirs", HUB_FOLDER)
    entry = lay_out(read_record(train(plan)))
    pretrained = entry.children[0].children[0]
    assert "Starts from the weights someone/their-bert at 1a2b3c4d5e6f." in pretrained.description
    assert pretrained.parameters["initial_weights.name"] == "someone/their-bert at 1a2b3c4d5e6f"
    assert pretrained.tags["bertline.parent_path"] == HUB_FOLDER
