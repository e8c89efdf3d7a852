"""Duplicates and text of the evaluation sets: what is found, what stays, what is counted."""

from __future__ import annotations

import itertools
import json
import random
import re
import tracemalloc
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_plans import make_plan, write_plan

from bertline import spool as spool_module
from bertline.console import BertlineError
from bertline.corpus import duplicates as duplicates_module
from bertline.corpus import ngrams as ngrams_module
from bertline.corpus.compressed import read_compressed
from bertline.corpus.documents import Document, write_documents
from bertline.corpus.duplicates import find_duplicates
from bertline.corpus.ngrams import PIECE_CHARACTERS, in_groups, ngram_hashes, ngram_hashes_of
from bertline.corpus.overlap import collect_ngrams, find_overlap, sum_up_overlap, texts_of
from bertline.corpus.removal import Removed, part_of, read_removals, write_removals
from bertline.corpus.shards import index_of, split_part, write_shard
from bertline.corpus.signatures import (
    PERMUTATIONS,
    SIGNATURE_TYPE,
    open_signatures,
    signatures_of,
    write_signatures,
)
from bertline.files import Recipe, read_json
from bertline.results.paths import HELD_OUT

SHARES = (0.6, 0.8, 0.97, 1.0)
WORDS = [f"word{number}" for number in range(3000)]


def text_of(seed: int, words: int = 300) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words)) + "."  # noqa: S311


def changed(text: str, share: float, seed: int = 0) -> str:
    """The text with its last words replaced, so that about `share` of its sequences stay."""
    words = text.split()
    kept = round(len(words) * share)
    return " ".join(words[:kept] + text_of(seed + 10_000, len(words) - kept).split())


def jaccard(one: str, other: str) -> float:
    """The exact similarity, from the definition."""
    sets = [
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
        for words in (re.findall(r"\w+", t) for t in (one, other))
    ]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def write_part(folder: Path, corpus: str, number: int, texts: list[str]) -> None:
    """A part's documents, signatures and sentences, named as the graph names them."""
    part, base = f"part-{number:05d}", folder / corpus
    documents = [
        Document(id=f"{corpus}{number}-{position}", title="", text=text, source="", url="")
        for position, text in enumerate(texts)
    ]
    write_documents(documents, base / f"{part}.jsonl.zst", base / f"{part}.counts.json")
    write_signatures(base / f"{part}.jsonl.zst", base / f"{part}.counts.json", base / f"signatures/{part}.npy")
    sentences = base / f"sentences/{part}.txt.zst"
    split_part(base / f"{part}.jsonl.zst", corpus, lambda line: [line], sentences, index_of(str(sentences)))


def files(folder: Path, kind: str, ending: str, corpora: list[str]) -> list[tuple[str, list[str]]]:
    return [(corpus, [str(path) for path in sorted((folder / corpus / kind).glob(f"*{ending}"))]) for corpus in corpora]


def removals_of(folder: Path, corpora: list[str], *, near: bool = True) -> list[dict]:
    write_removals(files(folder, "signatures", ".npy", corpora), [], folder / "removed.jsonl.zst", near=near)
    return lines_of(folder / "removed.jsonl.zst")


def lines_of(path: Path) -> list[dict]:
    with read_compressed(path) as file:
        return [json.loads(line) for line in file]


def content_of(path: Path) -> str:
    with read_compressed(path) as file:
        return file.read().decode()


def ngrams_of(text: str, length: int) -> list[int]:
    return [ngram for block in ngram_hashes(text, length) for ngram in block.tolist()]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([*"aBé ç\n.,一かด", "ที"]), max_size=60).map("".join), st.integers(1, 5), st.integers(1, 12)
)
def test_ngrams_do_not_depend_on_where_a_text_is_cut(text: str, length: int, piece: int) -> None:
    units = re.findall("[一か]|ที|ด|[aBéç]+", text)
    expected = []
    for first in range(len(units)):
        sixths = 0
        for last in range(first, len(units)):
            sixths += 3 if units[last] in "一か" else 2 if units[last][0] in "ทด" else 6
            if sixths >= 6 * length:
                expected.append(" ".join(units[first : last + 1]).lower())
                break
    found = ngrams_of(text, length)
    assert found == [ngrams_of(words, length)[0] for words in expected]
    assert len(set(found)) == len(set(expected))
    before = ngrams_module.PIECE_CHARACTERS
    ngrams_module.PIECE_CHARACTERS = max(piece, max(map(len, re.findall(r"\S+\s*|\s+", text)), default=1))
    try:
        assert ngrams_of(text, length) == found
    finally:
        ngrams_module.PIECE_CHARACTERS = before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("दिल्ली में हिन्दी की किताबें", 5),  # vowel signs and viramas
        ("நான் தமிழ் படிக்கிறேன்", 3),
        ("בְּרֵאשִׁית בָּרָא אֱלֹהִים", 3),  # points
        ("ٱلْحَمْدُ لِلَّهِ رَبِّ ٱلْعَٰلَمِينَ", 4),
        ("می‌خواهم بروم", 2),  # a zero-width non-joiner
        ("e\u0301te\u0301 nai\u0308f", 2),
        ("한국어 문장", 2),
    ],
)
def test_marks_do_not_end_a_word(text: str, words: int) -> None:
    assert len(ngrams_of(text, words)) == 1
    assert ngrams_of(text, words + 1) == []


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("我们昨天在北京的一家小书店里买了三本关于历史的旧书和", 26),
        ("することができるようになったということである𠮷野家ー", 26),
        ("ที่นี่มีน้ำดื่มสะอาดและอาหารอร่อยมากมายให้เลือกซื้อ", 39),
        ("ភាសាខ្មែរគឺជាភាសាផ្លូវការរបស់ប្រទេសកម្ពុជានិងមានអ្នកនិយាយច្រើន", 39),
    ],
)
def test_scripts_without_spaces_count_two_or_three_characters_as_a_word(text: str, characters: int) -> None:
    found = regex.findall(r"\P{M}\p{M}*", text * 2)
    assert len(ngrams_of("".join(found[:characters]), 13)) == 1
    assert ngrams_of("".join(found[: characters - 1]), 13) == []


# Letters and marks with and without spaces, in every order, and what is neither.
CHARACTERS = "aÉ²_Ⓐ९ßİ〇一ーがคำကက\u0301\u3099\u0e34\u103a\u093f\u200d\U000e0100 .。⺀"
UNIT = regex.compile(
    r"[\w--[\p{Han}\p{Hiragana}\p{Katakana}ーｰ\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+|\w\p{M}*", regex.VERSION1
)


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from(CHARACTERS), max_size=14))
def test_words_and_characters_are_those_of_the_definition(text: str) -> None:
    """Against a pattern; an n-gram of a sixth of a word is any unit."""
    units = UNIT.findall(text.lower())
    ends = ngrams_module._units(ngrams_module._kinds()[[ord(character) for character in text.lower()]])
    assert [text.lower()[start:end] for start, end in zip(*ends, strict=True)] == units


def test_different_sequences_have_different_hashes() -> None:
    words = [f"{first}{second}" for first in "abcdefghijklmnop" for second in ("", *"abcdefghijklmnop", "ab", "ba")]
    assert len(set(ngrams_of(" ".join(words), 1))) == len(words)
    sequences = [" ".join(order) for order in itertools.permutations(words[:6], 5)]
    assert len({ngrams_of(sequence, 5)[0] for sequence in sequences}) == len(sequences)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from([*"aBÉ ç\n.,一かดΣ", "ที", "ี", "\u0301"]), max_size=30).map("".join), min_size=1),
    st.integers(1, 5),
)
def test_ngrams_of_texts_that_are_read_together_are_those_of_each(texts: list[str], length: int) -> None:
    hashes, counts = ngram_hashes_of(texts, length)
    each = [ngrams_of(text, length) for text in texts]
    assert counts.tolist() == [len(ngrams) for ngrams in each]
    assert hashes.tolist() == [ngram for ngrams in each for ngram in ngrams]
    together = signatures_of(texts)
    assert together.tobytes() == b"".join(signatures_of([text]).tobytes() for text in texts)


def test_groups_of_texts_are_as_large_as_a_piece() -> None:
    sizes = [10, PIECE_CHARACTERS - 10, 1, PIECE_CHARACTERS + 1, PIECE_CHARACTERS, 5]
    assert list(in_groups(sizes, int)) == [sizes[:2], [1], sizes[3:4], sizes[4:5], [5]]


def test_similarity_is_estimated_as_the_definition_has_it() -> None:
    text = text_of(1, 2000)
    for share in (0.3, 0.6, 0.9, 0.97):
        other = changed(text, share)
        one, two = signatures_of([text])["minima"], signatures_of([other])["minima"]
        estimate = (one == two).mean()
        assert estimate == pytest.approx(jaccard(text, other), abs=0.13)  # three standard errors of 128 minima


def test_signatures_never_change() -> None:
    # Signature files of finished corpora hang on it: another version of the library must not be taken for the same.
    digest, minima = signatures_of(["The quick brown fox jumps over the lazy dog."])[0]
    assert digest.tolist() == [0xA7BF95C8257F53EF, 0x973DB6A929655282]
    assert minima[:4].tolist() == [27783, 19250, 52201, 19052]


def test_copies_and_near_copies_go_and_the_first_stays(tmp_path: Path) -> None:
    a, b, c = (text_of(seed) for seed in range(3))
    write_part(tmp_path, "wiki", 0, [a, b])
    write_part(tmp_path, "wiki", 1, [c, a])
    write_part(tmp_path, "books", 0, [changed(b, 0.95), changed(c, 0.5), c, "One two.", "One two.", "One three."])
    removed = [
        (record["corpus"], record["part"][-1], record["document"], record["reason"], *record["duplicate_of"].values())
        for record in removals_of(tmp_path, ["wiki", "books"])
    ]
    assert removed == [
        ("wiki", "1", 1, "exact_duplicate", "wiki", "part-00000", 0),
        ("books", "0", 0, "near_duplicate", "wiki", "part-00000", 1),
        ("books", "0", 2, "exact_duplicate", "wiki", "part-00001", 0),
        ("books", "0", 4, "exact_duplicate", "books", "part-00000", 3),
    ]
    exact = removals_of(tmp_path, ["wiki", "books"], near=False)
    assert [record["reason"] for record in exact] == ["exact_duplicate"] * 3
    # In the other order the books come first, and theirs stay.
    assert {record["corpus"] for record in removals_of(tmp_path, ["books", "wiki"])} == {"wiki", "books"}
    assert sum(record["corpus"] == "wiki" for record in removals_of(tmp_path, ["books", "wiki"])) == 3


def test_no_pair_above_the_threshold_stays_and_no_other_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the exact similarity of all pairs, over copies of every degree; the same in one pass and in several."""
    texts = [text_of(seed, 400) for seed in range(30)]
    texts += [
        changed(text, share, seed=7 * number) for number, text in enumerate(texts) for share in (0.6, 0.8, 0.97, 1.0)
    ]
    random.Random(5).shuffle(texts)  # noqa: S311
    for number in range(3):
        write_part(tmp_path, "wiki", number, texts[number::3])
    order = texts[0::3] + texts[1::3] + texts[2::3]
    parts = [str(tmp_path / f"wiki/signatures/part-0000{number}.npy") for number in range(3)]
    duplicate_of, is_exact = duplicates_of(parts, len(order), folder=tmp_path)
    kept = np.flatnonzero(duplicate_of < 0)
    assert all(jaccard(order[one], order[other]) < 0.93 for one in kept for other in kept if one < other)
    removed = np.flatnonzero(duplicate_of >= 0)
    assert (duplicate_of[removed] < removed).all()
    assert (duplicate_of[duplicate_of[removed]] < 0).all()
    assert all(jaccard(order[one], order[duplicate_of[one]]) > 0.65 for one in removed)
    assert all(order[one] in order[:one] for one in np.flatnonzero(is_exact))
    assert len(removed) >= 60
    for most in (100, 7, 4):
        monkeypatch.setattr(duplicates_module, "DOCUMENTS_AT_ONCE", most)
        again = duplicates_of(parts, len(order), folder=tmp_path)
        assert np.array_equal(again[0], duplicate_of)
        assert np.array_equal(again[1], is_exact)
    nobody, _ = duplicates_of(parts, len(order), range(len(order)), folder=tmp_path)
    assert (nobody < 0).all()


def test_103_equal_minima_of_128_are_the_threshold(tmp_path: Path) -> None:
    for equal in (102, 103):
        rows = np.zeros(2, SIGNATURE_TYPE)
        rows["digest"][:, 0] = 1, 2
        rows["minima"][:] = np.arange(PERMUTATIONS)
        rows["minima"][1, equal:] += 1000
        np.save(tmp_path / "a.npy", rows)
        found, _ = duplicates_of([str(tmp_path / "a.npy")], 2, folder=tmp_path)
        assert found.tolist() == [-1, 0 if equal == 103 else -1]


def duplicates_of(
    parts: list[str], documents: int, ignored: Iterable[int] = (), *, near: bool = True, folder: Path
) -> tuple[np.ndarray, np.ndarray]:
    """The document that is kept instead of each, or -1, and whether it is the same."""
    duplicate_of, is_exact = np.full(documents, -1), np.zeros(documents, dtype=bool)
    for links in find_duplicates(parts, [np.array([*ignored], dtype=int)], near=near, folder=folder):
        duplicate_of[links["document"]], is_exact[links["document"]] = links["original"], links["exact"]
    return duplicate_of, is_exact


def drifting_signatures(documents: int, seed: int, pool: int = 12) -> np.ndarray:
    """Rows that are copies of earlier ones, or differ from them in some minima: chains of near-duplicates."""
    rng = np.random.default_rng(seed)
    rows = np.frombuffer(rng.bytes(documents * SIGNATURE_TYPE.itemsize), SIGNATURE_TYPE).copy()
    for number in range(1, documents):
        kind = rng.random()
        if kind > 0.2:
            rows[number] = rows[rng.integers(max(0, number - pool), number)]
        if kind > 0.4:
            rows["digest"][number, rng.integers(2)] ^= np.uint64(number)  # the other half stays
            changed = rng.random(PERMUTATIONS) < rng.choice([0.0, 0.06, 0.12, 0.3])
            rows["minima"][number, changed] = rng.integers(0, 1 << 16, changed.sum())
    return rows


def duplicates_by_definition(rows: np.ndarray, ignored: set[int], *, near: bool) -> dict[int, tuple[int, bool]]:
    """Of each duplicate the original and whether they are equal, compared one by one and in memory."""
    original: dict[int, int] = {}
    exact: set[int] = set()
    for band in [None, *range(16)] if near else [None]:
        groups = defaultdict(list)
        for number in range(len(rows)):
            if number not in ignored and number not in original:
                row = rows[number]
                key = row["digest"] if band is None else row["minima"][8 * band : 8 * band + 8]
                groups[key.tobytes()].append(number)
        for group in groups.values():
            while group:
                leader, *others = group
                group = []
                for other in others:
                    if band is None or (rows[leader]["minima"] == rows[other]["minima"]).mean() >= 0.8:
                        original[other] = leader
                    else:
                        group.append(other)
        if band is None:
            exact = set(original)
    last = dict(original)
    while any(of in original for of in last.values()):
        last = {number: original.get(of, of) for number, of in last.items()}
    return {number: (of, number in exact) for number, of in last.items()}


@settings(deadline=None, max_examples=30)
@given(
    documents=st.integers(0, 60),
    seed=st.integers(0, 1 << 32),
    parts=st.integers(1, 4),
    at_once=st.sampled_from([1, 3, 7, 50]),
    near=st.booleans(),
    ignored=st.sets(st.integers(0, 59), max_size=5),
)
def test_duplicates_are_those_of_the_definition_whatever_is_read_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    documents: int,
    seed: int,
    parts: int,
    at_once: int,
    near: bool,
    ignored: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("signatures")
    rows = drifting_signatures(documents, seed)
    ignored = {number for number in ignored if number < documents}
    paths = [str(folder / f"{part}.npy") for part in range(parts)]
    for path, some in zip(paths, np.array_split(rows, parts), strict=True):
        np.save(path, some)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates_module, "DOCUMENTS_AT_ONCE", at_once)
        patch.setattr(duplicates_module, "ROWS_AT_ONCE", at_once)
        patch.setattr(duplicates_module, "COMPARED_AT_ONCE", 2)
        patch.setattr(spool_module, "BLOCK_BYTES", 100)
        duplicate_of, is_exact = duplicates_of(paths, documents, ignored, near=near, folder=folder)
    found = {number: (duplicate_of[number], is_exact[number]) for number in np.flatnonzero(duplicate_of >= 0).tolist()}
    assert found == duplicates_by_definition(rows, ignored, near=near)


def test_a_document_like_a_later_one_of_its_band_is_found(tmp_path: Path) -> None:
    """Three documents agree in one band; the third is similar to the second, but not to the first."""
    rows = np.frombuffer(np.random.default_rng(1).bytes(3 * SIGNATURE_TYPE.itemsize), SIGNATURE_TYPE).copy()
    rows["minima"][1:, :8] = rows["minima"][0, :8]
    rows["minima"][2] = rows["minima"][1]
    rows["minima"][2, 8::8] ^= 1  # one minimum of every other band: 113 of 128 agree
    np.save(tmp_path / "a.npy", rows)
    duplicate_of, is_exact = duplicates_of([str(tmp_path / "a.npy")], 3, folder=tmp_path)
    assert duplicate_of.tolist() == [-1, -1, 1]
    assert not is_exact.any()


def alike_in_band(row: np.ndarray, band: int) -> np.ndarray:
    """A row with one other minimum in every other band: 113 of 128 agree."""
    like = row.copy()
    like["digest"] += 1
    others = [8 * other + band % 8 for other in range(16) if other != band]
    like["minima"][others] ^= 1
    return like


@pytest.mark.parametrize(("first", "second", "expected"), [(3, 9, [-1, 0, -1]), (9, 3, [-1, 0, 0])])
def test_a_document_like_one_that_an_earlier_band_removed_stays(
    tmp_path: Path, first: int, second: int, expected: list[int]
) -> None:
    """The first and the third of a chain are not similar; the bands in which neighbours agree run in order."""
    rows = np.zeros(3, SIGNATURE_TYPE)
    rows[0]["minima"] = np.arange(PERMUTATIONS)
    rows[1] = alike_in_band(rows[0], first)
    rows[2] = alike_in_band(rows[1], second)
    assert np.count_nonzero(rows[0]["minima"] == rows[2]["minima"]) < 0.8 * PERMUTATIONS
    np.save(tmp_path / "a.npy", rows)
    assert duplicates_of([str(tmp_path / "a.npy")], 3, folder=tmp_path)[0].tolist() == expected


@pytest.mark.parametrize("leaders", [2, 64, 65])
def test_a_document_is_compared_with_64_others_of_its_band(tmp_path: Path, leaders: int) -> None:
    rows = np.frombuffer(np.random.default_rng(1).bytes(leaders * SIGNATURE_TYPE.itemsize), SIGNATURE_TYPE).copy()
    rows["minima"][:, :8] = 7
    np.save(tmp_path / "a.npy", np.append(rows, alike_in_band(rows[-1], 0)))
    found = duplicates_of([str(tmp_path / "a.npy")], leaders + 1, folder=tmp_path)[0].tolist()
    assert found == [-1] * leaders + [-1 if leaders > 64 else leaders - 1]


def test_the_memory_for_finding_duplicates_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates_module, "DOCUMENTS_AT_ONCE", 1 << 10)
    monkeypatch.setattr(duplicates_module, "ROWS_AT_ONCE", 1 << 7)
    monkeypatch.setattr(duplicates_module, "COMPARED_AT_ONCE", 1 << 6)
    monkeypatch.setattr(spool_module, "BLOCK_BYTES", 1 << 15)
    rng = np.random.default_rng(1)
    rows = np.frombuffer(rng.bytes((1 << 12) * SIGNATURE_TYPE.itemsize), SIGNATURE_TYPE).copy()
    rows["minima"][1::4] = rows["minima"][::4]
    np.save(tmp_path / "part.npy", rows)
    peaks = []
    for copies in (1, 6):
        tracemalloc.start()
        found = sum(map(len, find_duplicates([tmp_path / "part.npy"] * copies, [], near=True, folder=tmp_path)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found == len(rows) // 4 + (copies - 1) * len(rows)
    assert peaks[1] < 1.3 * peaks[0]


def test_thousands_from_one_template_are_compared_in_bounded_time_and_stay(tmp_path: Path) -> None:
    template = text_of(1, 60)
    write_part(tmp_path, "wiki", 0, [f"{template} {text_of(seed, 60)}" for seed in range(2, 1500)])
    assert removals_of(tmp_path, ["wiki"]) == []


def test_nothing_leaks_from_training_into_the_held_out_set(tmp_path: Path) -> None:
    texts = [text_of(seed, 120) for seed in range(60)]
    write_part(tmp_path, "wiki", 0, texts)
    write_part(tmp_path, "books", 0, [changed(text, 0.97) for text in texts])
    removals_of(tmp_path, ["wiki", "books"])
    corpora = files(tmp_path, "sentences", ".txt.zst", ["wiki", "books"])
    plan = make_plan(corpora, 2, 0.4, tmp_path / "removed.jsonl.zst")
    write_plan(tmp_path / "plan.jsonl", plan)
    content = {}
    for shard in ("00000", "00001", HELD_OUT):
        write_shard(tmp_path / "plan.jsonl", shard, tmp_path / f"{shard}.txt.zst")
        content[shard] = content_of(tmp_path / f"{shard}.txt.zst").split("\n\n")[:-1]
    assert sorted(text for texts_of_shard in content.values() for text in texts_of_shard) == sorted(texts)
    assert all(jaccard(one, other) < 0.5 for one in content[HELD_OUT] for other in content["00000"] + content["00001"])
    assert [corpus["removed"] for corpus in plan["corpora"]] == [{}, {"near_duplicate": 60}]
    assert [corpus["documents"] for corpus in plan["corpora"]] == [60, 0]
    assert plan["documents"] == 60
    assert sum(plan["corpora"][0]["length_histogram"]["counts"]) == 60
    assert abs(sum(map(len, content["00000"])) - sum(map(len, content["00001"]))) <= 2 * max(map(len, texts))
    # Who is held out is the same as without the list.
    without = make_plan(corpora, 2, 0.4)["shards"][HELD_OUT][0]["ranges"]
    assert plan["shards"][HELD_OUT][0]["ranges"] == without


def test_a_list_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    write_part(tmp_path, "wiki", 0, ["One two.", "One two."])
    removals_of(tmp_path, ["wiki"])
    write_part(tmp_path, "wiki", 0, ["One two."])
    corpora = files(tmp_path, "sentences", ".txt.zst", ["wiki"])
    with pytest.raises(BertlineError, match=r"names document 1 of .*part-00000\.txt\.zst, which has 1"):
        make_plan(corpora, 1, 0.1, tmp_path / "removed.jsonl.zst")


def test_invalid_signatures_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match="does not exist"):
        open_signatures(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(BertlineError, match="not a signature file"):
        open_signatures(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(BertlineError, match="has the layout float64"):
        open_signatures(tmp_path / "a.npy")
    write_documents([], tmp_path / "d.jsonl.zst", tmp_path / "c.json")
    write_signatures(tmp_path / "d.jsonl.zst", tmp_path / "c.json", tmp_path / "a.npy")
    assert len(open_signatures(tmp_path / "a.npy")) == 0
    (tmp_path / "c.json").write_text('{"kept": 2}')
    with pytest.raises(BertlineError, match=r"contains 0 documents, .* states 2"):
        write_signatures(tmp_path / "d.jsonl.zst", tmp_path / "c.json", tmp_path / "b.npy")
    for wrong in ('"x"', "null", "-1", "1.5"):
        (tmp_path / "c.json").write_text(f'{{"kept": {wrong}}}')
        with pytest.raises(BertlineError, match=r"c\.json states no number of documents \(kept is .*\); make it again"):
            write_signatures(tmp_path / "d.jsonl.zst", tmp_path / "c.json", tmp_path / "b.npy")
    assert not (tmp_path / "b.npy").exists()


QUESTIONED = "The tower was built in 1887 by an engineer whose company had made the bridge before, people say."


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    """The n-grams of a SQuAD file and a table."""
    paragraph = {"context": QUESTIONED, "qas": [{"id": "1", "question": "Who?", "answers": []}]}
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"title": "Tower", "paragraphs": [paragraph]}]}))
    row = "17\tA man is sitting on a bench beside the river and reads a paper from yesterday.\tentailment\n"
    (tmp_path / "dev.tsv").write_text("index\tsentence\tlabel\n" + row)
    collect_ngrams(
        Recipe(sets={"squad_v1": [tmp_path / "dev.json"], "glue/rte": [tmp_path / "dev.tsv"]}), tmp_path / "ngrams.npz"
    )
    return tmp_path / "ngrams.npz"


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".jsonl", ".JSONL", ".json", ".JSON", ".parquet", ".PARQUET"])
def test_the_texts_of_a_table_are_its_cells_whatever_the_case_of_its_suffix(tmp_path: Path, suffix: str) -> None:
    path, row = tmp_path / f"dev{suffix}", {"text": "A man, on a bench", "label": "yes"}
    if suffix.lower() == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({name: [cell] for name, cell in row.items()}), path)
    else:
        csv = 'text,label\n"A man, on a bench",yes\n'
        path.write_text(csv if suffix.lower() == ".csv" else json.dumps(row) + "\n")
    assert set(row.values()) <= set(texts_of(path))


def test_text_of_the_evaluation_sets_is_found_whatever_its_punctuation(tmp_path: Path, evaluation: Path) -> None:
    texts = [
        text_of(1),
        "Paris.\n" + QUESTIONED.upper().replace(",", " --") + " " + text_of(2),
        QUESTIONED.replace("engineer", "architect"),  # eight words on the longer side of it
        "Then a man is sitting on a bench,\nbeside the river, and reads a paper.",
        "A man is sitting on a bench beside the river and reads.",  # twelve
    ]
    write_part(tmp_path, "wiki", 0, texts)
    find_overlap(tmp_path / "wiki/part-00000.jsonl.zst", evaluation, tmp_path / "overlap.json")
    assert read_json(tmp_path / "overlap.json") == {
        "sets": ["squad_v1", "glue/rte"],
        "documents": 5,
        "overlaps": [
            {"document": 1, "id": "wiki0-1", "shared": {"squad_v1": 6}},
            {"document": 3, "id": "wiki0-3", "shared": {"glue/rte": 2}},
        ],
    }
    assert sum_up_overlap({"wiki": [tmp_path / "overlap.json"]}) == {
        "squad_v1": {
            "documents": 1,
            "corpora": {"wiki": 1},
            "examples": [{"corpus": "wiki", "id": "wiki0-1", "shared": 6}],
        },
        "glue/rte": {
            "documents": 1,
            "corpora": {"wiki": 1},
            "examples": [{"corpus": "wiki", "id": "wiki0-3", "shared": 2}],
        },
    }


def test_a_document_that_overlaps_only_at_its_start_is_found(tmp_path: Path, evaluation: Path) -> None:
    start = " ".join(QUESTIONED.split()[:13])  # after another document, and one without a sequence
    write_part(tmp_path, "wiki", 0, [text_of(1), "Short.", f"{start} {text_of(2)}"])
    find_overlap(tmp_path / "wiki/part-00000.jsonl.zst", evaluation, tmp_path / "overlap.json")
    found = read_json(tmp_path / "overlap.json")["overlaps"]
    assert found == [{"document": 2, "id": "wiki0-2", "shared": {"squad_v1": 1}}]


def test_five_documents_that_overlap_are_shown_and_all_are_counted(tmp_path: Path, evaluation: Path) -> None:
    write_part(tmp_path, "wiki", 0, [f"{QUESTIONED} {text_of(number)}" for number in range(7)])
    find_overlap(tmp_path / "wiki/part-00000.jsonl.zst", evaluation, tmp_path / "overlap.json")
    found = sum_up_overlap({"wiki": [tmp_path / "overlap.json"]})["squad_v1"]
    assert found["documents"] == 7
    assert [example["id"] for example in found["examples"]] == [f"wiki0-{number}" for number in range(5)]


def test_documents_that_overlap_are_counted_in_the_dataset(tmp_path: Path, evaluation: Path) -> None:
    """Not those sampled out, or removed as duplicates: in the dataset is what its shards hold."""
    texts = [f"{QUESTIONED} {text_of(number)}" if number % 2 else text_of(number) for number in range(60)]
    write_part(tmp_path, "wiki", 0, texts[:40])
    write_part(tmp_path, "wiki", 1, texts[40:] + texts[:30])
    reports = [tmp_path / f"wiki/overlap/part-0000{part}.json" for part in range(2)]
    for part, report in enumerate(reports):
        find_overlap(tmp_path / f"wiki/part-0000{part}.jsonl.zst", evaluation, report)
    removals_of(tmp_path, ["wiki"])
    corpora, whole = files(tmp_path, "sentences", ".txt.zst", ["wiki"]), sum_up_overlap({"wiki": reports})
    assert whole["squad_v1"]["documents"] == 45
    for removed, sample in (
        (None, None),
        (tmp_path / "removed.jsonl.zst", None),
        (None, {"documents": 20}),
        (tmp_path / "removed.jsonl.zst", {"documents": 20}),
    ):
        plan = make_plan(corpora, 3, 0.2, removed, sample)
        shards = plan["shards"].values()
        found = sum_up_overlap({"wiki": reports}, (piece for pieces in shards for piece in pieces))
        places = sorted(
            (part_of(piece["part"])[-1], document)
            for pieces in shards
            for piece in pieces
            for first, end, _, _ in piece["ranges"]
            for document in range(first, end)
        )
        of_all = {"0": texts[:40], "1": texts[40:] + texts[:30]}
        ids = [f"wiki{part}-{document}" for part, document in places if QUESTIONED in of_all[part][document]]
        assert found["squad_v1"]["documents"] == found["squad_v1"]["corpora"]["wiki"] == len(ids)
        assert [example["id"] for example in found["squad_v1"]["examples"]] == ids[:5]
        assert found["glue/rte"] == {"documents": 0, "corpora": {"wiki": 0}, "examples": []}
        assert (found == whole) == (removed is sample is None)
    with pytest.raises(BertlineError, match="the plan names part-00001 of wiki, which has no such part"):
        sum_up_overlap({"wiki": reports[:1]}, (piece for pieces in shards for piece in pieces))


def test_a_sentence_of_two_evaluation_sets_is_of_both(tmp_path: Path) -> None:
    for name in ("one.tsv", "two.tsv"):
        (tmp_path / name).write_text(f"{name}\t{QUESTIONED}\n")
    sets = {name: [tmp_path / f"{name}.tsv"] for name in ("one", "two")}
    collect_ngrams(Recipe(sets=sets), tmp_path / "ngrams.npz")
    write_part(tmp_path, "wiki", 0, [QUESTIONED])
    find_overlap(tmp_path / "wiki/part-00000.jsonl.zst", tmp_path / "ngrams.npz", tmp_path / "overlap.json")
    found = read_json(tmp_path / "overlap.json")["overlaps"]
    assert found == [{"document": 0, "id": "wiki0-0", "shared": {"one": 6, "two": 6}}]


SENTENCE = "Zwölf Männer saßen „gestern“ auf der Bank am Ufer, aßen Brot, und lasen Bücher über Flüsse."
ROW = {"id": "17", "text": SENTENCE.replace("„", '"').replace("“", '"'), "label": 1}
TABLES = {
    "dev.jsonl": json.dumps(ROW) + "\n",  # with \u00f6 for ö
    "dev.json": json.dumps({"data": [ROW]}),
    "dev.csv": 'id,text,label\n17,"' + SENTENCE.replace("„", '""').replace("“", '""').replace("am", "\nam") + '",1\n',
    "dev.tsv": f"id\ttext\tlabel\n17\t{SENTENCE}\t1\n",
}


@pytest.mark.parametrize("name", [*TABLES, "dev.parquet"])
def test_an_evaluation_set_of_any_format_is_found(tmp_path: Path, name: str) -> None:
    if name in TABLES:
        (tmp_path / name).write_text(TABLES[name], encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist([ROW]), tmp_path / name)
    collect_ngrams(Recipe(sets={"ours": [tmp_path / name]}), tmp_path / "ngrams.npz")
    write_part(tmp_path, "web", 0, [SENTENCE])
    find_overlap(tmp_path / "web/part-00000.jsonl.zst", tmp_path / "ngrams.npz", tmp_path / "overlap.json")
    assert read_json(tmp_path / "overlap.json")["overlaps"] == [{"document": 0, "id": "web0-0", "shared": {"ours": 4}}]


def test_an_evaluation_set_with_decomposed_letters_is_found(tmp_path: Path) -> None:
    """Documents are in NFC."""
    decomposed = unicodedata.normalize("NFD", SENTENCE)
    assert decomposed != unicodedata.normalize("NFC", SENTENCE) == SENTENCE
    (tmp_path / "dev.tsv").write_text(f"17\t{decomposed}\t1\n", encoding="utf-8")
    collect_ngrams(Recipe(sets={"ours": [tmp_path / "dev.tsv"]}), tmp_path / "ngrams.npz")
    write_part(tmp_path, "web", 0, [SENTENCE])
    find_overlap(tmp_path / "web/part-00000.jsonl.zst", tmp_path / "ngrams.npz", tmp_path / "overlap.json")
    assert read_json(tmp_path / "overlap.json")["overlaps"] == [{"document": 0, "id": "web0-0", "shared": {"ours": 4}}]


def test_an_overlapping_document_is_dropped_and_is_not_a_duplicate(tmp_path: Path, evaluation: Path) -> None:
    long = text_of(1)
    with_question = f"{long} {QUESTIONED}"
    write_part(tmp_path, "wiki", 0, [with_question, long, long])
    find_overlap(tmp_path / "wiki/part-00000.jsonl.zst", evaluation, tmp_path / "wiki/overlap/part-00000.json")
    overlaps = files(tmp_path, "overlap", ".json", ["wiki"])
    for signatures, expected in (
        ([], {0: "evaluation_overlap"}),
        (files(tmp_path, "signatures", ".npy", ["wiki"]), {0: "evaluation_overlap", 2: "exact_duplicate"}),
    ):
        write_removals(signatures, overlaps, tmp_path / "removed.jsonl.zst", near=True)
        assert {line["document"]: line["reason"] for line in lines_of(tmp_path / "removed.jsonl.zst")} == expected
        whole = Removed(array("q", expected), Counter(expected.values()))
        assert read_removals(tmp_path / "removed.jsonl.zst") == {("wiki", "part-00000"): whole}


def test_an_evaluation_set_that_is_wrong_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match="does not exist"):
        collect_ngrams(Recipe(sets={"a": [tmp_path / "a.tsv"]}), tmp_path / "ngrams.npz")
    (tmp_path / "a.tsv").write_bytes(b"ab\xff")
    with pytest.raises(BertlineError, match="byte 2 is not UTF-8"):
        collect_ngrams(Recipe(sets={"a": [tmp_path / "a.tsv"]}), tmp_path / "ngrams.npz")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(BertlineError, match="is not JSON"):
        collect_ngrams(Recipe(sets={"a": [tmp_path / "a.json"]}), tmp_path / "ngrams.npz")
    for name, content, message in (
        ("a.parquet", b"PAR1" + bytes(99) + b"PAR1", r"a\.parquet is damaged or truncated"),
        ("b.parquet", None, r"b\.parquet does not exist"),
        ("deep.jsonl", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", r"deep\.jsonl, line 1 is not JSON"),
        ("deep.json", b"[" * 100_000 + b"]" * 100_000, r"deep\.json is not JSON \(too many levels\)"),
    ):
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(BertlineError, match=message):
            collect_ngrams(Recipe(sets={"a": [tmp_path / name]}), tmp_path / "ngrams.npz")
    assert not (tmp_path / "ngrams.npz").exists()
    (tmp_path / "levels.json").write_bytes(b"[" * 500 + b"]" * 500)  # about half as many as can be read
    collect_ngrams(Recipe(sets={"a": [tmp_path / "levels.json"]}), tmp_path / "ngrams.npz")


@pytest.mark.slow
def test_articles_of_squad_are_found_in_wikipedia(test_data: Path, tmp_path: Path) -> None:
    """SQuAD's paragraphs are Wikipedia: given as documents, all that are long enough are found."""
    dev = test_data / "squad/dev-v1.1.json"
    collect_ngrams(Recipe(sets={"squad_v1": [dev]}), tmp_path / "ngrams.npz")
    contexts = [paragraph["context"] for article in read_json(dev)["data"] for paragraph in article["paragraphs"]]
    documents = [
        Document(id=str(number), title="", text=" ".join(context.split()), source="", url="")
        for number, context in enumerate(contexts[:300])
    ]
    write_documents(documents, tmp_path / "d.jsonl.zst", tmp_path / "c.json")
    find_overlap(tmp_path / "d.jsonl.zst", tmp_path / "ngrams.npz", tmp_path / "o.json")
    assert len(read_json(tmp_path / "o.json")["overlaps"]) == 300
