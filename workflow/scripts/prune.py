"""Show the files that can be deleted without loss, and their size; delete them only with --delete."""

import argparse
import shutil
from collections.abc import Iterable

from tabulate import tabulate

from bertline.console import HelpFormatter, run_command
from bertline.planning.pruning import Prunable, not_asked_for, prunable
from bertline.planning.resolve import make_plan
from bertline.settings.configuration import read_yaml


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/prune.py --configfile config/demo.yaml",
    )
    parser.add_argument("--configfile", required=True)
    parser.add_argument("--delete", action="store_true")
    arguments = parser.parse_args()
    plan = make_plan(read_yaml(arguments.configfile), "config/config.schema.yaml", "config/models")
    found = prunable()
    print(tabulate(by_kind(found), headers=["no longer needed", "number", "size"], disable_numparse=True))
    others = not_asked_for(plan)
    if others:
        print(f"\nNot in {arguments.configfile}, but perhaps in another configuration; never deleted by this command:")
        print(tabulate([[str(entry.path), megabytes(entry.size)] for entry in others], disable_numparse=True))
    if not arguments.delete:
        print("\nNothing was deleted. `make prune DELETE=yes` deletes what is no longer needed.")
        return
    for entry in found:
        if entry.path.is_dir():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink()
    print(f"\ndeleted: {megabytes(sum(entry.size for entry in found))}")


def by_kind(found: Iterable[Prunable]) -> list[list[str]]:
    """Return a row for each kind, and one for the total."""
    entries = list(found)
    rows = [
        [kind, *totals([entry for entry in entries if entry.kind == kind])]
        for kind in dict.fromkeys(entry.kind for entry in entries)
    ]
    return [*rows, ["together", *totals(entries)]]


def totals(entries: list[Prunable]) -> list[str]:
    return [str(len(entries)), megabytes(sum(entry.size for entry in entries))]


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


if __name__ == "__main__":
    run_command(main)
