"""Model cards in Hugging Face's format, for use as README.md of an export.

The Hub reads the part between the dashed lines: https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import yaml
from huggingface_hub import ModelCard, ModelCardData

from bertline.console import BertlineError
from bertline.finetuning.card import result_on_hub
from bertline.reporting.data import corpus_rows
from bertline.reporting.scores import ScoreRow, not_official, score_rows, seen_in_training, unfinished_tasks
from bertline.results import describe
from bertline.results.curves import cost_of, phase_facts
from bertline.results.records import Phase, Record


def card_of_run(run: Record, model: str = "path/to/the/export") -> str:
    """Return the model card of a run's last finished phase, with the scores of the tasks whose seeds are all finished.

    `model` is where its example loads the model from. Raises ValueError if there is no finished phase.
    """
    finished = [phase for phase in run.phases if phase.finished]
    if not finished:
        raise ValueError(f"{run.name} has no finished phase")
    unfinished = unfinished_tasks(run)
    rows = [row for row in score_rows(run) if row.group not in unfinished]
    body = template("model-card.md.j2", keep_trailing_newline=True).render(
        run=run,
        model=model,
        network=describe.describe_network(finished[-1].recipe["model"]),
        data=describe.describe_dataset(run.dataset.card) if run.dataset.card else "",
        corpora=corpus_rows(run.dataset.card),
        phases=[(phase_facts(phase), _describe_phase(phase, run)) for phase in finished],
        cost=cost_of(finished),
        rows=[row for row in rows if row.pretrained],
        chosen_on_dev=describe.CHOSEN_ON_DEV,
        notes=[*seen_in_training(rows), *not_official(rows)],
    )
    return f"---\n{_metadata(run, rows).to_yaml(line_break=chr(10))}\n---\n\n{body}"


def _describe_phase(phase: Phase, run: Record) -> str:
    recipe = {**phase.recipe, "initial_weights": describe.weights_in_card(phase.recipe)}
    return describe.describe_phase(recipe, run.phase_names)


def template(name: str, **settings: Any) -> jinja2.Template:
    """Return a template of this package; `settings` are those of Jinja's environment."""
    loader = jinja2.PackageLoader("bertline.reporting")
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **settings)  # noqa: S701
    environment.filters |= describe.FILTERS
    return environment.get_template(name)


def metadata_of_run(run: Record) -> dict[str, Any]:
    """Return the content of the cards of all models of a run: `license` and `language`, as far as they are known."""
    settings = [corpus.get("settings", {}) for corpus in run.dataset.card.get("corpora", [])]
    # Other sources have other codes: Common Crawl has lav where a Wikipedia has lv.
    codes = (one.get("language", "") for one in settings if one.get("source") == "wikimedia")
    # A Wikipedia's code is not always that of a language: simple, zh_yue.
    languages = [code for code in dict.fromkeys(codes) if re.fullmatch("[a-z]{2,3}", code)]
    known = {"license": run.model_card.get("license"), "language": run.model_card.get("language") or languages}
    return {key: value for key, value in known.items() if value}


def card_of_finetuned(path: Path, run: Record, model: str) -> bytes:
    """Return a fine-tuned model's card with the metadata of its run, whose example loads the model from `model`.

    Raises BertlineError for a malformed header.
    """
    try:
        card = ModelCard.load(path)
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise BertlineError(f"{path}: its header is not that of a model card ({reason}); correct it") from None
    for key, value in metadata_of_run(run).items():
        card.data[key] = value
    return str(card).replace('"path/to/this/folder"', f'"{model}"').encode()


def _metadata(run: Record, rows: list[ScoreRow]) -> ModelCardData:
    """Return the card's metadata. Scores are included only for official development sets."""
    official = [
        result_on_hub(row.group, row.score, row.pretrained.median) for row in rows if row.official and row.pretrained
    ]
    corpora = (corpus.get("settings", {}).get("dataset") for corpus in run.dataset.card.get("corpora", []))
    bases = [(phase.recipe.get("initial_weights") or {}).get("hub") for phase in run.phases]
    return ModelCardData(
        **metadata_of_run(run),
        library_name="transformers",
        pipeline_tag="fill-mask",
        tags=[describe.network_tag(run.network)],
        datasets=[name for name in dict.fromkeys(corpora) if name] or None,
        base_model=next((name for name in bases if name), None),
        metrics=list(dict.fromkeys(result.metric_type for result in official)) or None,
        model_name=run.name if official else None,  # written as a part of the results, not as a key of its own
        eval_results=official or None,
    )
