"""HDF5 files from elsewhere: what is not stored in them is not read, and what they claim is not believed."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from encoding_helpers import make_dataset
from test_encoding_validation import NVIDIA, write

from bertline.console import BertlineError
from bertline.encoding.hdf5 import open_hdf5
from bertline.encoding.imports import import_dataset
from bertline.encoding.inspection import problems_of
from bertline.encoding.layout import open_samples

ROW = np.array(NVIDIA["input_ids"], "<i4")


def elsewhere(file: h5py.File) -> Path:
    return Path(file.filename).with_name("elsewhere")


def external(file: h5py.File) -> None:
    elsewhere(file).write_bytes(ROW.tobytes())
    file.create_dataset("input_ids", ROW.shape, "<i4", external=[(str(elsewhere(file)), 0, ROW.nbytes)])


def virtual(file: h5py.File) -> None:
    with h5py.File(elsewhere(file), "w") as other:
        other["ids"] = ROW
    layout = h5py.VirtualLayout(ROW.shape, "<i4")
    layout[:] = h5py.VirtualSource(str(elsewhere(file)), "ids", ROW.shape)
    file.create_virtual_dataset("input_ids", layout)


def external_link(file: h5py.File) -> None:
    with h5py.File(elsewhere(file), "w") as other:
        other["ids"] = ROW
    file["input_ids"] = h5py.ExternalLink(str(elsewhere(file)), "ids")


def soft_link(file: h5py.File) -> None:
    file.create_group("inside")["ids"] = ROW
    file["input_ids"] = h5py.SoftLink("/inside/ids")


def lost_link(file: h5py.File) -> None:
    file["input_ids"] = h5py.SoftLink("/nowhere")


def references(file: h5py.File) -> None:
    file.create_dataset("input_ids", (2, 8), h5py.ref_dtype)[0, 0] = file.ref


def regions(file: h5py.File) -> None:
    file.create_dataset("input_ids", (2, 8), h5py.regionref_dtype)


def strings(file: h5py.File) -> None:
    file.create_dataset("input_ids", data=[["x" * 9] * 8] * 2, dtype=h5py.string_dtype())


def compound(file: h5py.File) -> None:
    file.create_dataset("input_ids", (2, 8), [("a", "<i4"), ("b", h5py.vlen_dtype(np.int32))])


def group(file: h5py.File) -> None:
    file.create_group("input_ids")


def without_space(file: h5py.File) -> None:
    file.create_dataset("input_ids", data=h5py.Empty("<i4"))


def many_rows(file: h5py.File) -> None:
    for name in NVIDIA:
        columns = np.shape(NVIDIA[name])[1:]
        dtype = file[name].dtype if name in file else "<i4"
        if name in file:
            del file[name]
        file.create_dataset(name, (10**12, *columns), dtype, chunks=(1024, *columns))


def long_rows(file: h5py.File) -> None:
    for name in ("input_mask", "segment_ids"):
        dtype = file[name].dtype
        del file[name]
        file.create_dataset(name, (2, 10**12), dtype, chunks=(1, 1024))
    file.create_dataset("input_ids", (2, 10**12), "<i4", chunks=(1, 1024))


def nothing_written(file: h5py.File) -> None:
    """A contiguous dataset of which nothing is stored is read as its fill value."""
    file.create_dataset("input_ids", (2, 8), "<i4", fillvalue=7)


def huge_chunk(file: h5py.File) -> None:
    dataset = file.create_dataset("input_ids", (2, 2**29), "<i4", chunks=(1, 2**29), compression="gzip")
    dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(1 << 20)))


def unknown_filter(file: h5py.File) -> None:
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((2, 8))
    settings.set_filter(32_999, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple((2, 8))
    dataset = h5py.h5d.create(file.id, b"input_ids", h5py.h5t.STD_I32LE, space, settings)
    dataset.write_direct_chunk((0, 0), ROW.tobytes())


def more_masks_than_tokens(file: h5py.File) -> None:
    """Each sample's row takes as much memory as many samples."""
    file.create_dataset("input_ids", data=ROW)
    for name in ("masked_lm_positions", "masked_lm_ids"):
        content = np.pad(file[name][:], ((0, 0), (0, 6)))
        del file[name]
        file[name] = content


def long_sequences(file: h5py.File) -> None:
    for name in ("input_mask", "segment_ids"):
        content = np.pad(file[name][:], ((0, 0), (0, (1 << 16) - 8)))
        del file[name]
        file.create_dataset(name, data=content, compression="gzip")
    file.create_dataset("input_ids", data=np.pad(ROW, ((0, 0), (0, (1 << 16) - 8))), compression="gzip")


def missing_chunk(file: h5py.File) -> None:
    """A chunk that was never written is read as zeros."""
    file.create_dataset("input_ids", ROW.shape, "<i4", chunks=(1, 5))[:, :5] = ROW[:, :5]


def no_columns(file: h5py.File) -> None:
    for name in ("input_ids", "input_mask", "segment_ids"):
        dtype = file[name].dtype if name in file else "<i4"
        if name in file:
            del file[name]
        file.create_dataset(name, (2, 0), dtype)


ATTACKS: list[tuple[Callable[[h5py.File], None], str]] = [
    (external, "input_ids is stored in another file"),
    (virtual, "input_ids is stored in another file"),
    (external_link, "input_ids is a link"),
    (soft_link, "input_ids is a link"),
    (lost_link, "input_ids is a link"),
    (references, "input_ids is object"),
    (regions, "input_ids claims "),
    (strings, "input_ids is object"),
    (compound, "input_ids claims "),
    (group, "'Group' object has no attribute"),
    (without_space, "input_ids"),
    (many_rows, "claims "),
    (long_rows, "claims "),
    (nothing_written, "input_ids claims 64 bytes, of which 0 are stored"),
    (huge_chunk, "input_ids has chunks of 2147483648 bytes"),
    (unknown_filter, "input_ids needs the filter 32999"),
    (no_columns, "input_ids has rows of 0"),
    (long_sequences, "input_ids has rows of 65536, allowed are 1 to 65535; make the file again"),
    (more_masks_than_tokens, "masked_lm_positions has rows of 9, allowed are 1 to 8; make the file again"),
    (missing_chunk, "input_ids has 4 chunks, of which 2 are stored"),
]


@pytest.mark.parametrize(("attack", "message"), ATTACKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_file_that_is_not_what_it_seems_is_neither_valid_nor_imported(
    tmp_path: Path, attack: Callable[[h5py.File], None], message: str
) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(write(path, NVIDIA), "r+") as file:
        del file["input_ids"]
        attack(file)
    (problem,) = problems_of(path)
    assert problem.startswith(str(path))
    assert message in problem
    assert "\n" not in problem
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")))
    with pytest.raises(BertlineError) as caught:
        import_dataset([path], tmp_path / "vocab.txt", tmp_path / "out")
    assert message in str(caught.value)
    assert not list(tmp_path.glob("out/seq*/*"))


def test_what_gzip_can_pack_is_read_and_a_claim_of_twice_as_much_is_not(tmp_path: Path) -> None:
    """Gzip makes equal bytes about a thousand times smaller; a file that claims more would fill the memory."""
    size, path = 1 << 24, tmp_path / "a.hdf5"
    packed = zlib.compress(bytes(size), 9)

    def claim(size: int) -> None:
        with h5py.File(path, "w") as file:
            dataset = file.create_dataset("masks", (size,), "u1", chunks=(size,), compression="gzip")
            dataset.id.write_direct_chunk((0,), packed)

    claim(size)
    with open_hdf5(path, "make it again") as file:
        assert not file["masks"][:].any()
    claim(2 * size)
    fault = rf"a\.hdf5: masks claims {2 * size} bytes, of which {len(packed)} are stored; make it again$"
    with pytest.raises(BertlineError, match=fault), open_hdf5(path, "make it again"):
        pass


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    card = make_dataset(tmp_path_factory.mktemp("native") / "data", lengths=[32])
    return card.parent / "seq32/00000.h5"


def of_dataset(attack: Callable[[h5py.File], None]) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file["input_ids"]
        attack(file)

    return change


def in_rows(file: h5py.File) -> None:
    file["input_ids"] = ROW.astype("<u2")


def of_four_bytes(file: h5py.File) -> None:
    file["input_ids"] = ROW.ravel()


def in_chunks(file: h5py.File) -> None:
    file.create_dataset("input_ids", data=np.arange(9000, dtype="<u2"), chunks=(4096,))


def between_pages(file: h5py.File) -> None:
    """Where no page of memory begins, so that a reader cannot map it there."""
    file["filler"] = np.zeros(3, "u1")
    assert file.create_dataset("input_ids", data=np.arange(9000, dtype="<u2")).id.get_offset() % 4096


def within_the_header(file: h5py.File) -> None:
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((100,))
    h5py.h5d.create(file.id, b"input_ids", h5py.h5t.STD_U16LE, space, settings).write(space, space, np.ones(100, "<u2"))


def of_attribute(name: str, value: Any, **form: Any) -> Callable[[h5py.File], None]:
    return lambda file: file.attrs.create(name, value, **form)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_dataset(external), "input_ids is stored in another file"),
        (of_dataset(virtual), "input_ids is stored in another file"),
        (of_dataset(external_link), "input_ids is a link"),
        (of_dataset(soft_link), "input_ids is a link"),
        (of_dataset(references), "input_ids is object"),
        (of_dataset(strings), "input_ids is object"),
        (of_dataset(group), "'Group' object has no attribute"),
        (of_dataset(without_space), "input_ids"),
        (of_dataset(in_rows), "input_ids is uint16 (2, 8), it has to be uint16 (n,); "),
        (of_dataset(of_four_bytes), "input_ids is int32 (16,), it has to be uint16 (n,); "),
        (of_dataset(between_pages), "input_ids is not contiguous at a multiple of 4096; "),
        (of_dataset(in_chunks), "input_ids is not contiguous at a multiple of 4096; "),
        (of_dataset(within_the_header), "input_ids is not contiguous at a multiple of 4096; "),
        (of_attribute("samples", np.zeros(10**7, "u8")), "the attribute samples "),
        (of_attribute("documents_of_corpora", np.zeros(10**7, "u8")), "the attribute documents_of_corpora "),
        (of_attribute("shard", "x" * 10**7), "the attribute shard "),
        (of_attribute("seed", "text", dtype=h5py.string_dtype()), "the attribute seed "),
        (of_attribute("fingerprint", h5py.Empty("S4")), "the attribute fingerprint "),
        (of_attribute("tokens", float("nan")), "the attribute tokens "),
        (of_attribute("vocab_size", [1, 2]), "the attribute vocab_size "),
        (lambda file: file["input_ids"].attrs.create("sha256", [1.5] * 10**6), "the attribute sha256 "),
    ],
)
def test_a_native_file_that_is_not_what_it_seems_is_not_opened(
    native: Path, tmp_path: Path, change: Callable[[h5py.File], None], message: str
) -> None:
    path = tmp_path / "a.h5"
    shutil.copy(native, path)
    with h5py.File(path, "r+", libver="latest") as file:
        change(file)
    with pytest.raises(BertlineError, match=r"run `snakemake encode`, or import it again$") as caught:
        open_samples(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    (problem,) = problems_of(path)
    assert problem.split(";")[0] == str(caught.value).split(";")[0]
