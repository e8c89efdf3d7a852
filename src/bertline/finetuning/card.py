"""Model cards of fine-tuned models in Hugging Face's format: https://huggingface.co/docs/hub/model-cards"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.results import describe
from bertline.tasks.registry import TASKS, name_of_task, texts_of_task

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from bertline.tasks.task import Head

PIPELINES: dict[Head, str] = {
    "sequence": "text-classification",
    "tokens": "token-classification",
    "answer": "question-answering",
}
# The names of scores in the Hub's list of metrics, where they differ from ours.
METRICS = {
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "f1_macro": "f1",
    "accuracy_mismatched": "accuracy",
}
USE = """```python
from transformers import pipeline

pipeline("{pipeline}", model="path/to/this/folder"{truncation})({example})
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

    task, initial = recipe["task"], describe.weights_in_card(recipe)
    group = name_of_task(task)
    of_set: dict[str, dict[str, float]] = {"development": {}, "test": {}}
    for name, value in metrics["scores"].items():
        of_set["test" if describe.is_of_test_set(name) else "development"][name] = value
    on_official = [name for name in metrics["scores"] if describe.is_official(group, name, metrics)]
    header = ModelCardData(
        library_name="transformers",
        pipeline_tag=PIPELINES[head],
        tags=[describe.network_tag(recipe["model"]), task],
        datasets=[TASKS[task].hub] if on_official else None,
        base_model=(initial or {}).get("hub"),
        metrics=list(dict.fromkeys(METRICS.get(name, name) for name in sorted(of_set["development"]))),
        model_name=describe.task_title(task) if on_official else None,
        eval_results=[result_on_hub(group, name, metrics["scores"][name]) for name in sorted(on_official)] or None,
    )
    counts = metrics["examples"]
    data = [
        f"- {name}: {Path(path).name}, {describe.counted(counts[name], 'example')}"
        + (f", {in_train:,} of them with the texts of a training example" if in_train else "")
        for name, path in recipe["data"].items()
        if name in counts
        for in_train in [counts.get(f"{name}_in_train")]
    ]
    settings = [f"- {name}: {value}" for name, value in sorted(describe.flatten(recipe["settings"]).items())]
    parts = [
        f"---\n{header.to_yaml(line_break=chr(10))}\n---",
        f"# {describe.task_title(task)}",
        *([recipe["description"]] if recipe.get("description") else []),
        describe.describe_finetuning({**recipe, "initial_weights": initial}, {}),
        "## Use",
        _use(recipe, head),
        *_scores("development", of_set["development"], metrics),
        f"{_whose_set(group, metrics)}{describe.CHOSEN_ON_DEV}",
        *(_scores("test", of_set["test"], metrics) if of_set["test"] else ()),
        "## Data",
        "\n".join(data),
        "## Settings",
        "\n".join([*settings, f"- fingerprint: {recipe['fingerprint']}"]),
    ]
    return "\n\n".join(parts) + "\n"


def _use(recipe: Mapping[str, Any], head: Head) -> str:
    if head == "answer":
        return USE_OF_ANSWERS
    is_pair = len(texts_of_task(recipe["task"], recipe.get("table"))) > 1
    return USE.format(
        pipeline=PIPELINES[head],
        truncation=", truncation=True" if head == "sequence" else "",  # the one for tokens truncates unasked
        example='{"text": "...", "text_pair": "..."}' if is_pair else '"..."',
    )


def _scores(kind: str, scores: Mapping[str, float], metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Return the heading and the table of the scores on a set."""
    main = metrics["primary"] if metrics["primary"] in scores else min(scores)
    size = describe.number_of_examples(metrics, main)
    rows = []
    for name, value in sorted(scores.items()):
        own = describe.number_of_examples(metrics, name)
        of_another = "" if own in (None, size) else f" ({describe.counted(own or 0, 'example')})"
        rows.append(f"| {describe.score_title(name)} | {value:.2f}{of_another} |")
    heading = f"## Scores on the {kind} set ({describe.counted(size or 0, 'example')}), in percent"
    return heading, "\n".join(["| score | percent |", "|---|---|", *rows])


def result_on_hub(group: str, score: str, percent: float) -> EvalResult:
    """Return a score on a task's official development set as an entry of a card's `model-index`."""
    from huggingface_hub import EvalResult

    name = group.removeprefix("glue/")
    split = "validation_mismatched" if score.endswith("_mismatched") else "validation"
    return EvalResult(
        task_type=PIPELINES[TASKS[name].head],
        dataset_type=TASKS[name].hub,
        dataset_name=describe.task_title(group),
        dataset_config=name if TASKS[name].family else None,
        dataset_split="validation_matched" if name == "mnli" and split == "validation" else split,
        metric_type=METRICS.get(score, score),
        metric_name=describe.score_title(score),
        metric_value=round(percent, 2),
    )


def _whose_set(group: str, metrics: Mapping[str, Any]) -> str:
    """Return a sentence on whether the scores can be compared with published ones; none for a custom set."""
    if group.removeprefix("glue/") not in TASKS:
        return ""
    official = describe.is_official(group, metrics["primary"], metrics)
    whose = {
        True: "This is the official development set. ",
        False: "This is not the official development set: do not compare with published scores. ",
        None: "Whether this is the official development set is not known: do not compare with published scores. ",
    }
    return whose[official]
