"""List the documents to leave out of a dataset: duplicates of earlier ones, and overlaps with evaluation sets."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.removal import write_removals


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/list_removed.py --near "
        "--signatures wikipedia a/part-00000.npy --signatures books b/part-00000.npy --output removed.jsonl.zst",
    )
    for option in ("--signatures", "--overlap"):
        script = {"--signatures": "write_signatures.py", "--overlap": "find_overlap.py"}[option]
        parser.add_argument(
            option,
            action="append",
            nargs="+",
            default=[],
            metavar=("CORPUS", "PART"),
            help=f"a corpus's name and the output of {script} for each of its parts, in order; once for each corpus",
        )
    parser.add_argument("--near", action="store_true", help="also remove near-duplicates")
    parser.add_argument("--output", required=True, help="the .jsonl.zst to write")
    arguments = parser.parse_args()
    if not arguments.signatures and not arguments.overlap:
        parser.error("one of --signatures and --overlap is needed")
    signatures = [(name, parts) for name, *parts in arguments.signatures]
    overlap = [(name, parts) for name, *parts in arguments.overlap]
    write_removals(signatures, overlap, arguments.output, near=arguments.near)


if __name__ == "__main__":
    run_command(main)
