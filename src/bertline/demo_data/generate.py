"""Generation of the demo data: mirror, books, SQuAD and GLUE files, and sample.json, which describes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bertline.console import BertlineError
from bertline.demo_data.articles import make_articles, make_books
from bertline.demo_data.language import make_lexicons
from bertline.demo_data.tasks import PROVINCE_OF_SPLIT, acceptability, entailment, paraphrase, squad
from bertline.demo_data.wikitext import describe, make_pages, write_mirror
from bertline.demo_data.world import make_world
from bertline.files import sha256_of_file, write_folder_atomically, write_json, write_text

WIKI, DATE = "samplewiki", "20260101"
# Chosen by trial: two million tokens of pretraining are about three epochs; a fine-tuning takes up to a minute.
PEOPLE, BOOKS, CHAPTERS, PARTS = 800, 120, 20, 4
SQUAD_PARAGRAPHS = {"train": 2000, "dev": 150}
ROWS = {"CoLA": {"train": 1500, "dev": 400}, "MRPC": {"train": 1500, "dev": 400}, "RTE": {"train": 4000, "dev": 400}}

OF_MIRROR = rf"mirror/{WIKI}/\d{{8}}/[\w.-]+"
WRITTEN = rf"sample\.json|{OF_MIRROR}|books/book-\d+\.txt|squad/(train|dev)-v[\d.]+\.json|glue/\w+/(train|dev)\.tsv"


def generate(output: Path | str, seed: int = 1) -> None:
    """Write the demo data of a seed, atomically.

    Args:
        output: the folder to make; one that contains nothing but an earlier sample is replaced.
        seed: of the invented world.

    Raises BertlineError for a folder with other files.
    """
    check_is_sample(Path(output))
    with write_folder_atomically(Path(output)) as made:
        counts = _write_everything(made, seed)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        digests = {path.relative_to(made).as_posix(): sha256_of_file(path) for path in files}
        write_json(made / "sample.json", {"seed": seed, "counts": counts, "sha256": digests})


def check_is_sample(folder: Path) -> None:
    """Raise BertlineError if a folder contains files of anything else than demo data."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    files = [path.relative_to(folder).as_posix() for path in paths]
    # Without a file of the invented mirror, those of squad and glue are others' with the same official names.
    is_sample = any(re.fullmatch(OF_MIRROR, name) for name in files)
    for name in files:
        if not is_sample or not re.fullmatch(WRITTEN, name):
            raise BertlineError(
                f"{folder} contains {name}, which would be deleted; name another output, or move it away"
            )


def _write_everything(made: Path, seed: int) -> dict[str, int]:
    world, lexicons = make_world(seed, people=PEOPLE), make_lexicons(seed)
    pages = make_pages(seed, make_articles(seed, world, lexicons["all"]))
    write_mirror(made / "mirror", pages, wiki=WIKI, date=DATE, parts=PARTS)
    for number, (_, text) in enumerate(make_books(seed, world, lexicons["all"], books=BOOKS, chapters=CHAPTERS)):
        write_text(made / "books" / f"book-{number + 1:03d}.txt", text)
    for split, name in PROVINCE_OF_SPLIT.items():
        province = world.provinces[name]
        for version, impossible in (("1.1", False), ("2.0", True)):
            data = squad(seed, split, province, paragraphs=SQUAD_PARAGRAPHS[split], impossible=impossible)
            write_text(made / "squad" / f"{split}-v{version}.json", json.dumps(data) + "\n")
        tables = {
            "CoLA": acceptability(seed, split, lexicons[name], rows=ROWS["CoLA"][split]),
            "MRPC": paraphrase(seed, split, province, rows=ROWS["MRPC"][split]),
            "RTE": entailment(seed, split, province, rows=ROWS["RTE"][split]),
        }
        for task, table in tables.items():
            text = "".join("\t".join(row) + "\n" for row in table)
            write_text(made / "glue" / task / f"{split}.tsv", text)
    return {**describe(pages), "books": BOOKS, "people": len(world.people), "towns": len(world.towns)}
