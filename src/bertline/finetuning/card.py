"""Model cards of fine-tuned models in Hugging Face's format: https://huggingface.co/docs/hub/model-cards"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.modeling.heads import Head
from bertline.results import describe

PIPELINES: dict[Head, str] = {
    "sequence": "text-classification",
    "tokens": "token-classification",
    "answer": "question-answering",
}
USE = """```python
from transformers import pipeline

pipeline("{pipeline}", model="path/to/this/folder")
```"""
# The pipeline for it was removed from transformers 5.
USE_OF_ANSWERS = """```python
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

model = AutoModelForQuestionAnswering.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```"""


def model_card(recipe: Mapping[str, Any], metrics: Mapping[str, Any], head: Head) -> str:
    """Return the README.md of a fine-tuned model: its scores, data and settings.

    Args:
        recipe: the fine-tuning's recipe.
        metrics: the content of its metrics.json.
        head: the kind of its network.
    """
    from huggingface_hub import ModelCardData

    task, initial = recipe["task"], dict(recipe["initial_weights"] or {})
    if "directory" in initial:
        initial["directory"] = Path(initial["directory"]).name  # where it is on this machine concerns nobody
    header = ModelCardData(library_name="transformers", pipeline_tag=PIPELINES[head], tags=["bert", task])
    scores = [f"| {describe.score_title(name)} | {value:.2f} |" for name, value in sorted(metrics["scores"].items())]
    data = [
        f"- {name}: {Path(path).name}, {describe.counted(metrics['examples'][name], 'example')}"
        for name, path in recipe["data"].items()
        if name in metrics["examples"]
    ]
    size = describe.number_of_dev_examples(metrics)
    settings = [f"- {name}: {value}" for name, value in sorted(describe.flatten(recipe["settings"]).items())]
    parts = [
        f"---\n{header.to_yaml(line_break=chr(10))}\n---",
        f"# {describe.task_title(task)}",
        describe.describe_finetuning({**recipe, "initial_weights": initial}, {}),
        "## Use",
        USE_OF_ANSWERS if head == "answer" else USE.format(pipeline=PIPELINES[head]),
        f"## Scores on the development set ({describe.counted(size or 0, 'example')}), in percent",
        "\n".join(["| score | percent |", "|---|---|", *scores]),
        "Seed and settings were chosen on this same set: expect lower scores on new data.",
        "## Data",
        "\n".join(data),
        "## Settings",
        "\n".join([*settings, f"- fingerprint: {recipe['fingerprint']}"]),
    ]
    return "\n\n".join(parts) + "\n"
