"""Show the files that no finished result needs any more, and their size; delete them only with --delete.

example:
  python workflow/scripts/prune.py --configfile config/demo.yaml
"""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from tabulate import tabulate

from bertline.command_line import Settings, run_command
from bertline.files import CHECKOUT, remove
from bertline.planning.pruning import Prunable, not_asked_for, prunable
from bertline.planning.resolve import plan_of_files

SCRIPT = "workflow/scripts/prune.py"


def prune(configfile: Sequence[str], *, settings: Settings = (), delete: bool = False) -> None:
    """Show or delete files.

    Args:
        configfile: results of other configurations are shown, but never deleted; a further file is merged over it.
        settings: replaced settings, PATH=VALUE.
        delete: these files, also checkpoints from which only another configuration starts, unless they are exported.
    """
    plan = plan_of_files(configfile, settings)
    found, others = prunable(plan), not_asked_for(plan)
    print(tabulate(by_kind(found), headers=["no longer needed", "number", "size"], disable_numparse=True))
    if others:
        print(f"\nNot in {' '.join(configfile)}, but perhaps in another configuration; never deleted by this command:")
        print(tabulate([[str(entry.path), megabytes([entry])] for entry in others], disable_numparse=True))
    if not delete:
        print(f"\nNothing was deleted. `{deleting(configfile, settings)}` deletes what is no longer needed.")
        return
    for entry in found:
        remove(entry.path)
    print(f"\ndeleted: {megabytes(found)}")


def deleting(configfile: Sequence[str], settings: Sequence[str]) -> str:
    """Return the command that deletes, in this folder, which need not be the checkout."""
    if Path(SCRIPT).exists():
        words = [f"CONFIG={shlex.quote(' '.join(configfile))}"]
        words += [f"SET={shlex.quote(' '.join(settings))}"] if settings else []
        return f"make prune {' '.join(words)} DELETE=yes"
    library, script = shlex.quote(str(CHECKOUT / "src")), shlex.quote(str(CHECKOUT / SCRIPT))
    given = shlex.join(["--configfile", *configfile, *(word for text in settings for word in ("--set", text))])
    return f"PYTHONPATH={library} python {script} {given} --delete"


def by_kind(found: list[Prunable]) -> list[list[str]]:
    """Return a row for each kind, and one for the total."""
    kinds = {kind: [entry for entry in found if entry.kind == kind] for kind in dict.fromkeys(e.kind for e in found)}
    return [[kind, str(len(entries)), megabytes(entries)] for kind, entries in [*kinds.items(), ("together", found)]]


def megabytes(entries: Iterable[Prunable]) -> str:
    return f"{sum(entry.size for entry in entries) / 1e6:,.1f} MB"


if __name__ == "__main__":
    run_command(prune, __doc__)
