"""Convert a part of a corpus to documents, and count those dropped: texts, archives, tables, WET files, datasets.

example:
  python workflow/scripts/read_part.py --part part-00000 \\
    --recipe results/recipes/books-01234567.json \\
    --documents part-00000.jsonl.zst --counts part-00000.counts.json
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus import sources
from bertline.files import read_json


def read_part(recipe: Path, part: str, documents: Path, counts: Path) -> None:
    """Convert a part.

    Args:
        recipe: of the corpus: its settings, and the files of its parts.
        part: its name in the recipe.
        documents: the .jsonl.zst to write.
        counts: the .counts.json to write.
    """
    sources.read_part(read_json(recipe), part, documents, counts)


if __name__ == "__main__":
    run_command(read_part, __doc__)
