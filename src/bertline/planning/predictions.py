"""Resolution of the predictions that a configuration requests: a model, files of inputs, and the file to write."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json
from bertline.fingerprint import fingerprint, stage_versions
from bertline.planning.corpora import digests, expand
from bertline.planning.external_weights import external_weights
from bertline.planning.plan import Plan
from bertline.results import paths

# Folders of the graph, in which no prediction overwrites a result.
RESULTS = ("results", "resources", "logs", "benchmarks")


def add_predictions(plan: Plan) -> None:
    """Add the configuration's predictions to the plan; one whose inputs are absent gets a warning.

    Raises BertlineError for an unknown model, and for an output that is another result.
    """
    for name, given in plan.config["predict"].items():
        key, problems = f"predict.{name}", list[str]()
        output = given["output"] or paths.PREDICTION.format(prediction=name)
        inside = Path(output).parts[0] in RESULTS and Path(output).parent != Path(paths.PREDICTION).parent
        if inside or output in plan.predictions or ".." in Path(output).parts:
            raise BertlineError(
                f"configuration: {key}.output: {output} is a path of another result; choose a file elsewhere, or in "
                f"{Path(paths.PREDICTION).parent}"
            )
        model = _model(plan, f"{key}.model", given["model"], problems)
        files = expand(problems, f"{key}.inputs", given["inputs"])
        options = {part: given[part] for part in ("columns", "n_best", "null_threshold", "precision")}
        content = {**options, "inputs": list(digests(files).values()), "versions": stage_versions("finetuning")}
        plan.predictions[output] = {
            "fingerprint": fingerprint(
                {**content, "model": model.get("content") or model, "output": Path(output).suffix}
            ),
            "model": model,
            "inputs": list(map(str, files)) if files else given["inputs"],
            "absent": bool(problems),
            **options,
        }
        plan.warnings += problems


def _model(plan: Plan, key: str, given: str, problems: list[str]) -> Json:
    """Return the choice, the fine-tuning or the folder that a model's name refers to."""
    folder = Path(given)
    runs = Path(paths.RUN).parent
    if not folder.is_relative_to(runs):
        return external_weights(problems, key, given)
    names = {
        str(runs / run / task): {"kept": kept}
        for run, entry in plan.runs.items()
        for task, kept in entry["kept"].items()
    }
    names |= {
        str(runs / run / one): {"finetuning": finetuning}
        for run, entry in plan.runs.items()
        for one, finetuning in entry["finetunings"].items()
    }
    found = names.get(str(folder.parent if folder.name == "model" else folder))
    if found is None or plan.kept.get(found.get("kept", ""), {}).get("keep") == "none":
        allowed = ", ".join(name for name, model in names.items() if "kept" in model) or "none yet"
        raise BertlineError(
            f"configuration: {key}: given {given}, allowed are {allowed}, one of their seeds, or a folder"
        )
    return found


def model_folder(model: Json) -> str:
    """Return the folder of a prediction's model."""
    if "directory" in model:
        return str(model["directory"])
    if "kept" in model:
        return paths.KEPT_MODEL.format(kept=model["kept"])
    return paths.FINETUNED_MODEL.format(finetuning=model["finetuning"])
