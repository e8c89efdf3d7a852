"""What the commands say of themselves."""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
import termios
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


def test_every_command_has_an_example_to_be_pasted() -> None:
    texts = {script.name: script.read_text() for script in SCRIPTS if "ArgumentParser(" in script.read_text()}
    without = [
        name
        for name, text in texts.items()
        if f" workflow/scripts/{name} " not in text or "formatter_class=HelpFormatter" not in text
    ]
    assert without == []


STEPS = """
import logging
from bertline.console import progress_below_log, run_command

def main():
    with progress_below_log(done=6, total=10, unit="step", shown=True) as bar:
        for step in (7, 8, 6, 7, 8, 9, 10):
            bar.update(step - bar.n)
            logging.info("step %d", step)

run_command(main)
"""


def test_a_training_shows_its_progress_below_the_log_on_a_terminal_alone() -> None:
    """Also one that returned to an earlier step."""
    leader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    subprocess.run([sys.executable, "-c", STEPS], stderr=terminal, check=True)
    os.close(terminal)
    seen = os.read(leader, 65536).decode()
    assert "| 6/10 " in seen
    assert "| 10/10 " in seen
    assert [line.split()[-1] for line in seen.splitlines() if " step " in line and "|" not in line][-1] == "10"
    assert seen.count("step 7") == 2
    logged = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True).stderr
    assert len(logged.splitlines()) == 7
    assert "|" not in logged
