"""Damaged samples that were not validated: reading them names the file, whatever a flipped bit made of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from encoding_helpers import VOCABULARY, make_dataset
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, run_rank

from bertline.console import BertlineError
from bertline.encoding.card_format import read_card
from bertline.encoding.dataset import SampleReader, open_dataset
from bertline.encoding.imports import import_dataset
from bertline.training.data import verification
from bertline.training.data.exporting import export_samples
from bertline.training.data.verification import FileVerification, verify_in_background


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("whole") / "dataset", vocab_size=300)


@pytest.fixture
def card(whole: Path, tmp_path: Path) -> Path:
    """A dataset to damage."""
    shutil.copytree(whole.parent, tmp_path / "dataset")
    return tmp_path / "dataset/dataset.json"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset imported from NVIDIA's layout, with static masks."""
    folder = tmp_path_factory.mktemp("masked")
    card = make_dataset(folder / "data")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    export_samples([card.parent / "seq64/00000.h5"], card, [folder / "theirs.hdf5"], "nvidia", dupe_factor=1)
    import_dataset([folder / "theirs.hdf5"], folder / "vocab.txt", folder / "imported")
    return folder / "imported/dataset.json"


def damage(card: Path, column: str, index: int, value: int) -> None:
    with h5py.File(card.parent / "seq32/00001.h5", "r+") as file:
        file[column][index] = value


def read_all(card: Path) -> SampleReader:
    reader = open_dataset(card, 32, "train")
    reader.gather(np.random.default_rng(1).permutation(len(reader)))
    return reader


@pytest.mark.parametrize("value", [0, 5000, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("index", [0, 3, -1])
def test_offsets_that_do_not_rise_within_the_tokens_stop_the_opening(card: Path, index: int, value: int) -> None:
    if index == value == 0:
        return
    damage(card, "sample_offsets", index, value)
    with pytest.raises(BertlineError, match=r"00001.h5: sample.* delete it and run `snakemake encode`"):
        open_dataset(card, 32, "train")


def test_a_sample_longer_than_the_sequence_length_stops_the_opening(card: Path) -> None:
    with h5py.File(card.parent / "seq32/00001.h5", "r+") as file:
        file["sample_offsets"][8] = file["sample_offsets"][7] + 33
    with pytest.raises(BertlineError, match=r"00001.h5: sample 7 has 33 tokens, allowed are 1 to 32; "):
        open_dataset(card, 32, "train")


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("input_ids", 300, "has an id beyond the vocabulary"),
        ("input_ids", 0x8000, "has an id beyond the vocabulary"),
        ("second_segment_start", 33, "has a second segment that begins after its end"),
        ("next_sentence_labels", 2, "has a label that is neither 0 nor 1"),
    ],
)
def test_a_sample_that_no_network_can_compute_with_is_named(card: Path, column: str, value: int, what: str) -> None:
    with h5py.File(card.parent / "seq32/00001.h5") as file:
        index = int(file["sample_offsets"][12]) - 1 if column == "input_ids" else 11
    damage(card, column, index, value)
    with pytest.raises(BertlineError, match=rf"seq32/00001.h5: sample 11 {what}; the file is damaged"):
        read_all(card)


@pytest.mark.parametrize(
    ("column", "index", "value", "what"),
    [
        ("mask_offsets", 3, 1 << 40, r"sample 2 has \d+ masks for \d+ tokens"),
        ("mask_offsets", 3, 0, r"sample 2 has -\d+ masks for \d+ tokens"),
        ("masked_positions", 0, 9000, "sample 0 has a mask beyond its end"),
        ("masked_input_ids", 0, 9000, "sample 0 has a mask with an id beyond the vocabulary"),
    ],
)
def test_damaged_static_masks_are_named(masked: Path, column: str, index: int, value: int, what: str) -> None:
    path = masked.parent / "seq64/00000.h5"
    with h5py.File(path, "r+") as file:
        before = file[column][index]
        file[column][index] = value
    try:
        with pytest.raises(BertlineError, match=rf"00000.h5: {what}; the file is damaged, import its files again$"):
            open_dataset(masked, 64, "train").gather(np.arange(3))
    finally:
        with h5py.File(path, "r+") as file:
            file[column][index] = before


@pytest.mark.parametrize(("index", "change"), [(0, 1), (-1, -1)])
def test_offsets_of_masks_that_leave_some_out_stop_the_opening(
    masked: Path, tmp_path: Path, index: int, change: int
) -> None:
    shutil.copytree(masked.parent, tmp_path / "damaged")
    with h5py.File(tmp_path / "damaged/seq64/00000.h5", "r+") as file:
        assert (np.diff(file["mask_offsets"][:])[[0, -1]] > 0).all()
        file["mask_offsets"][index] = int(file["mask_offsets"][index]) + change
    with pytest.raises(BertlineError, match="mask_offsets do not rise from 0 to the number of masks; the file is"):
        open_dataset(tmp_path / "damaged/dataset.json", 64, "train")


def test_a_corpus_that_is_not_in_the_card_is_named(masked: Path, tmp_path: Path) -> None:
    shutil.copytree(masked.parent, tmp_path / "damaged")
    reader = open_dataset(tmp_path / "damaged/dataset.json", 64, "train")
    assert {corpus for block in reader.corpora() for corpus in block.tolist()} == {0}
    with h5py.File(tmp_path / "damaged/seq64/00000.h5", "r+") as file:
        file["corpus_index"][11] = 1
    with pytest.raises(BertlineError, match=r"00000.h5: corpus_index names corpus 1, which is not there; the file is"):
        list(reader.corpora())


def test_the_advice_for_a_damaged_import_is_to_import_again(masked: Path, tmp_path: Path) -> None:
    shutil.copytree(masked.parent, tmp_path / "damaged")
    card, path = tmp_path / "damaged/dataset.json", tmp_path / "damaged/seq64/00000.h5"
    with pytest.raises(BertlineError, match="is encoded for sequence lengths 64, not 128; import files of this length"):
        open_dataset(card, 128, "train")
    with h5py.File(path, "r+") as file:
        file["next_sentence_labels"][0] = 7
    with pytest.raises(BertlineError, match=r"the file is damaged, import its files again$"):
        open_dataset(card, 64, "train").gather(np.arange(1))
    content = json.loads(card.read_text())
    content["sequence_lengths"]["64"]["train"][0]["tokens"] += 1
    card.write_text(json.dumps(content))
    with pytest.raises(BertlineError, match=r"has another number of tokens than stated .*; import its files again$"):
        open_dataset(card, 64, "train")
    path.write_bytes(path.read_bytes()[:-100_000])
    with pytest.raises(BertlineError, match=r"00000.h5.*run `snakemake encode`, or import it again$"):
        open_dataset(card, 64, "train")
    path.unlink()
    with pytest.raises(BertlineError, match=r"00000.h5 does not exist; run `snakemake encode`, or import it again$"):
        open_dataset(card, 64, "train")


def test_a_second_segment_must_begin_before_the_end_of_its_sample(card: Path) -> None:
    with h5py.File(card.parent / "seq32/00001.h5") as file:
        start, end = file["sample_offsets"][11:13].tolist()
    damage(card, "second_segment_start", 11, end - start)
    with pytest.raises(BertlineError, match="sample 11 has a second segment that begins after its end"):
        read_all(card)


def test_files_with_and_without_masks_do_not_go_together(masked: Path, tmp_path: Path) -> None:
    """Masks would be those of other samples."""
    shutil.copytree(masked.parent, tmp_path / "mixed")
    card = tmp_path / "mixed/dataset.json"
    content = json.loads(card.read_text())
    [entry] = content["sequence_lengths"]["64"]["train"]
    unmasked = {**entry, "file": "seq64/unmasked.h5"}
    with (
        h5py.File(card.parent / entry["file"]) as file,
        h5py.File(card.parent / unmasked["file"], "w", libver=("v110", "v110"), alignment_interval=4096,
                  alignment_threshold=1) as copy,
    ):  # fmt: skip
        copy.attrs.update(file.attrs)
        for name in file:
            if "mask" not in name:
                file.copy(name, copy)
    content["sequence_lengths"]["64"]["train"] = [entry, unmasked]
    card.write_text(json.dumps(content))
    with pytest.raises(BertlineError, match="only 1 of the 2 files of a split have masks; import them again"):
        open_dataset(card, 64, "train")


def test_every_value_of_a_valid_file_is_read(card: Path) -> None:
    with h5py.File(card.parent / "seq32/00001.h5") as file:
        start, end = file["sample_offsets"][11:13].tolist()
    damage(card, "input_ids", start + 1, 299)
    damage(card, "second_segment_start", 11, end - start - 1)
    assert len(read_all(card)) == 120


@pytest.mark.slow
def test_a_training_on_an_id_beyond_the_vocabulary_ends_with_one_line(card: Path, tmp_path: Path) -> None:
    damage(card, "input_ids", 100, 0x8000)
    trainer = Trainer(recipe(), card, tmp_path / "run")
    assert trainer.finish() != 0
    log = trainer.log.read_text()
    assert "Traceback" not in log
    assert log.splitlines()[-1].startswith("error: ")
    assert "00001.h5" in log.splitlines()[-1]


def test_more_files_can_be_opened_than_the_soft_limit_allows(whole: Path) -> None:
    """Each mapped file keeps a descriptor, and most systems begin with a soft limit of 1,024."""
    content = json.loads(whole.read_text())
    content["sequence_lengths"]["32"]["train"] *= 50
    card = whole.with_name("many.json")
    card.write_text(json.dumps(content))
    program = f"""
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from bertline.encoding.dataset import open_dataset
setrlimit(RLIMIT_NOFILE, (64, getrlimit(RLIMIT_NOFILE)[1]))
print(len(open_dataset({str(card)!r}, 32, "train")))
setrlimit(RLIMIT_NOFILE, (64, 64))
try:
    open_dataset({str(card)!r}, 32, "train")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, refused = done.stdout.splitlines()
    assert int(count) == 50 * 120
    assert "`ulimit -Hn`" in refused


def flip_a_word(card: Path) -> Path:
    """Make a word another one: every rule of the layout still holds."""
    path = card.parent / "seq32/00001.h5"
    with h5py.File(path, "r+") as file:
        at = int(file["sample_offsets"][40]) + 1
        file["input_ids"][at] ^= 1
    return path


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_one_rank_finds_a_file_with_another_digest(card: Path, world_size: int) -> None:
    path = flip_a_word(card)
    started = [
        verify_in_background(card, read_card(card), 32, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    [found] = filter(None, [one.finish() for one in started])
    assert found.startswith(f"{path} is damaged: ")
    assert "delete it, run `snakemake encode` or import it again, then run the same command again" in found
    assert read_all(card)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_the_ranks_together_verify_every_file(card: Path, world_size: int) -> None:
    started = [
        verify_in_background(card, read_card(card), 32, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    assert [one.finish() for one in started] == [None] * world_size
    (card.parent / "seq32/00000.h5").write_bytes(b"damaged")
    (card.parent / "seq32/held_out.h5").write_bytes(b"damaged")
    started = [
        verify_in_background(card, read_card(card), 32, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    found = [problem for one in started if (problem := one.finish())]
    assert len(found) == (1 if world_size in (1, 2) else 2)  # a rank stops at its first


def test_files_with_the_right_digests_are_verified_silently(card: Path, caplog: pytest.LogCaptureFixture) -> None:
    started = verify_in_background(card, read_card(card), 32, rank=0, world_size=1)
    assert started.finish() is None
    started.check()
    assert not caplog.messages


def test_files_that_were_not_verified_in_time_are_counted(card: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SECONDS_AT_THE_END", 0.1)
    os.mkfifo(card.parent / "endless")
    slow = FileVerification([(card.parent / "endless", "0" * 64), (card, "0" * 64)])
    assert slow.finish() is None
    (card.parent / "endless").write_bytes(b"")  # ends the thread
    assert slow.unverified == 2


def run_rank_that_verifies_at_the_end(*arguments: Any) -> None:
    begin, verify, finish = threading.Event(), FileVerification._verify, FileVerification.finish

    def verify_when_finishing(self: FileVerification) -> None:
        begin.wait()
        verify(self)

    def begin_and_finish(self: FileVerification) -> str | None:
        begin.set()
        return finish(self)

    FileVerification._verify, FileVerification.finish = verify_when_finishing, begin_and_finish  # type: ignore[method-assign]
    run_rank(*arguments)


class TrainerThatVerifiesAtTheEnd(Trainer):
    run_rank = staticmethod(run_rank_that_verifies_at_the_end)


@pytest.mark.slow
def test_a_file_that_one_rank_finds_damaged_at_the_end_is_published_by_none(card: Path, tmp_path: Path) -> None:
    path = flip_a_word(card)  # the second file, which rank 1 verifies
    trainer = TrainerThatVerifiesAtTheEnd(recipe(steps=2), card, tmp_path / "run", ranks=2)
    assert trainer.finish() != 0
    assert "step 2/2" in trainer.log.read_text()
    assert f"error: {path} is damaged" in trainer.log.read_text()
    assert not (tmp_path / "run/model.safetensors").exists()


def run_rank_of_which_one_verifies_nothing(*arguments: Any) -> None:
    verify = FileVerification._verify

    def verify_on_rank_zero(self: FileVerification) -> None:
        if os.environ["RANK"] == "0":
            verify(self)

    FileVerification._verify = verify_on_rank_zero  # type: ignore[method-assign]
    run_rank(*arguments)


class TrainerWithoutAVerification(Trainer):
    run_rank = staticmethod(run_rank_of_which_one_verifies_nothing)


@pytest.mark.slow
def test_files_that_another_rank_did_not_verify_are_reported(card: Path, tmp_path: Path) -> None:
    trainer = TrainerWithoutAVerification(recipe(steps=2), card, tmp_path / "run", ranks=2)
    assert trainer.finish() == 0
    assert "the phase ended before all files of samples were verified: a rank has 1 left" in trainer.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_on_a_damaged_file_publishes_nothing(card: Path, tmp_path: Path, ranks: int) -> None:
    path = flip_a_word(card)
    trainer = Trainer(recipe(), card, tmp_path / "run", ranks=ranks)
    assert trainer.finish() != 0
    assert f"error: {path} is damaged" in trainer.log.read_text()
    assert not (tmp_path / "run/model.safetensors").exists()
    # Resumed with the right file, it ends.
    with h5py.File(path, "r+") as file:
        file["input_ids"][int(file["sample_offsets"][40]) + 1] ^= 1
    Trainer(recipe(), card, tmp_path / "run", ranks=ranks).finish()
    assert (tmp_path / "run/model.safetensors").exists()
