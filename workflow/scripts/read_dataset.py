"""Convert a part of a dataset of the Hugging Face Hub to documents, and count those dropped."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.cleaning_steps import STEPS
from bertline.corpus.huggingface import read_dataset
from bertline.corpus.tables import add_column_arguments, columns_of


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/read_dataset.py --dataset wikimedia/wikipedia "
        "--configuration 20231101.ltg --split train --revision b04c8d1ceb2f5cd4588862100d08de323dccfbaa "
        "--id-column id --title-column title --url-column url --source wikipedia "
        "--documents documents/part-00000.jsonl.zst --counts documents/part-00000.counts.json",
    )
    parser.add_argument(
        "--dataset", required=True, help="its id, or the absolute path of a folder with the same layout"
    )
    parser.add_argument("--configuration", help="may be omitted if there is only one")
    parser.add_argument("--split", required=True)
    parser.add_argument("--revision", help="the commit; omit for a folder")
    parser.add_argument("--part", type=int, default=0, help="the part to read, counted from 0")
    parser.add_argument("--parts", type=int, default=1, help="number of parts to which the data files are assigned")
    add_column_arguments(parser)
    parser.add_argument("--source", required=True, help="name of the source, stored in every document")
    parser.add_argument("--minimum-characters", type=int, default=1, help="shorter documents are dropped")
    parser.add_argument(
        "--steps", nargs="*", choices=list(STEPS), default=[], help="cleaning steps, in the order given"
    )
    parser.add_argument("--documents", required=True, help="the .jsonl.zst to write")
    parser.add_argument("--counts", required=True, help="the .counts.json to write")
    arguments = parser.parse_args()
    read_dataset(
        arguments.dataset,
        arguments.documents,
        arguments.counts,
        configuration=arguments.configuration,
        split=arguments.split,
        revision=arguments.revision,
        part=arguments.part,
        parts=arguments.parts,
        source=arguments.source,
        columns=columns_of(arguments),
        minimum_characters=arguments.minimum_characters,
        steps=arguments.steps,
    )


if __name__ == "__main__":
    run_command(main)
