"""Commands by hand: other files than those of the recipe are one line, and nothing is published."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from finetuning_helpers import MODEL as NETWORK
from finetuning_helpers import recipe_for, write_cola
from synthetic_dataset import FINGERPRINT, recipe, write_dataset
from training_processes import Trainer, train

from bertline.console import BertlineError
from bertline.encoding.tokenizer import load_tokenizer, make_tokenizer, make_unigram, save_tokenizer
from bertline.files import Recipe, digest_of_files, read_json, sha256_of_file, write_json
from bertline.finetuning.options import Options
from bertline.finetuning.ranking.collection import tokenize_collection
from bertline.finetuning.train import finetune
from bertline.modeling.architectures import architecture_of
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import BertConfig, config_from_dict
from bertline.modeling.weights import save_tensors
from bertline.results.paths import DIGESTS_OF_INPUTS
from bertline.training.given_files import (
    check_data,
    check_initial_weights,
    check_samples,
    check_tokenizer,
    content_of,
    digest_of_samples,
    files_of_weights,
)
from bertline.training.initial import load_initial_weights, make_model
from bertline.training.publishing import export_phase

OTHER = "e" * 16


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two datasets, `own`, that of all recipes, and `other`."""
    folder = tmp_path_factory.mktemp("datasets")
    write_dataset(folder / "own")
    write_dataset(folder / "other", fingerprint=OTHER)
    return folder


def refusal(given: dict, card: Path, output: Path, **options: object) -> str:
    """The one line of a training that is refused; it leaves nothing that has the name of a result."""
    trainer = Trainer(given, card, output, **options)
    assert trainer.finish() == 1
    (line,) = [line for line in trainer.log.read_text().splitlines() if "error" in line]
    assert "Traceback" not in trainer.log.read_text()
    assert not (output / "model.safetensors").exists()
    assert not (output / "recipe.json").exists()
    return line


def test_a_training_on_another_dataset_is_refused(datasets: Path, tmp_path: Path) -> None:
    line = refusal(recipe(steps=2), datasets / "other/dataset.json", tmp_path / "phase")
    assert line.endswith(
        f"dataset.json is dataset {OTHER}, but recipe {'a' * 16} is for dataset {FINGERPRINT}; give "
        f"results/datasets/{FINGERPRINT}/dataset.json, or plan a run on this one"
    )
    assert line.startswith(f"error: {datasets}/other")


def test_a_training_that_is_resumed_on_another_dataset_is_refused(datasets: Path, tmp_path: Path) -> None:
    stopped = Trainer(recipe(steps=4), datasets / "own/dataset.json", tmp_path / "phase", stop_after_minutes=0.0)
    assert stopped.finish() == 75
    assert f"is dataset {OTHER}" in refusal(recipe(steps=4), datasets / "other/dataset.json", tmp_path / "phase")


def test_a_training_is_not_resumed_on_other_samples(datasets: Path, tmp_path: Path) -> None:
    """A recipe made by hand may name no dataset. A card may change in what trains nothing."""
    given, output, own = {**recipe(steps=4), "dataset": None}, tmp_path / "phase", datasets / "own/dataset.json"
    assert Trainer(given, own, output, stop_after_minutes=0.0).finish() == 75
    line = refusal(given, datasets / "other/dataset.json", output)
    assert line == (
        f"error: {datasets}/other/dataset.json has other samples than those that {output}/checkpoints/step-00000001 "
        "was trained on; give that dataset, or name another output"
    )
    output.with_suffix(".log").unlink()
    card = read_json(own)
    changed = own.with_name("changed.json")
    write_json(changed, {**card, "settings": {**card["settings"], "pair_objective": "none"}})
    assert "changed.json has other samples" in refusal(given, changed, output)
    output.with_suffix(".log").unlink()
    of_length = card["sequence_lengths"]["32"]
    write_json(changed, {**card, "sequence_lengths": {"32": {**of_length, "train": of_length["train"][1:]}}})
    assert "changed.json has other samples" in refusal(given, changed, output)
    write_json(changed, {**card, "documents": 7})
    train(given, changed, output)


def test_a_phase_is_not_exported_with_the_tokenizer_of_another_dataset(datasets: Path, tmp_path: Path) -> None:
    phase = tmp_path / "phase"
    network = BertForPreTraining(BertConfig.from_dict({**recipe()["model"], "vocab_size": 75}))
    write_json(phase / "recipe.json", {**recipe(), "model": network.config.to_dict()})
    save_tensors(phase / "model.safetensors", network.state_dict())
    with pytest.raises(BertlineError) as refused:
        export_phase(phase, datasets / "other/tokenizer.json", tmp_path / "export")
    assert str(refused.value) == (
        f"{datasets}/other/dataset.json is dataset {OTHER}, but recipe {'a' * 16} is for dataset {FINGERPRINT}; give "
        f"results/datasets/{FINGERPRINT}/tokenizer.json, or plan a run on this one"
    )
    assert not (tmp_path / "export").exists()
    export_phase(phase, datasets / "own/tokenizer.json", tmp_path / "export")
    trained_with = {"tokenizer_sha256": sha256_of_file(datasets / "own/tokenizer.json")}
    write_json(phase / "recipe.json", read_json(phase / "recipe.json") | trained_with)
    export_phase(phase, datasets / "other/tokenizer.json", tmp_path / "same")  # has the same content
    shutil.copytree(datasets / "other", tmp_path / "other")
    with (tmp_path / "other/tokenizer.json").open("a") as file:
        file.write("\n")
    with pytest.raises(BertlineError, match=f"is dataset {OTHER}, but recipe"):
        export_phase(phase, tmp_path / "other/tokenizer.json", tmp_path / "changed")


def test_a_dataset_that_got_another_length_has_the_tokenizer_of_the_phases_before(tmp_path: Path) -> None:
    given, card = {**recipe(), "dataset_without_lengths": "c" * 16}, {"fingerprint": OTHER}
    write_json(tmp_path / "dataset.json", {**card, "fingerprint_without_lengths": "c" * 16})
    check_tokenizer(given, tmp_path / "tokenizer.json")
    for other in ({"fingerprint_without_lengths": "f" * 16}, {}):
        write_json(tmp_path / "dataset.json", {**card, **other})
        with pytest.raises(BertlineError, match=f"is dataset {OTHER}, but"):
            check_tokenizer(given, tmp_path / "tokenizer.json")


def test_a_dataset_of_more_lengths_has_the_same_samples_of_each(datasets: Path) -> None:
    """Their files do not: they contain its fingerprint."""
    card = {**read_json(datasets / "own/dataset.json"), "fingerprint_without_lengths": FINGERPRINT}
    of_length = card["sequence_lengths"]["32"]
    files = [{**file, "sha256": "0" * 64} for file in of_length["train"]]
    lengths = {"32": {**of_length, "train": files}, "64": of_length}
    more = {**card, "fingerprint": OTHER, "sequence_lengths": lengths}
    assert digest_of_samples(card, 32) == digest_of_samples(more, 32)
    assert digest_of_samples(card, 32) != digest_of_samples({**card, "fingerprint_without_lengths": OTHER}, 32)


def test_a_checkpoint_without_a_digest_of_its_samples_is_resumed() -> None:
    check_samples(Path("step-00000001"), {"step": 1}, Path("dataset.json"), "0" * 16)


def test_a_training_from_another_phase_is_refused(datasets: Path, tmp_path: Path) -> None:
    card, second = datasets / "own/dataset.json", {**recipe(steps=2), "fingerprint": "b" * 16}
    train(recipe(steps=2), card, tmp_path / "first")
    second["initial_weights"] = {"phase": "c" * 16}
    line = refusal(second, card, tmp_path / "second", initial_weights=tmp_path / "first")
    assert f"first is of phase {'a' * 16}, but recipe {'b' * 16} starts from phase {'c' * 16}; give results" in line
    second["initial_weights"] = {"phase": "a" * 16}
    train(second, card, tmp_path / "second", initial_weights=tmp_path / "first")


def test_a_training_from_changed_weights_is_refused(datasets: Path, tmp_path: Path) -> None:
    folder, card = tmp_path / "theirs", datasets / "own/dataset.json"
    given = recipe(steps=2)
    config = BertConfig.from_dict({"vocab_size": 75, **given["model"]})
    export_huggingface(config, BertForPreTraining(config).state_dict(), datasets / "own/tokenizer.json", folder)
    content = content_of(map(sha256_of_file, files_of_weights(folder)))
    given["initial_weights"] = {"directory": str(folder), "content": content}
    train(given, card, tmp_path / "same", initial_weights=folder)
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    line = refusal(given, card, tmp_path / "changed", initial_weights=folder)
    assert f"{folder} has other files than when recipe {'a' * 16} was planned" in line
    # A digest of what was fetched is not known.
    check_initial_weights({**given, "initial_weights": {**given["initial_weights"], "name": "a/b at 0"}}, folder)


def test_a_fine_tuning_of_another_phase_or_with_another_datasets_tokenizer_is_refused(
    datasets: Path, tmp_path: Path
) -> None:
    phase, tokenizer = tmp_path / "phase", datasets / "own/tokenizer.json"
    config = BertConfig.from_dict({"vocab_size": 75, **NETWORK})
    for folder in (phase / "huggingface", phase / "exports/step-1"):
        export_huggingface(config, BertForPreTraining(config).state_dict(), tokenizer, folder)
    (phase / "recipe.json").write_text(json.dumps({"fingerprint": "a" * 16}))
    given = recipe_for("cola", write_cola(tmp_path / "train.tsv"), initial_weights={"phase": "c" * 16})
    given["dataset"] = FINGERPRINT
    for folder in (phase / "huggingface", phase / "exports/step-1"):
        with pytest.raises(
            BertlineError, match=f"{folder} is of phase {'a' * 16}, but recipe .* from phase {'c' * 16}"
        ):
            finetune(given, tokenizer, tmp_path / "out", initial_weights=folder)
    for step, wrong in ((None, "exports/step-1"), (1, "huggingface"), (2, "exports/step-1")):
        given["initial_weights"] = {"phase": "a" * 16, **({"step": step} if step else {})}
        with pytest.raises(BertlineError, match=f"{phase / wrong} is of another step, but recipe .* starts from"):
            finetune(given, tokenizer, tmp_path / "out", initial_weights=phase / wrong)
    check_initial_weights({**given, "initial_weights": {"phase": "a" * 16, "step": 1}}, phase / "exports/step-1")
    given["initial_weights"] = {"phase": "a" * 16}
    with pytest.raises(BertlineError, match=f"is dataset {OTHER}, but recipe"):
        finetune(given, datasets / "other/tokenizer.json", tmp_path / "out", initial_weights=phase / "huggingface")
    assert not (tmp_path / "out").exists()
    finetune(given, tokenizer, tmp_path / "out", initial_weights=phase / "huggingface")
    assert (tmp_path / "out/metrics.json").exists()


def test_a_fine_tuning_on_a_file_that_changed_since_it_was_planned_is_refused_also_when_it_is_resumed(
    datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, data = datasets / "own/tokenizer.json", write_cola(tmp_path / "c.tsv")
    given = recipe_for("cola", data) | {"sha256": {str(data): sha256_of_file(data)}}
    step, steps = torch.optim.AdamW.step, iter(range(5))

    def step_or_stop(self: torch.optim.AdamW, closure: None = None) -> None:
        step(self)
        if next(steps, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.AdamW, "step", step_or_stop)
        with pytest.raises(KeyboardInterrupt):
            finetune(given, tokenizer, tmp_path / "out", options=Options(threads=1, checkpoint_every_minutes=0))
    assert list((tmp_path / "out/checkpoints").glob("step-*"))
    content = data.read_text()
    data.write_text(content + "t\t1\t\twho died\n")
    message = rf"^{data} is another file than when recipe 0123456789abcdef was planned; put the earlier one back, or"
    with pytest.raises(BertlineError, match=message):
        finetune(given, tokenizer, tmp_path / "out", options=Options(threads=1))
    data.write_text(content)
    assert finetune(given, tokenizer, tmp_path / "out", options=Options(threads=1))["examples"]["train"] == 32


def test_a_collection_or_an_input_that_changed_since_it_was_planned_is_refused(datasets: Path, tmp_path: Path) -> None:
    source = tmp_path / "passages.tsv"
    source.write_text("a\tThe old mill.\n")
    given = {"fingerprint": "a" * 16, "source": str(source), "tfrecords": False}
    given |= {"sha256": {str(source): sha256_of_file(source)}}
    tokenize_collection(Recipe(given), datasets / "own/tokenizer.json", tmp_path / "collection")
    source.write_text("a\tThe new mill.\n")
    with pytest.raises(BertlineError, match=rf"^{source} is another file than when recipe {'a' * 16} was planned"):
        tokenize_collection(Recipe(given), datasets / "own/tokenizer.json", tmp_path / "changed")
    given |= {"kind": "predict", "model": {"directory": "absent"}, "inputs": [str(source)], "options": {}}
    (tmp_path / "recipe.json").write_text(json.dumps(given))
    script = Path(__file__).parents[2] / "workflow/scripts/predict_files.py"
    command = [sys.executable, script, tmp_path / "recipe.json", "--output", tmp_path / "out.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {source} is another file than when recipe {'a' * 16} was planned")
    assert done.stderr.count("\n") == 1


def test_a_file_of_a_task_is_not_read_for_its_digest_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_cola(Path("c.tsv"))
    data.write_text(data.read_text() * 9)  # a file smaller than what is remembered is read
    given = {"fingerprint": "a" * 16, "sha256": digest_of_files([data], Path(DIGESTS_OF_INPUTS))}
    given["sha256"]["./c.tsv"] = given["sha256"]["c.tsv"]  # as it is in the configuration
    with monkeypatch.context() as patched:
        patched.setattr("bertline.files.sha256_of_file", lambda path: pytest.fail(f"{path} was read"))
        patched.setattr("bertline.training.given_files.sha256_of_file", lambda path: pytest.fail(f"{path} was read"))
        check_data(given)
    content = data.read_text()
    data.write_text(content + "t\t1\t\twho died\n")
    with pytest.raises(BertlineError, match=r"^c\.tsv is another file than when recipe a{16} was planned; put the "):
        check_data(given)
    data.write_text(content)
    Path(DIGESTS_OF_INPUTS).unlink()
    Path("folder").mkdir()  # its reader reports it
    check_data({**given, "sha256": {**given["sha256"], "folder": "0", "c.tsv/absent": "0"}})
    assert not Path(DIGESTS_OF_INPUTS).exists()  # several jobs at once write nothing


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(59))]
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def start_from(folder: Path, model: dict[str, Any], tokenizer: Path) -> None:
    """Load the weights in a folder as the first phase of a run with another model and dataset may do."""
    given = {"model": model, "settings": {"sequence_length": 64}, "seed": 1, "fingerprint": "f"}
    given["initial_weights"] = {"directory": str(folder), "name": "a/b at 0", "content": "c"}
    size = load_tokenizer(tokenizer).get_vocab_size()
    data: Any = SimpleNamespace(vocab_size=size, has_pairs=True, tokenizer_json=tokenizer)
    load_initial_weights(make_model(given, data), given, folder, data)


def write_weights(folder: Path, model: dict[str, Any], tokenizer: Path) -> Path:
    """A folder in Hugging Face's layout with random weights."""
    config = config_from_dict({**model, "vocab_size": load_tokenizer(tokenizer).get_vocab_size()})
    export_huggingface(config, architecture_of(config).pretraining(config).state_dict(), tokenizer, folder)
    return folder


@pytest.fixture
def own_tokenizer(tmp_path: Path) -> Path:
    save_tokenizer(make_tokenizer(WORDS, lowercase=True, source="x"), tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ({"num_attention_heads": 4}, {}, "num_attention_heads is 4 there and 2 here"),
        ({"num_hidden_layers": 5}, {}, "num_hidden_layers is 5 there and 2 here"),
        ({"hidden_act": "relu"}, {}, "hidden_act is relu there and gelu here"),
        ({"layer_norm_eps": 1e-3}, {}, "layer_norm_eps is 0.001 there and 1e-12 here"),
        ({"architecture": "roberta", "type_vocab_size": 2}, {}, "architecture is roberta there and bert here"),
        ({"type_vocab_size": 1}, {"architecture": "roberta"}, "architecture is bert there and roberta here"),
        *(
            ({"architecture": "modern", **changes}, {"architecture": "modern"}, message)
            for changes, message in (
                ({"hidden_activation": "relu"}, "hidden_activation is relu there and gelu here"),
                ({"norm_eps": 0.01}, "norm_eps is 0.01 there and 1e-05 here"),
            )
        ),
    ],
)
def test_a_training_from_weights_of_another_network_is_refused(
    tmp_path: Path, own_tokenizer: Path, theirs: dict[str, Any], ours: dict[str, Any], message: str
) -> None:
    folder = write_weights(tmp_path / "theirs", {**SHAPE, **theirs}, own_tokenizer)
    with pytest.raises(
        BertlineError, match=rf"^initial weights: {folder}: another network \([^\n]*{message}"
    ) as caught:
        start_from(folder, {**SHAPE, **ours}, own_tokenizer)
    assert "None" not in str(caught.value)
    start_from(folder, {**SHAPE, **theirs}, own_tokenizer)


def test_settings_of_the_training_and_longer_inputs_make_no_other_network(
    tmp_path: Path, own_tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = {"hidden_dropout_prob": 0.0, "initializer_range": 0.5, "position_initialization": "sinusoidal"}
    start_from(write_weights(tmp_path / "bert", SHAPE, own_tokenizer), {**SHAPE, **others}, own_tokenizer)
    assert not caplog.records
    modern = {**SHAPE, "architecture": "modern"}
    folder = write_weights(tmp_path / "modern", {**modern, "global_rope_theta": 10000.0}, own_tokenizer)
    longer = {"max_position_embeddings": 256, "global_rope_theta": 160000.0}
    start_from(folder, {**modern, **longer}, own_tokenizer)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.endswith("modern was trained with global_rope_theta 10000; training continues with 160000")


@pytest.mark.parametrize("kept", [("tokenizer.json", "vocab.txt"), ("tokenizer.json",), ("vocab.txt",)])
@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        (WORDS[:5] + WORDS[:4:-1], {}, r"(json|txt): 'w0' is entry 5, but 63 of "),
        (WORDS, {"lowercase": False}, "theirs: its tokenizer has lowercase: true, and .*json false"),
        (WORDS, {"strip_accents": False}, "theirs: its tokenizer has strip_accents: true, and .*json false"),
    ],
)
def test_a_training_with_another_tokenizer_than_the_weights_is_refused(
    tmp_path: Path, own_tokenizer: Path, kept: tuple[str, ...], words: list[str], settings: dict[str, Any], message: str
) -> None:
    folder, other = write_weights(tmp_path / "theirs", SHAPE, own_tokenizer), tmp_path / "other.json"
    for name in {"tokenizer.json", "vocab.txt"} - {*kept}:
        (folder / name).unlink()
    start_from(folder, SHAPE, own_tokenizer)
    save_tokenizer(make_tokenizer(words, **{"lowercase": True, **settings}, source="x"), other)
    with pytest.raises(
        BertlineError, match=rf"^{folder.parent}[^\n]*{message}[^\n]*; build the dataset with the token"
    ):
        start_from(folder, SHAPE, other)


def test_a_vocabulary_without_settings_has_any_case(tmp_path: Path, own_tokenizer: Path) -> None:
    folder = write_weights(tmp_path / "theirs", SHAPE, own_tokenizer)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    save_tokenizer(make_tokenizer(WORDS, lowercase=False, source="x"), tmp_path / "other.json")
    start_from(folder, SHAPE, tmp_path / "other.json")


def test_a_tokenizer_with_other_scores_of_the_same_entries_is_refused(tmp_path: Path) -> None:
    pieces = [("\u2581", -2.0), ("a", -3.0), ("b", -3.0), ("ab", -4.0)]
    for name, score in (("theirs", -4.0), ("ours", -9.0)):
        made = make_unigram([*pieces[:-1], ("ab", score)], lowercase=True)
        save_tokenizer(made, tmp_path / f"{name}.json")
    folder = write_weights(tmp_path / "theirs", SHAPE, tmp_path / "theirs.json")
    start_from(folder, SHAPE, tmp_path / "theirs.json")
    with pytest.raises(
        BertlineError, match=r"theirs/tokenizer\.json has the entries of .*ours\.json, but divides words"
    ):
        start_from(folder, SHAPE, tmp_path / "ours.json")
