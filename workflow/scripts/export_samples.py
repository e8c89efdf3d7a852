"""Convert native files of samples to NVIDIA's layout, masked, or to gpauloski's, for programs that read these.

examples:
  python workflow/scripts/export_samples.py --layout nvidia \\
    --samples results/runs/demo/dataset/seq128/00000.h5 \\
    --dataset results/runs/demo/dataset/dataset.json \\
    --outputs bertline_training_00000.hdf5
  snakemake --profile profiles/local nvidia    # all files of all datasets
"""

from pathlib import Path
from typing import Any, Literal

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.training.data.exporting import export_gpauloski, export_nvidia


def export(
    samples: list[Path],
    dataset: Path,
    outputs: list[Path],
    layout: Literal["nvidia", "gpauloski"],
    *,
    seed: int | None = None,
    dupe_factor: int | None = None,
    max_predictions: int | None = None,
) -> None:
    """Convert files.

    Args:
        samples: files of the dataset.
        dataset: its dataset.json.
        outputs: one for each file.
        layout: of the outputs.
        seed: of masks and order (default: that of the dataset).
        dupe_factor: masked copies of every sample; nvidia only (default: 5).
        max_predictions: masked tokens of a sample; nvidia only (default: 20 of 128, 80 of 512).
    """
    if len(outputs) != len(samples):
        raise BertlineError("--outputs: give one file for each of the samples' files, in the same order")
    given = {"dupe_factor": dupe_factor, "max_predictions": max_predictions}
    masked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if layout == "gpauloski" and masked:
        raise BertlineError(f"--{next(iter(masked)).replace('_', '-')}: gpauloski's layout has no masks; leave it out")
    if any(value < 1 for value in masked.values()):
        raise BertlineError("--dupe-factor, --max-predictions: allowed is at least 1")
    for path, output in zip(samples, outputs, strict=True):
        if layout == "nvidia":
            export_nvidia(path, dataset, output, seed=seed, **masked)
        else:
            export_gpauloski(path, dataset, output, seed=seed)


if __name__ == "__main__":
    run_command(export, __doc__)
