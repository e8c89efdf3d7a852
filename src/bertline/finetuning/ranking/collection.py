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

from bertline.console import BertlineError, progress
from bertline.encoding.tokenizer import read_tokenizer, special_token_ids
from bertline.files import Json, Recipe, read_json, write_folder_atomically, write_json
from bertline.finetuning.ranking.texts import CHUNK, Texts, dtype_for, sorted_order, tokenized
from bertline.finetuning.ranking.tfrecords import read_examples
from bertline.results import paths

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collection:
    """The content of a folder, mapped.

    passages: without ids if they are those of TFRecord files. document_frequency: int64 [vocabulary].
    queries, labels: of TFRecord files; otherwise None.
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
        output: the folder to write, complete or absent.

    Raises BertlineError for a bad file.
    """
    with write_folder_atomically(output) as folder:
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

    Raises BertlineError if another tokenizer made it, or a file is cut off.
    """
    described = read_json(folder / paths.COLLECTION_CARD)
    if described["vocab_size"] != tokenizer.get_vocab_size():
        raise BertlineError(
            f"{folder} is tokenized with {described['vocab_size']} tokens, the tokenizer has "
            f"{tokenizer.get_vocab_size()}; tokenize the collection with this one"
        )
    from_records = (folder / "labels.npy").exists()
    return Collection(
        _map_texts(folder, "passages", described),
        np.load(folder / "document_frequency.npy"),
        _map_texts(folder, "queries", described) if from_records else None,
        np.load(folder / "labels.npy", mmap_mode="r") if from_records else None,
    )


def _map_texts(folder: Path, name: str, card: Json) -> Texts:
    offsets = _map(folder / f"{name}.offsets", np.dtype(np.int64))
    tokens = _map(folder / f"{name}.tokens", dtype_for(card["vocab_size"]))
    if len(offsets) != card["passages"] + 1 or len(tokens) != offsets[-1]:
        raise BertlineError(f"{folder}/{name}.tokens or .offsets is cut off; remove the folder and make it again")
    ids, order = np.zeros(0, "S1"), np.zeros(0, np.int64)
    if (folder / f"{name}.ids.npy").exists():
        ids, order = (np.asarray(np.load(folder / f"{name}.{kind}.npy", mmap_mode="r")) for kind in ("ids", "order"))
    return Texts(tokens, offsets, ids, order)


def _map(path: Path, dtype: np.dtype[np.generic]) -> np.ndarray:
    # As a plain array: indexing a memmap costs microseconds more.
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.zeros(0, dtype)
