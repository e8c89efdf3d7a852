"""Import of files of other programs: what is refused, what is left out and counted, what the result's name is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from encoding_helpers import VOCABULARY, make_dataset
from interchange_files import import_all
from test_encoding_validation import CLS, GPAULOSKI, MASK, NVIDIA, SEP, write

from bertline.console import BertlineError
from bertline.encoding import imports, interchange
from bertline.encoding.dataset import open_dataset
from bertline.encoding.imports import import_dataset
from bertline.encoding.tokenizer import save_tokenizer, take_tokenizer
from bertline.encoding.validation import validate_dataset
from bertline.files import read_json
from bertline.training.data.exporting import export_samples

UNK = 1


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    return write_vocabulary(tmp_path / "vocab.txt", VOCABULARY)


def write_vocabulary(path: Path, words: list[str]) -> Path:
    path.write_text("".join(f"{word}\n" for word in words))
    return path


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def longer(columns: dict[str, Any]) -> dict[str, Any]:
    """The same samples in rows of one more place."""
    wide = ("input_ids", "input_mask", "segment_ids")
    return {
        name: [[*row, 0] for row in values] if name in wide else values for name, values in columns.items()
    }  # fmt: skip


SINGLE_SEGMENT = {
    ("input_ids", 1, 2): 12,
    **{("segment_ids", 1, place): 0 for place in (3, 4, 5)},
    ("next_sentence_labels", 1, None): 0,
}


def test_an_encoded_dataset_is_not_replaced_by_an_import(tmp_path: Path, vocabulary: Path) -> None:
    card, theirs = make_dataset(tmp_path / "data"), write(tmp_path / "theirs.hdf5", NVIDIA)
    for is_finished in (True, False):
        if not is_finished:
            card.unlink()
        before = content_of(card.parent)
        with pytest.raises(BertlineError, match=r"data holds a dataset that was not imported; name another output"):
            import_dataset([theirs], vocabulary, card.parent)
        assert content_of(card.parent) == before


def test_files_are_not_imported_into_a_folder_that_contains_one_of_them(tmp_path: Path, vocabulary: Path) -> None:
    inside, outside = tmp_path / "out/seq8/00000.h5", write(tmp_path / "outside.hdf5", NVIDIA)
    inside.parent.mkdir(parents=True)
    shutil.copy(outside, inside)
    own = shutil.copy(vocabulary, tmp_path / "out/tokenizer.txt")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    before = content_of(tmp_path)
    for training, held_out, tokenizer, output in (
        ([inside], (), vocabulary, tmp_path / "out"),
        ([inside], (), vocabulary, tmp_path / "link"),
        ([tmp_path / "link/seq8/00000.h5"], (), vocabulary, tmp_path / "out"),
        ([outside], (inside,), vocabulary, tmp_path / "out"),
        ([outside], (), own, tmp_path / "out"),
    ):
        with pytest.raises(BertlineError, match=r"out: the output contains the source .*; name another folder"):
            import_dataset(training, tokenizer, output, held_out=held_out)
        assert content_of(tmp_path) == before


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (["tokenizer.json", "config.json", "seq8/00000.h5"], "contains config.json, which no import made"),
        (["tokenizer.json", "seq8/mine.h5"], "contains seq8/mine.h5, which no import made"),
        (["seq8/00000.h5", "seq8/notes/a"], "contains seq8/notes, which no import made"),
        (["tokenizer.json"], "contains a tokenizer.json, but no import"),
    ],
)
def test_files_that_no_import_made_are_not_replaced(
    tmp_path: Path, vocabulary: Path, files: list[str], what: str
) -> None:
    theirs = write(tmp_path / "theirs.hdf5", NVIDIA)
    for name in files:
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    before = content_of(tmp_path)
    with pytest.raises(BertlineError, match=f"out {what}; name another output"):
        import_dataset([theirs], vocabulary, tmp_path / "out")
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("killed_in", ["save_tokenizer", "violations_of", "write_samples", "finish_card"])
def test_what_a_killed_import_left_is_replaced(
    tmp_path: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    files = [write(tmp_path / "one.hdf5", NVIDIA), write(tmp_path / "two.hdf5", longer(NVIDIA))]

    def kill(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(imports, killed_in, kill)
        with pytest.raises(KeyboardInterrupt):
            import_dataset(files, vocabulary, tmp_path / "out")
    (tmp_path / "out/seq8/.00000.h5.0123abcd.part").touch()
    (tmp_path / "out/.tokenizer.json.0123abcd.part").touch()
    import_dataset(files, vocabulary, tmp_path / "out")
    assert validate_dataset(tmp_path / "out/dataset.json").startswith("valid: ")


def test_an_import_may_be_made_again(tmp_path: Path, vocabulary: Path) -> None:
    theirs = write(tmp_path / "theirs.hdf5", NVIDIA)
    import_dataset([theirs], vocabulary, tmp_path / "out")
    before = content_of(tmp_path)
    import_dataset([theirs], vocabulary, tmp_path / "out")
    assert content_of(tmp_path) == before


def test_an_import_of_fewer_files_keeps_none_of_the_earlier_one(tmp_path: Path, vocabulary: Path) -> None:
    files = [write(tmp_path / "one.hdf5", NVIDIA), write(tmp_path / "two.hdf5", longer(NVIDIA))]
    import_dataset(files, vocabulary, tmp_path / "out")
    import_dataset(files[:1], vocabulary, tmp_path / "out")
    (section,) = read_json(tmp_path / "out/dataset.json")["sequence_lengths"].values()
    described = {tmp_path / "out" / entry["file"] for entry in section["train"]}
    assert set((tmp_path / "out").glob("seq*/*")) == described


def test_an_import_that_fails_leaves_no_card_of_the_earlier_one(tmp_path: Path, vocabulary: Path) -> None:
    import_dataset([write(tmp_path / "one.hdf5", NVIDIA)], vocabulary, tmp_path / "out")
    wrong = write(tmp_path / "other.hdf5", NVIDIA, {("next_sentence_labels", 0, None): 7})
    with pytest.raises(BertlineError, match=r"other\.hdf5: sample 0"):
        import_dataset([wrong], vocabulary, tmp_path / "out")
    assert not (tmp_path / "out/dataset.json").exists()


def test_imported_lengths_whose_names_are_in_another_order_than_their_numbers_are_valid(tmp_path: Path) -> None:
    card = make_dataset(tmp_path / "data", lengths=(64, 128))
    write_vocabulary(tmp_path / "vocab.txt", VOCABULARY)
    for length in (64, 128):
        samples, output = card.parent / f"seq{length}/00000.h5", tmp_path / f"nvidia/{length}.hdf5"
        export_samples([samples], card, [output], "nvidia", dupe_factor=1)
    again = import_all(tmp_path, tmp_path / "imported", "nvidia/*")
    tokens = [section["tokens"] for section in read_json(again)["sequence_lengths"].values()]
    assert len(set(tokens)) == 2
    assert validate_dataset(again).startswith("valid: ")


def test_a_file_given_twice_is_refused(tmp_path: Path, vocabulary: Path) -> None:
    first, other = write(tmp_path / "first.hdf5", NVIDIA), write(tmp_path / "other.hdf5", longer(NVIDIA))
    copy = shutil.copy(first, tmp_path / "copy.hdf5")
    twice = r"(first|copy).hdf5 and .*(first|copy).hdf5 are the same file; give each once, to train on or as held out"
    for training, held_out in (([first, other, first], ()), ([other, first, copy], ()), ([first, other], (copy,))):
        with pytest.raises(BertlineError, match=twice):
            import_dataset(training, vocabulary, tmp_path / "out", held_out=held_out)
        assert not (tmp_path / "out").exists()


def test_files_without_samples_may_be_alike(tmp_path: Path, vocabulary: Path) -> None:
    empty = {name: np.zeros((0, *np.shape(values)[1:])) for name, values in NVIDIA.items()}
    files = [tmp_path / f"{number}.hdf5" for number in range(2)]
    for path in files:
        with h5py.File(path, "w") as file:
            for name, values in empty.items():
                file[name] = values.astype(
                    "i4" if name in ("input_ids", "masked_lm_positions", "masked_lm_ids") else "i1"
                )
    full = write(tmp_path / "full.hdf5", NVIDIA)
    import_dataset([full, *files], vocabulary, tmp_path / "out")
    assert len(open_dataset(tmp_path / "out/dataset.json", 8, "train")) == 2
    assert validate_dataset(tmp_path / "out/dataset.json").startswith("valid: ")


@pytest.mark.parametrize("rows_of_a_block", [1, 2, 100])
def test_each_sample_that_is_left_out_is_counted_once(
    tmp_path: Path, vocabulary: Path, monkeypatch: pytest.MonkeyPatch, rows_of_a_block: int
) -> None:
    monkeypatch.setattr(interchange, "TOKENS_OF_A_BLOCK", 8 * rows_of_a_block)
    rows = {
        "sound": ([CLS, 7, 8, SEP, 9, 10, SEP, 0], [0, 3, 6]),
        "empty": ([CLS, 7, SEP, SEP, 0, 0, 0, 0], [0, 2, 3]),
        "inside": ([CLS, 7, SEP, SEP, 9, 10, SEP, 0], [0, 3, 6]),
        "both": ([CLS, SEP, 7, SEP, 9, SEP, 0, 0], [0, 1, 5]),
    }
    files = []
    for name, kinds in (
        ("a", ["sound", "empty", "both", "empty", "inside", "sound", "inside", "inside"]),
        ("b", ["inside", "sound", "empty"]),
    ):
        ids, places = ([rows[kind][column] for kind in kinds] for column in range(2))
        columns = {"input_ids": ids, "special_token_positions": places, "next_sentence_labels": [0] * len(kinds)}
        files.append(write(tmp_path / f"{name}.hdf5", columns))
    summary = import_dataset(files, vocabulary, tmp_path / "out")
    card = tmp_path / "out/dataset.json"
    dropped = {"has an empty segment": 4, "has [CLS] or [SEP] inside its text": 4}
    assert read_json(card)["imported"]["dropped_samples"] == dropped
    assert len(open_dataset(card, 8, "train")) == 11 - sum(dropped.values())
    assert summary.split("\n")[1:] == [
        "left out: 4 samples that each have an empty segment",
        "left out: 4 samples that each have [CLS] or [SEP] inside its text",
    ]


def test_the_masks_of_a_sample_that_is_left_out_are_left_out(tmp_path: Path, vocabulary: Path) -> None:
    columns = {name: [values[0], values[0], values[1]] for name, values in NVIDIA.items()}
    theirs = write(tmp_path / "a.hdf5", columns, {("input_ids", 1, 4): SEP})
    import_dataset([theirs], vocabulary, tmp_path / "out")
    reader = open_dataset(tmp_path / "out/dataset.json", 8, "train")
    batch = reader.gather(np.arange(2))
    assert batch.tokens.tolist() == [CLS, 7, 8, SEP, 9, 10, SEP, CLS, 11, SEP, 12, 13, SEP]
    assert batch.masks.positions.tolist() == [2, 5, 3]
    assert batch.masks.input_ids.tolist() == [MASK, 10, 5]
    assert reader.card["text_tokens"] == 7


def test_pairs_and_single_segments_are_not_imported_together(tmp_path: Path, vocabulary: Path) -> None:
    mixed = write(tmp_path / "mixed.hdf5", NVIDIA, SINGLE_SEGMENT)
    with pytest.raises(BertlineError, match=r"mixed.hdf5: some samples are pairs and some are not; import them from"):
        import_dataset([mixed], vocabulary, tmp_path / "out")
    second = {name: values[1:] for name, values in NVIDIA.items()}
    changes = {(name, 0, place): value for (name, _, place), value in SINGLE_SEGMENT.items()}
    single, pairs = write(tmp_path / "single.hdf5", second, changes), write(tmp_path / "pairs.hdf5", NVIDIA)
    with pytest.raises(BertlineError, match="some of the files hold pairs of segments, some single ones; import them"):
        import_dataset([pairs, single], vocabulary, tmp_path / "out")
    assert not (tmp_path / "out/dataset.json").exists()
    import_dataset([single], vocabulary, tmp_path / "out")
    card = read_json(tmp_path / "out/dataset.json")
    assert (card["settings"], card["text_tokens"]) == ({"pair_objective": "none"}, 4)


def test_a_held_out_file_of_a_length_that_is_not_trained_on_is_refused(tmp_path: Path, vocabulary: Path) -> None:
    training, held_out = write(tmp_path / "a.hdf5", NVIDIA), write(tmp_path / "b.hdf5", longer(NVIDIA))
    with pytest.raises(BertlineError, match=r"b.hdf5 is of length 9, but no training file is; leave it out"):
        import_dataset([training], vocabulary, tmp_path / "out", held_out=(held_out,))


def test_an_import_refuses_options_that_its_tokenizer_does_not_follow(tmp_path: Path, vocabulary: Path) -> None:
    theirs = write(tmp_path / "a.hdf5", NVIDIA)
    save_tokenizer(take_tokenizer(vocabulary), tmp_path / "tokenizer.json")
    with pytest.raises(BertlineError, match="contains this setting; leave out --no-lowercase"):
        import_dataset([theirs], tmp_path / "tokenizer.json", tmp_path / "out", lowercase=False)
    cased = write_vocabulary(tmp_path / "cased.txt", [*VOCABULARY[:-1], "Sea"])
    for lowercase in (None, True):
        with pytest.raises(BertlineError, match=r"cased\.txt has words in upper case, such as 'Sea'; give --no-lower"):
            import_dataset([theirs], cased, tmp_path / "out", lowercase=lowercase)
    assert not (tmp_path / "out").exists()


def test_an_import_with_another_vocabulary_has_another_name(tmp_path: Path, vocabulary: Path) -> None:
    theirs = write(tmp_path / "a.hdf5", NVIDIA)
    other = write_vocabulary(tmp_path / "other.txt", [*VOCABULARY[:-2], VOCABULARY[-1], VOCABULARY[-2]])
    names = []
    for tokenizer in (vocabulary, other):
        import_dataset([theirs], tokenizer, tmp_path / tokenizer.stem)
        names.append(read_json(tmp_path / tokenizer.stem / "dataset.json")["fingerprint"])
    assert names[0] != names[1]


def test_unknown_tokens_of_an_import_are_counted_in_its_text_without_masks(tmp_path: Path, vocabulary: Path) -> None:
    unknown = {("input_ids", 0, 1): UNK, ("masked_lm_ids", 1, 0): UNK, ("input_ids", 1, 1): UNK}
    theirs = write(tmp_path / "a.hdf5", NVIDIA, unknown)
    # What hides a word is not part of the text.
    hidden = write(tmp_path / "b.hdf5", NVIDIA, {("input_ids", 0, 2): UNK, ("input_ids", 0, 1): UNK})
    import_dataset([theirs, hidden], vocabulary, tmp_path / "out")
    assert read_json(tmp_path / "out/dataset.json")["unknown_tokens"] == 4


def test_an_import_without_a_usable_sample_is_one_line(tmp_path: Path, vocabulary: Path) -> None:
    changes = {("input_ids", sample, place): SEP for sample, place in ((0, 1), (1, 4))}
    theirs = write(tmp_path / "a.hdf5", NVIDIA, changes)
    with pytest.raises(BertlineError) as caught:
        import_dataset([theirs], vocabulary, tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: the files of length 8 have no usable sample to train on; give others, or leave out this "
        "length"
    )


def test_more_files_are_imported_than_may_be_open(tmp_path: Path, vocabulary: Path) -> None:
    columns = {name: values[:1] for name, values in GPAULOSKI.items()}
    for number in range(60):
        changes = {("input_ids", 0, 1): 5 + number % 15, ("input_ids", 0, 2): 5 + number // 15}
        write(tmp_path / f"{number}.hdf5", columns, changes)
    program = """
import resource, sys
from pathlib import Path
from bertline.encoding.imports import import_dataset
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
folder = Path(sys.argv[1])
print(import_dataset(sorted(folder.glob("*.hdf5")), folder / "vocab.txt", folder / "ours"))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("length 8: 60 samples to train on"), done.stderr


def test_a_file_too_many_is_not_called_damaged(tmp_path: Path) -> None:
    path = make_dataset(tmp_path).parent / "seq32/00000.h5"
    program = """
import os, resource, sys
from bertline.console import BertlineError
from bertline.encoding.layout import open_samples
open_samples(sys.argv[1])
highest = max(map(int, os.listdir("/proc/self/fd")))
for allowed in range(highest, highest + 3):
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        open_samples(sys.argv[1])
    except BertlineError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    message = f"{path} cannot be opened: this process may open no more files; raise the limit (`ulimit -n`)"
    assert set(done.stdout.splitlines()) == {message}


def test_the_layouts_small_files_are_imported(tmp_path: Path, vocabulary: Path) -> None:
    for name, columns in (("nvidia", NVIDIA), ("gpauloski", GPAULOSKI)):
        import_dataset([write(tmp_path / f"{name}.hdf5", columns)], vocabulary, tmp_path / name)
        batch = open_dataset(tmp_path / name / "dataset.json", 8, "train").gather(np.arange(2))
        assert batch.tokens.tolist() == [CLS, 7, 8, SEP, 9, 10, SEP, CLS, 11, SEP, 12, 13, SEP]
