"""Command lines of the scripts, derived from the signatures of functions."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter, Token, convert
from cyclopts.validators import Number

from bertline.console import BertlineError, one_line_errors
from bertline.files import Recipe, read_json


def _read_recipe(_: Any, path: tuple[Token, ...]) -> Recipe:
    read = read_json(path[0].value)
    if not isinstance(read, dict):
        raise BertlineError(f"{path[0].value} is no JSON object; give a recipe, a file of results/recipes")
    return Recipe(read)


Parameter(converter=_read_recipe, n_tokens=1, accepts_keys=False)(Recipe)

READER_ENDED = 141  # exit status of a command whose reader ended before its work: 128 + SIGPIPE
Settings = Annotated[Sequence[str], Parameter(name="--set")]  # replaced settings of a configuration, PATH=VALUE
Files = Annotated[list[Path], Parameter(consume_multiple=(1, None))]  # an option without any is an error
Threads = Annotated[int | None, Parameter(validator=Number(gte=1))]  # None: all


def command_line(command: Callable[..., object], text: str | None) -> App:
    """Make the command line of a script.

    Args:
        command: its signature gives names, types and defaults of the options, its docstring's `Args` their help.
        text: the help above the options: what the script does, and an example. By convention the script's docstring.
    """
    app = App(
        help=text,
        help_format="plaintext",
        version_flags=(),
        # An option takes all values that follow it, as in `--outputs a b`. Given again, the last value counts.
        default_parameter=Parameter(
            consume_multiple=True, negative_iterable=(), allow_repeating=True, converter=_read_values
        ),
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
    )
    app.default(command)
    return app


def _read_values(hint: Any, tokens: Sequence[Token]) -> Any:
    """Convert the values of an option as cyclopts does, but refuse 1.5 for a whole number, which it rounds."""
    return convert(hint, tokens, converter=_read_value)


def _read_value(hint: Any, value: str) -> Any:
    return hint(value) if hint in (int, float) else convert(hint, [value])


def run_command(command: Callable[..., object], text: str | None) -> None:
    """Run a script: call `command` with its command line, see `command_line`, and print a text that it returns.

    Errors are those of `one_line_errors`.
    """
    with one_line_errors():
        try:
            with _ending_with_reader(READER_ENDED):
                result = command_line(command, text)()
        except CycloptsError as error:
            raise BertlineError(f"{' '.join(str(error).split())} See --help.") from None
        with _ending_with_reader(0):
            if isinstance(result, str):
                print(result)
            sys.stdout.flush()


@contextmanager
def _ending_with_reader(status: int) -> Iterator[None]:
    """Exit with `status`, in silence, if the reader of stdout has ended, such as `head`."""
    try:
        yield
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout)
        if not any(event & select.POLLERR for _, event in poll.poll(0)):  # another pipe, or a connection
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # flushed once more at exit
        sys.exit(status)


def limit_threads(threads: int | None) -> None:
    """Limit the threads of the tokenizers package and of OpenMP, which read their number when they are imported."""
    if threads:
        os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
