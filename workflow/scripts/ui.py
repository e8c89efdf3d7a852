"""Open MLflow on this machine only, and keep it up to date with running trainings.

example:
  python workflow/scripts/ui.py --port 5000
"""

import os
import subprocess
import sys
import webbrowser
from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.tracking.store import default_tracking_uri


def open_ui(port: int = 5000, *, every: float = 15.0) -> None:
    """Start MLflow's server and open it in a browser.

    Args:
        port: of the server.
        every: seconds between updates from the journals.
    """
    uri = default_tracking_uri()
    if not uri.startswith("sqlite:"):
        raise BertlineError(f"MLFLOW_TRACKING_URI is {uri}: open that server in a browser")
    records = sorted(map(str, Path("results/runs").glob("*/record.json")))
    if not records:
        raise BertlineError("results/runs contains no run yet; run snakemake first")
    follower = subprocess.Popen(  # noqa: S603
        [sys.executable, str(Path(__file__).with_name("track.py")), *records, "--follow", str(every)]
    )
    print(f"MLflow: http://127.0.0.1:{port}   (runs are under Model training; Ctrl-C ends it)", flush=True)
    webbrowser.open(f"http://127.0.0.1:{port}")
    try:
        server = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
        # Its job runners serve features that bertline does not use, and take five more processes.
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        subprocess.run(  # noqa: S603
            [*server, "--host", "127.0.0.1", "--port", str(port)], check=False, env=environment
        )
    except KeyboardInterrupt:
        pass
    finally:
        follower.terminate()
        follower.wait()


if __name__ == "__main__":
    run_command(open_ui, __doc__)
