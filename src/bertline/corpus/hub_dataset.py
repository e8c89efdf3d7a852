"""Conversion of Hugging Face Hub datasets into documents, streamed by the `datasets` library at a pinned revision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from bertline.console import BertlineError, progress
from bertline.corpus.columnar import ROWS_AT_ONCE
from bertline.corpus.documents import Document, Dropped
from bertline.corpus.plain_text import Converter, lines_of
from bertline.corpus.tables import Columns, check_columns, columns_of, text_and_origin
from bertline.corpus.unpacking import DAMAGE
from bertline.files import Json

OFFLINE_ADVICE = (
    "HF_HUB_OFFLINE is set: unset it, or run `hf download --repo-type dataset` where there is a network and read the "
    "files with `source: files`"
)


def read_part(corpus: Json, part: str, converter: Converter, counts: Json) -> Iterator[Document | Dropped]:
    """Yield the documents of one part of a dataset. Rows are streamed, nothing is stored on disk.

    The library reads HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN.

    Args:
        corpus: its recipe, see `sources`; the settings are those of `huggingface` in config/config.schema.yaml. Without
            a column for ids these are `{data file's number}#{row's number}`, which does not depend on `parts`.
        part: its name. The data files are assigned to the parts in order.
        counts: receives the number of the part's `data_files`.

    Raises BertlineError if the dataset, configuration, split, revision or a column does not exist or cannot be read, or
    if there are fewer data files than parts.
    """
    dataset, revision = corpus["settings"]["dataset"], corpus["settings"]["revision"]
    name = f"the dataset {dataset}" + (f" at {revision[:12]}" if revision else "")
    if not dataset.startswith("/") and Path(dataset).exists():
        raise BertlineError(f"'{dataset}' is a folder here, which would be read instead of {name}; rename it")
    columns = columns_of(corpus["settings"])
    rows = _numbered_rows(corpus, part, name, columns, counts)
    for file, number, row in progress(rows, description=converter.source, unit="rows"):
        where, row_id = f"{name}, data file {file}, row {number + 1}", f"{file:05d}#{number}"
        text, origin = text_and_origin(row, columns, where=where, default_id=row_id)
        yield from converter.documents(lines_of(text), origin)


def _numbered_rows(
    corpus: Json, part: str, name: str, columns: Columns, counts: Json
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield every row of a part as (number of its data file, its number in that file, content)."""
    import datasets  # takes a second, and reads the environment when imported
    import pyarrow as pa

    settings, parts = corpus["settings"], list(corpus["parts"])
    damaged = (*DAMAGE, pa.ArrowException)
    unreadable = (OSError, ValueError, TypeError, datasets.exceptions.DatasetsError, *damaged)
    in_file = ""
    try:
        builder = datasets.load_dataset_builder(
            settings["dataset"], settings.get("configuration"), revision=settings["revision"]
        )
        rows = builder.as_streaming_dataset(split=settings["split"])
        if rows.column_names is not None:
            check_columns(rows.column_names, columns, name)
        if hasattr(builder.config, "columns") and hasattr(builder.config, "batch_size"):
            # Parquet reads all columns and a whole row group at a time by default.
            builder.config.columns, builder.config.batch_size = columns.names, ROWS_AT_ONCE
            rows = builder.as_streaming_dataset(split=settings["split"])
        files = rows.num_shards
        if len(parts) > files:
            raise BertlineError(f"{name} has {files} data files and cannot be read in {len(parts)} parts; lower parts")
        counts["data_files"] = 0
        index, names = parts.index(part), (builder.config.data_files or {}).get(settings["split"], ())
        for file in range(index * files // len(parts), (index + 1) * files // len(parts)):
            counts["data_files"] += 1
            in_file = f", data file {file}{f' ({PurePath(names[file]).name})' if len(names) == files else ''},"
            for number, row in enumerate(rows.shard(num_shards=files, index=file)):
                if number == 0:
                    check_columns(row, columns, name)
                yield file, number, row
    except unreadable as error:
        reason = " ".join(str(error).split())[:300]
        if datasets.config.HF_HUB_OFFLINE and isinstance(error, ConnectionError):
            advice = OFFLINE_ADVICE
        elif in_file or isinstance(error, damaged):
            advice = "its data is damaged, or did not arrive whole; try again later, or take another revision"
        else:
            advice = "check its id, revision, configuration and split, or try again later"
        raise BertlineError(f"{name}{in_file} cannot be read: {reason}; {advice}") from None
