"""Every value in a shell line of the workflow is quoted, or cannot be anything but a number or a plain name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RULES = Path(__file__).parents[2] / "workflow/rules"
# Quoted where they are made (workflow/rules/common.smk, workflow/inputs), or numbers: of a profile, of the command line
# and of wildcards whose constraint is one.
QUOTED = {"resources.contact", "resources.mirrors"}
OPTIONS = {"params.source", "params.slice", "params.options", "params.length"}
NUMBERS = {
    *("threads", "wildcards.step", "wildcards.revision", "resources.micro_batch_tokens", "resources.log_every"),
    *("resources.fine_tunings_per_gpu", "resources.evaluate_every", "resources.checkpoint_every_minutes"),
}


def shell_lines(path: Path) -> list[str]:
    """The commands of a file's rules: the indented lines after `shell:`."""
    found, lines = [], path.read_text().splitlines()
    for number, line in enumerate(lines):
        if line.strip() == "shell:":
            margin = len(line) - len(line.lstrip())
            command = []
            for following in lines[number + 1 :]:
                if following.strip() and len(following) - len(following.lstrip()) <= margin:
                    break
                command.append(following)
            found.append("\n".join(command))
    return found


def test_every_rule_with_a_shell_line_is_read() -> None:
    files = sorted(RULES.glob("*.smk"))
    stated = sum(len(re.findall(r"^\s*shell:", path.read_text(), re.MULTILINE)) for path in files)
    assert stated == sum(len(shell_lines(path)) for path in files) > 30


@pytest.mark.parametrize("path", sorted(RULES.glob("*.smk")), ids=lambda path: path.stem)
def test_every_value_in_a_shell_line_is_quoted(path: Path) -> None:
    for command in shell_lines(path):
        for field in re.findall(r"(?<!\{)\{([^{}]+)\}", command):
            _, _, form = field.partition(":")
            assert form == "q" or field in QUOTED | OPTIONS | NUMBERS, (path.name, field)
        assert "'{" not in command, (path.name, "quotes around a value do not hold one that has quotes")


def test_what_is_inserted_without_quotes_is_quoted_where_it_is_made() -> None:
    common = (RULES / "common.smk").read_text()
    assert re.search(r"^CONTACT = shlex\.quote\(", common, re.MULTILINE)
    assert re.search(r"^MIRRORS = shlex\.join\(", common, re.MULTILINE)
    assert re.search(r"^GUTENBERG_MIRRORS = shlex\.join\(", common, re.MULTILINE)
    for path in RULES.glob("*.smk"):
        made = re.findall(r"^\s+(contact|mirrors)=(\w+),", path.read_text(), re.MULTILINE)
        assert {value for _, value in made} <= {"CONTACT", "MIRRORS", "GUTENBERG_MIRRORS"}
    inputs = (RULES.parent / "inputs/corpus.smk").read_text()
    (download_options,) = re.findall(r"^def download_options.*?(?=^def )", inputs, re.MULTILINE | re.DOTALL)
    assert "return shlex.join(" in download_options
