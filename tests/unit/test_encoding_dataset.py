"""The card and the reader over all files of a dataset."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import h5py
import numpy as np
import pytest
from encoding_helpers import FINGERPRINT, VOCABULARY, make_dataset

from bertline.console import BertlineError
from bertline.corpus.shards import read_pieces, read_plan, write_plan
from bertline.encoding import dataset, page_cache
from bertline.encoding.card import write_card
from bertline.encoding.card_format import continuation_bitmap
from bertline.encoding.dataset import open_dataset
from bertline.encoding.layout import open_samples
from bertline.encoding.page_cache import wait_for_pages
from bertline.encoding.tokenizer import make_tokenizer, save_tokenizer
from bertline.encoding.validation import validate_dataset
from bertline.files import read_json

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("dataset"))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A dataset to damage."""
    shutil.copytree(finished.parent, tmp_path / "dataset")
    return tmp_path / "dataset/dataset.json"


def change(card: Path, **changes: Any) -> None:
    card.write_text(json.dumps(json.loads(card.read_text()) | changes))


def test_the_reader_joins_the_files_in_the_cards_order(finished: Path) -> None:
    reader = open_dataset(finished, 32, "train")
    files = [open_samples(finished.parent / f"seq32/{shard}.h5") for shard in ("00000", "00001")]
    samples = [
        file.input_ids[int(file.sample_offsets[row]) : int(file.sample_offsets[row + 1])]
        for file in files
        for row in range(len(file))
    ]
    assert len(reader) == len(samples) == len(reader.lengths)
    for index, sample in enumerate(samples):
        assert reader.gather([index]).tokens.tolist() == sample.tolist()
        assert reader.lengths[index] == len(sample)
    batch = reader.gather(np.arange(len(reader)))
    for name in ("second_segment_start", "next_sentence_labels"):
        assert getattr(batch, name).tolist() == [value for file in files for value in getattr(file, name).tolist()]
    corpora = [corpus for block in reader.corpora() for corpus in block.tolist()]
    assert corpora == [corpus for file in files for corpus in file.corpus_index.tolist()]
    with pytest.raises(IndexError):
        reader.gather([len(reader)])


def test_gathering_gives_samples_in_the_asked_order_with_repeats(finished: Path) -> None:
    reader = open_dataset(finished, 64, "train")
    indices = np.random.default_rng(0).integers(0, len(reader), 200)
    batch = reader.gather(indices)
    for number, index in enumerate(indices.tolist()):
        row = batch.tokens[batch.offsets[number] : batch.offsets[number + 1]]
        alone = reader.gather([index])
        assert row.tolist() == alone.tokens.tolist()
        assert batch.second_segment_start[number] == alone.second_segment_start[0]
        assert batch.next_sentence_labels[number] == alone.next_sentence_labels[0]
    assert batch.offsets[-1] == len(batch.tokens)
    assert reader.gather(np.array([], dtype=np.int64)).tokens.size == 0
    with pytest.raises(IndexError):
        reader.gather(np.array([-1]))


def test_all_of_a_sample_is_read_ahead_once_one_had_to_wait(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    waits = itertools.repeat(0)
    monkeypatch.setattr(dataset, "wait_for_pages", lambda _, start, count: asked.append((start, count)))
    monkeypatch.setattr(dataset, "major_faults", lambda: next(waits))
    reader = open_dataset(finished, 64, "train")
    file = open_samples(finished.parent / "seq64/00000.h5")
    reader.gather([3, 7])
    reader.read_ahead(np.array([3]))
    assert reader._threads is None
    waits = itertools.count()
    reader.gather([3, 7])
    reader.read_ahead(np.array([3]))
    reader._threads.shutdown()
    start, end = file.sample_offsets[3:5].tolist()
    assert asked == [(start, end - start), (3, 1), (3, 1)]


def test_samples_of_slow_storage_are_read_at_once(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read waits for 15 others that are under way: one after the other would never end."""
    together = threading.Barrier(16)
    waits = itertools.count(0, 100)
    monkeypatch.setattr(dataset, "major_faults", lambda: next(waits))
    monkeypatch.setattr(
        dataset, "wait_for_pages", lambda _, __, count: together.wait(timeout=240) if count > 1 else None
    )
    reader = open_dataset(finished, 64, "train")
    reader.gather(np.arange(16))
    reader.read_ahead(np.arange(16))
    reader._threads.shutdown()
    assert not together.broken


def test_pages_of_a_part_of_an_array_are_read_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.memmap(tmp_path / "numbers", dtype=np.uint32, mode="w+", shape=(200_000,))
    numbers[:] = np.arange(len(numbers))
    read: list[bytes] = []

    def memcpy(_: object, source: int, size: int) -> None:
        read.append(ctypes.string_at(source, size))

    monkeypatch.setattr(page_cache, "LIBC", SimpleNamespace(memcpy=memcpy))
    for start, count in ((0, 200_000), (199_999, 1), (5, 0)):
        wait_for_pages(numbers, start, count)
        assert read[-1] == numbers[start : start + count].tobytes()


def test_reading_ahead_continues_for_as_long_as_storage_is_slow(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gather waits unless its batch was read ahead; of all batches, only a few wait."""
    reader = open_dataset(finished, 64, "train")
    samples, waits = np.arange(4), [0]
    monkeypatch.setattr(dataset, "BATCHES_TO_READ_AHEAD", 100)
    monkeypatch.setattr(dataset, "major_faults", lambda: waits[0])
    offsets_of = dataset.offsets_of
    coming: list[bool] = []
    waited = 0

    def slowly(lengths: np.ndarray) -> np.ndarray:
        """Called within each gather."""
        nonlocal waited
        if not coming.pop(0):
            waits[0] += len(lengths)
            waited += 1
        return offsets_of(lengths)

    monkeypatch.setattr(dataset, "offsets_of", slowly)
    for _ in range(1000):
        with patch.object(reader, "_wait_for") as read:
            reader.read_ahead(samples)
            if reader._threads is not None:
                reader._threads.shutdown()
                reader._threads = None
        coming.append(read.called)
        if len(coming) > 4:
            reader.gather(samples)
    assert 5 <= waited <= 5 + 1000 // 80


def test_the_card_adds_up(finished: Path) -> None:
    card = json.loads(finished.read_text())
    assert (card["documents"], card["held_out_documents"]) == (59, 5)
    counts = {"news": (38, 44, 200), "books": (26, 29, 100)}
    for corpus, (name, (documents, read, characters)) in zip(card["corpora"], counts.items(), strict=True):
        assert (corpus["name"], corpus["read"], corpus["kept"], corpus["documents"]) == (
            name,
            read,
            documents,
            documents,
        )
        assert (corpus["dropped"], corpus["removed"]) == ({"too short": read - documents}, {})
        assert corpus["characters"] == characters
    for length in card["sequence_lengths"]:
        sections = [corpus["sequence_lengths"][length] for corpus in card["corpora"]]
        files = [open_samples(finished.parent / f"seq{length}/{shard}.h5") for shard in ("00000", "00001", "held_out")]
        assert sum(section["samples"] for section in sections) == sum(map(len, files))
        assert sum(section["tokens"] for section in sections) == sum(len(file.input_ids) for file in files)
    for length, section in card["sequence_lengths"].items():
        reader = open_dataset(finished, int(length), "train")
        assert [entry["file"] for entry in section["train"]] == [f"seq{length}/0000{n}.h5" for n in range(2)]
        assert [entry["file"] for entry in section["held_out"]] == [f"seq{length}/held_out.h5"]
        assert section["samples"] == len(reader) == sum(section["length_histogram"]["counts"])
        assert section["tokens"] == reader.lengths.sum() == sum(entry["tokens"] for entry in section["train"])
        edges = section["length_histogram"]["edges"]
        assert edges[-1] == int(length)
        assert section["length_histogram"]["counts"][-1] == (reader.lengths >= edges[-2]).sum()
    assert [VOCABULARY[index] for index in continuation_bitmap(card).nonzero()[0]] == ["##s", "##ing", "##er", "##ly"]


def test_a_dataset_made_twice_has_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    again = make_dataset(tmp_path / "again")
    for path in sorted(finished.parent.rglob("*")):
        if path.suffix in (".h5", ".json") and path.is_file():
            assert path.read_bytes() == (again.parent / path.relative_to(finished.parent)).read_bytes(), path.name


def test_documents_that_got_lost_stop_the_card(finished: Path, tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps({"read": 40, "kept": 39, "dropped": {"too short": 1}}))
    names = {"fingerprint": FINGERPRINT, "fingerprint_without_lengths": "b" * 16}
    recipe: dict[str, Any] = {**names, "settings": {}, "sequence_lengths": [32]}
    folder = finished.parent
    before = finished.read_bytes()
    with pytest.raises(BertlineError, match="corpus news: 39 documents were kept, 0 removed, 38 are in"):
        write_card(recipe, folder, {"news": [counts], "books": [folder / "books-0.counts.json"]})
    with pytest.raises(BertlineError, match="no counts are given for news"):
        write_card(recipe, folder, {"books": [folder / "books-0.counts.json"]})
    assert finished.read_bytes() == before


def test_a_card_counts_documents_of_the_dataset_that_overlap(copied: Path) -> None:
    """The shards hold 20 of a part; with `drop`, the others are those that were dropped."""
    counts = {"news": [copied.parent / f"news-{n}.counts.json" for n in range(2)]}
    counts["books"] = [copied.parent / "books-0.counts.json"]
    content = {"sets": ["cola"], "documents": 90}
    content["overlaps"] = [{"document": number, "id": f"{number}", "shared": {"cola": 2}} for number in (3, 19, 20, 60)]
    (copied.parent / "made-up.json").write_text(json.dumps(content))
    names = {"fingerprint": FINGERPRINT, "fingerprint_without_lengths": "b" * 16}
    settings = read_json(copied)["settings"]
    for overlap, expected in (("report", 2), ("drop", 4)):
        recipe = {**names, "settings": {**settings, "evaluation_overlap": overlap}, "sequence_lengths": [32]}
        reports = {corpus: [copied.parent / "made-up.json"] for corpus in ("news", "books")}
        card = write_card(recipe, copied.parent, counts, reports)
        assert card["evaluation_overlap"]["cola"]["corpora"]["news"] == expected


def test_a_card_is_written_and_validated_with_fewer_open_files_than_the_dataset_has(tmp_path: Path) -> None:
    shards = [f"{number:05d}" for number in range(40)]
    card = make_dataset(tmp_path, sizes=dict.fromkeys([*shards, "held_out"], (2, 1)))
    before = card.read_bytes()
    program = """
import json, resource, sys
from pathlib import Path
from bertline.encoding.card import write_card
from bertline.encoding.validation import validate_dataset
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
card = Path(sys.argv[1])
content = json.loads(card.read_text())
recipe = {key: content[key] for key in ("fingerprint", "fingerprint_without_lengths", "settings")}
counts = {name: sorted(card.parent.glob(f"{name}-*.counts.json")) for name in ("news", "books")}
write_card({**recipe, "sequence_lengths": [32, 64]}, card.parent, counts)
print(validate_dataset(card))
"""
    done = subprocess.run([sys.executable, "-c", program, card], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("valid: 120 documents and 3 held out"), done.stderr
    assert card.read_bytes() == before


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("input_ids", 9, "input_ids does not have the digest it was written with"),
        ("sample_offsets", 10**12, "sample_offsets are not those of samples"),
        ("sample_offsets", 0, "sample_offsets are not those of samples"),
        ("corpus_index", 200, "corpus_index names a corpus that is not there"),
    ],
)
def test_a_damaged_file_gets_no_card(copied: Path, column: str, value: int, fault: str) -> None:
    path, before = copied.parent / "seq32/00001.h5", copied.read_bytes()
    with h5py.File(path, "r+") as file:
        assert file[column][3] != value
        file[column][3] = value
    with pytest.raises(BertlineError, match=f"00001.h5: {column} does not have the digest it was written with"):
        write_again(copied)
    if column != "input_ids":  # of which any word is valid
        with h5py.File(path, "r+") as file:
            digest = hashlib.sha256(file[column][...].tobytes()).hexdigest()
            file[column].attrs["sha256"] = np.bytes_(digest)
        with pytest.raises(BertlineError) as caught:
            write_again(copied)
        assert str(caught.value) == f"{path}: {fault}; delete it and run `snakemake encode`, or import it again"
    assert copied.read_bytes() == before


def test_a_file_whose_samples_end_before_its_tokens_gets_no_card(copied: Path) -> None:
    with h5py.File(copied.parent / "seq32/00001.h5", "r+") as file:
        offsets = file["sample_offsets"]
        offsets[-1] -= 1
        offsets.attrs["sha256"] = np.bytes_(hashlib.sha256(offsets[...].tobytes()).hexdigest())
    with pytest.raises(BertlineError, match=r"00001\.h5: sample_offsets are not those of samples; delete it and"):
        write_again(copied)


def test_a_file_with_text_of_more_corpora_than_its_dataset_has_gets_no_card(copied: Path) -> None:
    with h5py.File(copied.parent / "seq64/00001.h5", "r+") as file:
        file.attrs["documents_of_corpora"] = np.append(file.attrs["documents_of_corpora"], np.uint64(0))
    with pytest.raises(BertlineError, match=r"00001\.h5 has text of 3 corpora, its dataset has 2; delete it and"):
        write_again(copied)


def test_a_card_has_what_the_plan_counted(copied: Path) -> None:
    plan_file = copied.parent / "plan.jsonl"
    plan = read_plan(plan_file)
    pieces = [(shard, read_pieces(plan_file, shard)) for shard in sorted(plan["shards"])]
    counted = {"sentences": 7, "length_histogram": {"edges": [0, 9], "counts": [38]}}
    plan["corpora"][0] |= {**counted, "removed": {"sampled_out": 0}}
    write_plan(plan_file, plan, pieces)
    write_again(copied)
    news, books = read_json(copied)["corpora"]
    assert news | counted == news
    assert news["removed"] == {"sampled_out": 0}
    assert not counted.keys() & books.keys()


@pytest.mark.parametrize("number", [-1, len(VOCABULARY)])
def test_a_special_token_outside_the_vocabulary_is_named(copied: Path, number: int) -> None:
    tokenizer = read_json(copied)["tokenizer"]
    tokenizer["special_tokens"]["[MASK]"] = number
    change(copied, tokenizer=tokenizer)
    with pytest.raises(BertlineError) as caught:
        open_dataset(copied, 32, "train")
    assert str(caught.value) == (
        f"{copied}: tokenizer.special_tokens.[MASK]: given '{number}', allowed is an id of the vocabulary; encode or "
        "import the dataset again"
    )


def write_again(card: Path) -> None:
    """Write the card of a dataset of `make_dataset` again."""
    content, folder = read_json(card), card.parent
    recipe = {key: content[key] for key in ("fingerprint", "fingerprint_without_lengths", "settings")}
    counts = {name: sorted(folder.glob(f"{name}-*.counts.json")) for name in ("news", "books")}
    write_card({**recipe, "sequence_lengths": [32, 64]}, folder, counts)


def test_a_dataset_without_samples_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        BertlineError, match="the dataset of news, books has no sample of length 32 to train on"
    ) as caught:
        make_dataset(tmp_path, sizes={"00000": (0, 0), "held_out": (3, 2)})
    assert str(caught.value).endswith("add text to the corpora, or lower held_out")


def test_a_card_is_not_written_over_files_of_another_dataset(copied: Path) -> None:
    counts = {"news": [copied.parent / f"news-{n}.counts.json" for n in range(2)]}
    counts["books"] = [copied.parent / "books-0.counts.json"]
    names = {"fingerprint": "f" * 16, "fingerprint_without_lengths": "b" * 16}
    with pytest.raises(BertlineError, match=r"belongs to another dataset than stated in its dataset.json"):
        write_card({**names, "settings": {}, "sequence_lengths": [32]}, copied.parent, counts)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"layout_version": 2}, "dataset.json has layout version 2, expected is 1; encode or import the dataset again"),
        ({"fingerprint": "f" * 16}, "belongs to another dataset than stated in its dataset.json"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(copied: Path, changes: dict[str, Any], fault: str) -> None:
    change(copied, **changes)
    with pytest.raises(BertlineError, match=fault):
        open_dataset(copied, 32, "train")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (["fingerprint"], "no 'fingerprint'"),
        (["tokenizer"], "no 'tokenizer'"),
        (["tokenizer", "sha256"], "no 'tokenizer.sha256'"),
        (["sequence_lengths"], "no 'sequence_lengths'"),
        (["sequence_lengths", "32", "held_out"], "no 'sequence_lengths.32.held_out'"),
    ],
)
def test_a_card_without_a_key_is_one_line(copied: Path, keys: list[str], fault: str) -> None:
    card = json.loads(copied.read_text())
    inner = card
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    copied.write_text(json.dumps(card))
    with pytest.raises(BertlineError, match=f"dataset.json has {fault}; encode or import the dataset again"):
        open_dataset(copied, 32, "train")


def test_a_file_of_another_tokenizer_is_refused(copied: Path) -> None:
    tokenizer = json.loads(copied.read_text())["tokenizer"]
    change(copied, tokenizer=tokenizer | {"sha256": "a" * 64})
    with pytest.raises(
        BertlineError, match=r"00000.h5 was encoded with another tokenizer than stated in its dataset.json"
    ):
        open_dataset(copied, 32, "train")


def test_the_error_for_a_missing_shard_explains_how_to_make_it(copied: Path) -> None:
    (copied.parent / "seq32/00001.h5").unlink()
    with pytest.raises(BertlineError, match=r"00001.h5 does not exist; run `snakemake encode`"):
        open_dataset(copied, 32, "train")


def test_the_samples_of_a_length_do_not_depend_on_the_other_lengths(finished: Path, tmp_path: Path) -> None:
    alone = make_dataset(tmp_path, lengths=[32])
    for name in ("00000", "00001", "held_out"):
        one, other = (open_samples(card.parent / f"seq32/{name}.h5") for card in (finished, alone))
        for column in ("input_ids", "sample_offsets", "second_segment_start", "next_sentence_labels"):
            assert np.array_equal(getattr(one, column), getattr(other, column))


def test_the_error_for_a_length_that_is_not_encoded_lists_those_that_are(finished: Path) -> None:
    with pytest.raises(BertlineError, match="is encoded for sequence lengths 32, 64, not 128"):
        open_dataset(finished, 128, "train")


def test_a_file_in_the_place_of_another_length_is_refused(copied: Path) -> None:
    shutil.copy(copied.parent / "seq64/00000.h5", copied.parent / "seq32/00000.h5")
    with pytest.raises(BertlineError, match="is encoded for another sequence length"):
        open_dataset(copied, 32, "train")


@pytest.mark.parametrize("objective", ["next_sentence", "none"])
def test_a_whole_dataset_is_valid(finished: Path, tmp_path: Path, objective: str) -> None:
    card = finished if objective == "next_sentence" else make_dataset(tmp_path / "none", pair_objective="none")
    verdict = validate_dataset(card)
    assert verdict.startswith("valid: 59 documents and 5 held out")
    assert "\n" not in verdict


def test_the_validator_finds_a_file_that_is_not_the_cards(copied: Path) -> None:
    file = copied.parent / "seq64/held_out.h5"
    content = bytearray(file.read_bytes())
    unused = content.rindex(bytes(64))  # between two datasets: no digest of the file's own covers it
    content[unused + 32] ^= 1
    file.write_bytes(content)
    with pytest.raises(BertlineError, match=r"held_out.h5 is .*dataset.json states"):
        validate_dataset(copied)


def test_the_validator_finds_another_tokenizer(copied: Path) -> None:
    tokenizer = make_tokenizer([*VOCABULARY, "more"], lowercase=True, source="the test")
    save_tokenizer(tokenizer, copied.parent / "tokenizer.json")
    with pytest.raises(BertlineError, match=r"does not describe the tokenizer.json next to it"):
        validate_dataset(copied)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"documents": 58}, "documents is 58, the files hold 59"),
        ({"documents": 62, "held_out_documents": 2}, "documents is 62, the files hold 59"),
        ({"static_masks": True}, "static_masks is True, but its files have no masks"),
        ({"settings": {"seed": 7}}, "00000.h5: its seed is 12345, .*dataset.json states 7"),
        ({"settings": {"pair_objective": "none"}}, "00000.h5: its pair_objective is next_sentence, .* states none"),
        ({"sentences": 1}, "sentences is 1, the files hold"),
        ({"corpora": [{"name": "all", "documents": 64, "read": 70, "kept": 64, "dropped": {"a": 5}}]}, "read is not"),
    ],
)
def test_the_validator_finds_counts_that_do_not_add_up(copied: Path, changes: dict[str, Any], fault: str) -> None:
    change(copied, **changes)
    with pytest.raises(BertlineError, match=fault):
        validate_dataset(copied)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("documents", "lacks the key 'documents'"),
        ("held_out_documents", "lacks the key 'held_out_documents'"),
        ("sentences", "sentences is 0, the files hold"),
    ],
)
def test_the_validator_finds_that_a_count_is_missing(copied: Path, name: str, fault: str) -> None:
    content = read_json(copied)
    del content[name]
    copied.write_text(json.dumps(content))
    with pytest.raises(BertlineError, match=fault):
        validate_dataset(copied)


def test_the_validator_finds_that_all_lengths_are_missing(copied: Path) -> None:
    change(copied, sequence_lengths={})
    with pytest.raises(BertlineError, match=r"dataset\.json has no sequence length; encode or import it again"):
        validate_dataset(copied)


def _of_length(corpora: list[dict[str, Any]]) -> dict[str, int]:
    return corpora[1]["sequence_lengths"]["64"]


@pytest.mark.parametrize(
    ("falsify", "fault"),
    [
        (lambda corpora: _of_length(corpora).update(samples=1), "books: its samples of length 64 are not those of the"),
        (lambda corpora: _of_length(corpora).update(tokens=1), "books: its samples of length 64 are not those of the"),
        (lambda corpora: _of_length(corpora).pop("tokens"), "books: its samples of length 64 are not those of the"),
        (lambda corpora: corpora[1]["sequence_lengths"].pop("64"), "books: its samples of length 64 are not those"),
        (lambda corpora: corpora[0].pop("sequence_lengths"), "news: its samples of length 32 are not those of the"),
        (
            lambda corpora: [
                corpus.update({key: corpus[key] + more for key in ("documents", "kept", "read")})
                for corpus, more in zip(corpora, (2, -2), strict=True)
            ],
            "corpus news: documents is 40, the files hold 38",
        ),
        (lambda corpora: corpora.reverse(), "corpus books: documents is 26, the files hold 38"),
        (lambda corpora: corpora.pop(), r"dataset\.json names 1 corpora, the files hold text of 2; encode or import"),
        (lambda corpora: corpora.clear(), r"dataset\.json names 0 corpora, the files hold text of 2; encode or import"),
    ],
)
def test_the_validator_finds_counts_of_corpora_that_are_not_those_of_the_files(
    copied: Path, falsify: Callable[[list[dict[str, Any]]], object], fault: str
) -> None:
    corpora = read_json(copied)["corpora"]
    falsify(corpora)
    change(copied, corpora=corpora)
    with pytest.raises(BertlineError, match=fault):
        validate_dataset(copied)


def test_the_card_of_a_dataset_from_before_samples_of_corpora_were_counted_is_valid(copied: Path) -> None:
    corpora = read_json(copied)["corpora"]
    for corpus in corpora:
        del corpus["removed"], corpus["sequence_lengths"]
    change(copied, corpora=corpora)
    assert validate_dataset(copied).startswith("valid: ")


@pytest.mark.parametrize("name", ["samples", "unplaced_tokens", "length_histogram"])
def test_the_validator_finds_totals_of_a_length_that_are_not_those_of_its_files(copied: Path, name: str) -> None:
    card = json.loads(copied.read_text())
    section = card["sequence_lengths"]["64"]
    if name == "length_histogram":
        section[name]["counts"][-1] += 1
    else:
        section[name] += 1
    change(copied, sequence_lengths=card["sequence_lengths"])
    with pytest.raises(BertlineError, match=r"the counts of sequence length 64 are not those of the files; encode or"):
        validate_dataset(copied)


def test_the_validator_finds_lengths_that_are_not_of_the_same_text(copied: Path) -> None:
    path = copied.parent / "seq64/00001.h5"
    with h5py.File(path, "r+") as file:
        file.attrs["unknown_tokens"] += np.uint64(1)
    card = json.loads(copied.read_text())
    card["sequence_lengths"]["64"]["train"][1]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    change(copied, sequence_lengths=card["sequence_lengths"])
    with pytest.raises(BertlineError, match=r"00001.h5 and those of other lengths are not made from the same text"):
        validate_dataset(copied)


def test_the_validator_s_script_prints_a_verdict_or_one_error(copied: Path) -> None:
    command = [sys.executable, SCRIPTS / "validate_dataset.py", copied]
    good = subprocess.run(command, capture_output=True, text=True, check=True)
    assert good.stdout.startswith("valid: ")
    at_once = subprocess.run([*command, "--processes", "2"], capture_output=True, text=True, check=True)
    assert at_once.stdout == good.stdout
    (copied.parent / "seq64/00000.h5").unlink()
    bad = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert bad.stderr.splitlines()[-1].startswith("error: ")
    assert bad.stdout == ""


def test_reading_and_encoding_need_no_torch() -> None:
    modules = [
        "card",
        "dataset",
        "encode_shard",
        "layout",
        "samples",
        "tokenization",
        "tokenizer",
        "trigram",
        "vocabulary",
    ]
    imports = "; ".join(f"import bertline.encoding.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", f"{imports}; import sys; assert 'torch' not in sys.modules"], check=True)
