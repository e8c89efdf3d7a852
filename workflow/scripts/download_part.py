"""Download one part of a dump: resume an interrupted download, and verify size and checksum.

example:
  python workflow/scripts/download_part.py --listing parts.json \\
    --part part-00000 --mirrors https://dumps.wikimedia.org \\
    --contact you@university.edu --output part-00000.xml.bz2
"""

from bertline.command_line import run_command
from bertline.corpus.wikimedia import download_part

if __name__ == "__main__":
    run_command(download_part, __doc__)
