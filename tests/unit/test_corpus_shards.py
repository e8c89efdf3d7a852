"""Every document in exactly one shard, and the same bytes in it."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_recipe import corpus_recipe
from fault_counts import TIMES, drawing
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_plans import make_plan, write_plan

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed, write_compressed
from bertline.corpus.documents import Document, Dropped, write_documents
from bertline.corpus.index import INDEX_TYPE, index_of, read_index, write_index
from bertline.corpus.removal import part_of
from bertline.corpus.shards import (
    FEW_DOCUMENTS,
    HELD_OUT,
    hash_of_id,
    read_pieces,
    read_plan,
    split_part,
    stream_plan,
    write_shard,
)
from bertline.files import write_json

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"
FLIPS = 150 * TIMES
Corpora = list[tuple[str, list[str]]]


def split(paragraph: str) -> list[str]:
    return paragraph.replace(". ", ".\n").split("\n")


def write_part(folder: Path, corpus: str, number: int, texts: list[str], ids: list[str] | None = None) -> str:
    documents, sentences = folder / f"{corpus}{number}.jsonl.zst", folder / f"{corpus}{number}.txt.zst"
    written = [
        Document(id=ids[position] if ids else f"{number}-{position}", title="", text=text, source="", url="")
        for position, text in enumerate(texts)
    ]
    write_documents(written, documents, folder / "counts.json")
    split_part(documents, corpus, split, sentences, index_of(str(sentences)))
    return str(sentences)


def content_of(path: Path | str) -> bytes:
    with read_compressed(path) as file:
        return file.read()


def documents_of(content: bytes) -> list[bytes]:
    assert content == b"" or content.endswith(b"\n\n")
    return content.split(b"\n\n")[:-1]


sizes = st.lists(st.lists(st.lists(st.integers(1, 40), max_size=12), min_size=1, max_size=3), min_size=1, max_size=3)


def write_corpora(folder: Path, lengths: list[list[list[int]]]) -> Corpora:
    """A corpus for each entry, parts, documents of so many words, all different."""
    return [
        (
            f"corpus{corpus}",
            [
                write_part(
                    folder,
                    f"corpus{corpus}",
                    part,
                    [f"C{corpus}P{part}D{number}. " + "Wört " * words + "x." for number, words in enumerate(documents)],
                )
                for part, documents in enumerate(parts)
            ],
        )
        for corpus, parts in enumerate(lengths)
    ]


@settings(deadline=None, max_examples=25)
@given(
    lengths=sizes,
    shards=st.integers(1, 9),
    held_out=st.sampled_from([1e-9, 0.1, 0.5]),
    every=st.sampled_from([2, 3, 1000]),
)
def test_every_document_is_in_exactly_one_balanced_shard(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[list[int]]], shards: int, held_out: float, every: int
) -> None:
    """Or removed: here every second, third or none of a part, from its second document on."""
    folder = tmp_path_factory.mktemp("shards")
    corpora = write_corpora(folder, lengths)
    removed = folder / "removed.jsonl.zst"
    gone = set()
    with write_compressed(removed) as file:
        for corpus, (name, parts) in enumerate(corpora):
            for part, path in enumerate(parts):
                for number in range(1, len(lengths[corpus][part]), every):
                    gone.add(f"C{corpus}P{part}D{number}.".encode())
                    record = {"corpus": name, "part": part_of(path), "document": number, "reason": "duplicate"}
                    file.write(json.dumps(record).encode() + b"\n")
    if not all(any(parts) for parts in lengths):
        with pytest.raises(BertlineError, match="is empty"):
            make_plan(corpora, shards, held_out, removed)
        return
    try:
        write_plan(folder / "plan.jsonl", make_plan(corpora, shards, held_out, removed))
    except BertlineError as error:
        assert "all documents are held out" in str(error)  # noqa: PT017
        return
    plan = read_plan(folder / "plan.jsonl")
    assert plan["shards"] == [*(f"{shard:05d}" for shard in range(shards)), HELD_OUT]
    content = {}
    for shard in plan["shards"]:
        write_shard(folder / "plan.jsonl", shard, folder / f"{shard}.txt.zst")
        content[shard] = content_of(folder / f"{shard}.txt.zst")
    whole = b"".join(content_of(part) for _, parts in corpora for part in parts)
    # In order, and each once: the shards one after the other are the corpora without the held-out documents.
    chosen = {
        hash_of_id(name, f"{part}-{number}"): f"C{corpus}P{part}D{number}.".encode()
        for corpus, (name, _) in enumerate(corpora)
        for part, documents in enumerate(lengths[corpus])
        for number in range(len(documents))
    }
    kept_out = {first for key, first in chosen.items() if key / 2**64 < held_out} - gone
    left = {key: first for key, first in chosen.items() if first not in gone}
    if not kept_out and len(left) >= FEW_DOCUMENTS:
        kept_out = {left[min(left)]}
    everything = [text for text in documents_of(whole) if text.split()[0] not in gone]
    assert documents_of(content.pop(HELD_OUT)) == [text for text in everything if text.split()[0] in kept_out]
    assert documents_of(b"".join(content.values())) == [text for text in everything if text.split()[0] not in kept_out]
    training = [len(text) for text in content.values()]
    longest = max(map(len, everything)) + 2
    assert all(abs(size - sum(training) / shards) <= max(longest, 0.05 * sum(training) / shards) for size in training)
    assert plan["documents"] == len(everything)
    assert plan["held_out_documents"] == len(kept_out)
    assert plan["bytes"] == sum(len(text) + 2 for text in everything)
    assert plan["sentences"] == sum(text.count(b"\n") + 1 for text in everything)
    assert sum(sum(corpus["removed"].values()) for corpus in plan["corpora"]) == len(gone)
    assert sum(sum(corpus["length_histogram"]["counts"]) for corpus in plan["corpora"]) == len(everything)


def test_the_index_has_the_place_of_each_document(tmp_path: Path) -> None:
    part = write_part(tmp_path, "books", 0, ["One. Two.\nThree.", "Grün."])
    content = content_of(part)
    assert content == "One.\nTwo.\nThree.\n\nGrün.\n\n".encode()
    index = read_index(index_of(part))
    assert index["sentences"].tolist() == [3, 1]
    assert index["id_hash"].tolist() == [hash_of_id("books", "0-0"), hash_of_id("books", "0-1")]
    ranges = zip(index["offset"].tolist(), index["length"].tolist(), strict=True)
    assert [content[offset : offset + length] for offset, length in ranges] == [
        b"One.\nTwo.\nThree.\n\n",
        "Grün.\n\n".encode(),
    ]


def test_the_hash_of_an_id_never_changes() -> None:
    # The held-out documents of finished datasets hang on it: the first 8 bytes, little endian, of SHA-256.
    assert hash_of_id("wikipedia", "12") == 0xC4E9AFE6C89122B2


def test_a_held_out_document_stays_held_out_when_others_come(tmp_path: Path) -> None:
    def held_out(texts: list[str]) -> set[bytes]:
        part = write_part(tmp_path, "books", 0, texts)
        write_plan(tmp_path / "plan.jsonl", make_plan([("books", [part])], 2, 0.3))
        write_shard(tmp_path / "plan.jsonl", HELD_OUT, tmp_path / "held_out.txt.zst")
        return set(documents_of(content_of(tmp_path / "held_out.txt.zst")))

    texts = [f"Text {number}." for number in range(200)]
    before, after = held_out(texts[:100]), held_out(texts)
    assert 15 < len(before) < 45
    assert before < after


@pytest.mark.parametrize(("documents", "expected"), [(FEW_DOCUMENTS - 1, 0), (FEW_DOCUMENTS, 1), (60, 1)])
def test_at_least_one_document_is_held_out_unless_there_are_very_few(
    tmp_path: Path, documents: int, expected: int
) -> None:
    parts = [
        write_part(tmp_path, "books", part, [f"Text {part} {number}." for number in range(part, documents, 2)])
        for part in range(2)
    ]
    removed = tmp_path / "removed.jsonl.zst"
    hashes = {part: read_index(index_of(part))["id_hash"].tolist() for part in parts}
    lowest = min((least, part) for part in parts for least in hashes[part])[1]
    gone = hashes[lowest].index(min(hashes[lowest]))
    with write_compressed(removed) as file:
        record = {"corpus": "books", "part": part_of(lowest), "document": gone, "reason": "duplicate"}
        file.write(json.dumps(record).encode() + b"\n")
    plan = make_plan([("books", parts)], 2, 1e-9)
    assert plan["held_out_documents"] == expected
    if expected:
        assert plan["shards"][HELD_OUT][0]["part"] == lowest
        assert plan["shards"][HELD_OUT][0]["ranges"][0][:2] == [gone, gone + 1]
        without = make_plan([("books", parts)], 2, 1e-9, removed)
        assert without["held_out_documents"] == (documents > FEW_DOCUMENTS)
        assert without["shards"][HELD_OUT] != plan["shards"][HELD_OUT]


def test_a_removal_list_of_other_parts_is_one_line(tmp_path: Path) -> None:
    """A list made while the corpus was to be downloaded would remove nothing from the files that are here now."""
    corpora, removed = [("books", [write_part(tmp_path, "books", 0, ["One.", "Two."])])], tmp_path / "removed.jsonl.zst"
    with write_compressed(removed) as file:
        record = {"corpus": "books", "part": "urls-00000", "document": 0, "reason": "duplicate"}
        file.write(json.dumps(record).encode() + b"\n")
    with pytest.raises(BertlineError, match=r"names urls-00000 of books, which has no such part; delete the list"):
        make_plan(corpora, 1, 0.1, removed)


@pytest.mark.parametrize("text", ["One.", "A longer line than the three before."])
def test_a_plan_that_does_not_fit_its_parts_is_reported(tmp_path: Path, text: str) -> None:
    """The part ends before the planned range, or has a line that goes on after it."""
    part = write_part(tmp_path, "books", 0, ["One.", "Two.", "Three."])
    write_plan(tmp_path / "plan.jsonl", make_plan([("books", [part])], 1, 1e-9))
    write_part(tmp_path, "books", 0, [text])
    with pytest.raises(BertlineError, match=r"plan\.jsonl does not fit bytes 0 to 20 of .*books0\.txt\.zst"):
        write_shard(tmp_path / "plan.jsonl", "00000", tmp_path / "00000.txt.zst")
    assert not (tmp_path / "00000.txt.zst").exists()
    with pytest.raises(BertlineError, match="has no shard '00001'"):
        write_shard(tmp_path / "plan.jsonl", "00001", tmp_path / "00001.txt.zst")


def test_an_empty_corpus_is_one_line(tmp_path: Path) -> None:
    parts = [write_part(tmp_path, "books", number, []) for number in range(2)]
    with pytest.raises(BertlineError, match="the corpus books is empty: its 2 parts hold no document"):
        write_plan(tmp_path / "plan.jsonl", make_plan([("books", parts)], 1, 0.1))
    assert not (tmp_path / "plan.jsonl").exists()


def test_holding_out_everything_is_one_line(tmp_path: Path) -> None:
    part = write_part(tmp_path, "books", 0, ["One.", "Two."])
    with pytest.raises(BertlineError, match=r"all documents are held out; lower held_out, given 1\.0"):
        write_plan(tmp_path / "plan.jsonl", make_plan([("books", [part])], 2, 1.0))
    assert not (tmp_path / "plan.jsonl").exists()


def test_ids_of_which_one_has_most_documents_are_one_line(tmp_path: Path) -> None:
    """As of a table's column that is no id: its documents would be held out together."""
    texts = [f"Text {number}." for number in range(60)]
    for ids, held in ((1, 60), (4, 15)):
        part = write_part(tmp_path, "posts", 0, texts, [f"of {number % ids}" for number in range(60)])
        expected = (
            f"corpus posts: {held} of its 60 documents would be held out, not about 1: they have only 1 different id;"
        )
        with pytest.raises(BertlineError, match=expected):
            make_plan([("posts", [part])], 2, 0.002)
    # Those of one chapter or book stay together, if the share that is wanted allows it.
    part = write_part(tmp_path, "posts", 0, texts, [f"of {number % 20}" for number in range(60)])
    assert make_plan([("posts", [part])], 2, 0.002)["held_out_documents"] == 3
    assert make_plan([("posts", [part])], 2, 0.2)["held_out_documents"] in range(3, 25, 3)


def test_a_sample_of_few_ids_is_refused_only_if_the_whole_corpus_is(tmp_path: Path) -> None:
    texts, sample = [f"Text {number}." for number in range(400)], {"documents": 10}
    for name, ids in (("books", [f"{number // 4}" for number in range(400)]), ("posts", ["of 1"] * 400)):
        part = write_part(tmp_path, name, 0, texts, ids)
        if name == "books":
            plan = make_plan([(name, [part])], 2, 0.005, None, sample)
            assert (plan["documents"], plan["held_out_documents"]) == (8, 4)  # of one id, all or none
            continue
        with pytest.raises(
            BertlineError, match="corpus posts: 400 of its 400 documents would be held out, not about 2"
        ):
            make_plan([(name, [part])], 2, 0.005, None, sample)


def test_a_sample_of_one_id_is_one_line(tmp_path: Path) -> None:
    texts = [f"Text {number}." for number in range(400)]
    part = write_part(tmp_path, "books", 0, texts, [f"{number // 10}" for number in range(400)])
    for held_out in (0, 0.005):
        with pytest.raises(
            BertlineError, match=r"^all documents are held out, because all have the same id; take a larger sample$"
        ):
            make_plan([("books", [part])], 2, held_out, None, {"documents": 5})
    with pytest.raises(BertlineError, match=r"^all documents are held out; lower held_out, given 1\.0, or take a lar"):
        make_plan([("books", [part])], 2, 1.0, None, {"documents": 5})


def test_an_invalid_index_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.index.npy"
    with pytest.raises(BertlineError, match="does not exist"):
        read_index(path)
    for save in (lambda: path.write_bytes(b"\x93NUMPY"), lambda: np.save(path, np.zeros(3, dtype=INDEX_TYPE))):
        save()
        with pytest.raises(BertlineError, match="is damaged or not an index"):
            read_index(path)
    write_index(path, [(0, 10, 1, 1), (11, 10, 2, 1)])
    with pytest.raises(BertlineError, match="do not follow each other"):
        read_index(path)
    write_index(path, [(0, 10, 1, 1), (10, 1, 2, 0)])
    with pytest.raises(BertlineError, match="its documents are empty"):
        read_index(path)


@settings(deadline=None, max_examples=60)
@given(sizes=st.lists(st.integers(0, 40), max_size=40), of_first=st.integers(0, 600))
def test_every_shard_of_a_plan_is_found(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], of_first: int
) -> None:
    """Whatever the lengths of the lines, among which they are found by bisection."""
    path = tmp_path_factory.mktemp("plan") / "plan.jsonl"
    shards = {f"{number:05d}": [{"part": "é" * size}] * (size % 3) for number, size in enumerate(sizes)}
    shards[HELD_OUT] = [{"part": "last"}]
    write_plan(path, {"shards": shards, "corpora": [{"name": "x" * of_first}]})
    assert {shard: read_pieces(path, shard) for shard in shards} == shards
    for absent in ("99999", "0000", "z"):
        with pytest.raises(BertlineError, match=f"has no shard '{absent}'"):
            read_pieces(path, absent)


def test_the_memory_for_a_plan_is_that_of_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other document is removed, so each of the others is a range of its own."""
    monkeypatch.setattr("bertline.corpus.compressed.FRAME_BYTES", 1 << 14)
    rows = np.zeros(2000, dtype=INDEX_TYPE)
    rows["length"], rows["sentences"], rows["id_hash"] = 10, 1, 2**63
    rows["offset"], rows["id_hash"][1] = 10 * np.arange(len(rows)), 1  # the second of each part is held out
    peaks = []
    for parts in (4, 24):
        names = [f"part-{number:05d}" for number in range(parts)]
        with write_compressed(tmp_path / "removed.zst") as file:
            for name in names:
                write_index(tmp_path / f"{name}.index.npy", rows)
                for document in range(0, len(rows), 2):
                    record = {"corpus": "a", "part": name, "document": document, "reason": "exact_duplicate"}
                    file.write(json.dumps(record).encode() + b"\n")
        corpora = [("a", [str(tmp_path / f"{name}.txt.zst") for name in names])]
        tracemalloc.start()
        ranges = [
            sum(len(piece["ranges"]) for piece in pieces)
            for _, pieces in stream_plan(corpora, parts, 1e-9, tmp_path / "removed.zst", None)[1]
        ]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sum(ranges) == 1000 * parts
    assert peaks[1] < 1.5 * peaks[0]


def test_the_memory_for_splitting_a_part_does_not_grow_with_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.corpus.compressed.FRAME_BYTES", 1 << 14)
    monkeypatch.setattr("bertline.corpus.shards.ROWS_AT_ONCE", 100)
    monkeypatch.setattr("bertline.spool.HELD_BYTES", 1000)
    peaks = []
    for count in (1000, 10_000):
        documents = (Document(id=f"{n}", title="", text="One. Two.", source="", url="") for n in range(count))
        write_documents(documents, tmp_path / "a.jsonl.zst", tmp_path / "counts.json")
        tracemalloc.start()
        split_part(tmp_path / "a.jsonl.zst", "a", split, tmp_path / "a.txt.zst", tmp_path / "a.index.npy")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        index = read_index(tmp_path / "a.index.npy")
        assert (index["offset"] == 11 * np.arange(count)).all()
        assert index["id_hash"].tolist() == [hash_of_id("a", f"{number}") for number in range(count)]
    assert peaks[1] < 1.5 * peaks[0]


def test_huge_corpora_do_not_overflow(tmp_path: Path) -> None:
    lengths = np.full(4001, 2**40, dtype=np.uint64)
    rows = np.zeros(len(lengths), dtype=INDEX_TYPE)
    rows["length"], rows["offset"], rows["sentences"] = lengths, np.cumsum(lengths) - lengths, 1
    rows["id_hash"][1:] = 2**63  # the first is held out
    write_index(tmp_path / "a.index.npy", rows)
    plan = make_plan([("a", [str(tmp_path / "a.txt.zst")])], 4000, 0.1)
    assert all(
        pieces[0]["ranges"][0][1] == number + 2 for number, pieces in enumerate(list(plan["shards"].values())[:-1])
    )


def test_the_scripts_make_shards_from_text_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One is here. Two is there.\n\nThree is gone.\n")
    (tmp_path / "b.txt").write_text("Four is here.\n")
    recipe = corpus_recipe("files", {"part-00000": ["a.txt", "b.txt"]})
    settings = {"shards": 1, "held_out": 0.0001, "duplicates": "keep", "evaluation_overlap": "ignore"}
    dataset = {"fingerprint": "0123456789abcdef", "settings": settings, "corpora": [recipe["key"]], "evaluation": None}
    for name, content in ((recipe["key"], recipe), ("0123456789abcdef", dataset)):
        write_json(tmp_path / f"results/recipes/{name}.json", content)
    of_corpus, of_dataset = f"--recipe results/recipes/{recipe['key']}.json", "results/recipes/0123456789abcdef.json"
    folder = f"results/corpora/{recipe['key']}"
    documents = f"--documents {folder}/documents/part-00000.jsonl.zst"
    sentences = f"{folder}/sentences/part-00000"
    commands = [
        f"read_part.py {of_corpus} --part part-00000 {documents} --counts {folder}/documents/part-00000.counts.json",
        f"train_punkt.py {of_corpus} --output {folder}/punkt",
        f"split_sentences.py {of_corpus} {documents} --sentences {sentences}.txt.zst --index {sentences}.index.npy",
        f"plan_shards.py --recipe {of_dataset} --output plan.jsonl",
        "write_shard.py --plan plan.jsonl --shard 00000 --output shards/00000.txt.zst",
    ]
    for command in commands:
        script, *arguments = command.split()
        subprocess.run([sys.executable, SCRIPTS / script, *arguments], cwd=tmp_path, check=True)
    content = content_of(tmp_path / "shards" / "00000.txt.zst").decode()
    assert content == "One is here.\nTwo is there.\nThree is gone.\n\nFour is here.\n\n"
    assert read_pieces(tmp_path / "plan.jsonl", "00000")[0]["part"] == f"{sentences}.txt.zst"


def test_a_failing_script_gives_the_reason_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff")
    write_json(tmp_path / "recipe.json", corpus_recipe("files", {"part-00000": ["a.txt"]}))
    options = "--recipe recipe.json --part part-00000 --documents d.jsonl.zst --counts c.json"
    command = ["read_part.py", *options.split()]
    done = subprocess.run(
        [sys.executable, SCRIPTS / command[0], *command[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: a.txt is not utf-8: byte 0 is 0xff")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "recipe.json"]


def test_a_part_cut_off_is_reported(tmp_path: Path) -> None:
    part = write_part(tmp_path, "books", 0, [f"Text {number}." for number in range(1000)])
    write_plan(tmp_path / "plan.jsonl", make_plan([("books", [part])], 1, 1e-9))
    content = Path(part).read_bytes()
    Path(part).write_bytes(content[:-20])
    with pytest.raises(BertlineError, match="is damaged"):
        write_shard(tmp_path / "plan.jsonl", "00000", tmp_path / "00000.txt.zst")


@pytest.mark.fault(row="inputs")
def test_a_flipped_bit_in_a_part_reaches_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr("bertline.corpus.compressed.FRAME_BYTES", 300)
    part, plan, shard = Path(write_part(tmp_path, "books", 0, [f"Text {n}." for n in range(99)])), "plan.jsonl", "shard"
    write_plan(tmp_path / plan, make_plan([("books", [str(part)])], 3, 1e-9))
    write_shard(tmp_path / plan, "00001", tmp_path / shard)
    whole, written = content_of(tmp_path / shard), part.read_bytes()
    for bit in drawing("flipped bits").choices(range(8 * len(written)), k=FLIPS):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        part.write_bytes(damaged)
        with suppress(BertlineError):
            write_shard(tmp_path / plan, "00001", tmp_path / shard)
        assert content_of(tmp_path / shard) == whole
    record_property("faults", FLIPS)


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("which", ["plan", "index"])
def test_a_flipped_bit_in_a_plan_or_an_index_changes_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any, which: str
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    part, plan = write_part(tmp_path, "books", 0, [f"Text {n}." for n in range(40)]), tmp_path / "plan.jsonl"

    def shards() -> list[bytes]:
        if which == "index":
            write_plan(plan, make_plan([("books", [part])], 2, 0.1))
        for shard in ("00000", "00001", HELD_OUT):
            write_shard(plan, shard, tmp_path / shard)
        return [content_of(tmp_path / shard) for shard in ("00000", "00001", HELD_OUT)] + [read_plan(plan)]

    write_plan(plan, make_plan([("books", [part])], 2, 0.1))
    damaged_file = plan if which == "plan" else Path(index_of(part))
    whole, written = shards(), damaged_file.read_bytes()
    for bit in drawing(f"flipped bits of a {which}").choices(range(8 * len(written)), k=FLIPS):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        damaged_file.write_bytes(damaged)
        with suppress(BertlineError):
            assert shards() == whole
        damaged_file.write_bytes(written)
    record_property("faults", FLIPS)


def test_a_plan_whose_checksum_has_another_name_is_refused(tmp_path: Path) -> None:
    part, plan = write_part(tmp_path, "books", 0, ["One.", "Two."]), tmp_path / "plan.jsonl"
    write_plan(plan, make_plan([("books", [part])], 1, 1e-9))
    plan.write_text(plan.read_text().replace("crc32", "arc32", 1))
    with pytest.raises(BertlineError, match=r"plan.jsonl is damaged or not a plan"):
        read_plan(plan)


def test_an_index_whose_checksum_has_another_name_is_refused(tmp_path: Path) -> None:
    path = Path(index_of(write_part(tmp_path, "books", 0, ["One.", "Two."])))
    path.write_bytes(path.read_bytes().replace(b"crc32", b"crc12"))
    with pytest.raises(BertlineError, match=r"index.npy is damaged or not an index"):
        read_index(path)


def test_dropped_documents_do_not_reach_the_sentences(tmp_path: Path) -> None:
    records = [Dropped("short"), Document(id="1", title="", text="One.", source="", url="")]
    write_documents(records, tmp_path / "d.jsonl.zst", tmp_path / "c.json")
    split_part(tmp_path / "d.jsonl.zst", "books", split, tmp_path / "s.txt.zst", tmp_path / "s.index.npy")
    assert content_of(tmp_path / "s.txt.zst") == b"One.\n\n"


def test_an_empty_shard_is_a_file(tmp_path: Path) -> None:
    part = write_part(tmp_path, "books", 0, ["One."])
    write_plan(tmp_path / "plan.jsonl", make_plan([("books", [part])], 3, 1e-9))
    for shard in ("00000", "00001", "00002", HELD_OUT):
        write_shard(tmp_path / "plan.jsonl", shard, tmp_path / f"{shard}.txt.zst")
    assert [len(content_of(tmp_path / f"{number:05d}.txt.zst")) for number in range(3)] == [0, 6, 0]
    with write_compressed(tmp_path / "empty.zst"):
        pass
    assert content_of(tmp_path / "empty.zst") == b""


def test_a_job_parses_its_own_line_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of thousands of shards has tens of megabytes."""
    part = write_part(tmp_path, "books", 0, [f"Text {number}." for number in range(100)])
    write_plan(tmp_path / "plan.jsonl", make_plan([("books", [part])], 50, 1e-9))
    lines = (tmp_path / "plan.jsonl").read_text().splitlines()
    parsed: list[str] = []
    monkeypatch.setattr("bertline.corpus.shards.parse_json", lambda text: parsed.append(text) or json.loads(text))
    write_shard(tmp_path / "plan.jsonl", "00049", tmp_path / "00049.txt.zst")
    assert [line.strip() for line in parsed] == [lines[50]]
    assert len(lines) == 1 + 50 + 1


@pytest.mark.parametrize("content", ["", "[", "\xff", "{}\n"])
def test_an_invalid_plan_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.jsonl").write_text(content, encoding="latin-1")
    with pytest.raises(BertlineError, match=r"plan\.jsonl is damaged or not a plan .*; delete it and make it again"):
        write_shard(tmp_path / "plan.jsonl", "00000", tmp_path / "00000.txt.zst")
