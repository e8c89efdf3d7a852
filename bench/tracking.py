"""Measure MLflow with a long journal: the time to send it, the size of the database, the time until charts are drawn.

example:
  python bench/tracking.py --folder /tmp/thinned
  python bench/tracking.py --folder /tmp/whole --whole      # as without thinning; takes ten minutes

A phase of two million steps, logged every ten, with ten metrics and an evaluation every 10,000 steps, is sent to
SQLite. MLflow's server is started, and Chromium opens the list of runs and then, three times, the metrics of the phase
and of the run. The time is that from the click to the last curve in the window. A folder with a database is not sent
again.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / folder) for folder in ("unit", "services")]

import psutil  # noqa: E402
from browser import Page, find_browser, opened  # noqa: E402
from mlflow import MlflowClient  # noqa: E402
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: E402
from services import mlflow_server  # noqa: E402
from synthetic_runs import journal_line, write_journal, write_run  # noqa: E402

from bertline.command_line import run_command  # noqa: E402
from bertline.console import BertlineError  # noqa: E402
from bertline.tracking import thinning  # noqa: E402
from bertline.tracking.store import track  # noqa: E402

CURVES = "document.querySelectorAll('.js-plotly-plot .scatterlayer .trace .js-line').length"


def measure(*, folder: Path, points: int = 200_000, whole: bool = False) -> None:
    """Measure and print.

    Args:
        folder: for the journal and the database.
        points: of each metric.
        whole: send every point.
    """
    if (browser := find_browser()) is None:
        raise BertlineError("no Chromium is installed; on Debian: apt install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    if whole:
        thinning.POINTS = points * 10
    database = Path("mlflow.db").absolute()
    if not database.exists():
        write(points)
        start, processor = time.monotonic(), time.process_time()
        sent = track(["results/runs/demo/record.json"], f"sqlite:///{database}")["sent"]
        seconds = time.monotonic() - start
        print(f"sent {sent:,} points in {seconds:.0f} s ({time.process_time() - processor:.0f} s of the processor)")
    print(f"database: {database.stat().st_size / 1e6:.0f} MB")
    print(f"a curve of the phase: {time_of_curve(database):.2f} s of the processor")
    with mlflow_server(folder, f"sqlite:///{database}") as server, opened(browser) as page:
        page.resize(1600, 1200)
        client = MlflowClient(server.uri)
        (experiment,) = (found.experiment_id for found in client.search_experiments() if found.name == "bertline")
        for run in client.search_runs([experiment], order_by=["attributes.start_time"]):
            if run.info.run_name in ("phase1", "demo"):
                place = f"#/experiments/{experiment}/runs/{run.info.run_id}/model-metrics"
                print(f"{run.info.run_name}: {time_of_charts(page, server.uri, place)}", flush=True)


def write(points: int) -> None:
    """Write a finished phase with so many points of each metric."""
    record = write_run(Path(), tasks=(), steps=10)
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"phases": content["phases"][:1]}))
    Path("results/runs/demo/record.json").symlink_to(record.name)
    lines = [journal_line(10 * number) for number in range(1, points + 1)]
    for line in lines:
        if line["step"] % 10_000:
            line["metrics"] = {key: value for key, value in line["metrics"].items() if not key.startswith("held_out/")}
    folder = Path("results/phases/phase1")
    write_journal(folder / "metrics.jsonl", lines)
    recipe = folder / "recipe.json"
    recipe.write_text(recipe.read_text().replace('"steps": 10', f'"steps": {10 * points}'))


def time_of_curve(database: Path) -> float:
    """Return the seconds that the processor works for the 320 points of a line, as MLflow's server asks for them."""
    uri = f"sqlite:///{database}"
    client, store = MlflowClient(uri), SqlAlchemyStore(uri, "mlflow-artifacts:/")
    experiment = next(found.experiment_id for found in client.search_experiments() if found.name == "bertline")
    (phase,) = client.search_runs([experiment], "tags.`bertline.stage` = 'phase1'")
    start = time.process_time()
    store.get_metric_history_bulk_interval([phase.info.run_id], "train/mlm_loss", 320, None, None)
    return time.process_time() - start


def time_of_charts(page: Page, uri: str, place: str) -> str:
    """Open a page of MLflow until all of its curves are drawn; return the median, the shortest and the longest time."""
    page.open(f"{uri}/{place}")
    page.wait_until(f"{CURVES} > 0", 600)
    number, since = 0, time.monotonic()
    while time.monotonic() < since + 20:  # until nothing was added for so long
        if (now := page.evaluate(CURVES)) != number:
            number, since = now, time.monotonic()
        time.sleep(0.2)
    times, processor = [], []
    for _ in range(3):
        page.open("about:blank")
        page.open(f"{uri}/#/experiments")
        page.wait_until("document.querySelectorAll('a[href*=\"/experiments/\"]').length > 1", 300)
        start, before = time.monotonic(), processor_time()
        page.evaluate(f"void (location.hash = '{place}')")
        page.wait_until(f"{CURVES} >= {number}", 600)
        times.append(time.monotonic() - start)
        processor.append(processor_time() - before)
    return f"{number} curves in {_spread(times)} s, {_spread(processor)} s of the processors"


def processor_time() -> float:
    """Return the processor seconds of MLflow's server and of the browser, both started by this process."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return sum(time.user + time.system for time in times)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    run_command(measure, __doc__)
