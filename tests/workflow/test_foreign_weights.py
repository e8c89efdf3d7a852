"""The graph of a run that fine-tunes weights from elsewhere, to MLflow and the report; a bad task beside good ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml
from snakemake_runs import TASK, run_snakemake

from bertline.sample.generate import generate

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "theirs.yaml", "--retries", "0")
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz.,?",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
CONFIG: dict[str, Any] = {
    "evaluation": {"glue": "resources/sample/glue"},
    "runs": {"theirs": {"pretrained": "models/theirs", "finetune": {"glue": {"cola": TASK, "rte": TASK}}}},
}


def test_a_run_from_weights_from_elsewhere_and_one_bad_task_beside_it(workflow_folder: Path) -> None:
    folder = workflow_folder
    generate(folder / "resources/sample", 1)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder / "models/theirs")
    (folder / "models/theirs/vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (folder / "theirs.yaml").write_text(yaml.safe_dump(CONFIG))
    dev = folder / "resources/sample/glue/RTE/dev.tsv"
    good = dev.read_text()
    dev.write_text(good.replace("\tentailment", "\tperhaps", 1))

    finished = run_snakemake(folder, *OPTIONS, check=False)
    assert finished.returncode != 0
    errors = {line.strip() for line in finished.stdout.splitlines() if line.strip().startswith("error: ")}
    assert len(errors) == 1, errors
    assert "RTE/dev.tsv: line 3: column 'label': given 'perhaps', allowed are entailment" in errors.pop()
    assert "Traceback (most recent call last)" not in finished.stdout
    scores = list((folder / "results/finetunings").glob("*/metrics.json"))
    assert [json.loads(path.read_text())["task"] for path in scores] == ["cola"]

    dev.write_text(good)
    run_snakemake(folder, *OPTIONS)
    page = (folder / "results/report/latest/index.html").read_text()
    assert "CoLA" in page
    assert "Starts from the weights in models/theirs." in page
    assert list((folder / "results/runs/theirs").glob("tracked-complete-*.json"))
