"""Extract the articles of one part of a dump.

example:
  python workflow/scripts/extract_part.py --part part-00000.xml.bz2 \\
    --recipe results/recipes/wikipedia-01234567.json \\
    --processes 4 --output extracted/part-00000
"""

from bertline.command_line import run_command
from bertline.corpus.extract import extract_part

if __name__ == "__main__":
    run_command(extract_part, __doc__)
