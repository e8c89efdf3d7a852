"""Run all measurements on a GPU in one command: correctness, speed, a profile, a training with a kill.

    PYTHONPATH=src python bench/gpu.py --out gpu-results
    PYTHONPATH=src python bench/gpu.py --only speed profile --networks large-128 --minutes 9 --out gpu-results
    PYTHONPATH=src python bench/gpu.py --tiny --minutes 3        # on a CPU, to see that it runs

It needs no dataset, no network and no packages beyond those for training. Parts run one after another, the most
important first, each in its own process with a time limit; a part that fails prints one line, and the others continue.
Results are appended to results.jsonl as they arrive, the output of each part to its .log, and the final table is also
written to table.txt. In a repeated call with the same folder, parts use earlier results.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args

from cyclopts import Parameter
from gpu_parts.context import Context, results_file
from gpu_parts.table import tables

from bertline.command_line import run_command

MAX_MINUTES = 7.5  # of a part
GRACE_SECONDS = 10.0  # between a part's deadline and its kill


@dataclass(frozen=True)
class Job:
    """A part, perhaps for one network, and its weight in the division of the time."""

    part: str
    network: str
    weight: float

    @property
    def name(self) -> str:
        return f"{self.part} {self.network}".strip()


Part = Literal["machine", "correctness", "kernels", "speed", "profile", "training"]
# Shares of the time, and those of a tiny run, in which compilation takes the most.
WEIGHTS: dict[Part, tuple[float, float]] = {
    "machine": (1.0, 1.0),
    "correctness": (5.5, 5.5),
    "kernels": (1.0, 1.0),
    "speed": (3.0, 6.0),
    "profile": (1.5, 2.0),
    "training": (5.0, 5.0),
}
OF_NETWORKS = ("speed", "profile")
# Names of speed.NETWORKS, not imported here: only the parts import PyTorch.
NetworkName = Literal["large-128", "large-128-packed", "large-512-packed", "base-128", "modern-base-512-packed"]
TINY_NETWORKS: tuple[NetworkName, ...] = ("base-128", "modern-base-512-packed")  # both architectures, rows and packed


def jobs_of(parts: tuple[str, ...], networks: tuple[str, ...], tiny: bool) -> list[Job]:
    """Return the jobs in the order of their runs."""
    return [
        Job(part, network, weights[tiny])
        for part, weights in WEIGHTS.items()
        if part in parts
        for network in (networks if part in OF_NETWORKS else [""])
    ]


def main(
    *,
    only: tuple[Part, ...] = get_args(Part),
    networks: tuple[NetworkName, ...] = (),
    minutes: float = 25.0,
    tiny: bool = False,
    out: Path = Path("gpu-results"),
    threads: int = 0,
    cache: Path | None = None,
    job: Annotated[tuple[Part, str, float] | None, Parameter(show=False)] = None,
) -> None:
    """Run the parts.

    Args:
        only: the parts to run.
        networks: of the parts `speed` and `profile`; all by default.
        minutes: for all parts together.
        tiny: networks and matrices small enough for a CPU.
        out: folder for the results.
        threads: of each part; 0 for all cores.
        cache: folder of compiled programs, which a repeated call uses again; by default a new one.
        job: this process runs one part: its name, the network, and the deadline in seconds since 1970.
    """
    threads = threads or len(os.sched_getaffinity(0))
    if job:
        part, network, deadline = job
        run_part(part, Context(out, deadline, tiny, network, threads))
    out.mkdir(parents=True, exist_ok=True)
    try:
        # A caller's time limit, and Ctrl-C: the results so far are shown nevertheless.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        jobs = jobs_of(only, networks or (TINY_NETWORKS if tiny else get_args(NetworkName)), tiny)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as new:
            failed = run_jobs(jobs, out, time.time() + 60 * minutes, tiny, threads, cache or Path(new))
    finally:
        show(out)
    sys.exit(1 if failed else 0)


def run_part(part: str, context: Context) -> NoReturn:
    """Run one part in this process and exit without cleanup, so that nothing hanging in a driver keeps it alive."""
    status = 0
    try:
        for result in importlib.import_module(f"gpu_parts.{part}").run(context):
            # What was measured is kept, and the part has failed.
            status |= result.get("outcome") == "failed"
            add(context.folder, {"part": part, "network": context.network, **result})
    except BaseException as error:
        traceback.print_exc()
        first = str(error).splitlines()[0][:200] if str(error) else ""
        add(context.folder, {"part": part, "network": context.network, "error": f"{type(error).__name__}: {first}"})
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run_jobs(jobs: list[Job], folder: Path, end: float, tiny: bool, threads: int, caches: Path) -> list[str]:
    """Run each job in its own process; unused time goes to the others. Returns the names of those that failed."""
    failed: list[str] = []
    for number, job in enumerate(jobs):
        share = job.weight / sum(later.weight for later in jobs[number:])
        left = end - time.time()
        seconds = min(60 * MAX_MINUTES, share * left, left - GRACE_SECONDS)
        log = folder / f"{job.part}.log"
        print(f"{job.name}: at most {max(0.0, seconds):.0f} s", flush=True)
        # A killed process may leave an incomplete program in the cache: the next one gets a new cache.
        cache = caches / str(len(failed))
        started = time.monotonic()
        error = run_job(job, folder, log, cache, seconds, tiny, threads)
        if error:
            failed.append(job.name)
            if error != "failed":
                add(folder, {"part": job.part, "network": job.network, "error": error})
        print(f"{job.name}: {error or 'done'} after {time.monotonic() - started:.0f} s, see {log}", flush=True)
    return failed


def run_job(job: Job, folder: Path, log: Path, cache: Path, seconds: float, tiny: bool, threads: int) -> str:
    """Run a job. Returns the reason of its failure, or ""."""
    if seconds < 1:
        return "not started: the time was up"
    command = [sys.executable, __file__, "--out", str(folder), "--threads", str(threads), *(["--tiny"] * tiny)]
    command += ["--job", job.part, job.network, str(time.time() + seconds)]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    with log.open("a", encoding="utf-8") as output:
        print(f"==== {job.name}", file=output, flush=True)
        # In its own session, so that a trainer that it started ends with it.
        process = subprocess.Popen(  # noqa: S603
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            status = process.wait(seconds + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "stopped: its time was up"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return "failed" if status else ""


def add(folder: Path, result: dict[str, Any]) -> None:
    """Append a result as one line."""
    line = json.dumps({name: value for name, value in result.items() if value != ""}) + "\n"
    with results_file(folder).open("a", encoding="utf-8") as file:
        file.write(line)


def show(folder: Path) -> None:
    """Print the tables of all results in the folder, and write them to table.txt."""
    path = results_file(folder)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    text = tables([json.loads(line) for line in lines])
    (folder / "table.txt").write_text(text, encoding="utf-8")
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    run_command(main, __doc__)
