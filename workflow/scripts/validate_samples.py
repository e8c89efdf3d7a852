"""Check all guarantees of files of samples: native, NVIDIA's and gpauloski's. Print a line for each problem."""

import argparse
from pathlib import Path

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.encoding.validation import problems_of, summary_of

EXAMPLE = """examples:
  python workflow/scripts/validate_samples.py results/runs/demo/dataset/seq128/*.h5
  python workflow/scripts/validate_samples.py hdf5/*_training_*.hdf5 --tokenizer vocab.txt"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files of samples, in any layout")
    parser.add_argument("--tokenizer", type=Path, help="the vocab.txt or tokenizer.json to check ids against")
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True, help="case of a vocab.txt")
    given = parser.parse_args()
    count = 0
    for path in given.files:
        problems = list(problems_of(path, given.tokenizer, lowercase=given.lowercase))
        print(*(problems or [summary_of(path)]), sep="\n", flush=True)
        count += len(problems)
    if count:
        raise BertlineError(
            f"problems found: {count}, in {len(given.files)} files; fetch these files or make them again"
        )


if __name__ == "__main__":
    run_command(main)
