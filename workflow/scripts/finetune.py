"""Fine-tune one task with one seed and score it on the dev set."""

import argparse
import logging
import os
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.files import read_json

EXAMPLE = """example:
  python workflow/scripts/finetune.py --recipe results/recipes/0123456789abcdef.json --threads 2 \\
      --tokenizer dataset/tokenizer.json --initial-weights results/phases/0123456789abcdef/huggingface \\
      --output results/finetunings/0123456789abcdef
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument(
        "--recipe", required=True, type=Path, metavar="JSON", help="the file with everything that determines the result"
    )
    parser.add_argument("--tokenizer", required=True, type=Path, help="tokenizer.json of the pretraining dataset")
    parser.add_argument(
        "--initial-weights",
        type=Path,
        nargs="?",
        metavar="DIRECTORY",
        help="pretrained weights in Hugging Face's layout; omit for random weights",
    )
    parser.add_argument("--output", required=True, type=Path, help="folder for scores, predictions, journal and recipe")
    parser.add_argument(
        "--checkpoint-minutes", type=float, default=10.0, metavar="M", help="between two checkpoints, default: 10"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads, default: all")
    arguments = parser.parse_args()
    if arguments.threads:
        # The tokenizers package and OpenMP read their number of threads when they start.
        os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    recipe = read_json(arguments.recipe)
    logging.info("recipe: %s", arguments.recipe.resolve())

    from bertline.finetuning.train import finetune

    finetune(
        recipe,
        arguments.tokenizer,
        arguments.output,
        initial_weights=arguments.initial_weights,
        threads=arguments.threads,
        checkpoint_minutes=arguments.checkpoint_minutes,
    )


if __name__ == "__main__":
    run_command(main)
