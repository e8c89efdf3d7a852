"""Check files of samples in NVIDIA's or gpauloski's layout and convert them to a native dataset.

Name the output folder in the configuration: `datasets: {theirs: {path: FOLDER}}`."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.imports import import_dataset

EXAMPLE = """example:
  python workflow/scripts/import_samples.py hdf5_seq_128/*_training_*.hdf5 hdf5_seq_512/*_training_*.hdf5 \\
    --held-out hdf5_seq_128/*_test_*.hdf5 hdf5_seq_512/*_test_*.hdf5 --tokenizer vocab.txt --output datasets/theirs"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="HDF5", help="files to train on, of all lengths")
    parser.add_argument("--held-out", nargs="*", type=Path, default=[], metavar="HDF5", help="files to evaluate on")
    parser.add_argument("--tokenizer", type=Path, required=True, help="the vocab.txt or tokenizer.json of the files")
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True, help="case of a vocab.txt")
    parser.add_argument("--name", default="imported", help="of the corpus in reports (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="the dataset's folder")
    given = parser.parse_args()
    card = import_dataset(
        sorted(given.files),
        sorted(given.held_out),
        given.tokenizer,
        given.output,
        lowercase=given.lowercase,
        name=given.name,
    )
    for length, section in card["sequence_lengths"].items():
        held_out = sum(entry["samples"] for entry in section["held_out"])
        print(f"length {length}: {section['samples']:,} samples to train on, {held_out:,} held out")
    for reason, count in card["imported"]["dropped_samples"].items():
        if count:
            print(f"left out: {count:,} samples that each {reason.replace('has', 'have', 1)}")


if __name__ == "__main__":
    run_command(main)
