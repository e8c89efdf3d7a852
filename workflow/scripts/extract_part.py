"""Extract the articles of one part of a dump.

example:
  python workflow/scripts/extract_part.py --part part-00000.xml.bz2 \\
    --recipe results/recipes/wikipedia-01234567.json \\
    --processes 4 --output extracted/part-00000
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.extract import extract_part
from bertline.files import read_json


def extract(recipe: Path, part: Path, output: Path, *, slice: tuple[int, int] = (0, 1), processes: int = 1) -> None:
    """Extract a part.

    Args:
        recipe: of the corpus.
        part: a .xml.bz2 of pages-articles.
        output: the folder to make.
        slice: read only one slice, counted from 0, of this many.
        processes: number for wikiextractor.
    """
    number, of = slice
    extract_part(read_json(recipe), part, output, processes=processes, number=number, of=of)


if __name__ == "__main__":
    run_command(extract, __doc__)
