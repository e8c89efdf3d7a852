"""Check the documents of a corpus: the form of every record, and the counts beside them. Print a line for each file.

example:
  python workflow/scripts/validate_documents.py \\
    results/runs/demo/corpora/books/documents/*.jsonl.zst
"""

from bertline.command_line import Files, run_command
from bertline.corpus.documents import validate_documents

SUFFIX = ".jsonl.zst"


def validate(files: Files) -> None:
    """Check files of documents.

    Args:
        files: parts of corpora; the counts of each are beside it.
    """
    for path in files:
        counts = path.with_name(f"{path.name.removesuffix(SUFFIX)}.counts.json")
        print(f"{path}: {validate_documents(path, counts):,} documents", flush=True)


if __name__ == "__main__":
    run_command(validate, __doc__)
