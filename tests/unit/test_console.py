"""What the commands say of themselves."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bertline.console import HelpFormatter

SCRIPTS = sorted((Path(__file__).parents[2] / "workflow/scripts").glob("*.py"))


def test_help_says_defaults_and_leaves_examples_to_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    example = f"example: python make.py{' --a-long-option' * 5}"
    parser = argparse.ArgumentParser(
        description="A sentence that is longer than a line.\n\nAnother.",
        epilog=example,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=3, help="how many")
    parser.add_argument("--output", help="where to")
    parser.add_argument("--delete", action="store_true", help="for good")
    text = parser.format_help()
    assert example in text
    assert ".\n\nAnother." in text
    assert "how many (default: 3)" in " ".join(text.split())
    assert text.count("default") == 1


@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if "ArgumentParser(" in script.read_text()], ids=lambda script: script.name
)
def test_every_command_has_an_example_to_be_pasted(script: Path) -> None:
    text = script.read_text()
    assert "formatter_class=HelpFormatter" in text
    assert f" workflow/scripts/{script.name} " in text
