"""HDF5 files whose disk is full at any byte: an error, and no file, not even where h5py itself cannot raise one."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from encoding_helpers import VOCABULARY

from bertline.encoding.interchange import write_interchange
from bertline.encoding.layout import COLUMNS, write_samples
from bertline.encoding.tokenizer import make_tokenizer
from bertline.finetuning.feature_files import open_feature_file
from bertline.finetuning.sequences import Sequences

SAMPLES, LENGTH = 300, 20
ATTRIBUTES = {
    "fingerprint": "0123456789abcdef",
    "shard": "00000",
    "sequence_length": 32,
    "pair_objective": "none",
    "passes": 1,
    "seed": 1,
    "tokenizer_sha256": "0" * 64,
    "vocab_size": 20,
    "cls_id": 2,
    "sep_id": 3,
    "documents": 2,
    "documents_of_corpora": [1, 1],
    "sentences": 4,
    "text_tokens": 9,
    "unknown_tokens": 0,
    "unplaced_tokens": 0,
    "samples_with_random_next": 0,
    "samples_without_partner": 0,
}


def native(path: Path) -> None:
    columns = {name: [np.zeros(SAMPLES)] for name in COLUMNS}
    columns["input_ids"] = [np.arange(SAMPLES * LENGTH) % 20]
    columns["sample_offsets"] = [np.arange(SAMPLES + 1) * LENGTH]
    write_samples(path, columns, samples=SAMPLES, tokens=SAMPLES * LENGTH, attributes=ATTRIBUTES)


def interchange(path: Path) -> None:
    ids = np.random.default_rng(1).integers(5, 20_000, (SAMPLES, 32))
    positions = np.tile([0, 10, 19], (SAMPLES, 1))
    block = {"input_ids": ids, "special_token_positions": positions, "next_sentence_labels": np.zeros(SAMPLES)}
    write_interchange(path, "gpauloski", [block], samples=SAMPLES, widths={"S": 32, "T": 3})


def features(path: Path) -> None:
    random = np.random.default_rng(1)
    with open_feature_file(path, make_tokenizer(VOCABULARY, lowercase=True, source="the test"), [1], "cls") as write:
        for number in range(0, SAMPLES, 100):
            sequences = Sequences(
                tokens=np.arange(100 * LENGTH) % 20,
                offsets=np.arange(101) * LENGTH,
                second_segment_start=np.zeros(100, int),
            )
            write(number, sequences, [random.standard_normal((100, 8), dtype=np.float32)])


@contextmanager
def room_of(size: int) -> Iterator[None]:
    """Allow files of `size` bytes: what a disk's end does, as any user can make it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("write", [native, interchange, features])
def test_a_disk_that_is_full_at_any_byte(
    write: Callable[[Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "whole.h5")
    whole = (tmp_path / "whole.h5").read_bytes()
    for size in [*range(0, len(whole), 997), len(whole) - 1]:
        path = tmp_path / f"{size}.h5"
        with room_of(size), pytest.raises(OSError) as error:  # noqa: PT011 - its number follows
            write(path)
        assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(path))
        assert not path.exists()
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["whole.h5"]
    with room_of(len(whole)):
        write(tmp_path / "again.h5")
    assert (tmp_path / "again.h5").read_bytes() == whole
