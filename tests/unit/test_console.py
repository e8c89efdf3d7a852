"""What the commands say of themselves."""

from __future__ import annotations

import errno
import os
import pty
import runpy
import shlex
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from cyclopts import App, CycloptsError

from bertline.command_line import command_line
from bertline.console import MAX_MESSAGE_LENGTH, BertlineError, one_line_errors
from bertline.files import Recipe, write_text

SCRIPTS = sorted((Path(__file__).parents[2] / "workflow/scripts").glob("*.py"))


def commands_of(script: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """Return the command line that a script makes, without running it."""
    made: list[App] = []
    monkeypatch.setattr("os._exit", sys.exit)  # ranks end so
    for module in ("command_line", "training.rank_process"):
        monkeypatch.setattr(
            f"bertline.{module}.run_command", lambda command, text: made.append(command_line(command, text))
        )
    with suppress(SystemExit):
        runpy.run_path(str(script), run_name="__main__")
    return made[0]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_examples_of_a_command_are_valid_command_lines(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = commands_of(script, monkeypatch)
    monkeypatch.chdir(tmp_path)
    text = str(app.help).partition("\nexample")[2]
    assert max(map(len, text.splitlines())) < 80  # the width of a terminal
    lines = text.replace("\\\n", " ").splitlines()
    examples = [shlex.split(line, comments=True) for line in lines if f" workflow/scripts/{script.name}" in line]
    assert examples
    for recipe in {word for example in examples for word in example if word.startswith("results/recipes/")}:
        (tmp_path / recipe).parent.mkdir(parents=True)
        (tmp_path / recipe).write_text("{}")
    for example in examples:
        arguments = example[example.index(f"workflow/scripts/{script.name}") + 1 :]
        app.parse_args(arguments[: arguments.index("&")] if "&" in arguments else arguments)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_option_of_files_without_any_is_an_error(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `--files $FOUND` with nothing found: a check of no file would seem to have passed."""
    app = commands_of(script, monkeypatch)
    for argument in app.assemble_argument_collection():
        if "list[pathlib.Path]" in str(argument.hint):
            with pytest.raises(CycloptsError, match=f"{argument.name} requires at least 1 element"):
                app.parse_args([argument.name], exit_on_error=False, print_error=False)


def test_help_states_what_the_signature_and_the_docstring_say(capsys: pytest.CaptureFixture[str]) -> None:
    def command(files: list[Path], *, steps: int = 3) -> None:
        """Do it.

        Args:
            files: to read.
            steps: number of passes.
        """

    command_line(command, "Read files.\n\nexample:\n  python a.py b.txt")(["--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Read files. example: python a.py b.txt" in text
    assert "to read. [required]" in text
    assert "number of passes. [default: 3]" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unknown"], "error: Unknown option: --unknown"),
        (["--steps", "many"], 'error: Invalid value for --steps: unable to convert "many" into int.'),
        (["--steps", "1.5"], 'error: Invalid value for --steps: unable to convert "1.5" into int.'),
        (["--steps", "0"], "error: steps: given 0"),
    ],
)
def test_a_wrong_command_line_ends_in_one_line(arguments: list[str], message: str) -> None:
    code = (
        "from bertline.command_line import *\n"
        "def command(steps: int = 3): raise BertlineError(f'steps: given {steps}')\n"
        "run_command(command, None)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


STEPS = """
import logging
from bertline.console import one_line_errors, progress_below_log

with one_line_errors(), progress_below_log(done=6, total=10, unit="step", shown=True) as bar:
    for step in (7, 8, 6, 7, 8, 9, 10):
        bar.update(step - bar.n)
        logging.info("step %d", step)
"""


def test_a_training_shows_its_progress_below_the_log_only_on_a_terminal() -> None:
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


def test_a_message_is_one_line_of_limited_length_whatever_it_quotes() -> None:
    message = str(BertlineError(f"a.tsv: line 3: given '{'x' * 1_000_000}'; correct the record"))
    assert len(message) <= MAX_MESSAGE_LENGTH
    assert message.startswith("a.tsv: line 3: given 'xxx")
    assert message.endswith("xxx'; correct the record")
    assert (
        len(str(BertlineError("a.tsv: given '" + "\U0001fffe" * 1000 + "'; correct the record"))) <= MAX_MESSAGE_LENGTH
    )
    assert len(str(BertlineError("://" * 100_000))) <= MAX_MESSAGE_LENGTH  # in a moment, not in minutes
    quoting = "a.tsv: given '\n\x1b[2J\ud800\u2028'; f\u00fcr \u6c34"
    assert str(BertlineError(quoting)) == r"a.tsv: given '\n\x1b[2J\ud800\u2028'; für 水"
    assert str(BertlineError(str(BertlineError(quoting)))) == str(BertlineError(quoting))


def test_a_path_that_is_absent_or_a_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught, one_line_errors():
        (tmp_path / "absent").read_text()
    assert (
        str(caught.value) == f"error: {tmp_path}/absent: No such file or directory; name another path, or make it first"
    )
    with pytest.raises(SystemExit) as caught, one_line_errors():
        tmp_path.read_text()
    assert str(caught.value) == f"error: {tmp_path}: Is a directory; name another path, or allow it"
    with (
        pytest.raises(SystemExit, match=r"aaa.*aaa: File name too long; name another path") as caught,
        one_line_errors(),
    ):
        Path("a" * 5000).read_text()
    assert len(str(caught.value)) < 2100
    with pytest.raises(SystemExit) as caught, one_line_errors():
        write_text(tmp_path, "")
    assert str(caught.value) == f"error: {tmp_path}: Is a directory; name another path, or allow it"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is no JSON object; give a recipe, a file of results/recipes"),
        ("5", "is no JSON object; give a recipe, a file of results/recipes"),
        ("{}", "the recipe has no 'settings'; give one of results/recipes that is made for this command"),
    ],
)
def test_a_recipe_that_is_none_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    def command(recipe: Recipe) -> None:
        recipe["settings"]

    (tmp_path / "recipe.json").write_text(content)
    with pytest.raises(BertlineError, match=message):
        command_line(command, None)([str(tmp_path / "recipe.json")])


def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as caught, one_line_errors():
        write_text(tmp_path / "file/below.txt", "")
    assert str(caught.value) == f"error: {tmp_path}/file: File exists; name another path, or allow it"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EFBIG, "File too large; allow larger files (ulimit -f), or name a path on another disk"),
        (errno.EIO, "Input/output error; check its disk or file server, and run the same command again"),
        (errno.ESTALE, "Stale file handle; check its disk or file server, and run the same command again"),
    ],
)
def test_a_file_that_the_disk_does_not_take_is_one_line(
    tmp_path: Path, number: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.txt"

    def fail(*given: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))  # of a write, which names no file

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(SystemExit) as caught, one_line_errors():
        write_text(path, "text")
    assert str(caught.value) == f"error: {path}: {expected}"
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_disk_without_a_path_keeps_its_traceback() -> None:
    with pytest.raises(OSError, match="Input/output error"), one_line_errors():
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize(
    ("command", "status"), [("lambda: 100_000 * 'a line\\n'", 0), ("lambda: print(100_000 * 'a line\\n')", 141)]
)
def test_a_command_whose_reader_ends_says_nothing(command: str, status: int) -> None:
    """As in `make status | head`. One that may have had more to do has not succeeded."""
    program = f"from bertline.command_line import run_command\nrun_command({command}, '')"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a line\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == status
