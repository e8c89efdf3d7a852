"""Damage to files that the project itself wrote: what is read is what was written, or one line names the file.

A file without a digest may be damaged such that it is another valid one. `UNCHECKED` lists these.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from encoding_helpers import VOCABULARY, make_dataset
from fault_counts import TIMES, drawing
from finetuning_helpers import write_tokenizer
from ranking_files import tokenized, write_files
from roberta_folder import train_vocabulary
from test_corpus_damage import mutate
from test_input_damage import OTHERS, outcome, places_of, with_other
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.corpus.documents import Document, write_documents
from bertline.corpus.index import read_index, write_index
from bertline.corpus.signatures import SignatureFiles, write_signatures
from bertline.encoding.card import validate_dataset
from bertline.encoding.tokenizer import (
    continuations,
    load_tokenizer,
    make_tokenizer,
    make_unigram,
    read_tokenizer,
    save_tokenizer,
    segment_starts,
    separators_in_pair,
)
from bertline.files import write_json
from bertline.finetuning.ranking.collection import Collection, open_collection
from bertline.training.data.opening import open_training_data
from bertline.training.data.verification import verify_in_background

MUTATIONS_OF_EACH_KIND = 40 * TIMES


class Reader(NamedTuple):
    """A file, what reads it into something that can be compared, and how often it is damaged."""

    path: Path
    read: Callable[[], Any]
    mutations: int = MUTATIONS_OF_EACH_KIND


def index(folder: Path) -> Reader:
    write_index(folder / "part.index.npy", [(0, 10, 7, 2), (10, 25, 8, 3), (35, 5, 9, 1)])
    return Reader(folder / "part.index.npy", lambda: read_index(folder / "part.index.npy").tolist())


def signatures(folder: Path) -> Reader:
    texts = (Document(id=str(number), title="", text=f"text {number}", source="", url="") for number in range(3))
    documents, counts, path = folder / "part.jsonl.zst", folder / "part.counts.json", folder / "part.npy"
    write_documents(texts, documents, counts)
    write_signatures(documents, counts, path)
    return Reader(path, lambda: [rows.tolist() for _, rows in SignatureFiles([path]).blocks(2)])


def collection(name: str) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        whole = Path(tokenized(folder, write_files(folder / "files")["collection"]))
        tokenizer = read_tokenizer(write_tokenizer(folder / "tokenizer.json"))
        return Reader(whole / name, lambda: content_of(open_collection(whole, tokenizer)))

    return make


def content_of(found: Collection) -> list[Any]:
    """Everything of a collection that a ranking uses, each number used as it would be."""
    texts = found.passages
    words = [texts.tokens[start:end].tolist() for start, end in zip(texts.offsets, texts.offsets[1:], strict=False)]
    return [words, texts.find([b"p001", b"p999"]).tolist(), texts.ids.tolist(), found.document_frequency.tolist()]


ARRAYS = {
    "index.npy": index,
    "signatures.npy": signatures,
    **{
        name: collection(name)
        for name in ("passages.tokens", "passages.offsets", "passages.ids.npy", "passages.order.npy")
    },
    "document_frequency.npy": collection("document_frequency.npy"),
}
UNCHECKED = {"signatures.npy", "passages.tokens", "passages.offsets", "passages.ids.npy", "passages.order.npy"}
UNCHECKED |= {"document_frequency.npy"}


def read_or_refused(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or the line that refuses it."""
    found: list[Any] = []
    message = outcome(lambda: found.append(read()))
    return None if message else found[0], message


def assert_damage_is_found(
    reader: Reader, contents: list[bytes], no_hang: Callable[[], None], *, checked: bool = False, least: float = 0.3
) -> None:
    """Read each of the contents: it is refused in a line with its folder, or read; if checked, as it was."""
    path, read, _ = reader
    whole, results, before = read(), Counter[bool](), path.read_bytes()
    for number, content in enumerate(contents):
        no_hang()
        path.write_bytes(content)
        found, message = read_or_refused(read)
        assert not message or str(path.parent) in message, (number, message)
        assert message or not checked or found == whole, (number, content[:2000])
        results[bool(message)] += 1
    path.write_bytes(before)
    assert results[True] >= least * len(contents), results


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", ARRAYS)
def test_changed_bytes_of_arrays_are_read_or_refused(
    tmp_path: Path, kind: str, no_hang: Callable[[], None], record_property: Any
) -> None:
    reader, draw = ARRAYS[kind](tmp_path), drawing(f"bytes of {kind}")
    content = reader.path.read_bytes()
    damaged = [mutate(content, draw) for _ in range(MUTATIONS_OF_EACH_KIND)]
    if kind.endswith(".npy"):  # and of the header alone, which numpy parses as Python
        damaged += [mutate(content[:128], draw) + content[128:] for _ in range(MUTATIONS_OF_EACH_KIND)]
    assert_damage_is_found(reader, damaged, no_hang, checked=kind not in UNCHECKED)
    record_property("faults", len(damaged))


def dataset(folder: Path, *, validate: bool = False) -> Reader:
    card = make_dataset(folder / "dataset", lengths=(64,))
    if validate:
        return Reader(card, lambda: validate_dataset(card), MUTATIONS_OF_EACH_KIND // 4)
    return Reader(card, lambda: training_data_of(card))


def training_data_of(card: Path) -> list[Any]:
    """Everything of a dataset that a training uses."""
    data = open_training_data(card, 64, torch.device("cpu"))
    verified = verify_in_background(card, data.train.card, 64, rank=0, world_size=1)
    if (problem := verified.finish()) is not None:
        raise BertlineError(problem)
    samples = data.train.gather(np.arange(len(data.train)))
    corpora = {int(number) for block in data.train.corpora() for number in block}
    return [samples.tokens.tolist(), sorted(corpora), data.vocab_size, data.has_pairs, data.tokenizer_sha256]


def of_tokenizer(make: Callable[[Path], Tokenizer]) -> Callable[[Path], Reader]:
    def made(folder: Path) -> Reader:
        path = folder / "tokenizer.json"
        save_tokenizer(make(folder), path)
        return Reader(path, lambda: ids_of(path))

    return made


def byte_level(folder: Path) -> Path:
    train_vocabulary().save_pretrained(folder / "roberta")
    return folder / "roberta/tokenizer.json"


def ids_of(path: Path) -> list[Any]:
    """What a tokenizer makes of a pair, and all that is asked of it elsewhere."""
    tokenizer = read_tokenizer(path)
    pair = tokenizer.encode("the river, [SEP]", "a hill").ids
    separators = separators_in_pair(tokenizer)
    return [pair, separators, continuations(tokenizer).tolist(), segment_starts(tokenizer).tolist()]


def tokenizer_config(folder: Path) -> Reader:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    path = folder / "tokenizer_config.json"
    write_json(path, {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None})
    return Reader(path, lambda: read_tokenizer(folder / "vocab.txt").encode("The Ríver 水").ids)


OBJECTS: dict[str, Callable[[Path], Reader]] = {
    "dataset.json": dataset,
    "dataset.json, validated": partial(dataset, validate=True),
    "collection.json": collection("collection.json"),
    "WordPiece": of_tokenizer(lambda _: make_tokenizer(VOCABULARY, lowercase=True, source="the test")),
    "Unigram": of_tokenizer(lambda _: make_unigram([("▁the", -1.0), ("▁a", -2.0), ("h", -3.0)], lowercase=True)),
    "BPE": of_tokenizer(lambda folder: load_tokenizer(byte_level(folder))),
    "tokenizer_config.json": tokenizer_config,
}


def with_other_values(path: Path, draw: random.Random, count: int) -> list[bytes]:
    """The JSON file with one value of another type or missing, or changed bytes."""
    content = json.loads(path.read_text())
    places = [place for place in places_of(content) if draw.random() < 20 / len(at(content, place[:-1]))]
    changed = [with_other(content, draw.choice(places), draw.choice(OTHERS)) for _ in range(count)]
    changed += [without(content, place) for place in draw.sample(places, min(count // 4, len(places)))]
    texts = [json.dumps(one).encode() for one in [*changed, *OTHERS]]
    return texts + [mutate(path.read_bytes(), draw) for _ in range(count // 2)] + NO_JSON


NO_JSON = [b"", b"\0", b"{", b"[" * 100_000, b"9" * 5000, b'{"a": NaN}', b"\xef\xbb\xbf{}", "{}".encode("utf-16")]


def at(value: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def without(value: Any, keys: tuple[Any, ...]) -> Any:
    changed = json.loads(json.dumps(value))
    del at(changed, keys[:-1])[keys[-1]]
    return changed


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", OBJECTS)
def test_other_values_in_objects_are_used_or_refused(
    tmp_path: Path, kind: str, no_hang: Callable[[], None], record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = OBJECTS[kind](tmp_path)
    contents = with_other_values(
        reader.path, drawing(f"values of {kind}"), MUTATIONS_OF_EACH_KIND // (1 + 3 * ("validated" in kind))
    )
    assert_damage_is_found(reader, contents, no_hang)
    record_property("faults", len(contents))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda template: template["single"].insert(0, {"SpecialToken": {"id": "[NO]", "type_id": 0}}), r"'\[NO\]'"),
        (lambda template: template["special_tokens"].clear(), r"'\[CLS\]', which is not in special_tokens"),
        (lambda template: template["special_tokens"]["[SEP]"].update(ids=[999]), r"gives \[SEP\] other ids"),
    ],
)
def test_a_template_with_a_token_that_is_not_there_is_one_line(
    tmp_path: Path, change: Callable[[Any], object], line: str
) -> None:
    """The library would panic, which no `except Exception` catches."""
    path, read, _ = OBJECTS["WordPiece"](tmp_path)
    content = json.loads(path.read_text())
    change(content["post_processor"])
    path.write_text(json.dumps(content))
    with pytest.raises(BertlineError, match=rf"tokenizer.json: its template .*{line}"):
        read()


@pytest.mark.parametrize("key", ["do_lower_case", "tokenize_chinese_chars", "strip_accents"])
@pytest.mark.parametrize("value", ["false", 0, 1, [], {}, "", None])
def test_a_setting_of_a_vocabulary_that_is_no_truth_value_is_one_line(tmp_path: Path, key: str, value: Any) -> None:
    path, read, _ = tokenizer_config(tmp_path)
    path.write_text(json.dumps({key: value}))
    if key == "strip_accents" and value is None:
        read()
        return
    with pytest.raises(BertlineError, match=rf"tokenizer_config.json: {key}: given .*, allowed are true and false"):
        read()


HEADERS = {
    "a bracket that is not closed": ("'<i8', 'fortran_order': False, 'shape': (5"),
    "no Python": ("'<i8' 'fortran_order' = False, 'shape': (5,)"),
    "more than the memory": ("'<i8', 'fortran_order': False, 'shape': (1000000000000000000,)"),
    "more than a number of the machine": (f"'<i8', 'fortran_order': False, 'shape': ({'9' * 30},)"),
    "a truth value as a size": ("'<i8', 'fortran_order': False, 'shape': (True,)"),
    "a type with one part": ("('<i8',), 'fortran_order': False, 'shape': (5,)"),
    "deep": ("(" * 300 + ")" * 300 + ", 'fortran_order': False, 'shape': (5,)"),
    "a pickle": ("'O', 'fortran_order': False, 'shape': (5,)"),
}


@pytest.mark.parametrize("kind", ["index.npy", "signatures.npy", "document_frequency.npy"])
@pytest.mark.parametrize("header", HEADERS)
def test_any_header_of_an_array_is_one_line(tmp_path: Path, kind: str, header: str) -> None:
    path, read, _ = ARRAYS[kind](tmp_path)
    text = f"{{'descr': {HEADERS[header]}}}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(40))
    assert path.name in outcome(read)
    path.write_bytes(b"PK\x03\x04 no archive")
    assert path.name in outcome(read)


def test_an_array_with_fewer_rows_than_bytes_is_one_line(tmp_path: Path) -> None:
    """Its documents would be numbered as those of another file."""
    path, read, _ = signatures(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"(3,)", b"(2,)"))
    assert "more bytes than its 2 rows" in outcome(read)
