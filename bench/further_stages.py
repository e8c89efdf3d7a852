"""Stages of the data path that bench/encoding.py leaves out: vocabularies, evaluation sets, validation, checksums.

Vocabularies are trained on synthetic text, because no real text as large as their samples is at hand: words of one to
four syllables, the more frequent the lower their number, and the same in Thai letters with a space after every
thirteenth word or so.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from encoding import Inputs

from bertline.corpus.compressed import write_compressed
from bertline.corpus.overlap import collect_ngrams, find_overlap
from bertline.encoding.validation import validate_samples
from bertline.encoding.vocabulary import SAMPLE_BYTES, TRAINERS
from bertline.files import Recipe, digest_of_files

Stage = Callable[[Inputs], None]

SPACES = {"with spaces": 1.0, "without spaces": 1 / 13}  # texts, and the share of words that a space follows
SHARDS = 8
WORDS, WORDS_OF_LINE, LINES_OF_BLOCK = 1_500_000, 20, 5_000
SYLLABLES = ["".join(letters) for letters in product(["", *"bcdfghlmnprstv"], "aeiou", ["", *"nrslt"])]
THAI = str.maketrans({letter: chr(0xE01 + ord(letter) - ord("a")) for letter in "abcdefghijklmnopqrstuv"})
LINKS = 40  # to the dump, for checksums


def write_texts(work: Path) -> None:
    """Write shards of both texts, larger than the sample for a vocabulary."""
    random = np.random.default_rng(1)
    syllables = np.array(SYLLABLES)
    words = ["".join(random.choice(syllables, count)) for count in random.integers(1, 5, WORDS)]
    frequencies = np.cumsum(1 / np.arange(1, WORDS + 1))
    for (text, share), shard in product(SPACES.items(), range(SHARDS)):
        (work / text).mkdir(exist_ok=True)
        with write_compressed(work / text / f"{shard:05d}.txt.zst") as file:
            written = 0
            while written < 1.1 * SAMPLE_BYTES / SHARDS:
                drawn = np.searchsorted(frequencies, random.random((LINES_OF_BLOCK, WORDS_OF_LINE)) * frequencies[-1])
                after = np.where(random.random(drawn.shape) < share, " ", "").tolist()
                lines = [
                    "".join(words[number] + space for number, space in zip(*line, strict=True)) + "\n"
                    for line in zip(drawn.tolist(), after, strict=True)
                ]
                block = "".join(lines)
                written += file.write((block if share == 1 else block.translate(THAI)).encode())


def train(given: Inputs, kind: str, text: str) -> None:
    """Train a vocabulary of the size of BERT's."""
    shards = sorted((given.work / text).glob("*.txt.zst"))
    TRAINERS[kind](shards, vocab_size=30_522, lowercase=True, strip_accents=None, seed=1)


def overlap(given: Inputs) -> None:
    """Find text of the evaluation sets in all documents."""
    for part in sorted(given.work.glob("*.jsonl.zst")):
        find_overlap(part, given.work / "ngrams.npz", given.work / f"{part.name}.overlap.json")


def validate(given: Inputs) -> None:
    for path in sorted(given.work.glob("seq*/00000.h5")):
        validate_samples(path)


def digests(given: Inputs) -> None:
    digest_of_files(sorted((given.work / "inputs").iterdir()), given.work / "digests.json")


def prepare(given: Inputs) -> None:
    """Write what the stages below read, in addition to the output of those of bench/encoding.py."""
    write_texts(given.work)
    sets = sorted(str(path) for path in given.dump.parents[1].rglob("dev-v1.1.json"))
    collect_ngrams(Recipe(fingerprint="0" * 16, sets={"squad": sets}), given.work / "ngrams.npz")
    (given.work / "inputs").mkdir()
    for number in range(LINKS):
        (given.work / "inputs" / f"{number:05d}").symlink_to(given.dump.resolve())


# Their time does not grow with the corpus: the texts are as large as the samples.
VOCABULARIES: dict[str, list[Stage]] = {
    kind: [partial(train, kind=kind, text=text) for text in SPACES] for kind in TRAINERS
}
# A job, or a process, for each part or file.
OF_PARTS: dict[str, Stage] = {"overlap with evaluation sets": overlap, "validate_samples.py": validate}
