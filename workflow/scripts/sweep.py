"""Measure a training's speed on this machine by the size of its micro-batches, and by the number of processes.

example:
  python workflow/scripts/sweep.py demo/phase1 \\
    --configfile config/demo.yaml --to 64
  python workflow/scripts/sweep.py demo/glue/cola \\
    --configfile config/demo.yaml --processes 1,2
  python workflow/scripts/sweep.py demo/phase1 \\
    --configfile config/demo.yaml --options=--compile
"""

import logging
import math
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.cluster.launcher import split_options
from bertline.command_line import Settings, run_command
from bertline.console import BertlineError
from bertline.files import Json
from bertline.fingerprint import fingerprint
from bertline.planning.resolve import plan_of_files
from bertline.planning.sweep import by_micro_batch, by_processes, name_of_only_run, recipe_of, sizes
from bertline.planning.trials import run_trial
from bertline.proposal.machine import VISIBLE, this_machine
from bertline.reporting.sweep import table_of_micro_batches, table_of_scaling, write_sweep
from bertline.results import paths
from bertline.tracking.store import default_tracking_uri, track_entry
from bertline.tracking.sweeps import entry_of


def sweep(
    name: str = "",
    *,
    configfile: Sequence[str],
    first: Annotated[int, Parameter(name="--from")] = 1,
    last: Annotated[int, Parameter(name="--to")] = 64,
    processes: str | None = None,
    gpus: int | None = None,
    threads: int | None = None,
    seconds: float = 3.0,
    options: str = "",
    uri: str | None = None,
    settings: Settings = (),
) -> None:
    """Time steps on random tokens, with random weights: no data is needed.

    Args:
        name: of the training: run/phase, run/task, or a run for its first phase; by default the only run.
        configfile: the configuration; a further file is merged over it.
        first: sequences of the smallest micro-batch.
        last: sequences of the largest one; sizes double, and the first that does not fit the memory ends the sweep.
        processes: numbers of processes separated by commas. Sizes are timed with the first number, by default one a
            GPU, or one; with several, the fastest size is timed with each.
        gpus: number to use, 0 to time the CPUs; by default all.
        threads: of all processes together; by default all cores.
        seconds: to time each size for.
        options: more arguments of pretrain.py, or of finetune.py, as one string.
        uri: MLflow's tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
        settings: replaced settings, PATH=VALUE.
    """
    plan, machine = plan_of_files(configfile, settings), this_machine(gpus)
    if gpus == 0:
        os.environ[VISIBLE] = ""  # the processes of a trial take any GPU that they see
    name = name or name_of_only_run(plan)
    recipe, tried = recipe_of(plan, name), sizes(first, last)
    numbers = numbers_of(processes) if processes else [max(1, len(machine.gpus))]
    more = split_options(options)
    if threads is not None and threads < 1:
        raise BertlineError(f"--threads {threads}: give 1 or more")
    if not 0 < seconds < math.inf:
        raise BertlineError(f"--seconds {seconds:g}: give more than 0")
    threads = threads or machine.cores

    def trial(recipe: Json, processes: int, tokens: int) -> Json:
        logging.info("timing %d tokens at once, %d processes", tokens, processes)
        given = ["--micro-batch-tokens", str(tokens), *more]
        return run_trial(recipe, processes=processes, threads=max(threads, processes), options=given, seconds=seconds)

    started = int(1000 * time.time())
    rows = list(by_micro_batch(recipe, tried, processes=numbers[0], trial=trial))
    print(table_of_micro_batches(rows))
    fitting = [row for row in rows if row["fits"]]
    if not fitting:
        raise BertlineError(f"--from {first}: not even this fits the memory; give less, or a smaller network")
    fastest = max(fitting, key=lambda row: row["sequences_per_second"])
    print(
        f"The fastest are micro-batches of {fastest['micro_batch_size']} sequences: micro_batch_tokens="
        f"{fastest['micro_batch_size'] * fastest['tokens'] // fastest['sequences']}"
    )
    scaling: list[Json] = []
    if len(numbers) > 1:
        size = fastest["micro_batch_size"]
        scaling = list(by_processes(recipe, numbers, micro_batch_size=size, trial=trial))
        print(f"\n{table_of_scaling(scaling)}")
    device = fastest["device"] if machine.gpus else f"{machine.cores} CPU cores"
    described = {
        "name": name,
        "experiment": plan.config["experiment"],
        "device": device,
        "options": more,
        "model": recipe["model"],
        "settings": recipe["settings"],
        "seed": recipe["seed"],
    }
    key = fingerprint({**described, "sizes": tried, "processes": numbers, "threads": threads})
    folder = Path(paths.SWEEP.format(name=name, fingerprint=key))
    times = {"started": started, "finished": int(1000 * time.time())}
    write_sweep(folder, {**described, **times, "micro_batches": rows, "scaling": scaling})
    print(f"\nTables and figures: {folder}")
    track_entry(partial(entry_of, folder), uri or default_tracking_uri())


def numbers_of(processes: str) -> list[int]:
    if not all(part.isdecimal() and int(part) for part in processes.split(",")):
        raise BertlineError(f"--processes {processes}: give numbers from 1 separated by commas, such as 1,2,4")
    return sorted(set(map(int, processes.split(","))))


if __name__ == "__main__":
    run_command(sweep, __doc__)
