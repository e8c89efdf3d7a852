"""Write a commented configuration for texts of your own, sized to them and to this machine.

example:
  python workflow/scripts/new_configuration.py texts --output mine.yaml --time 15m
"""

import logging
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.encoding.measure import characters_per_token
from bertline.files import Json, read_json, write_json, write_text
from bertline.planning.machine import Machine, this_machine
from bertline.planning.own_table import describe_table
from bertline.planning.own_text import look_at
from bertline.planning.proposal import (
    BATCH,
    Amount,
    Network,
    default_seconds,
    micro_batch_for,
    precision_for,
    processes_for,
    propose,
    seconds_of,
    vocabulary_size,
)
from bertline.planning.proposal_file import configuration, network_of, phase_settings, tokenizer_settings
from bertline.planning.resolve import make_plan
from bertline.settings.configuration import load_schema, read_yaml

SCHEMA, MODELS = "config/config.schema.yaml", "config/models"
FINETUNING_TOKENS = 64  # of a row, about


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
        time: from the text to the report, as 15m, 2h or 1d; by default 15m for up to 10 MB of text, more for more.
        language: of the text, its ISO 639 code; by default it is identified.
        encoding: of plain text and CSV.
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
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", output.stem).lstrip("_.-") or "mine"
    wanted = seconds_of(time) if time else None
    machine, schema = this_machine(gpus), load_schema(SCHEMA)
    found = look_at(texts, schema, encoding=encoding, language=language, column=column)
    described = describe_table(table.split(","), Path("resources") / name) if table else None
    vocab_size = vocabulary_size(found.characters, found.alphabet)
    settings, _ = tokenizer_settings(found.language, vocab_size, has_case=found.has_case)
    per_token = characters_per_token(found.sample, **settings)
    amount = Amount(found.bytes, found.characters, round(found.characters / per_token), found.documents)
    rates: dict[Network, float] = {}
    busy = [1.0]

    @cache
    def speed(network: Network, length: int, batch: int) -> float:
        logging.info("timing training steps of %s with %d tokens", network.name, length)
        measured = time_steps(network, length, batch, vocab_size, machine)
        busy.append(measured["step_seconds"] / measured["busy_seconds"])
        rates[network] = measured["tokens"] / measured["busy_seconds"]
        return rates[network]

    def finetuning_seconds(network: Network) -> float:
        # Three seeds and three epochs, of this network and of one with random weights.
        tokens = FINETUNING_TOKENS * 18 * described["rows"] if described else 0
        return 60.0 + tokens / speed(network, 128, BATCH) if tokens else 0.0

    seconds = wanted or default_seconds(found.bytes)
    chosen = propose(amount, vocab_size, machine, seconds=seconds, speed=speed, more_seconds=finetuning_seconds)
    content = configuration(name, str(output), found, chosen, machine, described)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "draft.yaml")
        draft.write_text(content, encoding="utf-8")
        plan = make_plan(read_yaml(draft), SCHEMA, MODELS)
    if plan.problems:
        raise BertlineError(plan.problems[0])
    write_text(output, content)
    print("\n".join(line[2:] for line in content.splitlines()[:2]))
    if found.not_read:
        others = ", ".join(f"{number} {suffix}" for suffix, number in found.not_read.items())
        print(f"Not read, because their names are of no text: {others}")
    if max(busy) > 1.5:
        print(
            f"Other programs use this machine: as long as they do, training takes about {max(busy):.1f} times as long."
        )
    print(f"{output} is written; read its comments.")


def time_steps(network: Network, length: int, batch: int, vocab_size: int, machine: Machine) -> Json:
    """Time the training of a network here, started as the graph starts it."""
    settings = phase_settings(network, length, max(1, batch // length), precision_for(machine))
    model = {**network_of(network), "vocab_size": vocab_size, "max_position_embeddings": 512}
    recipe = {"fingerprint": "0" * 16, "model": model, "seed": 42, "phase": "trial", "initial_weights": None}
    processes = processes_for(network, vocab_size, machine, batch)
    threads = processes if not machine.gpus else machine.cores
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(folder, "recipe.json"), {**recipe, "settings": settings})
        launch = [
            sys.executable,
            "workflow/scripts/launch.py",
            "--processes-per-node",
            str(processes),
            "--threads",
            str(threads),
        ]
        micro = micro_batch_for(machine) or "auto"
        script = [
            "workflow/scripts/time_steps.py",
            "--recipe",
            f"{folder}/recipe.json",
            "--output",
            f"{folder}/speed.json",
        ]
        options = ["--threads", str(threads), "--micro-batch-tokens", str(micro)]
        done = subprocess.run([*launch, "--", *script, *options], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("error: ")
            raise BertlineError(f"a trial of training {network.name} failed: {last}")
        return dict(read_json(f"{folder}/speed.json"))


if __name__ == "__main__":
    run_command(new_configuration, __doc__)
