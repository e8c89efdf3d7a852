"""Convert native files of samples to NVIDIA's layout, masked, or to gpauloski's, for programs that read these."""

import argparse
from pathlib import Path

from bertline.console import BertlineError, HelpFormatter, run_command

EXAMPLE = """examples:
  python workflow/scripts/export_samples.py results/runs/demo/dataset/seq128/00000.h5 --layout nvidia \\
    --dataset results/runs/demo/dataset/dataset.json --outputs bertline_training_00000.hdf5
  snakemake --profile profiles/local nvidia         all files of all datasets, in results/datasets/*/nvidia/"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("samples", nargs="+", type=Path, metavar="H5", help="files of the dataset")
    parser.add_argument("--dataset", type=Path, required=True, metavar="JSON", help="its dataset.json")
    parser.add_argument("--layout", choices=["nvidia", "gpauloski"], required=True)
    parser.add_argument("--outputs", nargs="+", type=Path, required=True, metavar="HDF5", help="one for each file")
    parser.add_argument("--seed", type=int, help="of masks and order (default: that of the dataset)")
    parser.add_argument("--dupe-factor", type=int, metavar="COPIES", help="of every sample; nvidia only (default: 5)")
    parser.add_argument(
        "--max-predictions", type=int, metavar="TOKENS", help="nvidia only (default: 20 of 128, 80 of 512)"
    )
    given = parser.parse_args()
    if len(given.outputs) != len(given.samples):
        raise BertlineError("--outputs: give one file for each of the samples' files, in the same order")
    masked = {"dupe_factor": given.dupe_factor, "max_predictions": given.max_predictions}
    masked = {name: value for name, value in masked.items() if value is not None}
    if given.layout == "gpauloski" and masked:
        raise BertlineError(f"--{next(iter(masked)).replace('_', '-')}: gpauloski's layout has no masks; leave it out")
    if any(value < 1 for value in masked.values()):
        raise BertlineError("--dupe-factor, --max-predictions: allowed is at least 1")

    from bertline.training.data.exporting import export_gpauloski, export_nvidia

    for samples, output in zip(given.samples, given.outputs, strict=True):
        if given.layout == "nvidia":
            export_nvidia(samples, given.dataset, output, seed=given.seed, **masked)
        else:
            export_gpauloski(samples, given.dataset, output, seed=given.seed)


if __name__ == "__main__":
    run_command(main)
