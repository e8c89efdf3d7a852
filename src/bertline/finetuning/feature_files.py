"""Files of features: Google's JSON Lines, Parquet, HDF5. All are written in chunks.

.jsonl    the format of Google's extract_features.py: an object per input with `linex_index` and `features`, which has
          for each token its `token` and `layers`, each with `index` and `values`, rounded to six decimals; pooled, the
          only token is called cls or mean
.parquet  a row per input: index, input_ids, and layer_-1, ...: a vector per token; pooled, one vector
.h5       input_ids [T], offsets [N + 1] of the inputs, and layer_-1, ... [T, H]; pooled, [N, H]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
from tokenizers import Tokenizer

from bertline.encoding.hdf5 import create_hdf5
from bertline.files import write_atomically
from bertline.finetuning.sequences import Sequences

Pooling = Literal["cls", "mean"]
Write = Callable[[int, Sequences, list[np.ndarray]], None]


@contextmanager
def open_feature_file(
    path: Path, tokenizer: Tokenizer, layers: Sequence[int], pooling: Pooling | None
) -> Iterator[Write]:
    """Yield a function that appends the features of a chunk; the file gets its name when all are written.

    Its arguments are the number of the first input, the inputs, and for each layer the vectors of all tokens, float32
    [T, H], or of all inputs, [N, H].
    """
    with WRITERS[path.suffix.lower()](path, tokenizer, layers, pooling) as write:
        yield write


@contextmanager
def _jsonl_writer(path: Path, tokenizer: Tokenizer, layers: Sequence[int], pooling: Pooling | None) -> Iterator[Write]:
    with write_atomically(path) as temporary, temporary.open("wb") as file:

        def values(features: list[np.ndarray], row: int) -> list[dict[str, Any]]:
            return [
                {"index": layer, "values": np.round(vectors[row].astype(np.float64), 6)}
                for layer, vectors in zip(layers, features, strict=True)
            ]

        def write(number: int, sequences: Sequences, features: list[np.ndarray]) -> None:
            for row, (begin, end) in enumerate(zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True)):
                places = (
                    [(pooling, row)]
                    if pooling
                    else [(tokenizer.id_to_token(sequences.tokens[place]), place) for place in range(begin, end)]
                )
                entries = [{"token": token, "layers": values(features, place)} for token, place in places]
                line = {"linex_index": number + row, "features": entries}
                file.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))

        yield write


@contextmanager
def _parquet_writer(
    path: Path, tokenizer: Tokenizer, layers: Sequence[int], pooling: Pooling | None
) -> Iterator[Write]:
    import pyarrow
    import pyarrow.parquet

    with write_atomically(path) as temporary, ExitStack() as opened:
        writer: Any = None

        def write(number: int, sequences: Sequences, features: list[np.ndarray]) -> None:
            nonlocal writer
            offsets = pyarrow.array(sequences.offsets, pyarrow.int64())
            ids = pyarrow.array(sequences.tokens, pyarrow.int32())
            columns = {
                "index": pyarrow.array(np.arange(number, number + len(sequences))),
                "input_ids": pyarrow.LargeListArray.from_arrays(offsets, ids),
            }
            for layer, vectors in zip(layers, features, strict=True):
                column = pyarrow.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
                columns[f"layer_{layer}"] = column if pooling else pyarrow.LargeListArray.from_arrays(offsets, column)
            table = pyarrow.table(columns)
            if writer is None:
                writer = opened.enter_context(pyarrow.parquet.ParquetWriter(temporary, table.schema))
            writer.write_table(table)

        yield write


@contextmanager
def _hdf5_writer(path: Path, tokenizer: Tokenizer, layers: Sequence[int], pooling: Pooling | None) -> Iterator[Write]:
    with create_hdf5(path) as file:

        def append(name: str, values: np.ndarray) -> None:
            if name not in file:
                shape = (None, *values.shape[1:])
                file.create_dataset(
                    name, data=values, maxshape=shape, chunks=(min(1024, len(values)), *values.shape[1:])
                )
                return
            dataset = file[name]
            dataset.resize(len(dataset) + len(values), axis=0)
            dataset[-len(values) :] = values

        def write(number: int, sequences: Sequences, features: list[np.ndarray]) -> None:
            before = len(file["input_ids"]) if number else 0
            append("input_ids", sequences.tokens)
            append("offsets", before + sequences.offsets[1 if number else 0 :])
            for layer, vectors in zip(layers, features, strict=True):
                append(f"layer_{layer}", vectors)

        yield write


WRITERS: Mapping[str, Any] = {".jsonl": _jsonl_writer, ".parquet": _parquet_writer, ".h5": _hdf5_writer}
OUTPUTS = tuple(WRITERS)
