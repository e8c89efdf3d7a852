"""Conversion of Hugging Face Hub datasets into documents, streamed by the `datasets` library at a pinned revision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError, progress
from bertline.corpus.documents import Document, Dropped, write_documents
from bertline.corpus.plain_text import Found, documents_of, lines_of
from bertline.corpus.tables import ROWS_AT_ONCE, TEXT_ALONE, Columns, check_columns, text_and_origin

OFFLINE_ADVICE = (
    "HF_HUB_OFFLINE is set: unset it, or run `hf download --repo-type dataset` where there is a network and read the "
    "files with `source: files`"
)


def read_dataset(
    dataset: str,
    documents: Path | str,
    counts: Path | str,
    *,
    configuration: str | None = None,
    split: str,
    revision: str | None,
    part: int = 0,
    parts: int = 1,
    source: str,
    columns: Columns = TEXT_ALONE,
    minimum_characters: int = 1,
    steps: Sequence[str] = (),
) -> None:
    """Turn one part of a dataset into documents.

    Args:
        dataset: an id of the Hub, such as `wikimedia/wikipedia`; or the absolute path of a folder with the same
            structure.
        documents, counts: the two files to write, see `documents.write_documents`. The counts also contain the number
            of the part's `data_files`, and the counts of `plain_text.Found.counts`. Reasons to drop: `empty`, `short`.
        configuration: of the dataset, such as `20231101.en`; None if it has only one.
        split: such as `train`.
        revision: the commit; None for a folder.
        part, parts: the data files are assigned in order to `parts` parts; number `part`, from 0, is read.
        source: the `source` of every document.
        columns: where the text is. Without a column for ids these are `{data file's number}#{row's number}`, which does
            not depend on `parts`.
        minimum_characters: shorter documents are dropped.
        steps: cleaning steps, see `plain_text.Found`.

    Rows are streamed, nothing is stored on disk. The library reads HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN. Raises
    BertlineError if the dataset, configuration, split, revision or a column does not exist or cannot be read, or if
    there are fewer data files than parts.
    """
    name = f"the dataset {dataset}" + (f" at {revision[:12]}" if revision else "")
    if not dataset.startswith("/") and Path(dataset).exists():
        raise BertlineError(f"'{dataset}' is a folder here, which would be read instead of {name}; rename it")
    found = Found(steps)
    more: dict[str, Any] = {}

    def records() -> Iterator[Document | Dropped]:
        rows = _numbered_rows(dataset, name, configuration, split, revision, part, parts, columns, more)
        for file, number, row in progress(rows, description=source, unit="rows"):
            where, row_id = f"{name}, data file {file}, row {number + 1}", f"{file:05d}#{number}"
            text, origin = text_and_origin(row, columns, where=where, identity=row_id)
            yield from documents_of(
                lines_of(text), origin, source=source, minimum_characters=minimum_characters, found=found
            )
        more.update(found.counts())

    write_documents(records(), documents, counts, more)


def _numbered_rows(
    dataset: str,
    name: str,
    configuration: str | None,
    split: str,
    revision: str | None,
    part: int,
    parts: int,
    columns: Columns,
    more: dict[str, Any],
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield every row of a part as (number of its data file, its number in that file, content)."""
    import datasets  # takes a second, and reads the environment when imported
    import pyarrow as pa

    unreadable = (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError, pa.ArrowException)
    try:
        builder = datasets.load_dataset_builder(dataset, configuration, revision=revision)
        rows = builder.as_streaming_dataset(split=split)
        if rows.column_names is not None:
            check_columns(rows.column_names, columns, name)
        if hasattr(builder.config, "columns") and hasattr(builder.config, "batch_size"):
            # Parquet reads all columns and a whole row group at a time by default.
            builder.config.columns, builder.config.batch_size = columns.names, ROWS_AT_ONCE
            rows = builder.as_streaming_dataset(split=split)
        files = rows.num_shards
        if parts > files:
            raise BertlineError(f"{name} has {files} data files and cannot be read in {parts} parts; lower parts")
        more["data_files"] = 0
        for file in range(part * files // parts, (part + 1) * files // parts):
            more["data_files"] += 1
            for number, row in enumerate(rows.shard(num_shards=files, index=file)):
                if number == 0:
                    check_columns(row, columns, name)
                yield file, number, row
    except unreadable as error:
        reason = " ".join(str(error).split())[:300]
        is_forbidden = datasets.config.HF_HUB_OFFLINE and isinstance(error, ConnectionError)
        advice = (
            OFFLINE_ADVICE if is_forbidden else "check its id, revision, configuration and split, or try again later"
        )
        raise BertlineError(f"{name} cannot be read: {reason}; {advice}") from None
