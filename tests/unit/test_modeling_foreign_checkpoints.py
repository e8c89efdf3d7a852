"""TensorFlow checkpoints of other code: only what is needed is read, and what is not a BERT is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoint_index import entry, varint, write_index
from test_modeling_conversion import expected
from test_modeling_unused_weights import make_google

from bertline.console import BertlineError
from bertline.modeling.conversion import convert_weights
from bertline.modeling.tensorflow_checkpoint import masked_checksum, names_in_checkpoint, read_checkpoint

# Values of types that are not read, a string and a truth value, which are not in the file of values either.
TEXT, TRUTH = b"\x08\x07\x12\x00\x28\x7b\x35abcd", b"\x08\x0a\x12\x00\x28\x01\x35abcd"
Rename = Callable[[str], str]


def write_variables(prefix: Path, tensors: dict[str, np.ndarray], others: dict[str, bytes]) -> None:
    """Write a checkpoint with other variables, of which an index describes the values."""
    entries, place = {"": b"\x08\x01"} | others, 0
    with prefix.with_name(f"{prefix.name}.data-00000-of-00001").open("wb") as file:
        for name, values in tensors.items():
            content = values.tobytes()
            shape = b"".join(b"\x12\x02\x08" + bytes([size]) for size in values.shape)
            described = b"\x08\x01\x12" + bytes([len(shape)]) + shape + b"\x20" + varint(place) + b"\x28"
            entries[name] = described + varint(len(content)) + b"\x35" + masked_checksum(content)
            place += file.write(content)
    write_index(Path(f"{prefix}.index"), [entry(name.encode(), entries[name]) for name in sorted(entries)])


def with_variables(folder: Path, tensors: dict[str, np.ndarray], others: dict[str, bytes]) -> Path:
    made = make_google(folder)
    for path in made.glob("bert_model.ckpt.*"):
        path.unlink()
    write_variables(made / "bert_model.ckpt", tensors, others)
    return made


@pytest.mark.parametrize("others", [{"zz_text": TEXT}, {"a_truth": TRUTH}, {"_CHECKPOINTABLE_OBJECT_GRAPH": TEXT}])
def test_a_variable_that_is_not_needed_may_be_of_any_type(tmp_path: Path, others: dict[str, bytes]) -> None:
    google = with_variables(tmp_path / "google", expected(), others)
    convert_weights(google, tmp_path / "out", lowercase=True)
    convert_weights(make_google(tmp_path / "released"), tmp_path / "expected", lowercase=True)
    written = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("out", "expected")]
    assert written[0] == written[1]
    (name,) = others
    message = rf"ckpt\.index: {name} is of type \d+ and \d+ bytes, which cannot be read; fetch it again, or choose"
    with pytest.raises(BertlineError, match=message):
        list(read_checkpoint(google / "bert_model.ckpt"))


def test_only_the_named_tensors_are_read(tmp_path: Path) -> None:
    google = make_google(tmp_path / "google")
    names = names_in_checkpoint(google / "bert_model.ckpt")
    assert names == [name for name, _ in read_checkpoint(google / "bert_model.ckpt")]
    assert [name for name, _ in read_checkpoint(google / "bert_model.ckpt", names[3:5])] == names[3:5]
    with pytest.raises(BertlineError, match=r"none\.index does not exist; name a folder with a TensorFlow checkpoint"):
        names_in_checkpoint(google / "none")


GRAPH = {"_CHECKPOINTABLE_OBJECT_GRAPH": TEXT}


@pytest.mark.parametrize(
    ("rename", "others", "found"),
    [
        (lambda name: f"model/layer-0/{name}/.ATTRIBUTES/VARIABLE_VALUE", GRAPH, "_CHECKPOINTABLE_OBJECT_GRAPH, model"),
        (lambda name: name.replace("bert/", "electra/"), {}, "cls/predictions/output_bias, "),
        (
            lambda name: name.replace("encoder/layer_", "encoder/transformer/group_"),
            {},
            "bert/encoder/transformer/group_0/attention/output/LayerNorm/beta, ",
        ),
    ],
    ids=["tensorflow2", "electra", "albert"],
)
def test_a_checkpoint_of_another_network_is_named_as_such(
    tmp_path: Path, rename: Rename, others: dict[str, bytes], found: str
) -> None:
    tensors = {rename(name): values for name, values in expected().items()}
    google = with_variables(tmp_path / "google", tensors, others)
    with pytest.raises(BertlineError) as refused:
        convert_weights(google, tmp_path / "out", lowercase=True)
    message = str(refused.value)
    assert message.startswith(f"{google}/bert_model.ckpt.index has no bert/encoder/layer_0, but {found}")
    assert message.endswith(": this is not a BERT of Google's TensorFlow 1 code; choose one, or weights of PyTorch")
    assert "\n" not in message
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_without_variables_is_named_as_such(tmp_path: Path) -> None:
    google = with_variables(tmp_path / "google", {}, {})
    with pytest.raises(BertlineError, match=r"index has no bert/encoder/layer_0, but nothing: this is not a BERT of"):
        convert_weights(google, tmp_path / "out", lowercase=True)
