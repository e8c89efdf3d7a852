"""Measure how the data steps grow, up to a terabyte of text.

    python bench/scale.py FOLDER

First the two steps that deal with all documents at once, on 1, 2, 4 and 8 million synthetic ones in parts of 5,000:
`list_removed` compares their signatures (of each part a tenth equals earlier documents, and a tenth agrees with some in
75 to 100 percent of the minima), `plan_shards` assigns the others to shards. Then a table of every step: measured on
the real text in FOLDER, as for bench/encoding.py, or on the 8 million documents, and extrapolated from that. The
dataset's card is measured on copies of the encoded text, vocabularies on synthetic text. Times are processor times,
each in its own process, whose peak memory is given.
"""

import multiprocessing
import resource
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from encoding import LENGTHS, OF_FIXED_LENGTH, STAGES, Inputs, find_inputs, in_its_own_process, take_vocabulary
from further_stages import LINKS, OF_PARTS, VOCABULARIES, Stage, digests, prepare
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.corpus import duplicates, shards
from bertline.corpus.documents import read_documents
from bertline.corpus.index import INDEX_TYPE
from bertline.corpus.removal import write_removals
from bertline.corpus.signatures import SIGNATURE_TYPE
from bertline.encoding.description import describe_files
from bertline.encoding.layout import open_samples
from bertline.results import paths

MILLIONS = (1, 2, 4, 8)
DOCUMENTS_OF_PART = 5_000
EQUAL, SIMILAR = DOCUMENTS_OF_PART // 10, DOCUMENTS_OF_PART // 10
SHARDS, HELD_OUT = 1000, 0.005
JOB_BYTES = 100e6
# What a job of `list_removed` adds to its memory for each document: a bit, and the places of 16 bands' buckets.
MEMORY_OF_DOCUMENT = 0.25
# Seconds to open a signature file, which it does with each part for each bucket of each band.
OPENING = 27e-6
FILES_OF_CARD = 100  # of each length
OF_DESCRIPTION = 0.0022  # MB that the description of a file takes, by tracemalloc


class Size(NamedTuple):
    """A corpus to extrapolate to."""

    text_bytes: float
    documents: float
    dump_bytes: float


class CardCost(NamedTuple):
    """What describing the encoded files for a dataset's card takes: seconds to open and to read them, and MB."""

    files: int
    bytes: int
    opening: float
    reading: float
    peak: float


WIKIPEDIA, TERABYTE = Size(20e9, 7e6, 25e9), Size(1e12, 500e6, 0.0)


def write_synthetic(folder: Path, documents: int) -> list[str]:
    """Write signatures and sentence indexes of random documents; return the names of the parts."""
    rng = np.random.default_rng(1)
    names = [f"part-{number:05d}" for number in range(documents // DOCUMENTS_OF_PART)]
    for number, name in enumerate(names):
        rows = np.frombuffer(rng.bytes(DOCUMENTS_OF_PART * SIGNATURE_TYPE.itemsize), SIGNATURE_TYPE).copy()
        if number:
            earlier = np.load(folder / f"{names[rng.integers(number)]}.npy", mmap_mode="r")
            places = rng.permutation(DOCUMENTS_OF_PART)[: EQUAL + SIMILAR]
            rows[places] = earlier[rng.integers(0, DOCUMENTS_OF_PART, len(places))]
            similar = places[EQUAL:]
            rows["digest"][similar] = rng.integers(0, 1 << 63, (SIMILAR, 2))
            changed = rng.random((SIMILAR, rows["minima"].shape[1])) < rng.uniform(0, 0.25, (SIMILAR, 1))
            rows["minima"][similar] ^= np.where(changed, rng.integers(1, 1 << 16, changed.shape), 0).astype(np.uint16)
        np.save(folder / f"{name}.npy", rows)
        index = np.zeros(DOCUMENTS_OF_PART, dtype=INDEX_TYPE)
        index["length"], index["sentences"] = rng.integers(200, 4000, len(index)), 20
        index["offset"] = np.cumsum(index["length"]) - index["length"]
        index["id_hash"] = rng.integers(0, 1 << 64, len(index), dtype=np.uint64)
        np.save(folder / f"{name}.index.npy", index)
    return names


def list_removed(folder: Path, names: list[str]) -> None:
    write_removals([("web", [str(folder / f"{name}.npy") for name in names])], [], folder / "removed.zst", near=True)


def plan_shards(folder: Path, names: list[str]) -> None:
    corpora = [("web", [str(folder / f"{name}.txt.zst") for name in names])]
    plan = shards.stream_plan(corpora, SHARDS, HELD_OUT, folder / "removed.zst", None)
    shards.write_plan(folder / "plan.jsonl", *plan)


STEPS = {"list_removed": list_removed, "plan_shards": plan_shards}


def _measured(step: str, folder: Path, names: list[str]) -> tuple[float, float]:
    began = time.process_time()
    STEPS[step](folder, names)
    return time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_growth(folder: Path) -> dict[tuple[str, int], tuple[float, float]]:
    """Return seconds and MB of each step for each number of million documents."""
    names = write_synthetic(folder, max(MILLIONS) * 1_000_000)
    found = {}
    for millions in MILLIONS:
        some = names[: millions * 1_000_000 // DOCUMENTS_OF_PART]
        for step in STEPS:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[step, millions] = pool.submit(_measured, step, folder, some).result()
    return found


def cost_of(stage: Stage, given: Inputs) -> tuple[float, float]:
    """Return the seconds and MB of a stage."""
    spent = in_its_own_process(stage, given)
    return spent.seconds, spent.megabytes


def measure_stages(folder: Path, work: Path) -> tuple[Inputs, dict[str, tuple[float, float]], float]:
    """Return the inputs, the seconds and MB of each stage of bench/encoding.py, and the bytes of text."""
    given = find_inputs(folder, work)
    spent = {}
    for name, stage in STAGES.items():
        if name == "dedup_short":
            continue
        if name == "encode":
            take_vocabulary(given)
        spent[name] = cost_of(stage, given)
    text = sum(len(row["text"].encode()) for part in work.glob("*.jsonl.zst") for row in read_documents(part))
    return given, spent, text


def _measured_card(files: dict[int, list[Path]]) -> CardCost:
    every = [path for of_length in files.values() for path in of_length]
    began = time.process_time()
    for path in every:
        open_samples(path)
    opened = time.process_time()
    for of_length in files.values():
        describe_files(of_length)
    return CardCost(
        len(every),
        sum(path.stat().st_size for path in every),
        opened - began,
        time.process_time() - opened - (opened - began),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def measure_card(work: Path) -> CardCost:
    """Return the cost for copies of the encoded text."""
    copies: dict[int, list[Path]] = {}
    for length in LENGTHS:
        source = work / paths.SAMPLES.format(length=length, shard="00000")
        copies[length] = [source.with_name(f"copy-{number:05d}.h5") for number in range(FILES_OF_CARD)]
        for path in copies[length]:
            shutil.copyfile(source, path)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured_card, copies).result()


def row_of_card(cost: CardCost, text: float) -> list[str]:
    """Return the row of the card, extrapolated.

    Args:
        text: bytes of text in the encoded files of one shard.
    """
    encoded = text * cost.files / len(LENGTHS)
    files = {size: len(LENGTHS) * size.text_bytes / JOB_BYTES for size in (WIKIPEDIA, TERABYTE)}
    cells = [
        duration(cost.opening * number / cost.files + cost.reading * size.text_bytes / encoded)
        for size, number in files.items()
    ]
    at_most = cost.peak + OF_DESCRIPTION * (files[TERABYTE] - cost.files)
    of = f"{cost.files} files, {cost.bytes / 1e9:.1f} GB"
    measured = f"{duration(cost.opening + cost.reading)}, {cost.peak:.0f} MB ({of})"
    return ["write_dataset_card, one job", measured, *cells, f"{at_most:,.0f} MB"]


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def parallel(seconds: float, scale: float, jobs: float) -> str:
    """Describe a step with a job for each part."""
    return f"{duration(seconds * scale)} in {jobs:,.0f} jobs of {duration(seconds * scale / jobs)}"


def main(folder: Path) -> None:
    """Run the benchmark.

    Args:
        folder: contains a dump and books/.
    """
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        growth = measure_growth(work)
        rows = [
            [
                millions,
                *(
                    value
                    for step in STEPS
                    for value in (
                        growth[step, millions][0],
                        growth[step, millions][0] / millions,
                        growth[step, millions][1],
                    )
                ),
            ]
            for millions in MILLIONS
        ]
        heads = [f"{step}, {unit}" for step in STEPS for unit in ("s", "µs a document", "peak MB")]
        print(tabulate(rows, ["million documents", *heads], floatfmt=".1f"), end="\n\n")
        for path in work.iterdir():  # the stages below take every part in the folder
            path.unlink()
        given, spent, text = measure_stages(folder, work)
        print_steps(growth, given, spent, text, further_rows(given, text), measure_card(work))
    finally:
        shutil.rmtree(work)


def further_rows(given: Inputs, text: float) -> list[list[str]]:
    """Measure the stages of bench/further_stages.py, and return their rows.

    Args:
        text: bytes of text in the documents.
    """
    cost_of(prepare, given)  # in another process: the peak memory of a new one begins at this one's
    rows = []
    for kind, stages in VOCABULARIES.items():
        costs = [cost_of(stage, given) for stage in stages]
        seconds, memory = (max(cost) for cost in zip(*costs, strict=True))
        rows.append([f"vocabulary, {kind}, one job", f"{duration(seconds)}, {memory:.0f} MB", "the same", "the same"])
        rows[-1].append(f"{memory:.0f} MB")
    for name, stage in OF_PARTS.items():
        rows.append(row_of_parts(name, *cost_of(stage, given), text))
    seconds, memory = cost_of(digests, given)
    read = LINKS * given.dump.stat().st_size
    cells = [duration(seconds * (size.dump_bytes or size.text_bytes) / read) for size in (WIKIPEDIA, TERABYTE)]
    measured = f"{duration(seconds)}, {memory:.0f} MB ({read / 1e9:.1f} GB)"
    return [*rows, ["checksums at the first start", measured, *cells, f"{memory:.0f} MB"]]


def row_of_parts(name: str, seconds: float, memory: float, text: float) -> list[str]:
    """Return the row of a stage with a job for each part, measured on `text` bytes."""
    cells = [parallel(seconds, size.text_bytes / text, size.text_bytes / JOB_BYTES) for size in (WIKIPEDIA, TERABYTE)]
    return [name, f"{duration(seconds)}, {memory:.0f} MB", *cells, f"{memory:.0f} MB"]


def print_steps(
    growth: dict[tuple[str, int], tuple[float, float]],
    given: Inputs,
    spent: dict[str, tuple[float, float]],
    text: float,
    further: list[list[str]],
    card: CardCost,
) -> None:
    rows = []
    for stage, (seconds, memory) in spent.items():
        row = row_of_parts(stage, seconds, memory, text)
        if stage in OF_FIXED_LENGTH:
            row[2:4] = [f"{duration(seconds)}, and reads up to 64 parts"] * 2
        elif stage.startswith("extract"):
            scale = WIKIPEDIA.dump_bytes / given.dump.stat().st_size
            row[2:4] = [parallel(seconds, scale, WIKIPEDIA.text_bytes / JOB_BYTES), "no dump"]
        rows.append(row)
    largest = max(MILLIONS)
    for step in STEPS:
        (_, less), (seconds, memory) = growth[step, largest // 2], growth[step, largest]
        cells = []
        for size in (WIKIPEDIA, TERABYTE):
            buckets = size.documents / duplicates.DOCUMENTS_AT_ONCE * duplicates.BANDS if step == "list_removed" else 0
            opening = buckets * size.text_bytes / JOB_BYTES * OPENING
            cells.append(duration(seconds / largest / 1e6 * size.documents + opening))
        of_document = MEMORY_OF_DOCUMENT if step == "list_removed" else (memory - less) / (largest / 2)
        at_most = memory + of_document * (TERABYTE.documents / 1e6 - largest)
        rows.append(
            [
                f"{step}, one job",
                f"{duration(seconds)}, {memory:.0f} MB ({largest} million documents)",
                *cells,
                f"{at_most:,.0f} MB",
            ]
        )
    rows += [*further, row_of_card(card, text)]
    heads = ["step", "measured", "English Wikipedia, extrapolated", "1 TB, extrapolated", "peak of a job, 1 TB"]
    print(tabulate(rows, heads))


if __name__ == "__main__":
    run_command(main, __doc__)
