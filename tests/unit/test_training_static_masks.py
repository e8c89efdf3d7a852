"""Training on samples that were masked before: their masks are used as they are."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from encoding_helpers import VOCABULARY
from interchange_files import LENGTH, Row, import_all, read_nvidia
from synthetic_dataset import recipe
from torch.nn import functional as F
from training_processes import journal, train

from bertline.encoding.dataset import SampleReader, open_dataset
from bertline.encoding.masking import HELD_OUT_MASKING, IGNORED, Masking, Vocabulary, held_out_positions
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.network_config import BertConfig
from bertline.training.data.batches import evaluation_batch
from bertline.training.data.collation import micro_batches
from bertline.training.data.exporting import export_samples
from bertline.training.data.shapes import Batching, fix_shapes
from bertline.training.objective import compute_loss, make_loss_fn

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"


def reader_and_rows(made: Path, imported: Path) -> tuple[SampleReader, list[Row]]:
    rows = [row for n in range(2) for row in read_nvidia(made / f"nvidia/b_training_0000{n}.hdf5")]
    return open_dataset(imported, LENGTH, "train"), rows


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_batch_shows_static_masks_as_they_are(made: Path, imported: Path, packed: bool, fixed: bool) -> None:
    reader, rows = reader_and_rows(made, imported)
    samples = np.random.default_rng(1).permutation(len(reader))[:100]
    batch = evaluation_batch(samples, reader.lengths, Masking(0.15), reader.mask_counts)
    batching = Batching(LENGTH, 8, packed=packed)
    if fixed:
        batching = fix_shapes(batching, reader, Masking(0.15), batch, samples=len(samples))
    seen = []
    for micro in micro_batches(batch, reader, batching):
        assert micro.masked is not None
        labels = torch.full((micro.input_ids.numel(),), -1)
        asked = micro.masked.labels != IGNORED
        labels[micro.masked.positions[asked]] = micro.masked.labels[asked]
        assert int(asked.sum()) == int(micro.masked_counts.sum())
        assert len(asked) == micro.predictions
        here = micro.pair_labels != IGNORED
        for number, sample in enumerate(micro.samples[here].tolist()):
            row, length = rows[sample], int(reader.lengths[sample])
            first = int(micro.token_positions.starts[number])
            place = slice(first, first + length)
            assert micro.input_ids.flatten()[place].tolist() == row["input_ids"][:length].tolist()
            assert micro.token_type_ids.flatten()[place].tolist() == row["segment_ids"][:length].tolist()
            assert labels[place].tolist() == row["labels"][:length].tolist()
            assert micro.pair_labels[number] == row["next_sentence_labels"]
            seen.append(sample)
    assert sorted(seen) == sorted(samples.tolist())


@pytest.fixture(scope="module")
def model() -> BertForPreTraining:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig.from_dict({**sizes, "vocab_size": len(VOCABULARY), "initializer_range": 0.3})
    return BertForPreTraining(config).eval()


def total_loss(model: BertForPreTraining, reader: SampleReader, samples: np.ndarray, *, seed: int = 0) -> list[float]:
    batch = evaluation_batch(samples, reader.lengths, HELD_OUT_MASKING, reader.mask_counts)
    sums = make_loss_fn(model, precision="fp32", compiled=False)
    vocabulary = Vocabulary.of_card(reader.card)
    found = [
        torch.stack(compute_loss(sums, micro, seed=seed, masking=HELD_OUT_MASKING, vocabulary=vocabulary))
        for micro in micro_batches(batch, reader, Batching(LENGTH, 16))
    ]
    return torch.stack(found).double().sum(0).tolist()


def test_the_loss_is_that_of_the_rows_as_their_reader_gives_them(
    made: Path, imported: Path, model: BertForPreTraining
) -> None:
    reader, rows = reader_and_rows(made, imported)
    samples = np.arange(60)
    stacked = {name: torch.from_numpy(np.stack([rows[n][name] for n in samples])) for name in rows[0]}
    labels = stacked["labels"].flatten()
    places = torch.nonzero(labels >= 0).flatten()
    words, pairs = model(stacked["input_ids"], stacked["segment_ids"], stacked["input_mask"].bool(), places)
    mlm = F.cross_entropy(words, labels[places], reduction="sum")
    pair = F.cross_entropy(pairs, stacked["next_sentence_labels"], reduction="sum")
    found = total_loss(model, reader, samples)
    assert found[2] == len(places)
    assert found[0] == pytest.approx(mlm.item(), rel=1e-5)
    assert found[3] == pytest.approx(pair.item(), rel=1e-5)


def test_the_loss_is_that_of_the_native_file_with_the_same_masks(
    made: Path, tmp_path: Path, model: BertForPreTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = made / "data/dataset.json"
    monkeypatch.setattr("bertline.training.data.exporting._seed", lambda file, seed: seed)
    common = {"dupe_factor": 1, "max_predictions": LENGTH, "seed": 7}
    export_samples([card.parent / "seq64/00000.h5"], card, [tmp_path / "nvidia/a.hdf5"], "nvidia", **common)
    (tmp_path / "vocab.txt").write_text((made / "vocab.txt").read_text())
    again = import_all(tmp_path, tmp_path / "imported", "nvidia/*")
    static, native = open_dataset(again, LENGTH, "train"), open_dataset(card, LENGTH, "train")
    samples = np.arange(len(static))
    given = total_loss(model, static, samples)
    assert given == pytest.approx(total_loss(model, native, samples, seed=7), rel=1e-5)
    assert given[0] != pytest.approx(total_loss(model, native, samples, seed=8)[0], rel=1e-5)


def test_held_out_masks_are_those_of_the_files(made: Path, imported: Path) -> None:
    rows = read_nvidia(made / "nvidia/b_test_held_out.hdf5")
    asked = dict(held_out_positions(open_dataset(imported, LENGTH, "held_out")))
    assert len(asked) == len(rows)
    for sample, positions in asked.items():
        assert positions.tolist() == np.flatnonzero(rows[sample]["labels"] >= 0).tolist()


def test_without_held_out_files_there_is_nothing_to_compare_with(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = import_all(made, tmp_path / "imported", "nvidia/b_training_*")
    assert len(open_dataset(card, LENGTH, "held_out")) == 0
    arguments = ["--dataset", str(card), "--sequence-length", str(LENGTH), "--output", str(tmp_path / "trigram.json")]
    monkeypatch.setattr("sys.argv", ["trigram_baseline.py", *arguments])
    runpy.run_path(str(SCRIPTS / "trigram_baseline.py"), run_name="__main__")
    assert json.loads((tmp_path / "trigram.json").read_text()) == {"cross_entropy": None, "tokens": 0}


def test_a_phase_trains_on_static_masks_and_is_evaluated_on_them(made: Path, imported: Path, tmp_path: Path) -> None:
    settings = {"sequence_length": LENGTH, "steps": 4, "optimizer": "adamw", "learning_rate": 1e-3}
    losses = []
    for ranks, packing in ((1, False), (2, True)):
        given = {**recipe(**settings, packing=packing), "dataset": json.loads(imported.read_text())["fingerprint"]}
        given["model"] = {**given["model"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        train(given, imported, tmp_path / f"{ranks}", ranks=ranks, log_every=1)
        points = [point["metrics"] for point in journal(tmp_path / f"{ranks}")]
        losses.append([point["train/loss"] for point in points[1:]] + [points[-1]["held_out/mlm_loss"]])
    # Nothing of a static mask depends on the ranks or on the form of the batches.
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
