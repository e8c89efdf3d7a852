"""Compare sentence splitters on treebanks: F1 of sentence ends, and speed on one core.

    python bench/sentences.py FOLDER

FOLDER contains treebanks as text, {language}.txt with the ISO 639-1 code: one sentence per line, empty lines between
documents. A paragraph is made of ten successive sentences, whose ends have to be found; the end of the last one is not
counted. Punkt is trained on the same text without its lines, as the graph trains it on a corpus. Speed is in MB of
UTF-8 per second of processor time.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from tabulate import tabulate

from bertline.command_line import run_command
from bertline.corpus.documents import Document, tidy, write_documents
from bertline.corpus.sentences import Splitter, load_splitter, split_by_sentencex, train_punkt
from bertline.corpus.unicode_sentences import split_by_marks

SENTENCES = 10
UNSPACED = ("ja", "zh")  # sentences follow each other without a space
SECONDS = 0.3


def groups(sentences: list[str]) -> list[list[str]]:
    return [sentences[start : start + SENTENCES] for start in range(0, len(sentences), SENTENCES)]


def ends(sentences: Sequence[str]) -> set[int]:
    """Return where sentences but the last end, in characters but spaces."""
    return set(accumulate(len(sentence.replace(" ", "")) for sentence in sentences[:-1]))


def f1(split: Splitter, gold: list[tuple[str, list[str]]]) -> float:
    right = found = wanted = 0
    for paragraph, sentences in gold:
        expected, given = ends(sentences), ends(split(paragraph))
        right, found, wanted = right + len(expected & given), found + len(given), wanted + len(expected)
    return 2 * right / max(1, found + wanted)


def megabytes_per_second(split: Splitter, paragraphs: list[str]) -> float:
    size, began = 0, time.process_time()
    while (spent := time.process_time() - began) < SECONDS:
        for paragraph in paragraphs:
            split(paragraph)
        size += sum(len(paragraph.encode()) for paragraph in paragraphs)
    return size / 1e6 / spent


def trained_splitter(paragraphs: list[str], folder: Path) -> Splitter:
    document = Document(id="1", title="", text="\n".join(paragraphs), source="", url="")
    write_documents([document], folder / "1.jsonl.zst", folder / "1.counts.json")
    train_punkt([str(folder / "1.jsonl.zst")], [str(folder / "1.counts.json")], folder / "punkt")
    return load_splitter(folder / "punkt")


def main(folder: Path) -> None:
    """Run the comparison.

    Args:
        folder: contains {language}.txt.
    """
    rows = []
    for path in sorted(folder.glob("*.txt")):
        language = path.stem
        sentences = [tidy(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        space = "" if language in UNSPACED else " "
        gold = [(space.join(some), some) for some in groups(sentences)]
        paragraphs = [paragraph for paragraph, _ in gold]
        with tempfile.TemporaryDirectory() as work:
            splitters: dict[str, Callable[[str], list[str]]] = {
                "punkt": trained_splitter(paragraphs, Path(work)),
                "unicode": split_by_marks,
                "sentencex": split_by_sentencex(language),
            }
        scores = [100 * f1(split, gold) for split in splitters.values()]
        rows.append([language, *scores, *(megabytes_per_second(split, paragraphs) for split in splitters.values())])
    heads = [f"{kind}, {name}" for kind in ("F1", "MB/s") for name in splitters]
    print(tabulate(rows, ["language", *heads], floatfmt=".1f"))


if __name__ == "__main__":
    run_command(main, __doc__)
