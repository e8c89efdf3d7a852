"""Predict, rank or extract features for the files of a recipe, as the graph does.

With files named on the command line, predict.py, rank.py and extract_features.py do the same.

example:
  python workflow/scripts/predict_files.py \\
    results/recipes/0123456789abcdef.json --output out.jsonl
"""

from pathlib import Path

from bertline.command_line import Threads, limit_threads, run_command
from bertline.files import Recipe
from bertline.planning.predictions import model_folder


def predict(recipe: Recipe, *, output: Path, threads: Threads = None) -> str:
    """Predict, rank or extract features.

    Args:
        recipe: model, inputs and options.
        output: the file to write.
        threads: of the CPU (default: all).
    """
    limit_threads(threads)

    from bertline.finetuning.features import extract_features
    from bertline.finetuning.prediction import load_finetuned
    from bertline.finetuning.prediction_files import predict_files
    from bertline.finetuning.ranking.reranking import rank_files
    from bertline.training.distributed.claims import claim_device
    from bertline.training.given_files import check_data

    check_data(recipe)
    device, _claim = claim_device()
    folder, inputs = Path(model_folder(recipe["model"])), list(map(Path, recipe["inputs"]))
    given = recipe["options"]
    if recipe["kind"] == "features":
        return f"{extract_features(folder, inputs, output, **given, device=device):,} inputs in {output}"
    model = load_finetuned(folder, precision=given["precision"], device=device)
    if "ranked" in recipe:
        files = {name: Path(path) for name, path in recipe["ranked"].items()}
        return f"{rank_files(model, **files, output=output):,} candidates ranked in {output}"
    options = {"columns": given["columns"], "null_threshold": given["null_threshold"], "count": given["n_best"]}
    return f"{predict_files(model, inputs, output, **options):,} predictions in {output}"


if __name__ == "__main__":
    run_command(predict, __doc__)
