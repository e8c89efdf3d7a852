"""A collection of passages, or examples of TFRecord files, tokenized once into files that every fine-tuning maps.

collection.json         counts, and what the other files are
passages.tokens         uint16, or uint32 for vocabularies of more than 65,536 entries
passages.offsets        int64 [N+1], where each passage starts
passages.ids.npy        bytes [N]; passages.order.npy: int64 [N], which sorts them; neither for TFRecord files
document_frequency.npy  int64 [vocabulary], the number of passages that contain a token, for BM25
queries.*, labels.npy   of TFRecord files: the query of each passage, and uint8 [N], whether the passage is relevant
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bertline.arrays import read_array
from bertline.console import BertlineError, progress
from bertline.encoding.tokenizer import read_tokenizer, special_token_ids
from bertline.files import Json, Recipe, read_object, write_folder_atomically, write_json
from bertline.finetuning.ranking.texts import CHUNK, Texts, dtype_for, sorted_order, tokenized
from bertline.finetuning.ranking.tfrecords import read_examples
from bertline.results import paths
from bertline.training.given_files import check_data

logger = logging.getLogger(__name__)

# All that a folder contains.
FILES = (paths.COLLECTION_CARD, "passages.*", "queries.*", "document_frequency.npy", "labels.npy")
_AGAIN = "remove the folder and make it again"


@dataclass(frozen=True)
class Collection:
    """The content of a folder, mapped.

    Attributes:
        passages: without ids if they are those of TFRecord files.
        document_frequency: int64 [vocabulary], the number of passages that contain a token.
        queries: of TFRecord files; otherwise None.
        labels: of TFRecord files; otherwise None.
    """

    passages: Texts
    document_frequency: np.ndarray
    queries: Texts | None
    labels: np.ndarray | None


def tokenize_collection(recipe: Recipe, tokenizer: Path, output: Path) -> None:
    """Tokenize a collection, in memory that grows by about 30 bytes a passage, however long passages are.

    Args:
        recipe: the `source`, a file of lines `id<TAB>text` or a TFRecord file, and `tfrecords`, whether it is one.
        tokenizer: the tokenizer.json, or the vocab.txt, of the network.
        output: the folder to write, complete or absent; one that contains nothing but a collection is replaced.

    Raises BertlineError for a bad file, or another one than when the recipe was planned.
    """
    check_data(recipe)
    sources = [Path(recipe["source"]), tokenizer]
    with write_folder_atomically(output, replaces=FILES, sources=sources) as folder:
        write_collection(Path(recipe["source"]), read_tokenizer(tokenizer), folder, tfrecords=recipe["tfrecords"])


def write_collection(source: Path, tokenizer: Tokenizer, folder: Path, *, tfrecords: bool = False) -> None:
    """Write the files of a collection into `folder`; for the arguments and errors see `tokenize_collection`."""
    counts = _write_records(source, tokenizer, folder) if tfrecords else _write(source, tokenizer, folder)
    if not counts["passages"]:
        raise BertlineError(f"{source} contains no passage; name a file with at least one")
    logger.info("%s: %d passages, %d tokens", source, counts["passages"], counts["tokens"])
    card = {"source": source.name, "vocab_size": tokenizer.get_vocab_size(), **counts}
    write_json(folder / paths.COLLECTION_CARD, card)


def _write(source: Path, tokenizer: Tokenizer, folder: Path) -> Json:
    frequency, ids = np.zeros(tokenizer.get_vocab_size(), dtype=np.int64), []
    with _Writer(folder, "passages", tokenizer) as writer:
        for chunk, counts, tokens in progress(tokenized(source, tokenizer), description="tokenizing", unit="chunks"):
            writer.add(counts, tokens)
            ids.append(np.array(chunk, dtype=np.bytes_))
            passage = np.repeat(np.arange(len(counts)), counts)
            frequency += np.bincount(
                np.unique(passage * len(frequency) + tokens) % len(frequency), minlength=len(frequency)
            )
    if ids:
        width = max(chunk.itemsize for chunk in ids)
        all_ids = np.concatenate([chunk.astype(f"S{width}") for chunk in ids])
        np.save(folder / "passages.order.npy", sorted_order(all_ids, source))
        np.save(folder / "passages.ids.npy", all_ids)
    np.save(folder / "document_frequency.npy", frequency)
    return {"passages": writer.texts, "tokens": writer.tokens}


def _write_records(source: Path, tokenizer: Tokenizer, folder: Path) -> Json:
    special, limit = special_token_ids(tokenizer), tokenizer.get_vocab_size()
    labels = bytearray()
    with _Writer(folder, "queries", tokenizer) as queries, _Writer(folder, "passages", tokenizer) as passages:
        waiting: list[tuple[np.ndarray, np.ndarray]] = []

        def write() -> None:
            for place, writer in enumerate((queries, passages)):
                texts = [pair[place] for pair in waiting]
                writer.add(np.array([len(text) for text in texts]), np.concatenate(texts))
            waiting.clear()

        for where, example in progress(read_examples(source), description="converting", unit="records"):
            for key in ("query_ids", "doc_ids", "label"):
                if key not in example:
                    raise BertlineError(f"{where}: no '{key}'; its keys have to be query_ids, doc_ids and label")
            if example["label"].tolist() not in ([0], [1]):
                raise BertlineError(f"{where}: label: given {example['label'].tolist()}, allowed are 0 and 1")
            query, passage = example["query_ids"], example["doc_ids"]
            for key, tokens in (("query_ids", query), ("doc_ids", passage)):
                if len(tokens) and not 0 <= tokens.min() <= tokens.max() < limit:
                    raise BertlineError(
                        f"{where}: {key}: a token is not among the {limit} of the vocabulary; use the tokenizer "
                        "that the file was written with"
                    )
            # [CLS] query [SEP] and passage [SEP], which are put back when the two are joined.
            special_tokens = [special["[CLS]"], special["[SEP]"], special["[PAD]"]]
            waiting.append((query[~np.isin(query, special_tokens)], passage[~np.isin(passage, special_tokens)]))
            labels.append(int(example["label"][0]))
            if len(waiting) == CHUNK:
                write()
        if waiting:
            write()
    np.save(folder / "labels.npy", np.frombuffer(labels, np.uint8))
    np.save(folder / "document_frequency.npy", np.zeros(0, np.int64))
    return {"passages": passages.texts, "tokens": passages.tokens, "relevant": sum(labels)}


class _Writer:
    """Appends texts to the files of `name`."""

    def __init__(self, folder: Path, name: str, tokenizer: Tokenizer) -> None:
        self.texts = self.tokens = 0
        self._dtype = dtype_for(tokenizer.get_vocab_size())
        self._paths = (folder / f"{name}.tokens", folder / f"{name}.offsets")

    def __enter__(self) -> _Writer:
        with ExitStack() as stack:
            self._values, self._offsets = (stack.enter_context(path.open("wb")) for path in self._paths)
            self._files = stack.pop_all()
        self._offsets.write(np.zeros(1, np.int64).tobytes())
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def add(self, counts: np.ndarray, tokens: np.ndarray) -> None:
        """Append texts: their numbers of tokens, and all tokens."""
        self._values.write(tokens.astype(self._dtype).tobytes())
        self._offsets.write((self.tokens + np.cumsum(counts)).astype(np.int64).tobytes())
        self.texts += len(counts)
        self.tokens += len(tokens)


def open_collection(folder: Path, tokenizer: Tokenizer) -> Collection:
    """Map a tokenized collection.

    Raises BertlineError if another tokenizer made it, or a file is damaged such that it cannot be used. Another token
    of the vocabulary, or another id, is not noticed.
    """
    card = folder / paths.COLLECTION_CARD
    described = read_object(card)
    for key in ("vocab_size", "passages", "tokens"):
        if type(described.get(key)) is not int or described[key] < (key != "tokens"):
            raise BertlineError(f"{card}: {key}: given {described.get(key)!r}; {_AGAIN}")
    if described["vocab_size"] != tokenizer.get_vocab_size():
        raise BertlineError(
            f"{folder} is tokenized with {described['vocab_size']} tokens, the tokenizer has "
            f"{tokenizer.get_vocab_size()}; tokenize the collection with this one"
        )
    from_records = (folder / "labels.npy").exists()
    passages = _map_texts(folder, "passages", described)
    if len(passages.tokens) != described["tokens"]:
        raise BertlineError(f"{card} states {described['tokens']} tokens, there are {len(passages.tokens)}; {_AGAIN}")
    frequency = read_array(folder / "document_frequency.npy", "an array", np.int64)
    if len(frequency) != (0 if from_records else described["vocab_size"]) or (
        len(frequency) and not 0 <= frequency.min() <= frequency.max() <= len(passages)
    ):
        raise BertlineError(f"{folder}/document_frequency.npy is not of this collection; {_AGAIN}")
    if not from_records:
        return Collection(passages, frequency, None, None)
    labels = read_array(folder / "labels.npy", "an array", np.uint8, mapped=True)
    if len(labels) != len(passages) or int(labels.astype(bool).sum()) != described.get("relevant") or labels.max() > 1:
        raise BertlineError(f"{folder}/labels.npy is not of this collection; {_AGAIN}")
    return Collection(passages, frequency, _map_texts(folder, "queries", described), labels)


def _map_texts(folder: Path, name: str, card: Json) -> Texts:
    offsets = _map(folder / f"{name}.offsets", np.dtype(np.int64))
    tokens = _map(folder / f"{name}.tokens", dtype_for(card["vocab_size"]))
    if len(offsets) != card["passages"] + 1 or len(tokens) != offsets[-1]:
        raise BertlineError(f"{folder}: {name}.tokens or {name}.offsets is cut off; {_AGAIN}")
    if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
        raise BertlineError(f"{folder}/{name}.offsets do not rise from 0 to the number of tokens; {_AGAIN}")
    if len(tokens) and tokens.max() >= card["vocab_size"]:
        raise BertlineError(f"{folder}/{name}.tokens has an id beyond the vocabulary; {_AGAIN}")
    if (folder / "labels.npy").exists():
        return Texts(tokens, offsets, np.zeros(0, "S1"), np.zeros(0, np.int64))
    # As plain arrays: indexing a memmap costs microseconds more.
    ids = np.asarray(read_array(folder / f"{name}.ids.npy", "an array", mapped=True))
    order = np.asarray(read_array(folder / f"{name}.order.npy", "an array", np.int64, mapped=True))
    if ids.dtype.kind != "S" or len(ids) != card["passages"]:
        raise BertlineError(f"{folder}/{name}.ids.npy is not of this collection; {_AGAIN}")
    if len(order) != len(ids) or not 0 <= order.min() <= order.max() < len(ids):
        raise BertlineError(f"{folder}/{name}.order.npy is not of this collection; {_AGAIN}")
    return Texts(tokens, offsets, ids, order)


def _map(path: Path, dtype: np.dtype[np.generic]) -> np.ndarray:
    try:
        return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.zeros(0, dtype)
    except ValueError:
        raise BertlineError(f"{path} is cut off; {_AGAIN}") from None
