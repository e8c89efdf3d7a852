"""Real MRPC and SQuAD, and tags in CoNLL-2003's format, fine-tuned on two processes through the graph."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
import yaml

from bertline.results.describe import is_official

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))
from snakemake_runs import copy_workflow, run_snakemake

pytestmark = pytest.mark.slow

TASK = {"precision": "fp32", "learning_rate": 1.0e-3}
NAMES = {
    "PER": ["Peter Blackburn", "Maria Silva", "Blackburn", "Anna"],
    "LOC": ["Brussels", "New York", "Riga"],
    "ORG": ["European Commission", "Reuters", "United Nations"],
}
SENTENCES = [
    "PER said in LOC .",
    "ORG rejects the call of PER .",
    "PER of ORG went to LOC on Thursday .",
    "It was late .",
]


def write_conll(path: Path, sentences: int, seed: int) -> int:
    """Write word, part of speech, chunk and tag with spaces between, as CoNLL-2003's files are; return the words."""
    drawn, lines, words = np.random.default_rng(seed), ["-DOCSTART- -X- -X- O\n\n"], 0
    for _ in range(sentences):
        for part in drawn.choice(SENTENCES).split():
            for place, word in enumerate(drawn.choice(NAMES[part]).split() if part in NAMES else [part]):
                tag = f"{'I' if place else 'B'}-{part}" if part in NAMES else "O"
                lines.append(f"{word} NN B-NP {tag}\n")
                words += 1
        lines.append("\n")
    path.write_text("".join(lines))
    return words


@pytest.fixture(scope="module")
def finished(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the graph ran."""
    folder = copy_workflow(tmp_path_factory.mktemp("two"))
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    weights = folder / "models/tiny"
    transformers.BertModel(transformers.BertConfig(vocab_size=30522, **shape)).save_pretrained(weights)
    shutil.copy(test_data / "vocab/bert-base-uncased-vocab.txt", weights / "vocab.txt")
    for name, sentences, seed in (("train", 400, 1), ("dev", 100, 2)):
        write_conll(folder / f"{name}.conll", sentences, seed)
    squad = str(test_data / "squad/train-v1.1-slice.json")
    config = {
        "evaluation": {
            "glue": str(test_data / "glue"),
            "squad_v1": {"train": squad, "dev": squad},
            "tables": {
                "names": {"kind": "tagging", "train": "train.conll", "dev": "dev.conll", "word": 0, "tag": -1},
            },
        },
        "runs": {
            "two": {
                "pretrained": "models/tiny",
                "finetune": {
                    "glue": {"mrpc": {**TASK, "epochs": 0.2, "max_sequence_length": 128}},
                    "squad_v1": {**TASK, "epochs": 0.1, "max_sequence_length": 320},
                    "tables": {"names": {**TASK, "epochs": 5, "max_sequence_length": 64}},
                },
            }
        },
    }
    (folder / "two.yaml").write_text(yaml.safe_dump(config))
    profile = yaml.safe_load((folder / "profiles/local/config.yaml").read_text())
    profile |= {"set-resources": {"finetune_task": {"processes_per_node": 2}}, "set-threads": {"finetune_task": 2}}
    (folder / "profiles/local/config.yaml").write_text(yaml.safe_dump(profile))
    run_snakemake(folder, "finetune", "--profile", "profiles/local", "--configfile", "two.yaml", live=True)
    return folder


def read(finished: Path, task: str, name: str) -> Any:
    return json.loads((finished / "results/runs/two" / task / "seed1" / name).read_text())


@pytest.mark.parametrize("task", ["glue/mrpc", "squad_v1", "table/names"])
def test_two_processes_trained_each_task(finished: Path, task: str) -> None:
    assert read(finished, task, "recipe.json")["world_size"] == 2
    metrics = read(finished, task, "metrics.json")
    assert 0 < metrics["scores"][metrics["primary"]] <= 100


def test_all_of_the_official_set_of_mrpc_is_scored(finished: Path) -> None:
    metrics = read(finished, "glue/mrpc", "metrics.json")
    assert metrics["examples"]["dev"] == 408
    assert is_official("glue/mrpc", metrics["primary"], metrics)


def test_there_is_an_answer_to_every_question(finished: Path, test_data: Path) -> None:
    slice_ = json.loads((test_data / "squad/train-v1.1-slice.json").read_text())
    asked = {qa["id"] for article in slice_["data"] for paragraph in article["paragraphs"] for qa in paragraph["qas"]}
    assert read(finished, "squad_v1", "predictions.json").keys() == asked


def test_names_that_were_trained_on_are_tagged(finished: Path, tmp_path: Path) -> None:
    assert read(finished, "table/names", "metrics.json")["scores"]["f1"] > 80
    predicted = (finished / "results/runs/two/table/names/seed1/predictions.conll").read_text().split("\n")
    assert sum(bool(line) for line in predicted) == write_conll(tmp_path / "dev.conll", 100, 2)
