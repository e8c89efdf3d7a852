"""A stage's version is raised whenever its code changes its result: digests of small outputs tell."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path

import encoding_helpers
import h5py
import numpy as np
import pytest
from corpus_recipe import read_texts
from encoding_helpers import make_dataset
from shard_plans import make_plan, write_plan
from synthetic_dataset import MODEL as SMALL
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer

from bertline.corpus.cleaning_steps import clean_text, no_counts
from bertline.corpus.compressed import read_compressed
from bertline.corpus.dump import headings_of, scan_pages
from bertline.corpus.overlap import collect_ngrams, find_overlap
from bertline.corpus.quality import c4, fineweb, gopher_repetition
from bertline.corpus.sampling import last_of_sample
from bertline.corpus.sentences import load_splitter, train_punkt
from bertline.corpus.shards import split_part, write_shard
from bertline.corpus.signatures import write_signatures
from bertline.corpus.web_pages import read_web_page
from bertline.corpus.wikitext import text_of_page
from bertline.encoding.dataset import Batch, open_dataset
from bertline.encoding.imports import import_dataset
from bertline.encoding.tokenization import tokenize_shard
from bertline.encoding.tokenizer import make_unigram, read_tokenizer, save_tokenizer
from bertline.encoding.vocabulary import train_byte_level, train_wordpiece
from bertline.files import Recipe
from bertline.finetuning.options import Options
from bertline.finetuning.ranking.collection import open_collection, tokenize_collection
from bertline.finetuning.ranking.lists import read_candidates, sample_triples
from bertline.finetuning.ranking.texts import read_texts as read_queries
from bertline.finetuning.train import finetune
from bertline.fingerprint import STAGE_VERSIONS

# What each version of each stage makes of the text below. A digest that changed is a reason to raise the stage's number
# in bertline/fingerprint.py, which makes new results instead of mixing with old ones, and to add a line here.
DIGESTS = {
    ("extraction", 1): "0f66a12f3b20d6d3",
    ("extraction", 2): "0f66a12f3b20d6d3",
    ("extraction", 3): "797a5e96ccdfcfd1",
    ("extraction", 4): "797a5e96ccdfcfd1",  # other for some templates, words between underscores, links to Wikivoyage
    ("extraction", 5): "892c8591485e377b",  # of a longer text
    ("extraction", 6): "c8c6b7d1f6ab3766",  # likewise
    ("documents", 1): "b32cef5cb7c4791e",
    ("documents", 2): "b32cef5cb7c4791e",
    ("documents", 3): "b32cef5cb7c4791e",
    ("documents", 4): "b32cef5cb7c4791e",  # other for scripts without spaces, and for a paragraph a line
    ("documents", 5): "b32cef5cb7c4791e",  # other for stop words with capitals
    ("documents", 6): "b32cef5cb7c4791e",  # corpora of more than 250 files in other parts
    ("dump", 1): "8d816ac6dcc2a9af",
    ("plain_text", 1): "d519d7053c963b7b",
    (
        "plain_text",
        2,
    ): "f660924b4b49d319",  # also other for more labels of web pages, and for cut WET files
    ("web_pages", 1): "b684a6cfa3dec801",  # since declarations in comments and descriptions do not count
    ("gopher_repetition", 1): "6c2d181e8ecd6dd2",
    ("empty_brackets", 1): "0656b0d70126d768",
    ("placeholders", 1): "6a79bee9a3fff155",
    ("c4", 1): "6a7cdddce524f9ed",  # since the full stops of all scripts count
    ("c4", 2): "efb4d062e999467f",  # of more pages
    ("fineweb", 1): "def1cd0437d852d3",  # likewise
    ("fineweb", 2): "0343cbc5a8e36133",  # of more pages
    ("signatures", 1): "f57d50479d4f942f",
    ("signatures", 2): "f57d50479d4f942f",
    ("signatures", 3): "7f6752dd8b67a6d3",
    ("overlap", 1): "93152beff344b1a1",
    ("overlap", 2): "93152beff344b1a1",
    ("overlap", 3): "bb7330cbfaf2fa88",
    ("sentences", 1): "f2cd59fd7fcb2f8b",
    ("sentences", 2): "f2cd59fd7fcb2f8b",
    ("sentences", 3): "f2cd59fd7fcb2f8b",
    ("sentences", 4): "f2cd59fd7fcb2f8b",  # other for Korean
    ("sentences", 5): "f2cd59fd7fcb2f8b",  # other for repeated marks of other scripts
    ("shards", 1): "bf9fa8f1551e3df5",
    ("shards", 2): "f16ad969b0e5686d",
    ("shards", 3): "fcc06d78103c55b5",  # the same shards, and a plan with checksums
    ("sample", 1): "b834cdfb7703d8c0",
    ("tokenizer", 2): "4481ebf372ba2639",
    ("tokenizer", 3): "dad5542981ecf366",
    ("tokenizer", 4): "dad5542981ecf366",  # other for text with zero-width joiners
    ("tokenizer", 5): "dad5542981ecf366",  # other for much text without spaces; for some rare marks, the same each time
    ("samples", 1): "de27b451f8978e3f",
    ("samples", 2): "de9455cbbb155f55",
    ("spaces", 1): "68dfab66a9c5f91d",
    ("sentence_order", 1): "f99fe548042f023d",
    ("import", 1): "dad51444a46a4e07",
    ("collection", 1): "ff246b17028bb15c",
    ("negatives", 1): "5e674cddc7b75079",
}
# Losses in nats at the first steps: of weights, the last bits differ between processors, so no digest can be kept.
COURSES = {
    ("pretraining", 5): [6.2219, 5.8252, 5.3488, 5.7042, 5.3021, 5.2886],
    ("lamb", 1): [6.2219, 5.4381, 5.8966, 5.6064, 5.3836, 5.2786],
    ("finetuning", 7): [0.9301, 0.9409, 0.7341, 0.7261, 0.735, 0.6317],
    ("finetuning", 8): [0.9301, 0.9409, 0.7341, 0.7261, 0.735, 0.6317],  # other scores of tags without prefixes
    ("finetuning", 9): [0.9301, 0.9409, 0.7341, 0.7261, 0.735, 0.6317],  # other answers with marks, and scores of BMES
    ("finetuning", 10): [0.9301, 0.9409, 0.7341, 0.7261, 0.735, 0.6317],  # exports with the task's length
    ("finetuning", 11): [0.9301, 0.9409, 0.7341, 0.7261, 0.735, 0.6317],  # other scores of tags, answers and classes
    ("finetuning", 12): [0.9301, 0.9409, 0.7341, 0.7261, 0.735, 0.6317],  # the times of a recipe are in milliseconds
}

MASKED = ("masked_lm_positions", "masked_lm_ids")
# Weights large enough for every part of the network to tell.
MODEL = {**SMALL, "initializer_range": 0.2}

BOOKS = {
    "one.txt": "CHAPTER I\n\nThe old mill stood by the river. Nobody had\n"
    "lived there since Dr. Harrow left; why, no one knew.\n",
    "two.txt": "It rained. It rained all day! “Will it stop?” asked the miller’s son.\n\n"
    "It did not stop.\n\n\nThe end.\n",
    "three.txt": "*** START OF THE BOOK ***\nA café, a naïve girl, and № 5.\n*** END OF THE BOOK ***\nNotes.\n",
}
# Marks of Chinese at the ends of lines, a marker of two lines, and an invisible character before a separator.
WRAPPED = (
    "*** START OF THE PROJECT GUTENBERG EBOOK A MILL\nBY A RIVER ***\n老人说“磨坊很老\n”然后走了。\n\ufeff---\n"
    "It rained all\nday.\n---\nThe end.\n"
)
REPETITIVE = [
    "It rained. " * times
    + "The old mill stood by the river, where 水車小屋 is a house. No one had lived there since: 水車."
    for times in range(9)
]
WITH_REMAINS = """Il demanda (, ) : « Pourquoi ? » (; Paris, 1990) ; elle dit « formula_1 ! ».
The mill formula_2 , old (from ; ) as it was [ ] . 水車（、）小屋（すいしゃ、）。"""
# Pages in English, Khmer and Japanese, and one without marks, with and without lines that are no sentences.
LINES_OF_PAGES = [
    "\n".join(f"{number} {line}" for number in range(6)) + "\nHome\nRead on ...\nThis page uses cookies to work." * rest
    for line in (
        "The old mill stood by the river, and no one lived there.",
        "ម៉ាស៊ីនកិនស្រូវចាស់ស្ថិតនៅក្បែរមាត់ទន្លេ។ គ្មាននរណារស់នៅទីនោះទេ។",
        "彼は言った。「行く。」と彼女は答えた。雨が降る。",
        "No mark is at the end of this line, so it ends a page in vain",
    )
    for rest in range(3)
]
# Markers of citations, four words, two sentences, and a long line without spaces.
MORE_PAGES = [
    "The old mill[1] stood by the river. [2]\n" * 2 + "No one lived there.\n“So they said in town.”\n[edit]",
    "The old mill stood by the river.\nNo one had lived there since.",
    "彼は古い水車小屋に住んでいた。" * 99,
    "\n".join(f"{number} He said: “The old mill stood by the river.”" for number in range(9)),
]
# Two documents of each id.
PLACES, AMOUNTS = np.repeat(np.arange(9, dtype=np.uint64) << np.uint64(57), 2), np.arange(1, 19)
WIKITEXT = """{{Infobox|a=b}}[[File:A.jpg|thumb|A [[mill]].]]'''The mill''' is {{convert|9|m|ft}} tall.<ref>x</ref>
It stands in [[Harrow (town)|Harrow]].{{cn}}
== History &amp; name ==
{| class="x"
| 1 || 2
|}
* It was built in {{lang|fr|l'an mille}}, as nobody doubts.
* [[Names]]
:l'''amour'' of <math>x</math> moved the miller to build it.
The end, with a [https://example.org link] &ndash; and <small>more</small>.
See [[voy:Ely|a [guide]]] and [http://x.org/?a&copy=1 [[mills]] (old) [PDF] {{cn}}], {{nowrap|[[A{{!}}b]]}} {{x}}.
__KEIN_INHALTSVERZEICHNIS__ __notoc__
 <!-- a line -->\x20
'''A'''<ref>x</ref>'''B''' is {{uc:b}}, {{math|{1,2}}}, -{X=>zh-cn:甲}- and [[Media:a.ogg|c]] &#;.
== See also ==
* [[Mills]] are houses in which corn is ground to flour.
"""


# In cp1252, UTF-8 and koi8-r.
PAGES = [
    b"<!doctype html><title>\x93A mill\x94</title><meta charset=iso-8859-1><nav>Home</nav><p>It rained\x85<p>Old.",
    "<!-- <meta charset=latin1> --><meta charset=utf-8><table><tr><td>“A mill”<td>It rained.</table>".encode(),
    "<?xml version='1.0' encoding='koi8-r'?><meta name=a content='charset=utf-8'><p>Дом".encode("koi8-r"),
]


DUMP = b"""<mediawiki><siteinfo></siteinfo>
<page><ns>0</ns><id>1</id><revision><model>wikitext</model>
<text>It &copy;.\n== A &amp;lt b ==\n</text></revision></page>
<page><ns>0</ns><id>2</id><revision><model>wikibase-item</model><text>{}</text></revision></page>
</mediawiki>
"""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def cleaned(step: str) -> str:
    return clean_text(WITH_REMAINS, [], [step], no_counts([step]))


def uncompressed(path: Path) -> bytes:
    with read_compressed(path) as file:
        return file.read()


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    return digest(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


def gather_imported(folder: Path) -> Batch:
    """Rows in NVIDIA's layout that this test writes itself, imported."""
    columns = {
        "input_ids": [[2, 9, 4, 3, 11, 3, 0, 0], [2, 5, 3, 6, 7, 3, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 1, 1, 0, 0]] * 2,
        "segment_ids": [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]],
        "masked_lm_positions": [[2, 4, 0], [4, 0, 0]],
        "masked_lm_ids": [[8, 12, 0], [7, 0, 0]],
        "next_sentence_labels": [0, 1],
    }
    with h5py.File(folder / "nvidia.hdf5", "w") as file:
        for name, values in columns.items():
            file[name] = np.array(values, dtype="i4" if name in ("input_ids", *MASKED) else "i1")
    vocabulary = folder / "dataset/tokenizer.json"
    import_dataset([folder / "nvidia.hdf5"], vocabulary, folder / "imported", name="theirs")
    return open_dataset(folder / "imported/dataset.json", 8, "train").gather(np.arange(2))


def draw_negatives(tokenizer: Path, folder: Path) -> np.ndarray:
    """Return the triples of two relevant ones of 20 passages: several different ones, and more than there are."""
    (folder / "numbered.tsv").write_text("".join(f"{number}\tThe old mill.\n" for number in range(20)))
    (folder / "candidates").write_text("".join(f"0\t{number}\n" for number in range(20)))
    (folder / "qrels").write_text("0\t0\t3\t1\n0\t0\t5\t1\n")
    tokenize_collection(Recipe(source=str(folder / "numbered.tsv"), tfrecords=False), tokenizer, folder / "numbered")
    read = read_tokenizer(tokenizer)
    texts = read_queries(folder / "numbered.tsv", read), open_collection(folder / "numbered", read).passages
    candidates = read_candidates(folder / "candidates", *texts)
    drawn = [
        sample_triples(folder / "qrels", candidates, *texts, relevance_level=1, negatives=negatives, seed=1)[1]
        for negatives in (6, 30)
    ]
    return np.concatenate(drawn)


def tokenize_joined(folder: Path) -> list[np.ndarray]:
    """Return the ids of a document in two languages, by a new BPE and a given Unigram."""
    sentences = ["The mill is old.", "The mill is by the river.", "水車は川の。", "水車は川の。", "The end."]
    shard = encoding_helpers.write_shard(folder / "joined.txt.zst", [sentences])
    bpe = train_byte_level([shard], vocab_size=290, lowercase=False, strip_accents=None, seed=1)
    pieces = ["▁", "▁The", "▁水車", "水車", "は", "川", "の", *"Themilsodbyrvn."]
    unigram = make_unigram([(piece, -1.0 - rank) for rank, piece in enumerate(dict.fromkeys(pieces))], lowercase=False)
    return [tokenize_shard(shard, tokenizer, folder).ids for tokenizer in (bpe, unigram)]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The digest of each stage's output on a corpus of three very short books."""
    monkeypatch.chdir(tmp_path)
    for name, text in BOOKS.items():
        Path(name).write_text(text, encoding="utf-8")
    read_texts(sorted(BOOKS), "part.jsonl.zst", "part.counts.json")
    Path("wrapped.txt").write_text(WRAPPED, encoding="utf-8")
    read_texts(["wrapped.txt"], "wrapped.jsonl.zst", "wrapped.counts.json", separator="---")
    write_signatures("part.jsonl.zst", "part.counts.json", "signatures.npy")
    Path("dev.json").write_text(json.dumps([BOOKS["one.txt"], "No word of it."]))
    collect_ngrams(Recipe(sets={"books": ["dev.json"]}), "ngrams.npz")
    find_overlap("part.jsonl.zst", "ngrams.npz", "overlap.json")
    train_punkt(["part.jsonl.zst"], ["part.counts.json"], "punkt")
    split_part("part.jsonl.zst", "books", load_splitter("punkt"), "part.txt.zst", "part.index.npy")
    write_plan("plan.jsonl", make_plan([("books", ["part.txt.zst"])], 1, 0.3))
    write_shard("plan.jsonl", "00000", "00000.txt.zst")
    save_tokenizer(
        train_wordpiece([Path("00000.txt.zst")], vocab_size=90, lowercase=True, strip_accents=False, seed=1),
        Path("tok.json"),
    )
    samples = open_dataset(make_dataset(tmp_path / "dataset"), 32, "train").gather(np.arange(20))
    ordered = make_dataset(tmp_path / "ordered", pair_objective="sentence_order")
    pairs = open_dataset(ordered, 32, "train").gather(np.arange(20))
    masked = gather_imported(tmp_path)
    Path("passages.tsv").write_text("b\tThe old mill.\na\tSeven houses stood by the river, and a mill.\n")
    passages = Recipe(source="passages.tsv", tfrecords=False)
    tokenize_collection(passages, tmp_path / "dataset/tokenizer.json", tmp_path / "passages")
    overlap = Path("overlap.json").read_bytes()
    return {
        "extraction": digest(repr(text_of_page(WIKITEXT, {"file"}, "sentences")).encode()),
        "dump": digest(repr([*scan_pages([DUMP], {}, "dump"), headings_of(DUMP)]).encode()),
        "documents": digest(uncompressed(Path("part.jsonl.zst"))),
        "plain_text": digest(uncompressed(Path("wrapped.jsonl.zst"))),
        "web_pages": digest(repr([read_web_page(io.BytesIO(page), "utf-8") for page in PAGES]).encode()),
        "gopher_repetition": digest(repr([gopher_repetition(text) for text in REPETITIVE]).encode()),
        **{step: digest(cleaned(step).encode()) for step in ("empty_brackets", "placeholders")},
        "c4": digest(repr([c4(text) for text in LINES_OF_PAGES + MORE_PAGES]).encode()),
        "fineweb": digest(repr([fineweb(text) for text in LINES_OF_PAGES + MORE_PAGES]).encode()),
        "signatures": digest(Path("signatures.npy").read_bytes()),
        # Not the archive's own bytes, which Pythons write differently.
        "overlap": digest(digest_of_arrays(np.load("ngrams.npz").values()).encode() + overlap),
        "sentences": digest(uncompressed(Path("part.txt.zst"))),
        "sample": digest(str(last_of_sample(lambda: [(PLACES, AMOUNTS)], 90)).encode()),
        "shards": digest(uncompressed(Path("00000.txt.zst")) + Path("plan.jsonl").read_bytes()),
        "tokenizer": digest(Path("tok.json").read_bytes()),
        "spaces": digest_of_arrays(tokenize_joined(tmp_path)),
        "samples": digest_of_arrays(samples[:4]),
        "sentence_order": digest_of_arrays(pairs[:4]),
        "import": digest_of_arrays([*masked[:4], *masked.masks]),
        "negatives": digest_of_arrays([draw_negatives(tmp_path / "dataset/tokenizer.json", tmp_path)]),
        "collection": digest(b"".join(path.read_bytes() for path in sorted((tmp_path / "passages").iterdir()))),
    }


@pytest.mark.parametrize(
    "stage",
    [
        *("extraction", "documents", "signatures", "overlap", "sentences", "shards", "tokenizer", "samples", "import"),
        *(
            "sentence_order",
            "collection",
            "negatives",
            "gopher_repetition",
            "empty_brackets",
            "placeholders",
            "c4",
            "fineweb",
            "dump",
            "plain_text",
            "web_pages",
            "sample",
            "spaces",
        ),
    ],
)
def test_a_stage_that_changed_its_result_has_a_new_version(made: dict[str, str], stage: str) -> None:
    assert made[stage] == DIGESTS[stage, STAGE_VERSIONS[stage]]


def curve(path: Path, key: str) -> list[float]:
    points = [json.loads(line)["metrics"] for line in path.read_text().splitlines()]
    return [point[key] for point in points if key in point]


@pytest.mark.parametrize(("stage", "optimizer"), [("pretraining", "adamw"), ("lamb", "lamb")])
def test_pretraining_that_takes_another_course_has_a_new_version(tmp_path: Path, stage: str, optimizer: str) -> None:
    card = write_dataset(tmp_path / "dataset")
    given = {**recipe(steps=6, optimizer=optimizer), "model": MODEL}
    trainer = Trainer(given, card, tmp_path / "phase", log_every=1)
    assert trainer.finish() == 0, trainer.log.read_text()
    found = curve(tmp_path / "phase/metrics.jsonl", "train/loss")
    assert found == pytest.approx(COURSES[stage, STAGE_VERSIONS[stage]], abs=3e-4)


def test_finetuning_that_takes_another_course_has_a_new_version(tmp_path: Path) -> None:
    card = write_dataset(tmp_path / "dataset")
    rows = [f"t\t{number % 2}\t\tword{number} word{number * 7 % 70} word3\n" for number in range(48)]
    (tmp_path / "data.tsv").write_text("".join(rows))
    settings = {
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "warmup": 0.1,
        "weight_decay": 0.01,
        "layerwise_decay": 0.9,
        "precision": "fp32",
        "max_sequence_length": 32,
        "patience": None,
    }
    given = {
        "fingerprint": "0123456789abcdef",
        "task": "cola",
        "seed": 1,
        "start": "random",
        "model": MODEL,
        "initial_weights": None,
        "data": {split: str(tmp_path / "data.tsv") for split in ("train", "dev")},
        "settings": settings,
    }
    finetune(given, card.parent / "tokenizer.json", tmp_path / "out", options=Options(threads=1))
    found = curve(tmp_path / "out/metrics.jsonl", "train/loss")
    assert found == pytest.approx(COURSES["finetuning", STAGE_VERSIONS["finetuning"]], abs=3e-4)
