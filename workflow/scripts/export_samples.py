"""Convert native files of samples to NVIDIA's layout, masked, or to gpauloski's, for programs that read these.

examples:
  python workflow/scripts/export_samples.py --layout nvidia \\
    --samples results/runs/demo/dataset/seq128/00000.h5 \\
    --dataset results/runs/demo/dataset/dataset.json \\
    --outputs bertline_training_00000.hdf5
  snakemake --profile profiles/local nvidia    # all files of all datasets
"""

from bertline.command_line import run_command
from bertline.training.data.exporting import export_samples

if __name__ == "__main__":
    run_command(export_samples, __doc__)
