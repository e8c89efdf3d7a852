"""Files in NVIDIA's and gpauloski's layouts, read by readers written from the layouts' descriptions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
from encoding_helpers import VOCABULARY, make_dataset
from interchange_files import LENGTH, Row, import_all, read_gpauloski, read_nvidia

from bertline.console import BertlineError
from bertline.encoding.dataset import open_dataset
from bertline.encoding.imports import import_dataset
from bertline.encoding.inspection import problems_of
from bertline.encoding.validation import validate_dataset
from bertline.files import sha256_of_file
from bertline.training.data.exporting import default_max_predictions, export_samples

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
PAD, UNK, CLS, SEP, MASK = range(5)


def unmasked(row: Row) -> np.ndarray:
    return np.where(row["labels"] >= 0, row["labels"], row["input_ids"]) if "labels" in row else row["input_ids"]


def as_native(row: Row) -> tuple[tuple[int, ...], int, int]:
    """Tokens, where the second segment begins, label."""
    length = int(row["input_mask"].sum())
    assert (row["input_mask"][:length] == 1).all()
    assert not unmasked(row)[length:].any()
    start = length - int(row["segment_ids"].sum())
    assert row["segment_ids"].tolist() == [0] * start + [1] * (length - start) + [0] * (LENGTH - length)
    return tuple(unmasked(row)[:length].tolist()), start % length, int(row["next_sentence_labels"])


def natives(card: Path, number: int) -> Counter:
    """The samples of a training shard."""
    reader = open_dataset(card, LENGTH, "train")
    files = [h5py.File(card.parent / f"seq{LENGTH}/0000{n}.h5") for n in range(2)]
    first = len(files[0]["corpus_index"]) if number else 0
    last = first + len(files[number]["corpus_index"])
    rows = (reader.gather([n]) for n in range(first, last))
    return Counter(
        (tuple(row.tokens.tolist()), *row.second_segment_start.tolist(), *row.next_sentence_labels.tolist())
        for row in rows
    )


@pytest.mark.parametrize(
    ("file", "layout"),
    [
        (
            "nvidia/b_training_00000.hdf5",
            {
                "input_ids": ("int32", LENGTH),
                "input_mask": ("int8", LENGTH),
                "segment_ids": ("int8", LENGTH),
                "masked_lm_positions": ("int32", 11),
                "masked_lm_ids": ("int32", 11),
                "next_sentence_labels": ("int8", None),
            },
        ),
        (
            "gpauloski/train_00000.hdf5",
            {
                "input_ids": ("int32", LENGTH),
                "special_token_positions": ("int32", 3),
                "next_sentence_labels": ("int8", None),
            },
        ),
    ],
)
def test_names_types_and_shapes_are_theirs_and_hdf5_itself_unpacks_them(
    made: Path, file: str, layout: dict[str, Any]
) -> None:
    with h5py.File(made / file, "r") as opened:
        assert set(opened) == set(layout)
        assert not opened.attrs
        for name, (dtype, width) in layout.items():
            dataset = opened[name]
            assert dataset.dtype == np.dtype(dtype)
            assert dataset.shape == (len(opened["input_ids"]), *([width] if width else []))
            assert (dataset.compression, dataset.compression_opts, dataset.shuffle) == ("gzip", 1, True)
            assert not dataset.attrs
    # The version of the format that the oldest programs read.
    assert (made / file).read_bytes()[8] == 0


def test_predictions_have_nvidias_room() -> None:
    assert [default_max_predictions(length) for length in (128, 512)] == [20, 80]


@pytest.mark.parametrize("number", [0, 1])
def test_their_readers_find_every_sample_as_often_as_requested(made: Path, number: int) -> None:
    wanted = natives(made / "data/dataset.json", number)
    of_nvidia = Counter(map(as_native, read_nvidia(made / f"nvidia/b_training_0000{number}.hdf5")))
    assert of_nvidia == Counter({sample: 5 * count for sample, count in wanted.items()})
    of_gpauloski = read_gpauloski(made / f"gpauloski/train_0000{number}.hdf5")
    assert Counter(map(as_native, of_gpauloski)) == wanted
    assert [as_native(row) for row in of_gpauloski] != list(wanted.elements())  # shuffled


def test_masks_are_as_published(made: Path, tmp_path: Path) -> None:
    rows = [row for n in range(2) for row in read_nvidia(made / f"nvidia/b_training_0000{n}.hdf5")]
    seen: Counter[str] = Counter()
    for row in rows:
        length = int(row["input_mask"].sum())
        positions = np.flatnonzero(row["labels"] >= 0)
        words = int((unmasked(row)[:length] > SEP).sum())
        assert len(positions) == min(words, max(1, round(0.15 * length)))
        assert (row["labels"][positions] > SEP).all()
        given = row["input_ids"][positions]
        seen["mask"] += int((given == MASK).sum())
        seen["same"] += int((given == row["labels"][positions]).sum())
        seen["other"] += int(((given != MASK) & (given != row["labels"][positions])).sum())
        assert not (row["input_ids"] == MASK)[row["labels"] < 0].any()
    total = sum(seen.values())
    assert seen["mask"] / total == pytest.approx(0.8, abs=0.03)
    assert seen["same"] / total == pytest.approx(0.1 + 0.1 / 18, abs=0.02)
    copies: dict[Any, set[bytes]] = {}
    for row in rows:
        copies.setdefault(as_native(row), set()).add((row["labels"] >= 0).tobytes())
    assert np.mean([len(masks) for sample, masks in copies.items() if len(sample[0]) > 30]) > 4.5


def test_the_comparison_counts_what_another_reader_counts_in_every_layout(made: Path) -> None:
    files = [f"data/seq{LENGTH}/0000{n}.h5" for n in range(2)]
    files += [f"nvidia/b_training_0000{n}.hdf5" for n in range(2)] + [f"gpauloski/train_0000{n}.hdf5" for n in range(2)]
    compared = [sys.executable, SCRIPTS / "compare_samples.py", *files]
    printed = subprocess.run(compared, cwd=made, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [row for n in range(2) for row in read_nvidia(made / files[2 + n])]
    tokens = sum(int(row["input_mask"].sum()) for row in rows)
    pairs = [row for row in rows if row["segment_ids"].any()]
    labels = [
        (int(seen), int(label)) for row in rows for seen, label in zip(row["input_ids"], row["labels"], strict=True)
    ]
    masked = [(seen, label) for seen, label in labels if label >= 0]
    shares = [
        tokens / len(rows),
        100 - 100 * tokens / (LENGTH * len(rows)),
        100 * len(pairs) / len(rows),
        100 * np.mean([row["next_sentence_labels"] for row in pairs]),
        100 * len(masked) / (tokens - 2 * len(rows) - len(pairs)),
        100 * np.mean([seen == MASK for seen, _ in masked]),
        100 * np.mean([seen == label for seen, label in masked]),
        100 * np.mean([seen not in (MASK, label) for seen, label in masked]),
    ]
    by_layout = {line.split()[1]: [float(word.replace(",", "")) for word in line.split()[2:]] for line in printed[2:]}
    assert by_layout["nvidia"] == pytest.approx([len(rows), *shares], abs=0.06)
    # Each sample five times; native samples and gpauloski's are masked during training.
    for layout in ("native", "gpauloski"):
        assert by_layout[layout] == pytest.approx([len(rows) / 5, *shares[:4]], abs=0.06)


def test_room_for_fewer_predictions_limits_them(made: Path, tmp_path: Path) -> None:
    card = made / "data/dataset.json"
    export_samples(
        [card.parent / "seq64/00000.h5"], card, [tmp_path / "a.hdf5"], "nvidia", dupe_factor=1, max_predictions=4
    )
    rows = read_nvidia(tmp_path / "a.hdf5")
    assert {len(row["masked_lm_positions"]) for row in rows} == {4}
    assert max((row["labels"] >= 0).sum() for row in rows) == 4


def test_bytes_follow_from_the_seed_and_the_shard(made: Path, tmp_path: Path) -> None:
    card = made / "data/dataset.json"
    export_samples([card.parent / "seq64/00000.h5"], card, [tmp_path / "again.hdf5"], "nvidia", seed=12345)
    assert (tmp_path / "again.hdf5").read_bytes() == (made / "nvidia/b_training_00000.hdf5").read_bytes()
    export_samples([card.parent / "seq64/00000.h5"], card, [tmp_path / "other.hdf5"], "nvidia", seed=1)
    export_samples([card.parent / "seq64/00001.h5"], card, [tmp_path / "shard.hdf5"], "nvidia", seed=12345)
    for other in ("other", "shard"):
        rows = [read_nvidia(tmp_path / f"{name}.hdf5")[:50] for name in ("again", other)]
        masks, order = [[[f(row) for row in of] for of in rows] for f in (mask_of, as_native)]
        assert masks[0] != masks[1]
        assert order[0] != order[1]


def mask_of(row: Row) -> list[int]:
    return np.flatnonzero(row["labels"] >= 0).tolist()


def test_single_segments_are_written_and_read(tmp_path: Path) -> None:
    card = make_dataset(tmp_path / "data", pair_objective="none")
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    layouts: tuple[Literal["nvidia", "gpauloski"], ...] = ("nvidia", "gpauloski")
    for layout in layouts:
        export_samples([card.parent / "seq64/00000.h5"], card, [tmp_path / f"{layout}/a.hdf5"], layout)
        again = import_all(tmp_path, tmp_path / f"{layout}-imported", f"{layout}/*")
        assert validate_dataset(again).startswith("valid: ")
        reader = open_dataset(again, LENGTH, "train")
        assert not reader.gather(np.arange(len(reader))).second_segment_start.any()
    with h5py.File(tmp_path / "gpauloski/a.hdf5") as file:
        assert file["special_token_positions"].shape[1] == 2
    rows = read_gpauloski(tmp_path / "gpauloski/a.hdf5")
    assert Counter(as_native(row) for row in rows) == natives(card, 0)


def test_samples_without_a_word_to_mask_are_not_exported_with_masks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card = make_dataset(tmp_path / "data", pair_objective="none")
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    samples, before, after = card.parent / "seq64/00000.h5", tmp_path / "before.hdf5", tmp_path / "after.hdf5"
    export_samples([samples], card, [before], "nvidia", dupe_factor=2)
    assert "left out" not in caplog.text
    unknown, digest = [1, 4], sha256_of_file(samples)
    with h5py.File(samples, "r+") as file:
        for number in unknown:
            first, last = file["sample_offsets"][number : number + 2]
            file["input_ids"][first + 1 : last - 1] = VOCABULARY.index("[UNK]")
    card.write_text(card.read_text().replace(digest, sha256_of_file(samples)))
    with caplog.at_level("WARNING"):
        export_samples([samples], card, [after], "nvidia", dupe_factor=2)
    assert f"warning: {samples}: left out 2 samples that have no word to mask" in caplog.text
    assert list(problems_of(after, tmp_path / "vocab.txt")) == []
    assert len(read_nvidia(after)) == len(read_nvidia(before)) - 2 * len(unknown)
    with_words = [row for row in natives(card, 0).elements() if set(row[0]) > {CLS, UNK, SEP} or UNK not in row[0]]
    assert Counter(as_native(row) for row in read_nvidia(after)) == Counter(2 * with_words)
    export_samples([samples], card, [tmp_path / "plain.hdf5"], "gpauloski")
    assert sum(natives(card, 0).values()) == len(read_gpauloski(tmp_path / "plain.hdf5"))


def test_files_of_gpauloski_come_back_as_they_were(made: Path, tmp_path: Path) -> None:
    card = import_all(made, tmp_path / "imported", "gpauloski/*")
    assert validate_dataset(card).startswith("valid: ")
    for number in range(2):
        assert natives(card, number) == natives(made / "data/dataset.json", number)
    assert open_dataset(card, LENGTH, "train").mask_counts is None


def test_an_imported_dataset_is_valid_and_the_same_twice(made: Path, imported: Path, tmp_path: Path) -> None:
    assert validate_dataset(imported).startswith("valid: 2 documents and 1 held out")
    again = import_all(made, tmp_path / "again", "nvidia/b_training_*", "nvidia/b_test_*")
    for path in sorted(imported.parent.rglob("*.*")):
        assert path.read_bytes() == (again.parent / path.relative_to(imported.parent)).read_bytes(), path.name


def test_unusable_samples_are_left_out_and_counted(made: Path, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text((made / "vocab.txt").read_text())
    (tmp_path / "a.hdf5").write_bytes((made / "gpauloski/train_00000.hdf5").read_bytes())
    with h5py.File(tmp_path / "a.hdf5", "r+") as file:
        count = len(file["input_ids"])
        file["input_ids"][3, :5] = [CLS, 7, SEP, SEP, 0]
        file["input_ids"][3, 4:] = 0
        file["special_token_positions"][3] = [0, 2, 3]
        file["next_sentence_labels"][3] = 0
        file["input_ids"][5, 1] = SEP
    card = import_all(tmp_path, tmp_path / "imported", "*.hdf5")
    reader = open_dataset(card, LENGTH, "train")
    assert reader.card["imported"]["dropped_samples"] == {
        "has an empty segment": 1,
        "has [CLS] or [SEP] inside its text": 1,
    }
    assert len(reader) == count - 2
    assert validate_dataset(card).startswith("valid: ")


def test_files_that_do_not_go_together_are_refused_in_one_line(made: Path, imported: Path, tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match="are of different layouts"):
        import_all(made, tmp_path / "a", "*/*.hdf5")
    short = tmp_path / "short.txt"
    short.write_text("".join(f"{token}\n" for token in VOCABULARY[:-2]))
    with pytest.raises(BertlineError, match=r"b_training_00000.hdf5: sample \d+ has an id outside the vocabulary"):
        import_dataset([made / "nvidia/b_training_00000.hdf5"], short, tmp_path / "b", name="x")
    assert not (tmp_path / "b/dataset.json").exists()
    card = made / "data/dataset.json"
    with pytest.raises(BertlineError, match="is native; it needs no import"):
        import_dataset([card.parent / "seq64/00000.h5"], made / "vocab.txt", tmp_path / "d", name="x")
    with pytest.raises(BertlineError, match="was imported and keeps its own masks"):
        export_samples([imported.parent / "seq64/00000.h5"], imported, [tmp_path / "c.hdf5"], "nvidia")
    with pytest.raises(BertlineError, match=r"is not one of the files that .*dataset.json lists"):
        export_samples([card.parent / "seq64/00000.h5"], imported, [tmp_path / "c.hdf5"], "nvidia")


def test_an_export_replaces_no_file_of_the_dataset(made: Path, tmp_path: Path) -> None:
    card = tmp_path / "data/dataset.json"
    shutil.copytree(made / "data", card.parent)
    samples = card.parent / "seq64/00000.h5"
    os.link(card.parent / "seq64/00001.h5", tmp_path / "hard.h5")
    (tmp_path / "soft").symlink_to(card.parent)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    taken = ("data/seq64/00000.h5", "data/seq32/held_out.h5", "soft/seq64/00001.h5", "hard.h5")
    for output in (*taken, "data/dataset.json", "soft/tokenizer.json"):
        with pytest.raises(BertlineError, match=rf"{output} is a file of the dataset; name another output"):
            export_samples([samples], card, [tmp_path / output], "gpauloski")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("layout", ["nvidia", "gpauloski"])
def test_a_damaged_file_is_not_exported(made: Path, tmp_path: Path, layout: Literal["nvidia", "gpauloski"]) -> None:
    card = tmp_path / "data/dataset.json"
    shutil.copytree(made / "data", card.parent)
    samples = card.parent / "seq64/00001.h5"
    with h5py.File(samples, "r+") as file:
        file["input_ids"][1] = 9 if file["input_ids"][1] != 9 else 10
    with pytest.raises(BertlineError) as caught:
        export_samples([samples], card, [tmp_path / "out.hdf5"], layout)
    problem = f"{samples} is damaged: its SHA-256 is not the one that {card} states"
    assert str(caught.value) == f"{problem}; delete it and run `snakemake encode`"
    assert not (tmp_path / "out.hdf5").exists()


def test_two_exports_do_not_have_one_output(made: Path, tmp_path: Path) -> None:
    card = made / "data/dataset.json"
    samples = [card.parent / f"seq64/0000{number}.h5" for number in range(2)]
    (tmp_path / "link").symlink_to(tmp_path)
    for second in (tmp_path / "a.hdf5", tmp_path / "link/a.hdf5"):
        with pytest.raises(BertlineError, match=r"a.hdf5 is the output of two files; name one for each"):
            export_samples(samples, card, [tmp_path / "a.hdf5", second], "gpauloski")
        assert not (tmp_path / "a.hdf5").exists()
    for _ in range(2):  # an export may be made again
        export_samples(samples, card, [tmp_path / "a.hdf5", tmp_path / "b.hdf5"], "gpauloski")


@pytest.mark.parametrize("layout", ["nvidia", "gpauloski"])
def test_segments_in_the_wrong_order_are_not_exported_as_random_ones(
    tmp_path: Path, layout: Literal["nvidia", "gpauloski"]
) -> None:
    card = make_dataset(tmp_path / "data", pair_objective="sentence_order", lengths=(32,))
    samples = card.parent / "seq32/00000.h5"
    with pytest.raises(BertlineError) as caught:
        export_samples([samples], card, [tmp_path / "a.hdf5"], layout)
    assert str(caught.value) == (
        f"{samples}: a label 1 means that A follows B (pair_objective: sentence_order), but in the layout {layout} "
        "that B is random; export a dataset with another pair_objective"
    )
    assert not (tmp_path / "a.hdf5").exists()


def test_more_predictions_than_tokens_are_not_exported(made: Path, tmp_path: Path) -> None:
    card = made / "data/dataset.json"
    samples, output = card.parent / "seq64/00000.h5", tmp_path / "a.hdf5"
    with pytest.raises(BertlineError, match="--max-predictions: given 65, allowed are at most 64, as many as tokens"):
        export_samples([samples], card, [output], "nvidia", dupe_factor=1, max_predictions=65)
    export_samples([samples], card, [output], "nvidia", dupe_factor=1, max_predictions=64)
    import_dataset([output], made / "vocab.txt", tmp_path / "imported")


def test_the_scripts_lead_there_and_back(made: Path, tmp_path: Path) -> None:
    data = made / "data"
    export = [
        "export_samples.py",
        "--samples",
        data / "seq64/00000.h5",
        "--dataset",
        data / "dataset.json",
        "--layout",
        "nvidia",
    ]
    run(*export, "--outputs", tmp_path / "a.hdf5", "--dupe-factor", "2")
    assert len(read_nvidia(tmp_path / "a.hdf5")) == 2 * sum(natives(data / "dataset.json", 0).values())
    given = [
        "import_samples.py",
        tmp_path / "a.hdf5",
        "--tokenizer",
        made / "vocab.txt",
        "--output",
        tmp_path / "there",
    ]
    assert "samples to train on, 0 held out" in run(*given).stdout
    wrong = run(*export[:-1], "gpauloski", "--outputs", tmp_path / "b.hdf5", "--dupe-factor", "2", check=False)
    assert wrong.stderr.splitlines() == ["error: --dupe-factor: gpauloski's layout has no masks; leave it out"]


def test_the_scripts_require_a_file(made: Path, tmp_path: Path) -> None:
    card, given = made / "data/dataset.json", ["--tokenizer", made / "vocab.txt", "--output", tmp_path / "out"]
    for arguments, option in (
        (["import_samples.py", "--training", *given], "--training"),
        (["validate_samples.py", "--files"], "--files"),
        (["compare_samples.py", "--files"], "--files"),
        (["export_samples.py", "--samples", "--dataset", card, "--layout", "nvidia", "--outputs"], "--samples"),
    ):
        tried = run(*arguments, check=False)
        assert (tried.returncode, tried.stdout) == (1, "")
        assert tried.stderr.startswith(f"error: Parameter {option} requires at least 1 element")
        assert len(tried.stderr.splitlines()) == 1


def run(*arguments: Any, check: bool = True) -> subprocess.CompletedProcess:
    script, *rest = arguments
    return subprocess.run([sys.executable, SCRIPTS / script, *rest], capture_output=True, text=True, check=check)
