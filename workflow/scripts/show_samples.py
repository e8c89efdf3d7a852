"""Print samples of a file as text: segments, label, document and corpus, and masks if the file has them."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.inspection import show_samples

EXAMPLE = """examples:
  python workflow/scripts/show_samples.py results/runs/demo/dataset/seq128/00000.h5 --sample 1000 --count 5
  python workflow/scripts/show_samples.py wikicorpus_en_training_0.hdf5 --tokenizer vocab.txt"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("file", type=Path, help="native, NVIDIA's or gpauloski's")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        help="tokenizer.json or vocab.txt (default: the dataset's; ids are shown if there is none)",
    )
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True, help="case of a vocab.txt")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="the first sample to print, counted from 0")
    parser.add_argument("--count", type=int, default=3, metavar="K", help="number of samples (default: %(default)s)")
    given = parser.parse_args()
    lines = show_samples(
        given.file, first=given.sample, count=given.count, vocabulary=given.tokenizer, lowercase=given.lowercase
    )
    for line in lines:
        print(line)


if __name__ == "__main__":
    run_command(main)
