"""Print samples of a file as text: segments, label, document and corpus, and masks if the file has them.

examples:
  python workflow/scripts/show_samples.py results/runs/demo/dataset/seq128/00000.h5 \\
    --sample 1000 --count 5
  python workflow/scripts/show_samples.py wikicorpus_en_training_0.hdf5 --tokenizer vocab.txt
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.encoding.inspection import show_samples


def show(file: Path, *, tokenizer: Path | None = None, lowercase: bool = True, sample: int = 0, count: int = 3) -> None:
    """Print samples.

    Args:
        file: native, NVIDIA's or gpauloski's.
        tokenizer: tokenizer.json or vocab.txt (default: the dataset's; ids are shown if there is none).
        lowercase: case of a vocab.txt.
        sample: the first sample to print, counted from 0.
        count: number of samples.
    """
    for line in show_samples(file, first=sample, count=count, vocabulary=tokenizer, lowercase=lowercase):
        print(line)


if __name__ == "__main__":
    run_command(show, __doc__)
