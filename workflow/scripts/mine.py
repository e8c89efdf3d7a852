"""Write a commented configuration for texts of your own, sized to them and to this machine.

example:
  python workflow/scripts/mine.py texts --output mine.yaml \\
    --time 15m
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.proposal.new_configuration import write_configuration


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
) -> str:
    """Write a configuration.

    Args:
        texts: folders and files.
        output: the file to write; its name is that of the run.
        time: from the text to the report, as 15m, 2h or 1d; by default 14m for up to 10 MB of text, more for more.
        language: of the text, its ISO 639 code; by default it is identified.
        encoding: of plain text and CSV; of several with commas between, as utf-8,cp1252,latin-1, the first that fits.
        column: of tables of texts, with the text; by default a usual name, or the longest texts.
        table: to fine-tune on, or two with a comma between: for training, and for scores. They are not read as texts.
        gpus: number to use; by default all.
        force: overwrite `output`, and a divided table of other rows.
    """
    return write_configuration(
        texts,
        output,
        time=time,
        language=language,
        encoding=encoding,
        column=column,
        table=table,
        gpus=gpus,
        force=force,
    )


if __name__ == "__main__":
    run_command(new_configuration, __doc__)
