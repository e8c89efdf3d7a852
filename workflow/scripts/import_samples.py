"""Check files of samples in NVIDIA's or gpauloski's layout and convert them to a native dataset.

Name the output folder in the configuration: `datasets: {theirs: {path: FOLDER}}`.

example:
  python workflow/scripts/import_samples.py --tokenizer vocab.txt \\
    --training hdf5_seq_128/*_training_*.hdf5 hdf5_seq_512/*_training_*.hdf5 \\
    --held-out hdf5_seq_128/*_test_*.hdf5 hdf5_seq_512/*_test_*.hdf5 \\
    --output datasets/theirs
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.encoding.imports import import_dataset


def import_samples(
    training: list[Path],
    tokenizer: Path,
    output: Path,
    *,
    held_out: tuple[Path, ...] = (),
    lowercase: bool = True,
    name: str = "imported",
) -> None:
    """Convert files.

    Args:
        training: files to train on, of all lengths.
        tokenizer: the vocab.txt or tokenizer.json of the files.
        output: the dataset's folder.
        held_out: files to evaluate on.
        lowercase: case of a vocab.txt.
        name: of the corpus in reports.
    """
    card = import_dataset(sorted(training), sorted(held_out), tokenizer, output, lowercase=lowercase, name=name)
    for length, section in card["sequence_lengths"].items():
        samples = sum(entry["samples"] for entry in section["held_out"])
        print(f"length {length}: {section['samples']:,} samples to train on, {samples:,} held out")
    for reason, count in card["imported"]["dropped_samples"].items():
        if count:
            print(f"left out: {count:,} samples that each {reason.replace('has', 'have', 1)}")


if __name__ == "__main__":
    run_command(import_samples, __doc__)
