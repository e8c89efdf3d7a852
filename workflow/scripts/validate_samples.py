"""Check all guarantees of files of samples: native, NVIDIA's and gpauloski's. Print a line for each problem.

examples:
  python workflow/scripts/validate_samples.py results/runs/demo/dataset/seq128/*.h5
  python workflow/scripts/validate_samples.py hdf5/*_training_*.hdf5 --tokenizer vocab.txt
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.encoding.inspection import problems_of, summary_of


def validate(files: list[Path], *, tokenizer: Path | None = None, lowercase: bool = True) -> None:
    """Check files.

    Args:
        files: files of samples, in any layout.
        tokenizer: the vocab.txt or tokenizer.json to check ids against.
        lowercase: case of a vocab.txt.
    """
    count = 0
    for path in files:
        problems = list(problems_of(path, tokenizer, lowercase=lowercase))
        print(*(problems or [summary_of(path)]), sep="\n", flush=True)
        count += len(problems)
    if count:
        raise BertlineError(f"problems found: {count}, in {len(files)} files; fetch these files or make them again")


if __name__ == "__main__":
    run_command(validate, __doc__)
