"""The trainer's command line has the options of `Options`, with their defaults."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from cyclopts import CoercionError, Parameter, ValidationError

from bertline.command_line import command_line
from bertline.training.options import Options


def parsed(*arguments: str) -> Any:
    def command(*, options: Annotated[Options, Parameter(name="*")] = Options()) -> Options:  # noqa: B008
        return options

    return command_line(command, None)(arguments)


def test_a_command_without_options_has_their_defaults() -> None:
    assert parsed() == Options()


def test_options_have_the_types_that_the_trainer_takes() -> None:
    given = parsed("--compile", "--micro-batch-tokens", "auto", "--checkpoint-every-minutes", "2", "--log-every", "5")
    assert given == Options(compiled=True, micro_batch_tokens=None, checkpoint_every_minutes=2.0, log_every=5)
    assert parsed("--micro-batch-tokens", "512").micro_batch_tokens == 512


def test_the_last_of_two_equal_options_counts() -> None:
    """A profile's `trainer_options` come after those of the workflow."""
    assert parsed("--log-every", "5", "--log-every", "7").log_every == 7


def test_a_wrong_number_of_tokens_names_what_is_allowed() -> None:
    with pytest.raises(CoercionError, match="given 'many', allowed are a number of tokens and auto"):
        parsed("--micro-batch-tokens", "many")


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
