"""Split the documents of one part into sentences, with an index of the documents."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.sentences import load_splitter
from bertline.corpus.shards import split_part
from bertline.corpus.unicode_sentences import split_by_marks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/split_sentences.py "
        "--documents documents/part-00000.jsonl.zst --corpus wikipedia "
        "--punkt punkt --sentences sentences/part-00000.txt.zst --index sentences/part-00000.index.npy",
    )
    parser.add_argument("--documents", required=True, help="a .jsonl.zst")
    parser.add_argument("--corpus", required=True, help="the corpus's name, from which ids are hashed")
    splitter = parser.add_mutually_exclusive_group(required=True)
    splitter.add_argument("--punkt", help="the folder of a Punkt model")
    splitter.add_argument("--unicode", action="store_true", help="split by the punctuation of any script instead")
    parser.add_argument("--sentences", required=True, help="the .txt.zst to write")
    parser.add_argument("--index", required=True, help="the .index.npy to write")
    arguments = parser.parse_args()
    split = split_by_marks if arguments.unicode else load_splitter(arguments.punkt)
    split_part(arguments.documents, arguments.corpus, split, arguments.sentences, arguments.index)


if __name__ == "__main__":
    run_command(main)
