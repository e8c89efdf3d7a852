"""Write a commented configuration for texts of your own, sized to them and to this machine.

example:
  python workflow/scripts/new_configuration.py texts --output mine.yaml \\
    --time 15m
"""

import os
import tempfile
from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.files import Json, write_text
from bertline.planning.estimate import record_speed
from bertline.planning.trials import run_trial
from bertline.proposal.configuration_file import network_of, phase_settings
from bertline.proposal.machine import VISIBLE, this_machine
from bertline.proposal.new_configuration import make_configuration
from bertline.proposal.sizes import Network, micro_batch_for, precision_for, processes_for, seconds_of


def new_configuration(
    *texts: str,
    output: Path = Path("mine.yaml"),
    time: str | None = None,
    language: str | None = None,
    encoding: str = "utf-8",
    column: str | None = None,
    table: str | None = None,
    gpus: int | None = None,
    force: bool = False,
) -> None:
    """Write a configuration.

    Args:
        texts: folders and files.
        output: the file to write; its name is that of the run.
        time: from the text to the report, as 15m, 2h or 1d; by default 14m for up to 10 MB of text, more for more.
        language: of the text, its ISO 639 code; by default it is identified.
        encoding: of plain text and CSV; of several with commas between, as utf-8,cp1252,latin-1, the first that fits.
        column: of tables of texts, with the text.
        table: to fine-tune on, or two with a comma between: for training, and for scores.
        gpus: number to use; by default all.
        force: overwrite `output`.
    """
    texts = tuple(text for text in texts if text)
    if not texts:
        raise BertlineError("there is no text; give a folder or a file, as make mine TEXT=folder")
    if output.exists() and not force:
        raise BertlineError(f"{output} exists and is not overwritten; give OUTPUT=another.yaml, or FORCE=yes")
    try:  # before the trials, which take minutes
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise BertlineError(f"{output} cannot be written: {error.strerror}; give OUTPUT=another.yaml") from None
    seconds = seconds_of(time) if time else None
    machine = this_machine(gpus)
    if gpus == 0:
        os.environ[VISIBLE] = ""  # the processes of a trial take any GPU that they see

    def time_steps(network: Network, length: int, batch: int, vocab_size: int) -> Json:
        settings = phase_settings(network, length, max(1, batch // length), precision_for(machine))
        model = {**network_of(network), "vocab_size": vocab_size, "max_position_embeddings": 512}
        recipe = {"fingerprint": "0" * 16, "model": model, "seed": 42, "initial_weights": None, "settings": settings}
        processes = processes_for(network, vocab_size, machine, batch)
        threads = machine.cores if machine.gpus else processes
        options = ["--micro-batch-tokens", str(micro_batch_for(machine) or "auto")]
        timed = run_trial(recipe, processes=processes, threads=threads, options=options)
        if timed["fits"]:  # for the plan, and for the time left of the run
            record_speed(recipe, timed)
        return timed

    made = make_configuration(
        texts,
        output,
        machine,
        seconds=seconds,
        language=language,
        encoding=encoding,
        column=column,
        table=table.split(",") if table else [],
        time_steps=time_steps,
    )
    write_text(output, made.content)
    print("\n".join(made.summary))
    if made.not_read:
        others = ", ".join(f"{number} {suffix}" for suffix, number in made.not_read.items())
        print(f"Not read, because their names are not those of texts: {others}")
    if made.slowdown > 1.5:
        print(
            "Other programs use this machine: as long as they do, training takes about "
            f"{made.slowdown:.1f} times as long."
        )
    print(f"{output} is written; read its comments.")


if __name__ == "__main__":
    run_command(new_configuration, __doc__)
