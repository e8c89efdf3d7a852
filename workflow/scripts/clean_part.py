"""Convert the extracted articles of one part of a dump to documents, and count those dropped.

example:
  python workflow/scripts/clean_part.py --extracted extracted/part-00000 \\
    --recipe results/recipes/wikipedia-01234567.json \\
    --documents part-00000.jsonl.zst --counts part-00000.counts.json
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.clean import clean_part
from bertline.files import read_json


def clean(recipe: Path, extracted: Path, documents: Path, counts: Path) -> None:
    """Convert a part.

    Args:
        recipe: of the corpus.
        extracted: the folder that extract_part.py made.
        documents: the .jsonl.zst to write.
        counts: the .counts.json to write.
    """
    clean_part(read_json(recipe), extracted, documents, counts)


if __name__ == "__main__":
    run_command(clean, __doc__)
