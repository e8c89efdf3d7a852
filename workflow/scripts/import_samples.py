"""Check files of samples in NVIDIA's or gpauloski's layout and convert them to a native dataset.

Name the output folder in the configuration: `datasets: {theirs: {path: FOLDER}}`.

example:
  python workflow/scripts/import_samples.py --tokenizer vocab.txt \\
    --training hdf5_seq_128/*_training_*.hdf5 hdf5_seq_512/*_training_*.hdf5 \\
    --held-out hdf5_seq_128/*_test_*.hdf5 hdf5_seq_512/*_test_*.hdf5 \\
    --output datasets/theirs
"""

from bertline.command_line import run_command
from bertline.encoding.imports import import_dataset

if __name__ == "__main__":
    run_command(import_dataset, __doc__)
