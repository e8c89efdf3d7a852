"""The validator finds what is wrong with a file of samples, in any layout, and the inspector shows samples as text."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from encoding_helpers import VOCABULARY, make_dataset

from bertline.console import BertlineError
from bertline.encoding.imports import import_dataset
from bertline.encoding.inspection import problems_of, show_samples
from bertline.encoding.statistics import compare_samples
from bertline.training.data.exporting import export_samples

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
CLS, SEP, MASK = 2, 3, 4
# Two samples of A and B, and what is asked for: [CLS] 7 8 [SEP] 9 10 [SEP] and [CLS] 11 [SEP] 12 13 [SEP].
NVIDIA = {
    "input_ids": [[CLS, 7, MASK, SEP, 9, 10, SEP, 0], [CLS, 11, SEP, 5, 13, SEP, 0, 0]],
    "input_mask": [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0, 0]],
    "segment_ids": [[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 0, 0]],
    "masked_lm_positions": [[2, 5, 0], [3, 0, 0]],
    "masked_lm_ids": [[8, 10, 0], [12, 0, 0]],
    "next_sentence_labels": [0, 1],
}
GPAULOSKI = {
    "input_ids": [[CLS, 7, 8, SEP, 9, 10, SEP, 0], [CLS, 11, SEP, 12, 13, SEP, 0, 0]],
    "special_token_positions": [[0, 3, 6], [0, 2, 5]],
    "next_sentence_labels": [0, 1],
}
BYTES = ("input_mask", "segment_ids", "next_sentence_labels")


def write(path: Path, columns: dict[str, Any], changes: dict[tuple[str, int, int | None], int] | None = None) -> Path:
    """A file whose values are changed: (dataset, sample, place) -> value."""
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            content = np.array(values, dtype="i1" if name in BYTES else "i4")
            for (of, sample, place), value in (changes or {}).items():
                if of == name:
                    content[(sample, place) if place is not None else sample] = value
            file.create_dataset(name, data=content, compression="gzip")
    return path


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in VOCABULARY))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, vocabulary: Path) -> dict[str, Path]:
    """A good file of each layout, with no dataset.json near it."""
    folder = tmp_path_factory.mktemp("files")
    card = make_dataset(folder / "data", lengths=[32])
    samples = card.parent / "seq32/held_out.h5"
    export_samples([samples], card, [folder / "nvidia.hdf5"], "nvidia", dupe_factor=2)
    export_samples([samples], card, [folder / "gpauloski.hdf5"], "gpauloski")
    import_dataset([folder / "nvidia.hdf5"], vocabulary, folder / "imported", name="theirs")
    shutil.copy(samples, folder / "native.h5")
    shutil.copy(folder / "imported/seq32/00000.h5", folder / "masked.h5")
    return {path.stem: path for path in folder.iterdir() if path.is_file()}


def test_right_files_have_no_problems(files: dict[str, Path], tmp_path: Path, vocabulary: Path) -> None:
    paths = [*files.values(), write(tmp_path / "a.hdf5", NVIDIA), write(tmp_path / "b.hdf5", GPAULOSKI)]
    assert [problem for path in paths for problem in problems_of(path, vocabulary)] == []
    assert [problem for path in paths for problem in problems_of(path)] == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({("input_ids", 1, 4): 23}, "has an id outside the vocabulary"),
        ({("input_ids", 1, 4): -1}, "has an id outside the vocabulary"),
        ({("input_ids", 1, 7): 5}, "has ids behind its end"),
        ({("input_ids", 1, 0): 5}, "does not begin with [CLS]"),
        ({("input_ids", 1, 5): 5}, "does not end with [SEP]"),
        ({("input_ids", 1, 2): 5}, "has no [SEP] before its second segment"),
        ({("input_ids", 1, 4): SEP}, "has [CLS] or [SEP] inside its text"),
        ({("input_mask", 1, 1): 0}, "has an input_mask that is not ones and then zeros"),
        ({("input_mask", 1, 1): 2}, "has an input_mask that is not ones and then zeros"),
        ({("segment_ids", 1, 4): 0}, "has segment_ids that are not zeros and then ones up to its end"),
        ({("segment_ids", 1, 6): 1}, "has segment_ids that are not zeros and then ones up to its end"),
        ({("segment_ids", 0, 4): 0}, "has no [SEP] before its second segment"),
        ({("masked_lm_positions", 1, 0): 0}, "has no masked_lm_positions"),
        ({("masked_lm_positions", 1, 1): 3}, "has masked_lm_positions that do not ascend"),
        ({("masked_lm_positions", 1, 1): 5}, "has masked_lm_positions outside its text"),
        ({("masked_lm_positions", 1, 0): 2}, "has masked_lm_positions outside its text"),
        ({("masked_lm_positions", 1, 0): -3}, "has masked_lm_positions outside its text"),
        ({("masked_lm_positions", 1, 2): 4}, "has masked_lm_positions or masked_lm_ids behind the first 0"),
        ({("masked_lm_ids", 1, 1): 9}, "has masked_lm_positions or masked_lm_ids behind the first 0"),
        ({("masked_lm_ids", 1, 0): 0}, "has masked_lm_ids that are padding"),
        ({("masked_lm_ids", 1, 0): 99}, "has masked_lm_ids outside the vocabulary"),
        ({("masked_lm_ids", 1, 0): SEP}, "has [CLS] or [SEP] inside its text"),
        ({("next_sentence_labels", 1, None): 2}, "has a label that is not 0 or 1"),
    ],
)
def test_every_rule_of_nvidias_layout_is_checked(tmp_path: Path, vocabulary: Path, changes: dict, fault: str) -> None:
    path = write(tmp_path / "a.hdf5", NVIDIA, changes)
    sample = next(iter(changes))[1]
    assert f"{path}: sample {sample} {fault}" in list(problems_of(path, vocabulary))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({("input_ids", 1, 3): 23}, "has an id outside the vocabulary"),
        ({("input_ids", 1, 6): 1}, "has ids behind its end"),
        ({("input_ids", 1, 4): CLS}, "has [CLS] or [SEP] inside its text"),
        ({("special_token_positions", 1, 0): 1}, "has special_token_positions that do not rise from 0 to a place in"),
        ({("special_token_positions", 1, 1): 5}, "has special_token_positions that do not rise from 0 to a place in"),
        ({("special_token_positions", 1, 2): 8}, "has special_token_positions that do not rise from 0 to a place in"),
        ({("special_token_positions", 1, 2): 4}, "has ids behind its end"),
        ({("special_token_positions", 1, 1): 1}, "has no [SEP] before its second segment"),
        ({("next_sentence_labels", 1, None): -1}, "has a label that is not 0 or 1"),
    ],
)
def test_every_rule_of_gpauloskis_layout_is_checked(
    tmp_path: Path, vocabulary: Path, changes: dict, fault: str
) -> None:
    path = write(tmp_path / "a.hdf5", GPAULOSKI, changes)
    assert any(problem.startswith(f"{path}: sample 1 {fault}") for problem in problems_of(path, vocabulary))


def test_any_id_of_an_unknown_vocabulary_may_be_a_word(tmp_path: Path, vocabulary: Path) -> None:
    path = write(tmp_path / "a.hdf5", NVIDIA, {("masked_lm_ids", 1, 0): 0, ("input_ids", 0, 1): 0})
    assert list(problems_of(path)) == []
    assert list(problems_of(path, vocabulary)) == [f"{path}: sample 1 has masked_lm_ids that are padding"]


def test_types_shapes_and_mixtures_are_refused(tmp_path: Path) -> None:
    long = tmp_path / "long.hdf5"
    with h5py.File(write(long, NVIDIA), "r+") as file:
        del file["segment_ids"]
        file["segment_ids"] = np.zeros((2, 8), "i8")
    fault = "segment_ids is int64 (2, 8), in the layout nvidia it is int8 (2, 8); make it again"
    assert list(problems_of(long)) == [f"{long}: {fault}"]
    narrow = tmp_path / "narrow.hdf5"
    with h5py.File(write(narrow, NVIDIA), "r+") as file:
        del file["masked_lm_ids"]
        file["masked_lm_ids"] = np.zeros((2, 4), "i4")
    assert "masked_lm_ids is int32 (2, 4), in the layout nvidia it is int32 (2, 3)" in next(problems_of(narrow))
    both = write(tmp_path / "both.hdf5", {**NVIDIA, **GPAULOSKI})
    assert "a file of samples holds the datasets of one layout" in next(problems_of(both))
    (tmp_path / "text.hdf5").write_text("none")
    assert "is not a complete file of samples" in next(problems_of(tmp_path / "text.hdf5"))
    assert "does not exist" in next(problems_of(tmp_path / "absent.hdf5"))
    assert list(problems_of(tmp_path)) == [f"{tmp_path} is a folder; name the files in it"]


@pytest.mark.parametrize("width", [1, 4])
def test_special_tokens_are_two_or_three_in_a_row(tmp_path: Path, width: int) -> None:
    places = [row[:width] + [7] * (width - 3) for row in GPAULOSKI["special_token_positions"]]
    path = write(tmp_path / "a.hdf5", {**GPAULOSKI, "special_token_positions": places})
    fault = f"special_token_positions has rows of {width}, allowed are 2 or 3; make the file again"
    assert list(problems_of(path)) == [f"{path}: {fault}"]


def test_a_problem_of_many_samples_is_one_line(tmp_path: Path) -> None:
    columns = {name: [values[1]] * 7 for name, values in NVIDIA.items()}
    path = write(tmp_path / "a.hdf5", columns, {("next_sentence_labels", n, None): 3 for n in (2, 4, 5)})
    assert list(problems_of(path)) == [f"{path}: sample 2 has a label that is not 0 or 1 (and 2 more samples)"]


@pytest.mark.parametrize(
    ("name", "place", "value", "fault"),
    [
        ("mask_offsets", 1, 10_000, "mask_offsets do not rise from 0 to the number of masks"),
        ("masked_positions", 1, 0, "sample 0 has masks that do not ascend"),
        ("masked_positions", 0, 60_000, "sample 0 has a mask outside its text"),
        ("masked_positions", 0, 0, "sample 0 has a mask outside its text"),
        ("masked_input_ids", 0, 500, "sample 0 has a mask with an id beyond the vocabulary"),
    ],
)
def test_static_masks_of_native_files_are_checked(
    files: dict[str, Path], tmp_path: Path, name: str, place: int, value: int, fault: str
) -> None:
    path = shutil.copy(files["masked"], tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file[name][place] = value
    problems = list(problems_of(path))
    assert f"{path}: {name} does not have the digest it was written with" in problems
    assert any(problem.startswith(f"{path}: {fault}") for problem in problems)


def test_the_dataset_s_card_finds_what_a_single_file_does_not_show(tmp_path: Path) -> None:
    card = make_dataset(tmp_path / "data", lengths=[32])
    path = card.parent / "seq32/00000.h5"
    assert list(problems_of(path)) == []
    with h5py.File(path, "r+") as file:
        file.attrs["seed"] = np.uint64(1)
    assert list(problems_of(path)) == [f"{path}: is not the file that {card} describes: another digest"]


def test_another_vocabulary_is_found(files: dict[str, Path], tmp_path: Path) -> None:
    words = [word for word in VOCABULARY if word != "[CLS]"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in [*words, "[CLS]"]))
    assert f"{files['native']}: cls_id is 2, that of the vocabulary given is 22" in problems_of(
        files["native"], tmp_path / "vocab.txt"
    )


def content_of(path: Path) -> dict[str, Any]:
    with h5py.File(path, "r") as file:
        arrays = {name: (file[name].dtype, file[name].shape, file[name][...].tobytes()) for name in file}
        return arrays | {f"attribute {name}": np.asarray(value).tobytes() for name, value in file.attrs.items()}


@pytest.mark.parametrize("layout", ["masked", "nvidia", "gpauloski"])
def test_a_changed_byte_is_found_or_changes_nothing(files: dict[str, Path], tmp_path: Path, layout: str) -> None:
    """Native files: always. The others' old version of HDF5 has checksums of its values, but none of its own tables:
    there about one byte in a thousand could be missed; these 100 are not."""
    good, before = files[layout].read_bytes(), content_of(files[layout])
    draw, found = random.Random(20), 0  # noqa: S311
    path = tmp_path / "a.h5"
    # Half of the changes are in bytes that are used: much of a file is room for data that was never written.
    used = [place for place, byte in enumerate(good) if byte]
    for number in range(100):
        damaged = bytearray(good)
        damaged[draw.choice(used) if number % 2 else draw.randrange(len(good))] ^= draw.randrange(1, 256)
        path.write_bytes(damaged)
        problems = list(problems_of(path))
        assert all("\n" not in problem for problem in problems)
        assert problems or content_of(path) == before
        found += bool(problems)
    assert found > 30


def test_a_document_that_the_corpora_do_not_have_is_found(tmp_path: Path) -> None:
    path = make_dataset(tmp_path / "data", lengths=[32]).parent / "seq32/00000.h5"
    with h5py.File(path, "r+") as file:
        file["document_index"][-1] = sum(file.attrs["documents_of_corpora"])
    assert any("document_index does not rise below the number of documents" in problem for problem in problems_of(path))


def is_word(value: int) -> bool:
    return value > MASK


# What no rule can tell without a digest: another word, another label, another of the positions between two masks.
UNKNOWABLE: dict[str, Callable[[int, int], bool]] = {
    "input_ids": lambda old, new: (is_word(old) or old == MASK) and new not in (CLS, SEP),
    "masked_lm_ids": lambda old, new: is_word(old) and new not in (CLS, SEP),
    "masked_lm_positions": lambda old, new: old > 0 and new > 0,
    "next_sentence_labels": lambda old, new: {old, new} == {0, 1},
}


@pytest.mark.parametrize("layout", ["nvidia", "gpauloski"])
def test_a_changed_value_is_found_unless_it_could_have_been_so(
    files: dict[str, Path], tmp_path: Path, vocabulary: Path, layout: str
) -> None:
    draw = random.Random(21)  # noqa: S311
    path, found = tmp_path / "a.hdf5", 0
    for _ in range(100):
        shutil.copy(files[layout], path)
        with h5py.File(path, "r+") as file:
            name = draw.choice(sorted(file))
            place = tuple(draw.randrange(size) for size in file[name].shape)
            old, new = int(file[name][place]), draw.randrange(-2, 40)
            file[name][place] = new
        problems = list(problems_of(path, vocabulary))
        allowed = old == new or UNKNOWABLE.get(name, lambda old, new: False)(old, new)
        assert problems or allowed, (name, place, old, new)
        found += bool(problems)
    assert found > 60


def test_the_validator_s_script_prints_a_line_for_each_problem(tmp_path: Path) -> None:
    good = write(tmp_path / "good.hdf5", NVIDIA)
    bad = write(tmp_path / "bad.hdf5", NVIDIA, {("next_sentence_labels", 0, None): 7, ("input_ids", 1, 7): 5})
    command = [sys.executable, SCRIPTS / "validate_samples.py", good, bad]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stdout.splitlines() == [
        f"{good}: valid, nvidia, 2 samples of at most 8",
        f"{bad}: sample 1 has ids behind its end",
        f"{bad}: sample 0 has a label that is not 0 or 1",
    ]
    assert finished.stderr.splitlines()[-1].startswith("error: problems found: 2, in 2 files")
    assert subprocess.run(command[:-1], capture_output=True, check=False).returncode == 0
    at_once = subprocess.run([*command, "--processes", "2"], capture_output=True, text=True, check=False)
    assert (at_once.returncode, at_once.stdout) == (1, finished.stdout)


def test_another_pair_objective_is_found(files: dict[str, Path], tmp_path: Path) -> None:
    path = shutil.copy(files["native"], tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["pair_objective"] = np.bytes_("next_sentencX")
    allowed = "allowed are next_sentence, sentence_order, none"
    assert list(problems_of(path)) == [f"{path}: pair_objective is 'next_sentencX', {allowed}"]


def test_samples_are_shown_as_text(tmp_path: Path, vocabulary: Path) -> None:
    path = write(tmp_path / "a.hdf5", NVIDIA)
    assert show_samples(path, count=9, tokenizer=vocabulary).split("\n") == [
        "sample 0: 7 tokens, label 0, B follows A, layout nvidia",
        "  A  [CLS] a [MASK] [SEP]",
        "  B  town old [SEP]",
        "  masked  2 [MASK] for river, 5 old for old",
        "sample 1: 6 tokens, label 1, B is random, layout nvidia",
        "  A  [CLS] bridge [SEP]",
        "  B  the sea [SEP]",
        "  masked  3 the for king",
    ]
    assert show_samples(path, sample=1, count=1).split("\n")[1:] == [
        "  A  2 11 3",
        "  B  5 13 3",
        "  masked  3 5 for 12",
    ]
    plain = write(tmp_path / "b.hdf5", GPAULOSKI)
    assert show_samples(plain, sample=1, count=1, tokenizer=vocabulary).split("\n") == [
        "sample 1: 6 tokens, label 1, B is random, layout gpauloski",
        "  A  [CLS] bridge [SEP]",
        "  B  king sea [SEP]",
    ]
    with pytest.raises(BertlineError, match="has no sample 2; it has 2, counted from 0"):
        show_samples(path, sample=2)


@pytest.mark.parametrize(
    ("columns", "name", "place", "value", "fault"),
    [
        (NVIDIA, "masked_lm_positions", 0, -2, "-2 in masked_lm_positions is outside its sample"),
        (NVIDIA, "masked_lm_positions", 1, 6, "6 in masked_lm_positions is outside its sample"),
        (GPAULOSKI, "special_token_positions", 2, 8, "8 in special_token_positions is outside its row"),
        (GPAULOSKI, "special_token_positions", 2, -2, "-2 in special_token_positions is outside its row"),
    ],
)
def test_places_outside_a_sample_are_one_line(
    tmp_path: Path, columns: dict[str, Any], name: str, place: int, value: int, fault: str
) -> None:
    path = write(tmp_path / "a.hdf5", columns, {(name, 1, place): value})
    for read in (lambda: show_samples(path), lambda: compare_samples([path])):
        with pytest.raises(BertlineError, match=rf"are damaged \({fault}\); validate_samples.py shows what is wrong$"):
            read()
    assert list(problems_of(path))


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("sample_offsets", 1, 10**6),
        ("sample_offsets", 1, 0),
        ("sample_offsets", 0, 2**64 - 1),
        ("sample_offsets", 1, 2**64 - 1),
        ("second_segment_start", 0, 60_000),
        ("mask_offsets", 1, 10**6),
        ("mask_offsets", 0, 2**64 - 1),
        ("masked_positions", 0, 60_000),
        ("masked_positions", 0, 32),
    ],
)
def test_damaged_native_samples_are_one_line(
    files: dict[str, Path], tmp_path: Path, name: str, place: int, value: int
) -> None:
    path = shutil.copy(files["masked"], tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file[name][place] = np.array(value, dtype=file[name].dtype)
    for read in (lambda: show_samples(path), lambda: compare_samples([path])):
        with pytest.raises(BertlineError) as caught:
            read()
        assert str(caught.value) == f"{path}: samples from 0 on are damaged; validate_samples.py shows what is wrong"
    assert list(problems_of(path))


@pytest.mark.parametrize("number", [-5, -(2**31), 23, 2**31 - 1])
def test_ids_outside_the_vocabulary_are_shown_and_compared_as_numbers(
    tmp_path: Path, vocabulary: Path, number: int
) -> None:
    changes = {
        ("input_ids", 0, 1): number,  # a token
        ("input_ids", 0, 2): number,  # what hides one
        ("masked_lm_ids", 1, 0): number,  # a hidden one
    }
    path = write(tmp_path / "a.hdf5", NVIDIA, changes)
    assert show_samples(path, tokenizer=vocabulary).split("\n") == [
        "sample 0: 7 tokens, label 0, B follows A, layout nvidia",
        f"  A  [CLS] {number} {number} [SEP]",
        "  B  town old [SEP]",
        f"  masked  2 {number} for river, 5 old for old",
        "sample 1: 6 tokens, label 1, B is random, layout nvidia",
        "  A  [CLS] bridge [SEP]",
        "  B  the sea [SEP]",
        f"  masked  3 the for {number}",
    ]
    columns = compare_samples([path]).split("\n")[2].split()
    # Three masks: one unchanged, two replaced, by an id each.
    assert [float(share) for share in columns[-3:]] == [33.3, 33.3, 33.3]


def test_native_samples_name_their_document_and_corpus(tmp_path: Path) -> None:
    card = make_dataset(tmp_path / "data", lengths=[32])
    path = card.parent / "seq32/00000.h5"
    with h5py.File(path) as file:
        last = len(file["corpus_index"]) - 1
    header, first, second = show_samples(path, sample=last, count=5).split("\n")
    assert header.startswith(f"sample {last}: ")
    assert header.endswith("document 29, corpus 1 (books)")
    assert first.startswith("  A  [CLS] ")
    assert second.endswith(" [SEP]")
    command = [sys.executable, SCRIPTS / "show_samples.py", path, "--sample", str(last), "--count", "1"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0] == header
    refused = subprocess.run([*command[:-1], "-1"], capture_output=True, text=True, check=False)
    assert (refused.returncode != 0, refused.stdout) == (True, "")
    assert "--count" in refused.stderr


def test_the_meaning_of_a_label_depends_on_the_objective(tmp_path: Path) -> None:
    said = {}
    for objective in ("next_sentence", "sentence_order", "none"):
        card = make_dataset(tmp_path / objective, lengths=[32], pair_objective=objective)
        lines = show_samples(card.parent / "seq32/00000.h5", count=100).split("\n")
        said[objective] = {line.split("tokens, ")[1].split(", document")[0] for line in lines if line[0] == "s"}
    assert said == {
        "next_sentence": {"label 0, B follows A", "label 1, B is random"},
        "sentence_order": {"label 0, B follows A", "label 1, A follows B"},
        "none": {"one segment"},
    }
