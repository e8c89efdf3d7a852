"""Damage to files that the project itself wrote: what is read is what was written, or one line names the file.

A file without a digest may be damaged such that it is another valid one. `UNCHECKED` lists these.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from dump_server import serve_bytes
from encoding_helpers import VOCABULARY, make_dataset
from fault_counts import TIMES, drawing
from finetuning_helpers import write_tokenizer
from ranking_files import tokenized, write_files
from roberta_folder import train_vocabulary
from synthetic_dataset import recipe
from synthetic_runs import START, journal_line, write, write_journal, write_run
from test_corpus_damage import mutate
from test_input_damage import OTHERS, outcome, places_of, with_other
from test_reporting_nsight import details, raw
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.corpus import http_download
from bertline.corpus.documents import Document, write_documents
from bertline.corpus.download import download
from bertline.corpus.expected_file import Expected
from bertline.corpus.index import read_index, write_index
from bertline.corpus.overlap import overlapping_documents, sum_up_overlap
from bertline.corpus.signatures import SignatureFiles, write_signatures
from bertline.corpus.wikimedia import download_part, list_parts
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
from bertline.encoding.validation import validate_dataset
from bertline.files import read_json, write_json
from bertline.finetuning.ranking.collection import Collection, open_collection
from bertline.finetuning.submissions import choose_submissions
from bertline.reporting.nsight import read_kernels, table_of, utilization
from bertline.results.journal import read_journal, read_last_points
from bertline.results.kept import decided_by_any, dev_score, kept_by_any, read_choice
from bertline.results.records import read_record
from bertline.tracking import sweeps
from bertline.tracking.notes import SENT_TAG, can_continue, sent_before
from bertline.tracking.store import read_entry
from bertline.training.data.opening import open_training_data
from bertline.training.data.verification import verify_in_background
from bertline.training.given_files import check_initial_weights
from bertline.training.initial import carried_over_position
from bertline.training.journal import Journal
from bertline.training.recipe import read_recipe

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
        # A changed record refers to other files, which may be absent or of another kind.
        named = path.name in message or path.parent.name in message or path.name.startswith("record-")
        assert not message or named, (number, message)
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


def dump_status(folder: Path) -> Reader:
    files = {f"x-20261101-pages-articles{n}.xml-p{n}p{n}.bz2": {"size": n, "sha1": f"{n:040x}"} for n in (1, 2)}
    path = folder / "mirror/xwiki/20261101/dumpstatus.json"
    write(path, {"version": "0.8", "jobs": {"articlesdump": {"status": "done", "files": files}}})
    output = folder / "parts.json"
    return Reader(path, lambda: (list_parts("xwiki", "20261101", [str(folder / "mirror")], output), read_json(output)))


def listing(folder: Path) -> Reader:
    (folder / "mirror").mkdir()
    (folder / "mirror/x.bz2").write_bytes(b"pages")
    described = {"file": "x.bz2", "size": 5, "sha1": hashlib.sha1(b"pages", usedforsecurity=False).hexdigest()}
    path, output = folder / "parts.json", folder / "out.bz2"
    write(path, {"wiki": "xwiki", "dump": "20261101", "parts": {"part-00000": {**described, "path": "x.bz2"}}})
    return Reader(
        path, lambda: (download_part(path, "part-00000", [str(folder / "mirror")], output), output.read_bytes())
    )


def choice(folder: Path) -> Reader:
    path = Path("results/kept/one/choice.json").absolute()
    write(path, {"best": "a" * 16, "kept": ["a" * 16], "scores": {"a" * 16: 81.25, "b" * 16: 80.0}})
    return Reader(path, lambda: (read_choice("one"), sorted(kept_by_any()), sorted(decided_by_any())))


def scores(folder: Path) -> Reader:
    for path, content in (("metrics.json", {"scores": {"accuracy": 8.5}, "primary": "accuracy", "task": "cola"}),):
        write(folder / "results/finetunings/x" / path, content)
    (folder / "results/finetunings/x/submission").mkdir()
    (folder / "results/finetunings/x/submission/CoLA.tsv").write_text("index\tprediction\n")
    return Reader(
        folder / "results/finetunings/x/metrics.json", lambda: (dev_score("x"), choose_submissions(["x"])), 20 * TIMES
    )


def overlaps(folder: Path) -> Reader:
    path = folder / "part-00000.json"
    found = [{"document": 1, "id": "x", "shared": {"cola": 2}}]
    write(path, {"sets": ["cola"], "documents": 3, "overlaps": found})
    return Reader(path, lambda: (sum_up_overlap({"news": [path]}), overlapping_documents(path)))


def run(name: str) -> Callable[[Path], Reader]:
    """A file of a run, read by the report."""

    def make(folder: Path) -> Reader:
        write_run(folder, tasks=("cola",), seeds=1, steps=20)
        record = Path("results/runs/demo/record-0123456789abcdef.json")
        return Reader((folder / name).resolve(), lambda: entries_of(record))

    return make


def entries_of(record: Path) -> str:
    return repr(read_record(record)) + str(len(read_entry(record).children))


def of_phase(read: Callable[[Path], Any]) -> Callable[[Path], Reader]:
    """The recipe of a finished phase, read by the next one."""

    def make(folder: Path) -> Reader:
        path = folder / "results/phases/before/recipe.json"
        before = {"fingerprint": "before", "dataset_without_lengths": "d", "seed": 1, "next_position": 64, "model": {}}
        write(path, before | {"settings": {"sequence_length": 32, "optimizer": "lamb", "steps": 5}})
        return Reader(path, lambda: read(path.parent))

    return make


NEXT = {
    "fingerprint": "next",
    "initial_weights": {"phase": "before"},
    "dataset_without_lengths": "d",
    "seed": 1,
    "settings": {"carry_over": "everything", "sequence_length": 32},
}


def sweep(folder: Path) -> Reader:
    rows = [{"micro_batch_size": 8, "processes": 1, "fits": True, "tokens_per_second": 900.0}]
    content = {"name": "phase1", "started": 1, "finished": 2, "settings": {"a": 1}, "model": {"b": 2}, "seed": 1}
    write(folder / "sweep.json", content | {"device": "cpu", "options": [], "experiment": "e", "micro_batches": rows,
                                            "scaling": rows})  # fmt: skip
    return Reader(folder / "sweep.json", lambda: repr(sweeps.entry_of(folder)))


def planned_recipe(folder: Path) -> Reader:
    write(folder / "recipe.json", recipe())
    return Reader(folder / "recipe.json", lambda: read_recipe(folder / "recipe.json"))


OBJECTS: dict[str, Callable[[Path], Reader]] = {
    "recipe.json of a planned phase": planned_recipe,
    "dumpstatus.json": dump_status,
    "parts.json": listing,
    "choice.json": choice,
    "metrics.json": scores,
    "overlap.json": overlaps,
    "record.json": run("results/runs/demo/record-0123456789abcdef.json"),
    "recipe.json of a phase": run("results/phases/phase1/recipe.json"),
    "metrics.json in a report": run("results/finetunings/cola-pretrained-0.0005-1/metrics.json"),
    "recipe.json of the phase before": of_phase(lambda before: carried_over_position(NEXT, before)),
    "recipe.json of initial weights": of_phase(lambda before: check_initial_weights(NEXT, before)),
    "sweep.json": sweep,
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


def nsight(page: Callable[[], str]) -> Callable[[Path], Reader]:
    def make(folder: Path) -> Reader:
        path = folder / "kernels.csv"
        path.write_text(page())
        return Reader(path, lambda: table_of(utilization(read_kernels(path))))

    return make


def journal(folder: Path) -> Reader:
    path = folder / "metrics.jsonl"
    write_journal(path, [journal_line(step, timestamp=START + step) for step in (10, 20, 30)])
    return Reader(path, lambda: (read_journal(path, complete=True), read_last_points(path)))


def resumed_journal(folder: Path) -> Reader:
    path = folder / "journal.jsonl"
    write_journal(path, [journal_line(step, timestamp=START + step) for step in (10, 20, 30)])
    return Reader(path, lambda: (Journal(path, last_step=20).close(), path.read_bytes()))


LINES: dict[str, Callable[[Path], Reader]] = {
    "details of ncu": nsight(details),
    "raw page of ncu": nsight(raw),
    "metrics.jsonl": journal,
    "journal.jsonl": resumed_journal,
}
# Damage that leaves a file of the format is not noticed: these have no digest.


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", LINES)
def test_changed_bytes_of_lines_are_read_or_refused(
    tmp_path: Path, kind: str, no_hang: Callable[[], None], record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    reader, draw = LINES[kind](tmp_path), drawing(f"bytes of {kind}")
    content = reader.path.read_bytes()
    damaged = [mutate(content, draw) for _ in range(2 * MUTATIONS_OF_EACH_KIND)] + NO_JSON
    damaged += [content.replace(b"1", one, 1) for one in (b"9" * 400, b"NaN", b"-1", b"1e999", b"[" * 100_000)]
    assert_damage_is_found(reader, damaged, no_hang, least=0.1)
    record_property("faults", len(damaged))


def test_a_damaged_line_within_a_resumed_journal_is_named_and_a_truncated_end_is_removed(tmp_path: Path) -> None:
    path, read, _ = resumed_journal(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:20])
    assert read()[1] == "".join(lines[:2]).encode()
    for damaged in ("{", "1", lines[0].replace('"step": 10', '"step": 90')):
        path.write_text("".join([damaged.rstrip("\n") + "\n", *lines[1:]]))
        with pytest.raises(BertlineError, match=r"journal.jsonl line 1 is damaged.* points of step 20 follow it"):
            read()
        assert path.read_text().startswith(damaged[:5])


ANSWERS = {
    200: b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: "x"\r\nContent-Type: text/plain\r\n\r\n0123456789',
    206: b'HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\nContent-Range: bytes 4-9/10\r\nETag: "x"\r\n\r\n456789',
}
ODD = (
    b"",
    b"-1",
    b"1e3",
    b"9" * 30,
    b"0x10",
    b"10, 10",
    b"nan",
    "\u0661\u0660".encode(),
    b"*/10",
    b"bytes 4-",
    b"\xff",
)


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("status", ANSWERS)
def test_changed_headers_of_an_answer_give_the_file_or_one_line(
    tmp_path: Path, status: int, no_hang: Callable[[], None], record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr(http_download, "FIRST_WAIT_SECONDS", 0)
    monkeypatch.setattr(http_download, "MAX_WAIT_SECONDS", 0)
    monkeypatch.setattr(http_download, "ATTEMPTS", 2)
    head, _, body = ANSWERS[status].partition(b"\r\n\r\n")
    draw, output = drawing(f"headers of {status}"), tmp_path / "file.bin"
    heads = [mutate(head, draw) for _ in range(MUTATIONS_OF_EACH_KIND)]
    for line in head.split(b"\r\n")[1:]:
        heads += [head.replace(line, line.partition(b": ")[0] + b": " + odd) for odd in ODD]
        heads += [head.replace(line, line + b"\r\n" + line), head.replace(b"\r\n" + line, b"")]
    expected = Expected(size=10, sha1=hashlib.sha1(b"0123456789", usedforsecurity=False).hexdigest())
    for number, changed in enumerate(heads):
        no_hang()
        output.unlink(missing_ok=True)
        (tmp_path / "file.bin.part").write_bytes(b"0123" if status == 206 else b"")
        with serve_bytes(changed + b"\r\n\r\n" + body) as address:
            message = outcome(partial(download, [f"{address}/file.bin"], output, expected))
        assert not message or "file.bin" in message, (number, message)
        assert bool(message) != output.exists(), (number, changed)
        assert message or output.read_bytes() == b"0123456789", (number, changed)
    record_property("faults", len(heads))


@pytest.mark.fault(row="inputs")
def test_a_changed_note_of_what_was_sent_is_read_or_one_line(
    tmp_path: Path, record_property: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, tasks=("cola",), seeds=1, steps=20)
    entry = read_entry(Path("results/runs/demo/record-0123456789abcdef.json"))
    path = tmp_path / "note.json"
    note = {"points": 2, "digest": "0" * 16, "sending": [3, "1" * 16], "artifacts": {"a": "b"}, "dataset": "c"}
    write(path, note)
    draw = drawing("notes")
    texts = with_other_values(path, draw, MUTATIONS_OF_EACH_KIND)
    refused = 0
    for content in texts:
        tags = {SENT_TAG: content.decode("utf-8", "replace")}
        run_of = SimpleNamespace(info=SimpleNamespace(run_id="7" * 32), data=SimpleNamespace(tags=tags, params={}))
        message = outcome(lambda run_of=run_of: can_continue(run_of, entry) or sent_before(run_of))  # type: ignore[misc]
        assert not message or (SENT_TAG in message and "7" * 32 in message)
        refused += bool(message)
    assert refused > len(texts) // 4
    record_property("faults", len(texts))


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
