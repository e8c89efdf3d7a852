"""Print statistics of files of samples, a row for each folder: padding, random second segments, masks.

examples:
  python workflow/scripts/compare_samples.py \\
    results/runs/demo/dataset/seq128/*.h5 \\
    results/runs/demo/dataset/nvidia/*/*_training_*.hdf5
  python workflow/scripts/compare_samples.py hdf5/*_training_*.hdf5
"""

from bertline.command_line import run_command
from bertline.encoding.statistics import compare_samples

if __name__ == "__main__":
    run_command(compare_samples, __doc__)
