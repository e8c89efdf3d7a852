"""Open MLflow on this machine only, and keep it up to date with running trainings."""

import argparse
import os
import subprocess
import sys
import webbrowser
from pathlib import Path

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.tracking.store import default_tracking_uri


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=HelpFormatter, epilog="example: python workflow/scripts/ui.py --port 5000"
    )
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--every", type=float, default=15, help="seconds between updates from the journals")
    arguments = parser.parse_args()
    uri = default_tracking_uri()
    if not uri.startswith("sqlite:"):
        raise BertlineError(f"MLFLOW_TRACKING_URI is {uri}: open that server in a browser")
    records = sorted(map(str, Path("results/runs").glob("*/record.json")))
    if not records:
        raise BertlineError("results/runs contains no run yet; run snakemake first")
    follower = subprocess.Popen(  # noqa: S603
        [sys.executable, str(Path(__file__).with_name("track.py")), *records, "--follow", str(arguments.every)]
    )
    print(f"MLflow: http://127.0.0.1:{arguments.port}   (runs are under Model training; Ctrl-C ends it)", flush=True)
    webbrowser.open(f"http://127.0.0.1:{arguments.port}")
    try:
        server = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
        # Its job runners serve features that bertline does not use, and take five more processes.
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        subprocess.run(  # noqa: S603
            [*server, "--host", "127.0.0.1", "--port", str(arguments.port)], check=False, env=environment
        )
    except KeyboardInterrupt:
        pass
    finally:
        follower.terminate()
        follower.wait()


if __name__ == "__main__":
    run_command(main)
