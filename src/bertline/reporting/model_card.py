"""Model cards in Hugging Face's format, for use as README.md of an export.

The Hub reads the part between the dashed lines: https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData

from bertline.files import write_text
from bertline.reporting.data import corpus_rows
from bertline.reporting.scores import CHOSEN_ON_DEV, ScoreRow, score_rows
from bertline.results import describe
from bertline.results.curves import cost_of, phase_facts
from bertline.results.records import Record


def write_model_card(run: Record, path: Path) -> None:
    """Write the model card of a run's last finished phase, if there is one."""
    finished = [phase for phase in run.phases if phase.finished]
    if not finished:
        return
    rows = score_rows(run)
    body = template("model-card.md.j2", keep_trailing_newline=True).render(
        run=run,
        network=describe.describe_network(finished[-1].recipe["model"]),
        data=describe.describe_dataset(run.dataset.card) if run.dataset.card else "",
        corpora=corpus_rows(run.dataset.card),
        phases=[(phase_facts(phase), describe.describe_phase(phase.recipe, run.phase_names)) for phase in finished],
        cost=cost_of(finished),
        rows=[row for row in rows if row.pretrained],
        chosen_on_dev=CHOSEN_ON_DEV,
    )
    write_text(path, f"---\n{_metadata(run, rows).to_yaml(line_break=chr(10))}\n---\n\n{body}")


def template(name: str, **settings: Any) -> jinja2.Template:
    """Return a template of this package; `settings` are those of Jinja's environment."""
    loader = jinja2.PackageLoader("bertline.reporting")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **settings)  # noqa: S701
    environment.filters |= describe.FILTERS
    return environment.get_template(name)


def _metadata(run: Record, rows: list[ScoreRow]) -> ModelCardData:
    """Return the card's metadata.

    Scores are included only for official development sets, under whose names the Hub lists them.
    """
    official: Any = [
        EvalResult(
            task_type="question-answering" if row.group.startswith("squad") else "text-classification",
            dataset_type=row.group.split("/")[0],
            dataset_name=describe.task_title(row.group),
            dataset_split="validation",
            metric_type=row.score,
            metric_value=round(row.pretrained.median, 2),
        )
        for row in rows
        if row.published and row.pretrained
    ]
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="fill-mask",
        tags=["bert"],
        model_name=run.name if official else None,  # written as a part of the results, not as a key of its own
        eval_results=official or None,
    )
