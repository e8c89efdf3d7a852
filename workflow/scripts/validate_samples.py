"""Check all guarantees of files of samples: native, NVIDIA's and gpauloski's. Print a line for each problem.

examples:
  python workflow/scripts/validate_samples.py \\
    results/runs/demo/dataset/seq128/*.h5
  python workflow/scripts/validate_samples.py hdf5/*_training_*.hdf5 \\
    --tokenizer vocab.txt
  python workflow/scripts/validate_samples.py \\
    results/runs/demo/dataset/seq*/*.h5 --processes 16
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from cyclopts.types import PositiveInt

from bertline.command_line import Files, run_command
from bertline.console import BertlineError, progress
from bertline.encoding.inspection import problems_of, summary_of


def validate(files: Files, *, tokenizer: Path | None = None, processes: PositiveInt = 1) -> None:
    """Check files.

    Args:
        files: files of samples, in any layout.
        tokenizer: the vocab.txt or tokenizer.json to check ids against.
        processes: files checked at once; each needs a core.
    """
    count = 0
    check = partial(_check, tokenizer=tokenizer)
    with ProcessPoolExecutor(processes) as pool:
        for problems, summary in progress(
            pool.map(check, files), description="validating", unit="file", total=len(files), shown=len(files) > 1
        ):
            print(*(problems or [summary]), sep="\n", flush=True)
            count += len(problems)
    if count:
        raise BertlineError(f"problems found: {count}, in {len(files)} files; fetch these files or make them again")


def _check(path: Path, *, tokenizer: Path | None) -> tuple[list[str], str]:
    """Return the problems of a file, and, without any, its summary."""
    problems = list(problems_of(path, tokenizer))
    return problems, "" if problems else summary_of(path)


if __name__ == "__main__":
    run_command(validate, __doc__)
