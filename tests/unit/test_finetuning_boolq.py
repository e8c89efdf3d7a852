"""BoolQ from files in SuperGLUE's official format, and the registry that describes the tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from finetuning_helpers import MODEL

from bertline.console import BertlineError
from bertline.encoding.tokenizer import make_tokenizer, save_tokenizer
from bertline.files import SCHEMA
from bertline.finetuning.options import Options
from bertline.finetuning.train import finetune
from bertline.fingerprint import fingerprint
from bertline.planning.finetunings import key_of_task
from bertline.planning.resolve import make_plan
from bertline.planning.targets import submissions
from bertline.results.describe import task_title
from bertline.tasks.registry import TASKS

ROOT = Path(__file__).parents[2]
ARCHIVE = "https://dl.fbaipublicfiles.com/glue/superglue/data/v2/BoolQ.zip"
WORDS = ["do", "cats", "dogs", "bark", "meow", "yes", "no", "they", "all"]
PHASE = {"sequence_length": 128, "global_batch_size": 8, "steps": 10, "learning_rate": 0.001}


def write_boolq(folder: Path) -> dict[str, str]:
    """Official files: the passage decides, test questions have no label."""
    folder.mkdir(parents=True)
    for name, examples in (("train", 24), ("val", 8), ("test", 4)):
        lines = []
        for index in range(examples):
            answer = index % 3 != 0
            question = f"do {WORDS[1 + index % 2]} {WORDS[3 + index % 2]}"
            record: dict[str, Any] = {"question": question, "passage": f"they all {'yes' if answer else 'no'}"}
            lines.append(json.dumps(record | {"idx": index} | ({} if name == "test" else {"label": answer})) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return {"train": f"{folder}/train.jsonl", "dev": f"{folder}/val.jsonl", "test": f"{folder}/test.jsonl"}


def test_boolq_is_learned_from_its_official_files_and_predicted_for_superglue(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    save_tokenizer(make_tokenizer(vocabulary, lowercase=True, source="the test"), tokenizer)
    recipe = {
        "fingerprint": "0123456789abcdef",
        "task": "boolq",
        "seed": 1,
        "start": "random",
        "model": MODEL,
        "initial_weights": None,
        "data": write_boolq(tmp_path / "BoolQ"),
        "settings": {
            "epochs": 20,
            "batch_size": 8,
            "learning_rate": 5e-3,
            "precision": "fp32",
            "max_sequence_length": 32,
        },
    }
    result = finetune(recipe, tokenizer, tmp_path / "out", options=Options(threads=1))
    assert (result["scores"], result["primary"]) == ({"accuracy": 100.0}, "accuracy")
    assert result["baselines"] == {"majority": 62.5}
    counts = {"train": 24, "dev": 8, "test": 4, "train_skipped": 0, "dev_skipped": 0}
    assert result["examples"] == counts | {"dev_in_train": 8, "test_in_train": 4}
    written = (tmp_path / "out/predictions.tsv").read_text().splitlines()
    assert written[:3] == ["index\tprediction", "0\tfalse", "1\ttrue"]
    submission = (tmp_path / "out/submission/BoolQ.jsonl").read_text().splitlines()
    answers = ["false", "true", "true", "false"]
    assert [json.loads(line) for line in submission] == [
        {"idx": index, "label": answer} for index, answer in enumerate(answers)
    ]


def plan_boolq(evaluation: dict[str, Any], **settings: Any) -> Any:
    Path("text.txt").write_text("A text.")
    config = {
        "corpora": {"text": {"source": "files", "paths": ["text.txt"]}},
        "datasets": {
            "text": {"corpora": ["text"], "shards": 1, "tokenizer": {"train": "wordpiece", "vocab_size": 100}}
        },
        "evaluation": evaluation,
        "runs": {
            "first": {
                "dataset": "text",
                "model": "bert-tiny",
                "phases": {"phase1": PHASE},
                "finetune": {"boolq": {"seeds": 2, **settings}},
            }
        },
    }
    return make_plan(config, SCHEMA, ROOT / "config/models")


def test_boolq_is_planned_from_its_archive_or_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_boolq({"boolq": {"url": ARCHIVE}}, predict_test=True)
    assert list(plan.runs["first"]["finetunings"]) == ["boolq/seed1", "boolq/seed2"]
    folder = f"resources/evaluation/{fingerprint({'url': ARCHIVE})}"
    members = {f"{folder}/BoolQ/{name}.jsonl": f"BoolQ/{name}.jsonl" for name in ("train", "val", "test")}
    assert plan.downloads == {path: {"url": ARCHIVE, "member": member} for path, member in members.items()}
    assert submissions(plan) == []  # GLUE's server takes no BoolQ
    recipe = next(iter(plan.finetunings.values()))
    assert (recipe["task"], recipe["settings"]["max_sequence_length"]) == ("boolq", 256)
    files = write_boolq(Path("BoolQ"))
    plan = plan_boolq({"boolq": {name: files[name] for name in ("train", "dev")}})
    assert next(iter(plan.finetunings.values()))["data"] == {"train": files["train"], "dev": files["dev"]}
    with pytest.raises(BertlineError, match=rf"evaluation\.boolq: missing, .* its archive: {{url: {ARCHIVE}}}"):
        plan_boolq({})


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_the_registry_can_be_configured_and_has_a_title(task: str) -> None:
    import yaml
    from jsonschema import Draft202012Validator

    finetune: dict[str, Any] = {}
    *family, name = key_of_task(task).split(".")
    (finetune.setdefault(family[0], {}) if family else finetune)[name] = {}
    schema = yaml.safe_load(SCHEMA.read_text())
    Draft202012Validator({**schema["$defs"]["finetune"], "$defs": schema["$defs"]}).validate(finetune)
    assert task_title("/".join([*family, name])) == TASKS[task].title


def test_the_registry_imports_neither_torch_nor_numpy() -> None:
    code = "import sys; import bertline.tasks.registry; print({'torch', 'numpy'} & sys.modules.keys())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=environment) == "set()\n"
