"""The HDF5 file: read by a program written from the format's description, and every fault is found."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from encoding_helpers import FINGERPRINT, VOCABULARY, make_documents, write_plan, write_shard

from bertline.console import BertlineError
from bertline.encoding.encode_shard import encode_shard
from bertline.encoding.layout import open_samples, write_samples
from bertline.encoding.tokenizer import load_tokenizer, make_tokenizer, save_tokenizer
from bertline.encoding.validation import validate_samples
from bertline.files import Recipe

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/encode_shard.py"
TYPES = {
    "input_ids": "<u2",
    "sample_offsets": "<u8",
    "second_segment_start": "<u2",
    "next_sentence_labels": "|u1",
    "document_index": "<u4",
    "corpus_index": "|u1",
}
CLS, SEP = 2, 3
ATTRIBUTES: dict[str, Any] = {
    "fingerprint": FINGERPRINT,
    "shard": "00000",
    "sequence_length": 16,
    "pair_objective": "next_sentence",
    "seed": 1,
    "tokenizer_sha256": "0" * 64,
    "vocab_size": 20,
    "cls_id": CLS,
    "sep_id": SEP,
    "documents": 2,
    "documents_of_corpora": [1, 1],
    "sentences": 4,
    "text_tokens": 9,
    "unknown_tokens": 0,
    "unplaced_tokens": 0,
    "samples_with_random_next": 1,
    "samples_without_partner": 0,
}


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a shard, what it is encoded by, and the file of samples `32.h5`."""
    folder = tmp_path_factory.mktemp("encoded")
    save_tokenizer(make_tokenizer(VOCABULARY, lowercase=True, source="the test"), folder / "tokenizer.json")
    (folder / "shards").mkdir()
    write_shard(folder / "shards/00000.txt.zst", make_documents(30, 5))
    write_plan(folder / "plan.jsonl", {"00000": [("news", 0, 20), ("books", 1, 10)], "held_out": []})
    run_script(folder, folder / "32.h5")
    return folder


def run_script(folder: Path, output: Path, hash_seed: str = "0") -> None:
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(recipe_of(passes=1)))
    subprocess.run(
        [sys.executable, SCRIPT, "--recipe", recipe, "--shard", "00000", "--directory", folder],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    (folder / "seq32/00000.h5").rename(output)


def recipe_of(passes: int) -> Recipe:
    settings = {"seed": 12345, "pair_objective": "next_sentence", "passes": passes, "short_sequence_probability": 0.1}
    return Recipe({"fingerprint": FINGERPRINT, "settings": settings, "sequence_lengths": [32]})


def places(path: Path) -> dict[str, tuple[int, int]]:
    """Offset in bytes and number of values of each dataset, the one thing that is asked of HDF5."""
    with h5py.File(path) as file:
        return {name: (file[name].id.get_offset(), file[name].size) for name in TYPES}


def test_a_reader_written_from_the_description_finds_the_text(encoded: Path) -> None:
    arrays = {
        name: np.memmap(encoded / "32.h5", dtype=TYPES[name], mode="r", offset=offset, shape=(size,))
        for name, (offset, size) in places(encoded / "32.h5").items()
    }
    tokenizer = load_tokenizer(encoded / "tokenizer.json")
    documents = [
        [tokenizer.encode(sentence, add_special_tokens=False).ids for sentence in document]
        for document in make_documents(30, 5)
    ]
    flat = ["".join(f"{index}," for sentence in document for index in sentence) for document in documents]
    offsets = arrays["sample_offsets"]
    labels = []
    for number in range(len(offsets) - 1):
        sample = arrays["input_ids"][offsets[number] : offsets[number + 1]].tolist()
        start, document = arrays["second_segment_start"][number], arrays["document_index"][number]
        first, second = sample[1 : start - 1], sample[start:-1]
        assert (sample[0], sample[start - 1], sample[-1]) == (CLS, SEP, SEP)
        assert len(sample) <= 32
        assert first
        assert second
        assert arrays["corpus_index"][number] == (document >= 20)
        assert "".join(f"{index}," for index in first) in flat[document]
        label = arrays["next_sentence_labels"][number]
        if label == 0:
            assert "".join(f"{index}," for index in first + second) in flat[document]
        else:
            text = "".join(f"{index}," for index in second)
            assert any(text in other for index, other in enumerate(flat) if index != document)
        labels.append(label)
    assert 0.3 < np.mean(labels) < 0.8


def test_datasets_are_contiguous_aligned_and_little_endian(encoded: Path) -> None:
    with h5py.File(encoded / "32.h5") as file:
        assert set(file) == set(TYPES)
        for name, dtype in TYPES.items():
            assert file[name].dtype.newbyteorder("<").str == dtype
            assert file[name].chunks is None
            assert file[name].id.get_offset() % 4096 == 0
            stored = file[name].attrs["sha256"].decode()
            assert hashlib.sha256(file[name][:].tobytes()).hexdigest() == stored
        assert file.attrs["layout_version"] == 1
        assert file.attrs["fingerprint"].decode() == FINGERPRINT
        assert file.attrs["samples"] == file["corpus_index"].size
        assert file.attrs["tokens"] == file["input_ids"].size
        assert file.attrs["documents_of_corpora"].tolist() == [20, 10]


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_process(encoded: Path, tmp_path: Path) -> None:
    for hash_seed in ("1", "2"):
        run_script(encoded, tmp_path / f"{hash_seed}.h5", hash_seed)
        assert (tmp_path / f"{hash_seed}.h5").read_bytes() == (encoded / "32.h5").read_bytes()


@pytest.mark.parametrize("name", TYPES)
def test_a_flipped_bit_is_found(encoded: Path, tmp_path: Path, name: str) -> None:
    damaged = tmp_path / "32.h5"
    shutil.copy(encoded / "32.h5", damaged)
    validate_samples(damaged)
    offset, _ = places(damaged)[name]
    content = bytearray(damaged.read_bytes())
    content[offset + 5] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(BertlineError, match=f"{name} does not have the digest") as error:
        validate_samples(damaged)
    assert "\n" not in str(error.value)


def write(path: Path, samples: list[list[int]], starts: list[int], labels: list[int], **changes: Any) -> Path:
    """A file of given samples, right or wrong, with right digests."""
    columns = {
        "input_ids": [np.array(sample) for sample in samples],
        "sample_offsets": [np.cumsum([0, *map(len, samples)])],
        "second_segment_start": [np.array(starts)],
        "next_sentence_labels": [np.array(labels)],
        "document_index": [np.array(changes.pop("documents", range(len(samples))))],
        "corpus_index": [np.array(changes.pop("corpora", [0] * len(samples)))],
    }
    counts = {"samples": len(samples), "tokens": sum(map(len, samples))}
    write_samples(path, columns, **counts, attributes={**ATTRIBUTES, **changes})
    return path


RIGHT = [[CLS, 7, 8, SEP, 9, SEP], [CLS, 7, SEP, 9, 10, SEP]]


def test_right_samples_are_valid(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", RIGHT, [4, 3], [0, 1])
    validate_samples(path)
    assert open_samples(path).input_ids.tolist() == RIGHT[0] + RIGHT[1]
    single = [[CLS, 7, 8, SEP], [CLS, 7, SEP]]
    validate_samples(
        write(tmp_path / "b.h5", single, [0, 0], [0, 0], pair_objective="none", samples_with_random_next=0)
    )


@pytest.mark.parametrize(
    ("samples", "starts", "labels", "changes", "fault"),
    [
        ([RIGHT[0], [7, 7, SEP, 9, 10, SEP]], [4, 3], [0, 1], {}, "sample 1 does not begin with"),
        ([RIGHT[0], [CLS, 7, SEP, 9, 10, 11]], [4, 3], [0, 1], {}, "sample 1 does not end with"),
        ([RIGHT[0], [CLS, 7, 7, 9, 10, SEP]], [4, 3], [0, 1], {}, "sample 1 has no .SEP. before its second"),
        ([RIGHT[0], [CLS, 7, SEP, SEP, 10, SEP]], [4, 3], [0, 1], {}, "sample 1 has .CLS. or .SEP. inside"),
        ([RIGHT[0], [CLS, SEP, 9, 10, SEP]], [4, 2], [0, 1], {}, "sample 1 has an empty segment"),
        ([RIGHT[0], [CLS, 9, 10, SEP, SEP]], [4, 4], [0, 1], {}, "sample 1 has an empty segment"),
        ([RIGHT[0], [CLS, 7, SEP, 20, 10, SEP]], [4, 3], [0, 1], {}, "sample 1 has an id beyond the vocabulary"),
        ([RIGHT[0], [CLS, 7, SEP]], [4, 0], [0, 1], {}, "sample 1 has a label without a second segment"),
        (RIGHT, [4, 3], [0, 2], {}, "sample 1 has a label without"),
        (RIGHT, [4, 3], [0, 1], {"sequence_length": 5}, "sample 0 is longer than the sequence length"),
        (RIGHT, [4, 3], [0, 1], {"pair_objective": "none"}, "sample 0 does not fit pair objective none"),
        (RIGHT, [4, 3], [0, 1], {"documents": [1, 0]}, "document_index does not rise"),
        (RIGHT, [4, 3], [0, 1], {"documents": [0, 2]}, "document_index does not rise"),
        (RIGHT, [4, 3], [0, 1], {"corpora": [0, 2]}, "corpus_index names a corpus"),
        (RIGHT, [4, 3], [0, 1], {"documents_of_corpora": [1, 2]}, "documents_of_corpora do not add up"),
        (RIGHT, [4, 3], [0, 0], {}, "next_sentence_labels do not add up"),
        ([RIGHT[0], []], [4, 0], [0, 1], {}, "sample_offsets do not rise"),
    ],
)
def test_the_validator_names_the_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    samples: list[list[int]],
    starts: list[int],
    labels: list[int],
    changes: dict,
    fault: str,
) -> None:
    path = write(tmp_path / "a.h5", samples, starts, labels, **changes)
    for at_once in (50_000, 1):
        for module in ("layout", "validation"):
            monkeypatch.setattr(f"bertline.encoding.{module}.SAMPLES_PER_BLOCK", at_once)
        with pytest.raises(BertlineError, match=f"a.h5: {fault}"):
            validate_samples(path)


def test_a_file_without_samples_is_legal(tmp_path: Path) -> None:
    changes = {"documents": [], "documents_of_corpora": [0, 0], "samples_with_random_next": 0}
    path = write(tmp_path / "a.h5", [], [], [], **changes)
    with h5py.File(path, "r+") as file:
        file.attrs["documents"] = np.uint64(0)
    validate_samples(path)
    file = open_samples(path)
    assert (len(file), file.sample_offsets.tolist(), file.input_ids.size) == (0, [0], 0)


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    samples = [[CLS, 70_000, SEP, 9, SEP]]
    path = write(tmp_path / "a.h5", samples, [3], [1], vocab_size=100_000)
    validate_samples(path)
    file = open_samples(path)
    assert file.input_ids.dtype == np.dtype("<u4")
    assert file.input_ids.tolist() == samples[0]


def test_another_layout_version_is_refused(encoded: Path, tmp_path: Path) -> None:
    shutil.copy(encoded / "32.h5", tmp_path / "32.h5")
    with h5py.File(tmp_path / "32.h5", "r+") as file:
        file.attrs["layout_version"] = np.uint64(2)
    with pytest.raises(
        BertlineError, match=r"32.h5 has layout version 2, expected is 1; encode or import the dataset again"
    ):
        open_samples(tmp_path / "32.h5")


def test_files_of_another_make_are_refused(encoded: Path, tmp_path: Path) -> None:
    whole = (encoded / "32.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.h5").write_bytes(b"not HDF5")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file["input_ids"] = np.zeros((3, 8), dtype="i4")
    shutil.copy(encoded / "32.h5", tmp_path / "chunked.h5")
    with h5py.File(tmp_path / "chunked.h5", "r+") as file:
        ids, attributes = file["input_ids"][:], dict(file["input_ids"].attrs)
        del file["input_ids"]
        file.create_dataset("input_ids", data=ids, chunks=(16,)).attrs.update(attributes)
    shutil.copy(encoded / "32.h5", tmp_path / "lacking.h5")
    with h5py.File(tmp_path / "lacking.h5", "r+") as file:
        del file["corpus_index"]
    faults = {
        "cut": "is not a complete file of samples",
        "text": "is not a complete file of samples",
        "external": "has no layout_version",
        "chunked": "input_ids is not contiguous",
        "lacking": "is not a complete file of samples",
        "absent": "does not exist; run `snakemake encode`",
    }
    for name, fault in faults.items():
        with pytest.raises(BertlineError, match=f"{name}.h5:? {fault}") as error:
            open_samples(tmp_path / f"{name}.h5")
        assert "\n" not in str(error.value)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Iterator[np.ndarray]:
        yield np.array(RIGHT[0])
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_samples(tmp_path / "a.h5", {"input_ids": failing()}, samples=2, tokens=12, attributes=ATTRIBUTES)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_that_is_not_the_plans_is_refused(encoded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(encoded, tmp_path / "changed")
    write_plan(folder / "plan.jsonl", {"00000": [("news", 0, 29)]})
    shutil.copy(folder / "shards/00000.txt.zst", folder / "shards/00001.txt.zst")
    with pytest.raises(BertlineError, match=r"holds 30 documents, .*plan\.jsonl announces 29"):
        encode_shard(recipe_of(passes=1), "00000", folder)
    with pytest.raises(BertlineError, match=r"has no shard '00001', only 00000"):
        encode_shard(recipe_of(passes=1), "00001", folder)
    assert not list(folder.glob("seq32/*"))


def test_each_pass_pairs_the_text_anew(encoded: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(encoded, tmp_path / "again")
    encode_shard(recipe_of(passes=3), "00000", folder)
    for path in (folder / "seq32/00000.h5", encoded / "32.h5"):
        validate_samples(path)
    thrice, once = open_samples(folder / "seq32/00000.h5"), open_samples(encoded / "32.h5")
    assert (once.attributes["passes"], thrice.attributes["passes"]) == (1, 3)
    falls = np.flatnonzero(np.diff(thrice.document_index.astype(int)) < 0) + 1
    passes = np.split(np.arange(len(thrice)), falls)
    assert len(passes) == 3
    # The first is what one pass alone gives; the others are pairings of their own.
    assert thrice.input_ids[: len(once.input_ids)].tolist() == once.input_ids.tolist()
    of_pass = [thrice.second_segment_start[rows].tolist() for rows in passes]
    assert of_pass[0] == once.second_segment_start.tolist()
    assert of_pass[1] not in (of_pass[0], of_pass[2])
