"""The trainer's command line has the options of `Options`, with their defaults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from cyclopts import CoercionError, Parameter, ValidationError
from synthetic_dataset import recipe

from bertline.command_line import command_line
from bertline.console import BertlineError
from bertline.files import read_json, write_json
from bertline.finetuning.options import Options as FinetuningOptions
from bertline.training.distributed.process_group import Group
from bertline.training.options import Options
from bertline.training.reproducibility import keep_threads
from bertline.training.setup import prepare_device
from bertline.training.stop import StopSignal
from bertline.training.trial import time_steps

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"


def parsed(*arguments: str) -> Any:
    def command(*, options: Annotated[Options, Parameter(name="*")] = Options()) -> Options:  # noqa: B008
        return options

    return command_line(command, None)(arguments)


def parsed_for_finetuning(*arguments: str) -> Any:
    def command(
        *,
        options: Annotated[FinetuningOptions, Parameter(name="*")] = FinetuningOptions(),  # noqa: B008
    ) -> FinetuningOptions:
        return options

    return command_line(command, None)(arguments)


def test_a_command_without_options_has_their_defaults() -> None:
    assert parsed() == Options()


def test_options_have_the_types_that_the_trainer_takes() -> None:
    given = parsed("--compile", "--micro-batch-tokens", "auto", "--checkpoint-every-minutes", "2", "--log-every", "5")
    assert given == Options(compiled=True, micro_batch_tokens="auto", checkpoint_every_minutes=2.0, log_every=5)
    assert parsed("--micro-batch-tokens", "512").micro_batch_tokens == 512
    assert parsed("--micro-batch-tokens=") == Options()  # without the resource


@pytest.mark.parametrize("parse", [parsed, parsed_for_finetuning])
@pytest.mark.parametrize(
    ("option", "value"), [("--threads", "0"), ("--threads", "-2"), ("--checkpoint-every-minutes", "-1")]
)
def test_options_of_pretraining_and_of_fine_tuning_have_the_same_ranges(parse: Any, option: str, value: str) -> None:
    with pytest.raises(ValidationError, match=rf'"{value}(\.0)?" for {option}\.'):
        parse(option, value)


@pytest.mark.parametrize("value", ["0", "-5"])
def test_a_micro_batch_of_a_fine_tuning_has_tokens(value: str) -> None:
    with pytest.raises(ValidationError, match=f'"{value}" for --micro-batch-tokens'):
        parsed_for_finetuning("--micro-batch-tokens", value)


def test_the_last_of_two_equal_options_counts() -> None:
    """A profile's `trainer_options` come after those of the workflow."""
    assert parsed("--log-every", "5", "--log-every", "7").log_every == 7


@pytest.mark.parametrize("given", ["many", "0"])
def test_a_wrong_number_of_tokens_names_what_is_allowed(given: str) -> None:
    with pytest.raises(CoercionError, match=f"given '{given}', allowed are a number of tokens from 1 on, and auto"):
        parsed("--micro-batch-tokens", given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profiler": "nsight"}, "--profiler nsight: only marks the steps of --profile START:STOP"),
        ({"kfac_share": 0.5}, "--kfac-share: the recipe has no kfac; leave it out"),
    ],
)
def test_an_option_without_effect_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BertlineError, match=message):
        prepare_device(recipe()["settings"], Group(0, 1, torch.device("cpu")), Options(**given))


@pytest.mark.parametrize(("world_size", "kept"), [(1, 1), (2, 3)])
def test_the_threads_of_a_checkpoint_are_kept_by_as_many_processes(
    monkeypatch: pytest.MonkeyPatch, world_size: int, kept: int
) -> None:
    threads = [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    keep_threads({"threads": 1, "world_size": world_size}, Group(0, 1, torch.device("cpu")), Options())
    assert threads[-1] == kept


def test_a_step_to_keep_that_is_never_reached_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    prepare_device(recipe(steps=30)["settings"], Group(0, 1, torch.device("cpu")), Options(keep_steps=(5, 30, 999)))
    assert caplog.messages == ["--keep-steps 999: the phase ends with step 30"]


def test_a_time_to_stop_is_a_number() -> None:
    with pytest.raises(BertlineError, match="--stop-after-minutes: given nan, allowed are minutes"):
        StopSignal(float("nan"))


def test_a_time_between_checkpoints_is_not_negative() -> None:
    with pytest.raises(ValidationError, match="Must be >= 0"):
        parsed("--checkpoint-every-minutes", "-1")


def test_timed_steps_have_the_full_batch_and_need_a_vocabulary(tmp_path: Path) -> None:
    """Also where a recipe begins with smaller batches."""
    with pytest.raises(BertlineError, match="the recipe's model has no 'vocab_size'"):
        time_steps(recipe(), seconds=0.01, options=Options())
    work = []
    for warmup in (None, {"from": 1, "steps": 30}):
        given, output = recipe(batch_size_warmup=warmup), tmp_path / "speed.json"
        given["model"] = {**given["model"], "vocab_size": 75}
        write_json(tmp_path / "recipe.json", given)
        timing = [
            SCRIPTS / "time_steps.py",
            "--recipe",
            tmp_path / "recipe.json",
            "--output",
            output,
            "--seconds",
            "0.1",
        ]
        subprocess.run([sys.executable, SCRIPTS / "launch.py", "--", *timing], check=True)
        timed = read_json(output)
        work.append(timed["tflops_per_second"] * timed["step_seconds"])
    assert work[0] == pytest.approx(work[1])


def test_profiled_steps_are_a_range() -> None:
    assert parsed("--profile", "7:11").profile == (7, 11)
    for wrong in ("7", "0:3", "9:8", "a:b"):
        with pytest.raises(CoercionError, match=f"given '{wrong}', allowed are two steps from 1, such as 7:11"):
            parsed("--profile", wrong)


@pytest.mark.parametrize(
    ("option", "given"), [("--keep-checkpoints", 0), ("--threads", 0), ("--log-every", 0), ("--checkpoint-every", -1)]
)
def test_a_number_that_means_nothing_is_refused(option: str, given: int) -> None:
    with pytest.raises(ValidationError, match=rf"{option}\. Must be >=? \d"):
        parsed(option, str(given))
