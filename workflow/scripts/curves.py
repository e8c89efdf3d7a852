"""Write the curves of runs as CSV and as events for TensorBoard; a repeated call changes nothing.

example:
  python workflow/scripts/curves.py results/runs --follow 10
  tensorboard --logdir results/curves/tensorboard
"""

from pathlib import Path

from bertline.command_line import Files, run_command
from bertline.tracking.curves import FOLDER, follow_curves, write_curves


def curves(records: Files, *, folder: Path = FOLDER, follow: float | None = None) -> None:
    """Write curves.

    Args:
        records: record.json or folder of each run, or a folder of runs, which is searched at each repetition.
        folder: for csv/{run}/{training}.csv and tensorboard/{run}/{training}/.
        follow: repeat at this interval, in seconds, until interrupted.
    """
    if follow is not None:
        follow_curves(records, follow, folder)
        return
    print(f"{write_curves(records, folder)} trainings have new points: {folder}")


if __name__ == "__main__":
    run_command(curves, __doc__)
