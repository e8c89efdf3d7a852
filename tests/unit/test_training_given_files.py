"""Commands by hand: other files than those of the recipe are one line, and nothing is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from finetuning_helpers import MODEL as NETWORK
from finetuning_helpers import recipe_for, write_cola
from synthetic_dataset import FINGERPRINT, recipe, write_dataset
from training_processes import Trainer, train

from bertline.console import BertlineError
from bertline.files import sha256_of_file
from bertline.finetuning.train import finetune
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import BertConfig
from bertline.training.given_files import check_initial_weights, content_of, files_of_weights

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
