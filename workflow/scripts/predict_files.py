"""Predict for the files of a recipe, as the graph does; predict.py does so for files named on the command line.

example:
  python workflow/scripts/predict_files.py results/recipes/0123456789abcdef.json --output out.jsonl
"""

import os
from pathlib import Path

from bertline.command_line import run_command
from bertline.files import Recipe
from bertline.planning.predictions import model_folder


def predict(recipe: Recipe, *, output: Path, threads: int | None = None) -> str:
    """Predict.

    Args:
        recipe: model, inputs and options.
        output: file for the predictions.
        threads: of the CPU (default: all).
    """
    if threads:
        # The tokenizers package and OpenMP read their number of threads when they start.
        os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)

    from bertline.finetuning.device import claim_device
    from bertline.finetuning.prediction import load_finetuned
    from bertline.finetuning.prediction_files import predict_files

    device, _claim = claim_device()
    model = load_finetuned(Path(model_folder(recipe["model"])), precision=recipe["precision"], device=device)
    done = predict_files(
        model,
        list(map(Path, recipe["inputs"])),
        output,
        columns=recipe["columns"],
        count=recipe["n_best"],
        null_threshold=recipe["null_threshold"],
    )
    return f"{done:,} predictions in {output}"


if __name__ == "__main__":
    run_command(predict, __doc__)
