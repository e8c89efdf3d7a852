"""Assign every document to one shard or to the held-out set, using the parts' indexes.

example:
  python workflow/scripts/plan_shards.py \\
    --recipe results/recipes/0123456789abcdef.json --output plan.json
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.removal import removal_inputs
from bertline.corpus.shards import write_plan
from bertline.corpus.sources import files_of_dataset
from bertline.files import read_json
from bertline.results import paths


def plan_shards(recipe: Path, output: Path) -> None:
    """Write the plan of a dataset.

    Args:
        recipe: of the dataset.
        output: the plan to write.
    """
    dataset = read_json(recipe)
    removed = paths.REMOVED.format(dataset=dataset["fingerprint"]) if removal_inputs(dataset) else None
    corpora = list(files_of_dataset(dataset, paths.SENTENCES).items())
    write_plan(corpora, dataset["settings"]["shards"], dataset["settings"]["held_out"], output, removed)


if __name__ == "__main__":
    run_command(plan_shards, __doc__)
