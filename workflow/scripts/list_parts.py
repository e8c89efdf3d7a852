"""Ask the mirrors for the parts of a Wikimedia dump.

example:
  python workflow/scripts/list_parts.py --wiki enwiki --dump 20261101 \\
    --contact you@university.edu --mirrors https://dumps.wikimedia.org \\
    --output parts.json
"""

from bertline.command_line import run_command
from bertline.corpus.wikimedia import list_parts

if __name__ == "__main__":
    run_command(list_parts, __doc__)
