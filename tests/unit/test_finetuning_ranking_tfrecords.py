"""TFRecord files of the MS MARCO examples of other systems, written here with protobuf and a CRC of its definition."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finetuning_helpers import write_tokenizer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from ranking_files import SETTINGS, TABLE, data_of, tokenized, tokenizer_of

from bertline.console import BertlineError
from bertline.finetuning.ranking import lists
from bertline.finetuning.ranking.task import prepare_ranking
from bertline.finetuning.ranking.texts import Texts
from bertline.finetuning.ranking.tfrecords import read_examples

Numbers = dict[str, list[int]]
EXAMPLE = [
    ("Int64List", [("value", 1, "TYPE_INT64", None)]),
    ("FloatList", [("value", 1, "TYPE_FLOAT", None)]),
    ("Feature", [("float_list", 2, "TYPE_MESSAGE", "FloatList"), ("int64_list", 3, "TYPE_MESSAGE", "Int64List")]),
    ("Entry", [("key", 1, "TYPE_STRING", None), ("value", 2, "TYPE_MESSAGE", "Feature")]),
    ("Features", [("feature", 1, "TYPE_MESSAGE", "Entry")]),
    ("Example", [("features", 1, "TYPE_MESSAGE", "Features")]),
]


def example_class(*, packed: bool) -> Any:
    """The messages of tensorflow/core/example/example.proto; a map is a list of entries there."""
    file = descriptor_pb2.FileDescriptorProto(name=f"example{packed}.proto", package=f"test{packed}", syntax="proto3")
    for name, fields in EXAMPLE:
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            added = message.field.add(name=field, number=number, type=kind)
            repeated = (field == "value" and name.endswith("List")) or field == "feature"
            added.label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
            if of:
                added.type_name = f".test{packed}.{of}"
            if repeated and not of:
                added.options.packed = packed
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test{packed}.Example"))


CLASSES = {packed: example_class(packed=packed) for packed in (True, False)}


def content_of(numbers: Numbers, *, packed: bool = True, floats: dict[str, list[float]] | None = None) -> bytes:
    example = CLASSES[packed]()
    for name, values in numbers.items():
        entry = example.features.feature.add(key=name)
        entry.value.int64_list.value.extend(values)
    for name, of_name in (floats or {}).items():
        example.features.feature.add(key=name).value.float_list.value.extend(of_name)
    return bytes(example.SerializeToString())


def masked_crc(content: bytes) -> bytes:
    """CRC-32C bit by bit (RFC 3720, appendix B.4), masked as tensorflow/core/lib/hash/crc32c.h describes."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record_of(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + masked_crc(length) + content + masked_crc(content)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.booleans())
def test_numbers_are_those_that_protobuf_wrote(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], packed: bool
) -> None:
    path = tmp_path_factory.mktemp("records") / "one.tf"
    content = content_of({"query_ids": numbers, "label": [1]}, packed=packed, floats={"weight": [0.5]})
    path.write_bytes(record_of(content))
    ((_, example),) = read_examples(path)
    assert example["query_ids"].tolist() == numbers
    assert example["label"].tolist() == [1]
    assert "weight" not in example


def records_of(folder: Path) -> list[Numbers]:
    """[CLS] where was born ? [SEP] and a passage with [SEP], relevant in every other record."""
    write_tokenizer(folder / "tokenizer.json")
    ids = tokenizer_of(folder).token_to_id
    query = [ids(word) for word in ("[CLS]", "where", "was", "born", "?", "[SEP]")]
    return [
        {"query_ids": query, "doc_ids": [ids(f"n{place}"), ids("was"), ids("[SEP]")], "label": [place % 2]}
        for place in range(6)
    ]


def write_records(path: Path, records: list[Numbers]) -> Path:
    path.write_bytes(b"".join(record_of(content_of(record)) for record in records))
    return path


@pytest.mark.parametrize(
    "entry", [b"", b"\x0a\x05label", b"\x12\x05\x1a\x03\x0a\x01\x05"], ids=["neither", "key", "value"]
)
def test_an_entry_without_its_key_or_value_is_one_line(tmp_path: Path, entry: bytes) -> None:
    """A message may leave out a field that has its default."""
    features = b"\x0a" + bytes([len(entry)]) + entry
    path = tmp_path / "train.tf"
    path.write_bytes(record_of(b"\x0a" + bytes([len(features)]) + features))
    with pytest.raises(BertlineError, match="record 1: not an Example of int64 lists"):
        list(read_examples(path))


def test_examples_of_a_tfrecord_file_become_training_inputs(tmp_path: Path) -> None:
    records = records_of(tmp_path)
    source = write_records(tmp_path / "train.tf", records)
    data = {key: value for key, value in data_of(tmp_path).items() if not key.startswith("train_")}
    data["train_tfrecords"] = tokenized(tmp_path, str(source), tfrecords=True)
    task = prepare_ranking(TABLE, data, {**SETTINGS, "seed": 1}, tokenizer_of(tmp_path))
    taken = task.train.take(np.arange(6))
    for row, record in enumerate(records):
        joined = taken.tokens[taken.offsets[row] : taken.offsets[row + 1]].tolist()
        assert joined == record["query_ids"] + record["doc_ids"]
    assert task.train_targets.tolist() == [0, 1, 0, 1, 0, 1]
    assert (
        len(prepare_ranking(TABLE, data, {**SETTINGS, "seed": 1, "training_examples": 2}, tokenizer_of(tmp_path)).train)
        == 2
    )
    with pytest.raises(BertlineError, match="pairwise needs"):
        prepare_ranking(TABLE, data, {**SETTINGS, "seed": 1, "objective": "pairwise"}, tokenizer_of(tmp_path))


def test_examples_of_a_tfrecord_file_are_ranked_by_query(tmp_path: Path) -> None:
    records = records_of(tmp_path)
    other = [records[0]["query_ids"][0], *records[0]["query_ids"][1:4], 5, records[0]["query_ids"][-1]]
    lists = [*records[:4], *({**record, "query_ids": other} for record in records[:3]), records[4], records[5]]
    source = write_records(tmp_path / "dev.tf", lists)
    data = {key: value for key, value in data_of(tmp_path).items() if not key.startswith("dev_")}
    data["dev_tfrecords"] = tokenized(tmp_path, str(source), tfrecords=True)
    task = prepare_ranking(TABLE, data, {**SETTINGS, "seed": 1}, tokenizer_of(tmp_path))
    counted = {key: value for key, value in task.examples.items() if key.startswith("dev_")}
    assert counted == {
        **dict.fromkeys(("dev_queries", "dev_judged_queries"), 3),
        "dev_candidates": 9,
        **dict.fromkeys(("dev_queries_without_candidates", "dev_padding"), 0),
    }
    assert task.dev.inputs.take(np.array([4])).tokens.tolist() == other + lists[4]["doc_ids"]
    # The relevant ones, at odd places of each list of 4, 3 and 2 records, first.
    best = np.array([[0, lists[row]["label"][0] * 9 - row / 9] for row in range(9)])
    evaluation = task.dev.evaluate(best)
    assert evaluation.scores["mrr_10"] == 100
    assert task.baselines == {"candidates": 50}
    evaluation.write_predictions(tmp_path)
    ranked = [line.split("\t") for line in (tmp_path / "ranking.tsv").read_text().splitlines()]
    assert [(query, passage) for query, passage, _ in ranked] == [
        *(("0", passage) for passage in "1302"),
        *(("1", passage) for passage in "546"),
        *(("2", passage) for passage in "87"),
    ]


def test_padding_of_an_example_is_left_out(tmp_path: Path) -> None:
    records = records_of(tmp_path)
    padding = [tokenizer_of(tmp_path).token_to_id("[PAD]")] * 3
    padded = [{**one, "query_ids": one["query_ids"] + padding, "doc_ids": one["doc_ids"] + padding} for one in records]
    for name, content in {"train": records, "padded": padded}.items():
        tokenized(tmp_path, str(write_records(tmp_path / f"{name}.tf", content)), tfrecords=True)
    for name in ("queries.tokens", "passages.tokens"):
        assert (tmp_path / "tokenized-padded" / name).read_bytes() == (tmp_path / "tokenized-train" / name).read_bytes()


@given(st.lists(st.lists(st.integers(0, 1), max_size=2), min_size=1, max_size=20), st.integers(1, 7))
def test_lists_of_any_number_of_records_end_where_the_query_changes(queries: list[list[int]], chunk: int) -> None:
    offsets = np.cumsum([0, *map(len, queries)])
    tokens = np.array([token for query in queries for token in query], np.uint16)
    given = Texts(tokens, offsets, np.zeros(0, "S1"), np.zeros(0, np.int64))
    expected = [0, *(row for row in range(1, len(queries)) if queries[row] != queries[row - 1]), len(queries)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "CHUNK", chunk)
        labels = np.ones(len(queries), np.uint8)
        assert lists.labelled_candidates(Path("dev.tf"), given, labels, 1)[0].starts.tolist() == expected


def test_examples_without_a_relevant_passage_are_one_line(tmp_path: Path) -> None:
    source = write_records(tmp_path / "dev.tf", records_of(tmp_path))
    data = {key: value for key, value in data_of(tmp_path).items() if not key.startswith("dev_")}
    data["dev_tfrecords"] = tokenized(tmp_path, str(source), tfrecords=True)
    with pytest.raises(BertlineError, match="no passage has a grade of at least 2; lower relevance_level"):
        prepare_ranking({**TABLE, "relevance_level": 2}, data, {**SETTINGS, "seed": 1}, tokenizer_of(tmp_path))


def cut(content: bytes, at: int) -> bytes:
    return content[:at]


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: cut(content, -1), "record 6: the file is cut off"),
        (lambda content: cut(content, len(content) // 6 + 5), "record 2: the file is cut off"),
        (lambda content: flipped(content, 0), "record 1: its length has a wrong checksum"),
        (lambda content: flipped(content, 14), "record 1: its content has a wrong checksum"),
        (lambda content: record_of(b"\xff\xff"), "record 1: not an Example"),
        (
            lambda content: struct.pack("<Q", 2**40) + masked_crc(struct.pack("<Q", 2**40)),
            "record 1: 1099511627776 bytes",
        ),
        (lambda content: b"", "contains no passage"),
        (gzip.compress, "is compressed; unpack it"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    source = write_records(tmp_path / "train.tf", records_of(tmp_path))
    source.write_bytes(damage(source.read_bytes()))
    with pytest.raises(BertlineError, match=message) as caught:
        tokenized(tmp_path, str(source), tfrecords=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "tokenized-train").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [2]}, r"record 3: label: given \[2\], allowed are 0 and 1"),
        ({"label": [0, 1]}, r"record 3: label: given \[0, 1\], allowed are 0 and 1"),
        ({"label": []}, "record 3: label"),
        ({"doc_ids": [30000]}, "record 3: doc_ids: a token is not among"),
        ({"query_ids": [-1]}, "record 3: query_ids: a token is not among"),
        ({"query_ids": None}, "record 3: no 'query_ids'"),
    ],
)
def test_a_wrong_example_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    records = records_of(tmp_path)
    records[2] = {key: value for key, value in {**records[2], **change}.items() if value is not None}
    with pytest.raises(BertlineError, match=message):
        tokenized(tmp_path, str(write_records(tmp_path / "train.tf", records)), tfrecords=True)
