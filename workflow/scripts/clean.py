"""Remove the generated sample and the demo's results. What runs of other configurations use is kept.

example:
  python workflow/scripts/clean.py --configfile config/demo.yaml
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.files import remove
from bertline.planning.pruning import only_of
from bertline.planning.resolve import plan_of_files
from bertline.results import paths

SAMPLE, WRITTEN = Path("resources/sample"), ("books", "glue", "mirror", "sample.json", "squad")


def clean(configfile: str = "config/demo.yaml") -> None:
    """Remove the results of a configuration.

    Args:
        configfile: of the demo; a result that another run uses, finished or not, is kept.
    """
    try:
        plan = plan_of_files([configfile])
    except BertlineError as error:
        raise BertlineError(f"cannot tell what belongs to {configfile}: {error}") from error
    for path in [*only_of(plan), *_of_sample(), Path(paths.WIKI.format(wiki="samplewiki"))]:
        leads_to = f", a link; {path.resolve()} stays" if path.is_symlink() else ""
        is_shown = path.is_dir() or leads_to
        remove(path)
        if is_shown:
            print(f"removed {path}{leads_to}")


def _of_sample() -> list[Path]:
    """Return what is the sample's: its folder, but without files of another configuration's table, if it has some."""
    others = SAMPLE.is_dir() and not SAMPLE.is_symlink() and set(SAMPLE.iterdir()) - {SAMPLE / name for name in WRITTEN}
    return [SAMPLE / name for name in WRITTEN] if others else [SAMPLE]


if __name__ == "__main__":
    run_command(clean, __doc__)
