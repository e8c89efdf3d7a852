"""Choice of the fine-tuned models that are kept: of a task's seeds and settings, the one with the best dev score."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json, Recipe, one_line_damage, read_object, write_json, write_link
from bertline.results import paths

logger = logging.getLogger(__name__)


def keep_models(recipe: Recipe) -> None:
    """Choose the best of finished fine-tunings, link its model, and delete the models that nothing keeps.

    Args:
        recipe: of the choice: its fingerprint, the `finetunings` in order, `keep`, and `shared`, the other choices of
            the plan in which each fine-tuning takes part.

    Writes choice.json last. Raises BertlineError if the best model is absent.
    """
    finetunings = recipe["finetunings"]
    unfinished = [key for key in finetunings if not is_finished(key)]
    if unfinished:
        raise BertlineError(
            f"{paths.FINETUNING.format(finetuning=unfinished[0])} is not finished; ask snakemake for `finetune`"
        )
    scores = {key: dev_score(key) for key in finetunings}
    best = max(finetunings, key=scores.__getitem__)
    kept = {"best": [best], "all": finetunings, "none": []}[recipe["keep"]]
    for key in kept:
        if not model_of(key).exists():
            raise BertlineError(
                f"{model_of(key)} does not exist: it was deleted when another fine-tuning was better; run `snakemake "
                "finetune`, which trains it again"
            )
    if kept:
        write_link(Path(paths.KEPT_MODEL.format(kept=recipe["fingerprint"])), model_of(best))
    write_json(paths.KEPT_CHOICE.format(kept=recipe["fingerprint"]), {"best": best, "kept": kept, "scores": scores})
    for key in finetunings:
        # In this order, as another choice may be made between the two: it is then still undecided, or already read.
        undecided = [other for other in recipe["shared"].get(key, ()) if read_choice(other) is None]
        if not undecided and key not in kept_by_any() and model_of(key).exists():
            logger.info("%s, %.2f on dev, is not kept", model_of(key), scores[key])
            shutil.rmtree(model_of(key), ignore_errors=True)  # another choice may be deleting it, too
    logger.info("the best is %s, %.2f on dev", best, scores[best])


def link_best_model(kept: str) -> None:
    """Link the best model of a choice, given by its fingerprint, if the choice is made and keeps it, and it exists."""
    choice = read_choice(kept)
    if choice is not None and choice["best"] in choice["kept"] and model_of(choice["best"]).exists():
        write_link(Path(paths.KEPT_MODEL.format(kept=kept)), model_of(choice["best"]))


def missing_models(recipe: Mapping[str, Any]) -> list[Path]:
    """Return the models of finished fine-tunings that a choice needs, or will need, and that were deleted."""
    choice = read_choice(recipe["fingerprint"])
    if choice is not None:
        needed = choice["kept"]
    else:
        # Among the finished ones, a later choice can only fall on the best.
        finished = [key for key in recipe["finetunings"] if is_finished(key)]
        best = max(finished, key=dev_score, default=None)
        needed = {"best": [best] if best else [], "all": finished, "none": []}[recipe["keep"]]
    return [model_of(key) for key in needed if not model_of(key).exists()]


def is_finished(finetuning: str) -> bool:
    """Return whether a fine-tuning, given by its fingerprint, is finished."""
    return paths.is_finished(paths.FINETUNING.format(finetuning=finetuning), paths.FINETUNING_OUTPUTS)


def dev_score(finetuning: str) -> float:
    """Return the main score of a finished fine-tuning on the dev set, in percent."""
    return score_in(Path(paths.FINETUNING_SCORES.format(finetuning=finetuning)))


def score_in(scores: Path) -> float:
    """Return the main score on the dev set, in percent, of a metrics.json."""
    result = read_object(scores, "scores", "primary")
    with one_line_damage(scores):
        return float(result["scores"][result["primary"]])


def model_of(finetuning: str) -> Path:
    """Return the folder of a fine-tuning's model, in Hugging Face's layout."""
    return Path(paths.FINETUNED_MODEL.format(finetuning=finetuning))


def read_choice(kept: str) -> Json | None:
    """Return a choice: `best`, all `kept` fine-tunings, and the `scores` of all; None before it is made."""
    path = Path(paths.KEPT_CHOICE.format(kept=kept))
    return _choice_in(path) if path.exists() else None


def kept_by_any() -> set[str]:
    """Return the fine-tunings that any choice keeps, of any configuration."""
    return {key for path in _choices() for key in _choice_in(path)["kept"]}


def decided_by_any() -> set[str]:
    """Return the fine-tunings that took part in any choice that is made, of any configuration."""
    return {key for path in _choices() for key in _choice_in(path)["scores"]}


def _choices() -> Iterator[Path]:
    return Path(paths.KEPT).parent.glob(f"*/{Path(paths.KEPT_CHOICE).name}")


def _choice_in(path: Path) -> Json:
    choice = read_object(path, "best", "kept", "scores")
    with one_line_damage(path):
        scores = {key: float(score) for key, score in choice["scores"].items()}
        # Models that no choice keeps are deleted.
        if not isinstance(choice["kept"], list) or not {choice["best"], *choice["kept"]} <= scores.keys():
            raise ValueError("best and kept are not all among the scores")
        return {**choice, "scores": scores}
