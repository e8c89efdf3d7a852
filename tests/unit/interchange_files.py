"""A small dataset in NVIDIA's and gpauloski's layouts, and readers of them written from the layouts' descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from encoding_helpers import VOCABULARY, make_dataset

from bertline.encoding.imports import import_dataset
from bertline.training.data.exporting import export_samples

LENGTH = 64
Row = dict[str, Any]


def write_both_layouts(folder: Path) -> Path:
    """Write a dataset to data/, its vocab.txt, and its files to nvidia/ and gpauloski/; returns its dataset.json."""
    card = make_dataset(folder / "data")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    for shard, name in (("00000", "training_00000"), ("00001", "training_00001"), ("held_out", "test_held_out")):
        samples = card.parent / f"seq{LENGTH}/{shard}.h5"
        export_samples([samples], card, [folder / f"nvidia/b_{name}.hdf5"], "nvidia")
        if shard != "held_out":
            export_samples([samples], card, [folder / f"gpauloski/train_{shard}.hdf5"], "gpauloski")
    return card


def import_all(made: Path, output: Path, training: str, held_out: str = "") -> Path:
    held_out_files = tuple(made.glob(held_out)) if held_out else ()
    import_dataset(list(made.glob(training)), made / "vocab.txt", output, held_out=held_out_files, name="theirs")
    return output / "dataset.json"


def read_nvidia(path: Path) -> list[Row]:
    """A reader from the description: predictions end at the first position 0, or fill the row."""
    with h5py.File(path, "r") as file:
        columns = {name: file[name][:].astype(np.int64) for name in file}
    rows = []
    for index in range(len(columns["input_ids"])):
        row = {name: column[index] for name, column in columns.items()}
        stop = len(row["masked_lm_positions"])
        for place, position in enumerate(row["masked_lm_positions"]):
            if position == 0:
                stop = place
                break
        row["labels"] = np.full(len(row["input_ids"]), -1)
        row["labels"][row["masked_lm_positions"][:stop]] = row["masked_lm_ids"][:stop]
        rows.append(row)
    return rows


def read_gpauloski(path: Path) -> list[Row]:
    """A reader from the description: segments and padding follow from the places of the special tokens."""
    rows = []
    with h5py.File(path, "r") as file:
        for ids, places, label in zip(
            file["input_ids"][:], file["special_token_positions"][:], file["next_sentence_labels"][:], strict=True
        ):
            segment_ids, input_mask = np.zeros_like(ids), np.zeros_like(ids)
            input_mask[: places[-1] + 1] = 1
            if len(places) == 3:
                segment_ids[places[1] + 1 : places[2] + 1] = 1
            columns = {"input_ids": ids, "segment_ids": segment_ids, "input_mask": input_mask}
            rows.append({**columns, "next_sentence_labels": label})
    return rows
