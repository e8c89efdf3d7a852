"""Measure the speed from text to samples by stage, on one core, and encoding against the tokenizers library.

    python bench/encoding.py FOLDER

FOLDER contains a dump (the largest .bz2 in it) and books/*.txt; Google's vocab/bert-base-uncased-vocab.txt is used if
present, otherwise a vocabulary is trained. Each stage runs in its own process, whose memory is measured; times are
processor times. MB are of extracted text; for extraction, the MB of the dump's XML are another column. Signatures of
documents of ordinary length, 2.5 KB of paragraphs of the books, are a row of their own. Then the library alone and all
of encode_shard (reading the shard, both lengths with next sentence prediction, writing HDF5) alternate on the same
text. The last line is JSON.
"""

import bz2
import json
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

os.environ["RAYON_NUM_THREADS"] = "1"  # read when tokenizers is imported

import numpy as np
from tabulate import tabulate
from tokenizers import Tokenizer

sys.path.append(str(Path(__file__).parents[1] / "tests/unit"))

from corpus_recipe import corpus_recipe, dump_recipe

from bertline.command_line import run_command
from bertline.corpus.clean import clean_part
from bertline.corpus.documents import Document, tidy, write_documents
from bertline.corpus.extract import extract_part
from bertline.corpus.index import read_index
from bertline.corpus.removal import write_removals
from bertline.corpus.sentences import load_splitter, train_punkt
from bertline.corpus.shards import read_plan, split_part, stream_plan, write_plan, write_shard
from bertline.corpus.signatures import write_signatures
from bertline.corpus.sources import read_part
from bertline.encoding.dataset import SampleReader
from bertline.encoding.encode_shard import encode_shard
from bertline.encoding.layout import open_samples
from bertline.encoding.shards import read_text_blocks, size_of_shard
from bertline.encoding.tokenizer import save_tokenizer, take_tokenizer
from bertline.encoding.vocabulary import train_wordpiece
from bertline.files import Recipe
from bertline.results.paths import PLAN

LENGTHS = (128, 512)
LINES_PER_CALL = 4096
RECIPE = Recipe(
    fingerprint="0" * 16,
    sequence_lengths=list(LENGTHS),
    settings={"seed": 12345, "pair_objective": "next_sentence", "passes": 1, "short_sequence_probability": 0.1},
)
SHARD = "shards/00000.txt.zst"
# English Wikipedia, to which core-hours are extrapolated: extraction by compressed bytes, the rest by text.
DUMP_BYTES, DUMP_TEXT_BYTES = 25e9, 20e9
READ_SECONDS = 2.0
SHORT, SHORT_DOCUMENTS, PARAGRAPHS = "short", 20_000, 8


class Inputs(NamedTuple):
    """Inputs of the benchmark, and its working folder."""

    dump: Path
    books: list[Path]
    vocabulary: Path
    work: Path


def find_inputs(folder: Path, work: Path) -> Inputs:
    """Return the largest dump in a folder, its books and its vocabulary, which may be absent."""
    dump = max(folder.rglob("*.bz2"), key=lambda path: path.stat().st_size)
    books = sorted(path for path in folder.rglob("*.txt") if path.parent.name == "books")
    return Inputs(dump, books, folder / "vocab/bert-base-uncased-vocab.txt", work)


class Spent(NamedTuple):
    """Cost of a stage: seconds of processor time, peak memory in MB, bytes of files written."""

    seconds: float
    megabytes: float
    written: int


def extract(given: Inputs) -> None:
    extract_part(dump_recipe(extractor="bertline"), given.dump, given.work / "extracted")


def extract_wikiextractor(given: Inputs) -> None:
    extract_part(dump_recipe(extractor="wikiextractor"), given.dump, given.work / "extracted-wikiextractor")


def clean(given: Inputs) -> None:
    work = given.work
    documents, counts = work / "wiki.jsonl.zst", work / "wiki.counts.json"
    clean_part(dump_recipe(extractor="bertline"), work / "extracted", documents, counts)
    for encoding, name in (("utf-8", "books"), ("latin-1", "latin")):
        files = [str(book) for book in given.books if _is_utf8(book) == (encoding == "utf-8")]
        documents, counts = work / f"{name}.jsonl.zst", work / f"{name}.counts.json"
        if files:
            corpus = corpus_recipe("files", {"part-00000": files}, encoding=encoding)
            read_part(corpus, "part-00000", documents, counts)


def dedup(given: Inputs) -> None:
    """Write the signatures of all documents, and the list of duplicates of earlier ones."""
    corpora = []
    for part in sorted(given.work.glob("*.jsonl.zst")):
        name = part.name.removesuffix(".jsonl.zst")
        signatures = given.work / f"{name}.npy"
        write_signatures(part, given.work / f"{name}.counts.json", signatures)
        corpora.append((name, [str(signatures)]))
    write_removals(corpora, [], given.work / "removed.zst", near=True)


def dedup_short(given: Inputs) -> None:
    write_signatures(
        given.work / SHORT / "a.jsonl.zst", given.work / SHORT / "a.counts.json", given.work / SHORT / "a.npy"
    )
    write_removals([("a", [str(given.work / SHORT / "a.npy")])], [], given.work / SHORT / "removed.zst", near=True)


def write_short_documents(given: Inputs) -> tuple[int, int]:
    """Write documents of some paragraphs of the books each. Returns their bytes and their number."""
    texts = (book.read_text("utf-8" if _is_utf8(book) else "latin-1") for book in given.books)
    paragraphs = [" ".join(paragraph.split()) for text in texts for paragraph in text.split("\n\n")]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph] or ["No book is given."]
    random = np.random.default_rng(1)
    sizes = []

    def documents() -> Iterator[Document]:
        for number in range(SHORT_DOCUMENTS):
            some = [tidy(paragraphs[place]) for place in random.integers(0, len(paragraphs), PARAGRAPHS)]
            text = "\n".join(some)
            sizes.append(len(text.encode()))
            yield Document(id=str(number), title="", text=text, source="", url="")

    folder = given.work / SHORT
    folder.mkdir()
    write_documents(documents(), folder / "a.jsonl.zst", folder / "a.counts.json")
    return sum(sizes), len(sizes)


def punkt(given: Inputs) -> None:
    parts = sorted(given.work.glob("*.jsonl.zst"))
    counts = [str(part).replace(".jsonl.zst", ".counts.json") for part in parts]
    train_punkt([str(part) for part in parts], counts, given.work / "punkt")


def sentences(given: Inputs) -> None:
    split = load_splitter(given.work / "punkt")
    for part in sorted(given.work.glob("*.jsonl.zst")):
        name = part.name.removesuffix(".jsonl.zst")
        split_part(part, name, split, given.work / f"{name}.txt.zst", given.work / f"{name}.index.npy")


def shards(given: Inputs) -> None:
    parts = sorted(given.work.glob("*.index.npy"))
    corpora = [(part.name.removesuffix(".index.npy"), [str(part).replace(".index.npy", ".txt.zst")]) for part in parts]
    write_plan(given.work / PLAN, *stream_plan(corpora, 1, 1e-9, None, None))
    write_shard(given.work / PLAN, "00000", given.work / SHARD)


def encode(given: Inputs) -> None:
    encode_shard(RECIPE, "00000", given.work)


# Stages by name. The first reads the dump; every other reads the output of those before it.
STAGES: dict[str, Callable[[Inputs], None]] = {
    "extract": extract,
    "extract_wikiextractor": extract_wikiextractor,
    "clean": clean,
    "dedup": dedup,
    "dedup_short": dedup_short,
    "punkt": punkt,
    "sentences": sentences,
    "shards": shards,
    "encode": encode,
}
# Their time does not grow with the corpus.
OF_FIXED_LENGTH = ("punkt",)
# Alternatives to other stages, so not in the sum.
INSTEAD = ("extract_wikiextractor", "dedup_short")


def _is_utf8(path: Path) -> bool:
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _measured(stage: Callable[[Inputs], None], given: Inputs) -> tuple[float, float]:
    """Run a stage in this process. Returns seconds of processor time and peak memory in MB, including children."""
    stage(given)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(times.ru_utime + times.ru_stime for times in used), max(times.ru_maxrss for times in used) / 1024


def _idle() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def in_its_own_process(stage: Callable[[Inputs], None], given: Inputs) -> Spent:
    """Return the results of `_measured` in a new process, without the time for imports, and the bytes written."""
    before = _bytes_in(given.work)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        imports = pool.submit(_idle).result()
        seconds, megabytes = pool.submit(_measured, stage, given).result()
    return Spent(seconds - imports, megabytes, _bytes_in(given.work) - before)


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def take_vocabulary(given: Inputs) -> None:
    """Write tokenizer.json."""
    if given.vocabulary.exists():
        tokenizer = take_tokenizer(given.vocabulary, lowercase=True)
    else:
        tokenizer = train_wordpiece([given.work / SHARD], vocab_size=8000, lowercase=True, strip_accents=None, seed=1)
    save_tokenizer(tokenizer, given.work / "tokenizer.json")


def against_library(work: Path, rounds: int) -> dict[str, float]:
    """Return medians over interleaved rounds of the library's time divided by Bertline's."""
    text = (line for block, _ in read_text_blocks(work / SHARD) for line in block.split("\n"))
    lines = [line for line in text if line]
    ratios = []
    for _ in range(rounds):
        tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
        tokenizer.encode_special_tokens = True
        began = time.process_time()
        for start in range(0, len(lines), LINES_PER_CALL):
            batch = tokenizer.encode_batch_fast(lines[start : start + LINES_PER_CALL], add_special_tokens=False)
            _ = [encoding.ids for encoding in batch]
        library = time.process_time() - began
        began = time.process_time()
        encode_shard(RECIPE, "00000", work)
        ratios.append(library / (time.process_time() - began))
    return {"encode_both_vs_tokenizers": round(statistics.median(ratios), 2)}


def read_samples_per_second(work: Path) -> float:
    """Measure reading of seeded random batches of 256 samples of length 128."""
    file = open_samples(work / "seq128/00000.h5")
    reader = SampleReader([file], 128, {"tokenizer": {"vocab_size": file.attributes["vocab_size"]}})
    order = np.random.default_rng(1).permutation(len(reader))
    read, began = 0, time.process_time()
    while time.process_time() - began < READ_SECONDS:
        for start in range(0, len(order), 256):
            read += len(reader.gather(order[start : start + 256]).offsets) - 1
    return read / (time.process_time() - began)


def main(folder: Path, *, rounds: int = 5) -> None:
    """Run the benchmark.

    Args:
        folder: contains a dump and books/.
        rounds: of both encoders; the median counts.
    """
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        measure(folder, work, rounds)
    finally:
        shutil.rmtree(work)


def measure(folder: Path, work: Path, rounds: int) -> None:
    given = find_inputs(folder, work)
    spent: dict[str, Spent] = {}
    short_bytes, short_documents = write_short_documents(given)
    for stage in STAGES:
        if stage == "encode":
            take_vocabulary(given)
        spent[stage] = in_its_own_process(STAGES[stage], given)
    text_bytes, tokens = size_of_shard(work / SHARD), open_samples(work / "seq128/00000.h5").attributes["text_tokens"]
    wiki_bytes, wiki_documents = size_of_shard(work / "wiki.txt.zst"), len(read_index(work / "wiki.index.npy"))
    documents = read_plan(work / PLAN)["documents"]
    with bz2.open(given.dump) as xml:
        xml_bytes = sum(map(len, iter(lambda: xml.read(1 << 20), b"")))
    rows, megabytes_per_second, core_hours = [], {}, 0.0
    for stage, (seconds, memory, written) in spent.items():
        of_dump = stage in ("extract", "extract_wikiextractor")
        size, count = (wiki_bytes, wiki_documents) if of_dump else (text_bytes, documents)
        if stage == "dedup_short":
            size, count = short_bytes, short_documents
        scale = (
            DUMP_BYTES / given.dump.stat().st_size
            if of_dump
            else DUMP_TEXT_BYTES / (short_bytes if stage == "dedup_short" else text_bytes)
        )
        hours = seconds * (1 if stage in OF_FIXED_LENGTH else scale) / 3600
        core_hours += 0 if stage in INSTEAD else hours
        megabytes_per_second[f"{stage}_mb_per_second"] = round(size / 1e6 / seconds, 2)
        if of_dump:
            megabytes_per_second[f"{stage}_xml_mb_per_second"] = round(xml_bytes / 1e6 / seconds, 2)
        stage_tokens = tokens * size / text_bytes
        of_xml = xml_bytes / 1e6 / seconds if of_dump else None
        rates = [count / seconds, size / 1e6 / seconds, of_xml, stage_tokens / seconds]
        rows.append([stage, seconds, *rates, memory, written / stage_tokens, hours])
    heads = ["stage", "core s", "documents/s", "MB/s", "MB of XML/s", "tokens/s", "peak MB", "bytes out per token"]
    heads += ["core-hours, English Wikipedia"]
    print(f"{platform.processor() or platform.machine()}: {text_bytes / 1e6:.1f} MB of text, {documents} documents")
    print(tabulate(rows, heads, floatfmt=",.1f", missingval=""))
    print(
        f"core-hours: {DUMP_BYTES / 1e9:g} GB of bz2 for extract, {DUMP_TEXT_BYTES / 1e9:g} GB of text for the others"
    )
    files = {length: open_samples(work / f"seq{length}/00000.h5") for length in LENGTHS}
    bytes_per_token = {n: round(file.path.stat().st_size / file.attributes["tokens"], 3) for n, file in files.items()}
    print(f"bytes of file per sample token: {bytes_per_token}")
    figures = {
        **against_library(work, rounds),
        "bytes_per_token": max(bytes_per_token.values()),
        "peak_memory_mb": round(max(stage.megabytes for stage in spent.values())),
        "read_samples_per_second": round(read_samples_per_second(work)),
        **megabytes_per_second,
        "enwiki_core_hours": round(core_hours, 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    run_command(main, __doc__)
