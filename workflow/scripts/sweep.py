"""Measure a training's speed on this machine by the size of its micro-batches, and by the number of processes.

example:
  python workflow/scripts/sweep.py demo/phase1 \\
    --configfile config/demo.yaml --to 64
  python workflow/scripts/sweep.py demo/glue/cola \\
    --configfile config/demo.yaml --processes 1,2
  python workflow/scripts/sweep.py demo/phase1 \\
    --configfile config/demo.yaml --options=--compile
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.cluster.launcher import split_options
from bertline.command_line import Settings, run_command
from bertline.files import Json
from bertline.planning.resolve import plan_of_files
from bertline.planning.sweep import measure, process_counts
from bertline.planning.trials import exit_on_signals
from bertline.proposal.machine import use_gpus
from bertline.reporting.sweep import print_table, write_sweep
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
        last: sequences of the largest one; sizes double, up to what a process has of a step, and the first that does
            not fit the memory ends the sweep.
        processes: numbers of processes separated by commas. Sizes are timed with the smallest number, by default one
            a GPU, or one; with several, the fastest size is timed with each.
        gpus: number to use, 0 to time the CPUs; by default all.
        threads: of all processes together; by default all cores.
        seconds: to time each size for.
        options: more arguments of pretrain.py, or of finetune.py, as one string.
        uri: MLflow's tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
        settings: replaced settings, PATH=VALUE.
    """
    plan, machine = plan_of_files(configfile, settings), use_gpus(gpus)

    def save(folder: Path, measured: Json) -> None:
        write_sweep(folder, measured)
        print(f"\nTables and figures: {folder}")

    with exit_on_signals():
        folder = measure(
            plan,
            name,
            first=first,
            last=last,
            processes=process_counts(processes) if processes else [max(1, len(machine.gpus))],
            cores=machine.cores,
            threads=threads,
            seconds=seconds,
            options=split_options(options),
            show=print_table,
            save=save,
        )
    track_entry(partial(entry_of, folder), uri or default_tracking_uri())


if __name__ == "__main__":
    run_command(sweep, __doc__)
