"""Runs whose trainers write while trackers follow them, and what MLflow holds of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from services import wait_until

from bertline.results.journal import read_journal

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit"))
from synthetic_runs import journal_line, write, write_journal, write_run  # noqa: E402

RUNS, STEPS = 8, 120


def begin_runs(root: Path) -> list[Path]:
    """Eight runs whose first phase is being trained; nothing of their second has started."""
    record = root / write_run(root, tasks=(), steps=STEPS)
    content = json.loads(record.read_text())
    records = []
    for number in range(RUNS):
        name = f"run{number}"
        phase = {"name": "phase1", "fingerprint": name, "path": f"results/phases/{name}"}
        write(root / phase["path"] / "checkpoints" / "durable.json", {"step": 0})
        records.append(Path(f"results/runs/{name}/record-{name}.json"))
        write(root / records[-1], content | {"run": name, "fingerprint": f"{name}-record", "phases": [phase]})
    return records


def train_to(root: Path, step: int) -> None:
    """What the eight trainers have written when they reach a step."""
    for number in range(RUNS):
        folder = root / f"results/phases/run{number}/checkpoints"
        write_journal(folder / "journal.jsonl", [journal_line(s, offset=number) for s in range(10, step + 1, 10)])
        write(folder / "durable.json", {"step": step})


@contextmanager
def followers(root: Path, records: list[Path], uri: str, number: int) -> Iterator[None]:
    command = [sys.executable, str(ROOT / "workflow/scripts/track.py"), *map(str, records), "--uri", uri]
    with (root / "followers.log").open("ab") as log:
        running = [
            subprocess.Popen([*command, "--follow", "0.5"], cwd=root, stdout=log, stderr=log) for _ in range(number)
        ]
    try:
        yield
        assert [one.poll() for one in running] == [None] * number, (root / "followers.log").read_text()[-2000:]
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait(timeout=240)


def held(uri: str, origin: str = "") -> dict[str, Counter]:
    """The points of every phase1 in MLflow, by its fingerprint; of one origin, if given."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("bertline")
    if experiment is None:
        return {}
    points = {}
    chosen = "tags.`bertline.stage` = 'phase1'" + (f" AND tags.`bertline.origin` = '{origin}'" if origin else "")
    for run in client.search_runs([experiment.experiment_id], chosen):
        histories = (client.get_metric_history(run.info.run_id, key) for key in run.data.metrics)
        counted = Counter((one.key, one.step, one.timestamp, one.value) for history in histories for one in history)
        name = run.data.tags["bertline.fingerprint"]
        assert name not in points, f"{name} is there twice"
        points[name] = counted
    return points


def written(root: Path, number: int) -> Counter:
    lines = read_journal(root / f"results/phases/run{number}/checkpoints/journal.jsonl")
    return Counter((key, line.step, line.timestamp, value) for line in lines for key, value in line.metrics.items())


def reached(uri: str, step: int) -> bool:
    """Whether every run has the last metric of a step: a few requests only, the server is busy."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("bertline")
    if experiment is None:
        return False
    phases = client.search_runs([experiment.experiment_id], "tags.`bertline.stage` = 'phase1'")
    losses = {run.data.tags["bertline.fingerprint"]: run.data.metrics.get("train/mlm_loss") for run in phases}
    return losses == {
        f"run{number}": journal_line(step, offset=number)["metrics"]["train/mlm_loss"] for number in range(RUNS)
    }


def assert_every_point_once(root: Path, uri: str) -> None:
    """A duplicate point stays, so that waiting for points that are being sent hides nothing."""
    expected = {f"run{number}": written(root, number) for number in range(RUNS)}
    wait_until(lambda: held(uri) == expected, "every point of the journals, once")
