"""Samples of a dataset's documents."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from shard_plans import make_plan

from bertline.corpus.compressed import write_compressed
from bertline.corpus.index import INDEX_TYPE, index_of, write_index
from bertline.corpus.sampling import last_of_sample
from bertline.files import Json
from bertline.results.paths import HELD_OUT

Corpora = list[tuple[str, list[str]]]


def write_corpora(folder: Path, documents: int, parts: int, names: str = "ab") -> Corpora:
    """Indexes of corpora with the same documents whatever the number of parts."""
    generator = np.random.default_rng(1)
    corpora = []
    for name in names:
        rows = np.zeros(documents, dtype=INDEX_TYPE)
        rows["id_hash"] = generator.integers(0, 2**64, documents, dtype=np.uint64)
        rows["sentences"] = generator.integers(1, 9, documents)
        rows["length"] = rows["sentences"] * generator.integers(20, 200, documents)
        paths = []
        for number, part in enumerate(np.array_split(rows, parts)):
            part["offset"] = np.cumsum(part["length"]) - part["length"]
            paths.append(str(folder / f"{name}{parts}-{number}.txt.zst"))
            write_index(index_of(paths[-1]), part)
        corpora.append((name, paths))
    return corpora


def taken(plan: Json, *, held_out: bool = True) -> dict[str, set[int]]:
    """The hashes of the documents of each corpus in a plan."""
    found: dict[str, set[int]] = {}
    for shard, pieces in plan["shards"].items():
        for piece in pieces if held_out or shard != HELD_OUT else ():
            hashes = np.load(index_of(piece["part"]))["id_hash"]
            for first, last, _, _ in piece["ranges"]:
                found.setdefault(piece["corpus"], set()).update(hashes[first:last].tolist())
    return found


@pytest.mark.parametrize("unit", ["documents", "sentences", "bytes"])
@pytest.mark.parametrize("amount", [1, 40, 777, 20_000, 1e9])
def test_a_sample_is_as_large_as_whole_documents_allow(tmp_path: Path, unit: str, amount: float) -> None:
    corpora = write_corpora(tmp_path, 1000, 3)
    whole, plan = make_plan(corpora, 2, 0.1), make_plan(corpora, 2, 0.1, None, {unit: amount})
    assert plan[unit] <= amount or plan["documents"] == 1
    longest = {"documents": 1, "sentences": 8, "bytes": 8 * 200}[unit]
    assert plan[unit] > min(amount - longest, whole[unit] - 1)
    for before, after in zip(whole["corpora"], plan["corpora"], strict=True):
        assert after["documents"] + after["removed"].get("sampled_out", 0) == before["documents"]
    assert whole == make_plan(corpora, 2, 0.1, None, {unit: 1e9})


def test_a_sample_has_the_same_documents_whatever_the_parts(tmp_path: Path) -> None:
    samples = []
    for parts in (1, 7):
        corpora = write_corpora(tmp_path, 500, parts)
        for order in (corpora, [(name, paths[::-1]) for name, paths in reversed(corpora)]):
            samples.append(taken(make_plan(order, 3, 0.1, None, {"documents": 200})))
    assert all(sample == samples[0] for sample in samples)
    assert sum(map(len, samples[0].values())) == 200


def test_a_larger_sample_contains_the_smaller_one_and_its_held_out_documents(tmp_path: Path) -> None:
    corpora = write_corpora(tmp_path, 2000, 2)
    small, large = (make_plan(corpora, 2, 0.1, None, {"documents": size}) for size in (500, 1500))
    for held_out in (True, False):
        of_small, of_large = taken(small, held_out=held_out), taken(large, held_out=held_out)
        assert all(of_small[name] < of_large[name] for name in "ab")
    # The same share is held out as of the whole, in the limits of chance.
    assert small["held_out_documents"] == pytest.approx(50, abs=25)
    assert {len(taken(small)[name]) for name in "ab"} < set(range(200, 301))


def test_named_corpora_are_sampled_separately(tmp_path: Path) -> None:
    corpora = write_corpora(tmp_path, 300, 2, "abc")
    a, b, c = make_plan(corpora, 2, 0.1, None, {"a": {"documents": 20}, "c": {"sentences": 100}})["corpora"]
    assert a["documents"] == 20
    assert (b["documents"], b["removed"]) == (300, {})
    assert 92 < c["sentences"] <= 100


def test_removed_documents_are_not_sampled(tmp_path: Path) -> None:
    corpora = write_corpora(tmp_path, 100, 1, "a")
    with write_compressed(tmp_path / "removed.jsonl.zst") as file:
        for number in range(0, 100, 2):
            record = {"corpus": "a", "part": "a1-0", "document": number, "reason": "exact_duplicate"}
            file.write(json.dumps(record).encode() + b"\n")
    plan = make_plan(corpora, 1, 0.1, tmp_path / "removed.jsonl.zst", {"documents": 30})
    assert plan["corpora"][0]["removed"] == {"exact_duplicate": 50, "sampled_out": 20}
    odd = set(np.load(index_of(corpora[0][1][0]))["id_hash"][1::2].tolist())
    assert taken(plan)["a"] < odd


def test_documents_that_are_close_in_the_order_are_distinguished() -> None:
    orders, amounts = np.arange(10, dtype=np.uint64) + np.uint64(7 << 48), np.full(10, 5)
    halves = [(orders[::2], amounts[::2]), (orders[1::2], amounts[1::2])]
    assert last_of_sample(lambda: halves, 24) == orders[3]
    assert last_of_sample(lambda: halves, 25) == orders[4]  # exactly


@pytest.mark.parametrize("amount", [100, 599, 600, 1299, 1300, 1301, 2000, 5999])
@pytest.mark.parametrize("close", [True, False])
def test_documents_with_one_id_are_in_a_sample_together_whatever_their_order(amount: int, close: bool) -> None:
    """An id is in the sample if all of its documents fit, or if it is the first."""
    sizes = {0: [500, 100], 1: [1, 699], 2: [900, 100, 1, 99], 3: [3600]}
    sums = np.cumsum([sum(of_id) for of_id in sizes.values()])
    ids = np.repeat(np.arange(len(sizes)), [len(of_id) for of_id in sizes.values()])
    amounts = np.concatenate(list(sizes.values()))
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(ids))
        places = ids[order].astype(np.uint64) << np.uint64(9 if close else 60)
        halves = [(places[at], amounts[order][at]) for at in (slice(3), slice(3, None))]
        last = last_of_sample(lambda halves=halves: halves, amount)
        assert last is not None
        assert set(ids[order][places <= last]) == {0, *np.flatnonzero(sums <= amount)}
