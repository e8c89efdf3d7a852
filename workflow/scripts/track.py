"""Send the present results of runs to MLflow; a repeated call changes nothing.

example:
  python workflow/scripts/track.py \\
    results/runs/demo/record-0123456789abcdef.json \\
    --output results/tracked-demo.json
"""

from pathlib import Path

from bertline.command_line import Files, run_command
from bertline.files import write_json
from bertline.tracking import store


def track(
    records: Files,
    *,
    uri: str | None = None,
    report: Path | None = None,
    output: Path | None = None,
    follow: float | None = None,
) -> None:
    """Send results.

    Args:
        records: record.json or folder of each run, or a folder of runs, which is searched at each repetition.
        uri: the tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
        report: the report's index.html, kept with each run.
        output: write the number of points of each stage to this file.
        follow: repeat at this interval, in seconds, until interrupted.
    """
    uri = uri or store.default_tracking_uri()
    if follow is not None:
        store.follow(records, uri, follow, report)
        return
    marker = store.track(records, uri, report)
    if output:
        write_json(output, marker)


if __name__ == "__main__":
    run_command(track, __doc__)
