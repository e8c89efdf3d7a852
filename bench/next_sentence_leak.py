"""Measure how well the form of a sample predicts whether its second segment is random.

    python bench/next_sentence_leak.py FOLDER [--objective sentence_order]

FOLDER contains any of: passages as msmarco/collection.tsv, a dump (the smallest .bz2 of more than 500 kB below wiki/),
and multilingual/*.txt, one sentence per line with an empty line between documents. Each text is encoded with a
vocabulary of its own, in five passes, because these texts are small. Gradient boosting on half of the documents then
predicts the label of the others from the length of the sample and of its second segment, whether the sample is full,
and its last two tokens; with sentence_order this label means that the segments are swapped, and the AUC of their
lengths and the last token of each is another column. 0.5 is chance. The last line is JSON.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tabulate import tabulate

sys.path.append(str(Path(__file__).parents[1] / "tests/unit"))

from corpus_recipe import corpus_recipe, dump_recipe
from sample_leak import leak, leak_of_files

from bertline.command_line import run_command
from bertline.corpus.clean import clean_part
from bertline.corpus.extract import extract_part
from bertline.corpus.sentences import load_splitter, splitter_of, train_punkt
from bertline.corpus.shards import split_part, stream_plan, write_plan, write_shard
from bertline.corpus.sources import read_part
from bertline.encoding.encode_shard import encode_shard
from bertline.encoding.layout import open_samples
from bertline.encoding.tokenizer import save_tokenizer
from bertline.encoding.vocabulary import train_wordpiece
from bertline.files import Recipe

LENGTHS = (128, 512)
RECIPE = Recipe(
    fingerprint="0" * 16,
    sequence_lengths=list(LENGTHS),
    settings={"seed": 12345, "pair_objective": "next_sentence", "passes": 5, "short_sequence_probability": 0.1},
)


def texts(folder: Path, work: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each text, and its folder with the sentences of one part: part.txt.zst and its index."""
    if (passages := folder / "msmarco/collection.tsv").exists():
        rows = [line.split("\t", 1) for line in passages.read_text(encoding="utf-8").splitlines()]
        table = work / "passages.jsonl"
        table.write_text("".join(json.dumps({"id": key, "text": text}) + "\n" for key, text in rows))
        yield "MS MARCO passages", _read(table, work / "msmarco", id="id")
    dumps = [path for path in folder.glob("wiki/*.bz2") if path.stat().st_size > 500_000]
    if dumps:
        dump = min(dumps, key=lambda path: path.stat().st_size)
        made = work / "wiki"
        made.mkdir()
        recipe = dump_recipe(extractor="bertline")
        extract_part(recipe, dump, made / "extracted")
        clean_part(recipe, made / "extracted", made / "part.jsonl.zst", made / "part.counts.json")
        _split(made, "punkt")
        yield dump.name.split("-")[0], made
    for path in sorted(folder.glob("multilingual/*.txt")):
        yield path.stem, _read(path, work / path.stem, sentences="lines")


def _read(file: Path, made: Path, **settings: str) -> Path:
    made.mkdir()
    corpus = corpus_recipe("files", {"part": [str(file)]}, **settings)
    read_part(corpus, "part", made / "part.jsonl.zst", made / "part.counts.json")
    _split(made, settings.get("sentences", "punkt"))
    return made


def _split(made: Path, sentences: str) -> None:
    if sentences == "punkt":
        train_punkt([str(made / "part.jsonl.zst")], [str(made / "part.counts.json")], made / "punkt")
        split = load_splitter(made / "punkt")
    else:
        split = splitter_of(corpus_recipe("files", sentences=sentences))
    split_part(made / "part.jsonl.zst", "text", split, made / "part.txt.zst", made / "part.index.npy")


def encode(made: Path) -> dict[int, Path]:
    """Encode a text and return its files by sequence length."""
    write_plan(made / "plan.jsonl", *stream_plan([("text", [str(made / "part.txt.zst")])], 1, 1e-9, None, None))
    shard = made / "shards/00000.txt.zst"
    write_shard(made / "plan.jsonl", "00000", shard)
    vocabulary = train_wordpiece([shard], vocab_size=8000, lowercase=True, strip_accents=False, seed=1)
    save_tokenizer(vocabulary, made / "tokenizer.json")
    encode_shard(RECIPE, "00000", made)
    return {length: made / f"seq{length}/00000.h5" for length in LENGTHS}


def leak_of_both_ends(file: Path) -> float:
    """Return `leak` by the lengths of both segments and the last token of each."""
    samples = open_samples(file)
    ends, second = samples.sample_offsets[1:].astype(np.int64), samples.second_segment_start.astype(np.int64)
    begins = samples.sample_offsets[:-1].astype(np.int64)
    lengths = ends - begins
    last = [samples.input_ids[place].astype(np.int64) for place in (begins + second - 2, ends - 2)]
    features = np.stack([second, lengths - second, lengths, *last], axis=1)
    return leak(features, np.array(samples.next_sentence_labels), np.array(samples.document_index))


def main(folder: Path, *, objective: str = "next_sentence") -> None:
    """Print the table.

    Args:
        folder: contains the texts.
        objective: next_sentence or sentence_order.
    """
    RECIPE["settings"]["pair_objective"] = objective
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    rows, figures = [], {}
    try:
        for name, made in texts(folder, work):
            for length, file in encode(made).items():
                samples = open_samples(file)
                share = samples.attributes["samples_with_random_next"] / len(samples)
                fill = samples.attributes["tokens"] / len(samples) / length
                figures[f"{name} {length}"] = round(leak_of_files([file]), 3)
                divided = samples.attributes["samples_without_partner"] / len(samples)
                both = [f"{leak_of_both_ends(file):.3f}", f"{divided:.2f}"] if objective == "sentence_order" else []
                auc = f"{figures[f'{name} {length}']:.3f}"
                rows.append([name, length, len(samples), f"{share:.3f}", f"{fill:.2f}", auc, *both])
    finally:
        shutil.rmtree(work)
    heads = ["text", "length", "samples", "label 1", "filled", "AUC"]
    if objective == "sentence_order":
        heads += ["of both ends", "divided"]
    print(tabulate(rows, heads, disable_numparse=True))
    print(json.dumps(figures))


if __name__ == "__main__":
    run_command(main, __doc__)
