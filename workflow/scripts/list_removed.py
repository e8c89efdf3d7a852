"""List the documents to leave out of a dataset: duplicates of earlier ones, and overlaps with evaluation sets.

example:
  python workflow/scripts/list_removed.py \\
    --recipe results/recipes/0123456789abcdef.json --output removed.jsonl.zst
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.removal import removal_inputs, write_removals
from bertline.corpus.sources import files_of_dataset
from bertline.files import read_json


def list_removed(recipe: Path, output: Path) -> None:
    """Write the removal list of a dataset.

    Args:
        recipe: of the dataset.
        output: the .jsonl.zst to write.
    """
    dataset = read_json(recipe)
    inputs = {kind: list(files_of_dataset(dataset, file).items()) for kind, file in removal_inputs(dataset).items()}
    is_near = dataset["settings"]["duplicates"] == "near"
    write_removals(inputs.get("signatures", []), inputs.get("overlaps", []), output, near=is_near)


if __name__ == "__main__":
    run_command(list_removed, __doc__)
