"""The trainer's command line has the options of `Options`, with their defaults."""

from __future__ import annotations

import argparse

import pytest

from bertline.training.options import Options, add_options, given_options


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return given_options(parser.parse_args(arguments))


def test_a_command_without_options_has_their_defaults():
    assert parsed() == Options()


def test_options_have_the_types_that_the_trainer_takes():
    given = parsed("--compile", "--micro-batch-tokens", "auto", "--checkpoint-every-minutes", "2", "--log-every", "5")
    assert given == Options(compiled=True, micro_batch_tokens=None, checkpoint_every_minutes=2.0, log_every=5)
    assert parsed("--micro-batch-tokens", "512").micro_batch_tokens == 512


def test_a_wrong_number_of_tokens_names_what_is_allowed(capsys):
    with pytest.raises(SystemExit):
        parsed("--micro-batch-tokens", "many")
    assert "given 'many', allowed are a number of tokens and auto" in capsys.readouterr().err
