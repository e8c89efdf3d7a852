"""A table of the user's to fine-tune on: its columns, and its rows divided for training and for scores."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet

from bertline.console import BertlineError
from bertline.files import Json, write_text
from bertline.finetuning.tables import SUFFIXES

DEV_SHARE, MIN_ROWS = 0.2, 20
LABELS = ("label", "labels", "class", "category", "target", "tag", "stars", "rating", "score", "sentiment")
IDS = ("id", "index", "idx", "key")
MAX_CLASSES = 50


def describe_table(files: list[str], folder: Path) -> Json:
    """Describe a table for a configuration: its `name`, `settings`, and `reasons` for them.

    A single file is divided: DEV_SHARE of its rows, chosen by a hash of their content, become the dev set. Both are
    written as JSON Lines.

    Args:
        files: the table, or one for training and one for scores: .csv, .tsv, .jsonl, .parquet with named columns.
        folder: for the divided table.

    Raises BertlineError for a file that is absent or of another form, and without a column of labels or texts.
    """
    rows = _rows(Path(files[0]))
    label = _label_of(rows, files[0])
    texts = _texts_of(rows, label, files[0])
    values = [row[label] for row in rows if row.get(label) not in (None, "")]
    is_number = len(set(map(str, values))) > MAX_CLASSES and all(map(_is_number, values))
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in Path(files[0]).name.partition(".")[0]).strip("-")
    name = name or "table"
    train, dev = files[0], files[-1]
    reasons = {"label": f"{len(set(map(str, values)))} different values", "texts": "the columns with the longest texts"}
    if len(files) == 1:
        if len(rows) < MIN_ROWS:
            raise BertlineError(f"{files[0]} has {len(rows)} rows; {MIN_ROWS} or more are needed to score on some")
        train, dev = (f"{folder.as_posix()}/{name}-{split}.jsonl" for split in ("train", "dev"))
        divided: dict[str, list[str]] = {train: [], dev: []}
        for row in rows:
            line = json.dumps({key: row[key] for key in (*texts, label)}, ensure_ascii=False)
            digest = hashlib.sha256(line.encode()).digest()
            divided[dev if int.from_bytes(digest[:4]) < DEV_SHARE * 2**32 else train].append(line)
        folder.mkdir(parents=True, exist_ok=True)
        for path, lines in divided.items():
            write_text(Path(path), "".join(f"{line}\n" for line in lines))
        reasons["dev"] = f"{len(divided[dev]):,} rows of {files[0]}, which training does not see"
    settings = {
        "kind": "regression" if is_number else "classification",
        "train": train,
        "dev": dev,
        "texts": texts,
        "label": label,
    }
    return {"name": name, "settings": settings, "reasons": reasons, "rows": len(rows)}


def _rows(path: Path) -> list[Json]:
    if path.suffix not in SUFFIXES:
        raise BertlineError(f"TABLE={path}: given '{path.suffix}', allowed are {', '.join(SUFFIXES)}; convert the file")
    if not path.is_file():
        raise BertlineError(f"TABLE={path} does not exist; give a table with a column of texts and one of labels")
    try:
        if path.suffix == ".parquet":
            return list(pyarrow.parquet.read_table(path).to_pylist())
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".jsonl":
                return [json.loads(line) for line in file if line.strip()]
            if path.suffix == ".tsv":
                return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
            return list(csv.DictReader(file))
    except (ValueError, OSError, csv.Error) as error:
        raise BertlineError(
            f"TABLE={path} cannot be read ({error}); save it as UTF-8, with names of its columns"
        ) from None


def _label_of(rows: list[Json], file: str) -> str:
    columns = list(rows[0]) if rows else []
    for name in LABELS:
        if found := next((column for column in columns if str(column).lower() == name), None):
            return found
    few = {
        column: len({str(row.get(column)) for row in rows})
        for column in columns
        if 1 < len({str(row.get(column)) for row in rows}) <= min(MAX_CLASSES, len(rows) // 2)
    }
    if not few:
        raise BertlineError(
            f"TABLE={file} has no column of labels among {', '.join(map(str, columns))}; name one 'label'"
        )
    return min(few, key=lambda column: few[column])


def _texts_of(rows: list[Json], label: str, file: str) -> list[str]:
    """Return the columns of text: the longest, and a second one that is at least a third as long."""
    lengths = {
        column: sum(len(row[column]) for row in rows if isinstance(row.get(column), str)) / len(rows)
        for column in rows[0]
        if column != label and str(column).lower() not in IDS
    }
    lengths = {column: length for column, length in lengths.items() if length > 3 and not _all_numbers(rows, column)}
    if not lengths:
        raise BertlineError(f"TABLE={file} has no column of texts besides '{label}'; add one")
    longest = max(lengths.values())
    chosen = [column for column, length in lengths.items() if 3 * length >= longest]
    return chosen if len(chosen) <= 2 else [max(lengths, key=lambda column: lengths[column])]


def _all_numbers(rows: list[Json], column: str) -> bool:
    return all(_is_number(row.get(column)) for row in rows)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
