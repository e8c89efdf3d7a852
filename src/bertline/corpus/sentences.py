"""Sentence splitting of a corpus: by Punkt, see `punkt`, by marks alone, see `unicode_sentences`, or by sentencex.

A Punkt model is a folder of four text files in the layout of NLTK's `punkt_tab`. It is given, or trained here on the
corpus. No model is downloaded or taken from the environment.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

from bertline.console import BertlineError, progress
from bertline.corpus.documents import read_documents
from bertline.corpus.given_files import planned_files
from bertline.corpus.pieces import pieces_of
from bertline.corpus.punkt import PunktModel, split_by_punkt
from bertline.corpus.shards import split_part
from bertline.corpus.sources import files_of
from bertline.corpus.unicode_sentences import outside_quotations, split_by_marks
from bertline.files import Json, Recipe, check_replaceable, read_json, read_text, write_folder_atomically, write_text
from bertline.results import paths

logger = logging.getLogger(__name__)

Splitter = Callable[[str], list[str]]

MODEL_FILES = ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt")
TRAINING_CHUNK_CHARACTERS = 1_000_000  # Punkt's trainer stores every token as an object: about 100 MB for this many
MAX_PIECE_CHARACTERS = 20_000
# The sample for Punkt is taken from at least this many parts of a corpus, with at least this multiple of its size.
SAMPLED_PARTS, SAMPLED_TIMES = 64, 16
SEED = 12345
# The size that the paper's models were trained on; takes a quarter of a minute.
SAMPLE_BYTES = 4_000_000

# Unambiguous sentence ends that Punkt does not support: full stops and similar marks of Chinese, Japanese, Hindi,
# Armenian, Arabic and Urdu. Further marks, closing brackets and quotes after them belong to the sentence.
_UNMISTAKABLE = "。！？｡।॥։؟۔"
_UNMISTAKABLE_END = re.compile(
    rf"[{_UNMISTAKABLE}](?:[{_UNMISTAKABLE}!?.…」』）】》〉”’\"')\]»]|\s+(?=[{_UNMISTAKABLE}!?]))*\s*"
)

# Korean verbs at the ends of sentences look like abbreviations to Punkt: they always precede a full stop, are short,
# and without upper case nothing shows that a new sentence begins after them. Korean has no abbreviations with one.
_HANGUL = re.compile("[\uac00-\ud7a3]")


def splitter_of(corpus: Json) -> Splitter:
    """Return the splitter that a corpus's recipe names. A Punkt model is in the corpus's folder unless it is given."""
    settings = corpus["settings"]
    if settings["sentences"] == "lines":
        return lambda line: [line]
    if settings["sentences"] == "unicode":
        return split_by_marks
    if settings["sentences"] == "sentencex":
        return split_by_sentencex(settings["sentence_language"])
    is_trained = settings["punkt"] == "trained"
    return load_splitter(paths.PUNKT.format(corpus=corpus["key"]) if is_trained else settings["punkt"])


def split_by_sentencex(language: str) -> Splitter:
    """Return the splitter of the library sentencex for a language, by its ISO 639 code.

    A long paragraph is split at spaces first: the library compares every end with every quotation.
    """
    from sentencex import segment

    def split(paragraph: str) -> list[str]:
        sentences = [
            sentence.strip()
            for piece in pieces_of(paragraph, MAX_PIECE_CHARACTERS)
            for sentence in segment(language, piece)
        ]
        return [sentence for sentence in sentences if sentence]

    return split


def load_splitter(model: Path | str) -> Splitter:
    """Return a function from a paragraph to its sentences, which are non-empty and keep all characters but spaces.

    Raises BertlineError if the folder `model` is not a Punkt model.
    """
    parameters = load_parameters(model)

    def split(paragraph: str) -> list[str]:
        if paragraph.isascii() or not _UNMISTAKABLE_END.search(paragraph):
            return split_by_punkt(paragraph, parameters)
        marks = {match.end(): match.start() for match in _UNMISTAKABLE_END.finditer(paragraph)}
        ends = outside_quotations([*marks], paragraph)
        sentences: list[str] = []
        for start, end in pairwise([0, *ends, len(paragraph)]):
            words = paragraph[start : marks.get(end, end)].rstrip()  # Punkt would divide "?!" after them
            *before, last = split_by_punkt(words, parameters) or [""]
            sentences += [*before, last + paragraph[start + len(words) : end].rstrip()]
        return [sentence for sentence in sentences if sentence]

    return split


def load_parameters(model: Path | str) -> PunktModel:
    """Read a Punkt model. Raises BertlineError naming the file that is missing or malformed."""
    texts = {name: read_text(Path(model, name)) for name in MODEL_FILES}
    lines = {name: text.removesuffix("\n").split("\n") if text else [] for name, text in texts.items()}
    try:
        pairs = (line.split("\t") for line in lines["collocations.tab"])
        contexts = (line.split("\t") for line in lines["ortho_context.tab"])
        return PunktModel(
            abbrev_types=set(lines["abbrev_types.txt"]),
            collocations={(first, second) for first, second in pairs},
            sent_starters=set(lines["sent_starters.txt"]),
            ortho_context={word: int(flags) for word, flags in contexts},
        )
    except ValueError as error:
        raise BertlineError(f"{model} is not a Punkt model in punkt_tab's layout ({error}); replace it") from None


def train_punkt(
    documents: list[str], counts: list[str], model: Path | str, *, seed: int = SEED, sample_bytes: int = SAMPLE_BYTES
) -> None:
    """Train Punkt on a sample of a corpus and write the model atomically.

    Args:
        documents: the `.jsonl.zst` of all parts of the corpus, in order; counts: their `.counts.json`.
        model: the folder to write; an earlier model is replaced.
        seed, sample_bytes: hashes of the seed and a part's name select parts, see SAMPLED_PARTS; hashes of the seed, a
            document's id and a paragraph's position select their paragraphs, about `sample_bytes` of UTF-8 text; a
            smaller corpus is used whole. Neither time nor memory grows with the corpus.

    Raises BertlineError if the corpus has no documents; for a folder with files other than `MODEL_FILES`.
    """
    check_replaceable(Path(model), MODEL_FILES)
    from nltk.tokenize.punkt import PunktTrainer  # slow to import, see `punkt`

    summaries = [read_json(path) for path in counts]
    total = sum(summary["bytes"] for summary in summaries)
    if total == 0:
        read, dropped = sum(summary["read"] for summary in summaries), Counter[str]()
        for summary in summaries:
            dropped.update(summary.get("dropped", {}))
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common())
        raise BertlineError(
            f"the corpus in {Path(documents[0]).parent} is empty: none of {read} documents was kept "
            f"({reasons or 'there are none'}); name other files, or change its settings"
        )
    sizes = [summary["bytes"] for summary in summaries]
    parts = _sampled_parts(documents, sizes, sample_bytes, seed)
    fraction = min(1.0, sample_bytes / sum(sizes[part] for part in parts))
    trainer = PunktTrainer()
    for text in _chunks(_sample([documents[part] for part in parts], fraction, seed)):
        trainer.train(text, finalize=False)
    _write_parameters(cast(PunktModel, trainer.get_params()), Path(model))


def _sampled_parts(documents: list[str], sizes: list[int], sample_bytes: int, seed: int) -> list[int]:
    """Return the numbers of the parts to sample, in order."""
    digests = [hashlib.sha256(f"{seed}/{Path(path).name}".encode()).digest() for path in documents]
    chosen: list[int] = []
    size = 0
    for part in sorted(range(len(documents)), key=digests.__getitem__):
        if len(chosen) >= SAMPLED_PARTS and size >= SAMPLED_TIMES * sample_bytes:
            break
        chosen.append(part)
        size += sizes[part]
    return sorted(chosen)


def _sample(documents: list[str], fraction: float, seed: int) -> Iterator[str]:
    """Yield paragraphs of all documents selected by hash; those of more than MAX_PIECE_CHARACTERS are split first."""
    threshold = int(fraction * 2**64)
    for path in progress(documents, description="sampling for Punkt", unit="parts", total=len(documents)):
        for document in read_documents(path):
            text = document["text"]
            pieces = (
                paragraph[start : start + MAX_PIECE_CHARACTERS]
                for paragraph in text.split("\n")
                for start in range(0, len(paragraph), MAX_PIECE_CHARACTERS)
            )
            for number, piece in enumerate(pieces):
                digest = hashlib.sha256(f"{seed}/{number}/{document['id']}".encode()).digest()
                if int.from_bytes(digest[:8], "little") < threshold:
                    yield piece


def _chunks(paragraphs: Iterable[str]) -> Iterator[str]:
    """Join paragraphs into pieces of bounded size, separated by empty lines, which Punkt takes into account."""
    chunk: list[str] = []
    size = 0
    for paragraph in paragraphs:
        chunk.append(paragraph)
        size += len(paragraph)
        if size >= TRAINING_CHUNK_CHARACTERS:
            yield "\n\n".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield "\n\n".join(chunk)


def _write_parameters(parameters: PunktModel, model: Path) -> None:
    """Write the four files, sorted: NLTK's writer uses the order of sets, which differs between runs. See _HANGUL."""
    abbreviations = sorted(word for word in parameters.abbrev_types if not _HANGUL.search(word))
    content = (
        abbreviations,
        sorted("\t".join(pair) for pair in parameters.collocations),
        sorted(f"{word}\t{flags}" for word, flags in parameters.ortho_context.items() if flags),
        sorted(parameters.sent_starters),
    )
    with write_folder_atomically(model, replaces=MODEL_FILES) as folder:
        for name, lines in zip(MODEL_FILES, content, strict=True):
            write_text(folder / name, "\n".join(lines))
    logger.info("Punkt model with %d abbreviations", len(abbreviations))


def train_punkt_on_corpus(recipe: Recipe, output: Path) -> None:
    """Train a Punkt model on the documents of a corpus.

    Args:
        recipe: of the corpus.
        output: the folder to write; one that contains nothing but a Punkt model is replaced.
    """
    train_punkt(files_of(recipe, paths.DOCUMENTS), files_of(recipe, paths.COUNTS), output)


def split_sentences(recipe: Recipe, documents: Path, sentences: Path, index: Path) -> None:
    """Split the documents of one part into sentences.

    Args:
        recipe: of the corpus.
        documents: a .jsonl.zst.
        sentences: the .txt.zst to write.
        index: the .index.npy to write.

    Raises BertlineError for a given Punkt model that changed since it was planned.
    """
    model = recipe["settings"].get("punkt", "trained")
    with planned_files(recipe, [Path(model, name) for name in MODEL_FILES]):
        split = splitter_of(recipe)
    split_part(documents, recipe["name"], split, sentences, index)
