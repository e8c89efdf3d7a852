"""Encoding of one shard of text into files of samples, one for each sequence length."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError
from bertline.corpus.shards import read_pieces, read_plan
from bertline.encoding.layout import write_samples
from bertline.encoding.ranges import offsets_of_blocks
from bertline.encoding.sample_rows import DOCUMENT, LABEL, sample_ids, sample_lengths, second_segment_starts
from bertline.encoding.samples import Samples, make_samples
from bertline.encoding.tokenization import TokenizedShard, tokenize_shard
from bertline.encoding.tokenizer import load_tokenizer, special_token_ids
from bertline.files import Recipe, sha256_of_file
from bertline.results import paths

SETTINGS_OF_SAMPLES = ("seed", "pair_objective", "passes", "short_sequence_probability")

logger = logging.getLogger(__name__)


def encode_shard(recipe: Recipe, shard: str, directory: Path) -> None:
    """Tokenize a shard once and write its samples for every sequence length. Memory does not grow with the shard.

    Args:
        recipe: of the dataset.
        shard: 00000, 00001, ... or held_out; its name also seeds the random choices.
        directory: the dataset's folder with tokenizer.json, plan.jsonl and shards/; receives seq{length}/{shard}.h5.
    """
    settings = {key: recipe["settings"][key] for key in SETTINGS_OF_SAMPLES}
    text_file, plan_file = directory / paths.SHARD.format(shard=shard), directory / paths.PLAN
    outputs = {
        length: directory / paths.SAMPLES.format(length=length, shard=shard) for length in recipe["sequence_lengths"]
    }
    tokenizer = load_tokenizer(directory / paths.TOKENIZER)
    special = special_token_ids(tokenizer)
    folder = next(iter(outputs.values())).parent  # unnamed temporary files are put on its disk
    folder.mkdir(parents=True, exist_ok=True)
    text = tokenize_shard(text_file, tokenizer, folder)
    documents = len(text.document_offsets) - 1
    corpora, ends, documents_of_corpora = corpora_of_documents(plan_file, shard)
    if (announced := int(documents_of_corpora.sum())) != documents:
        raise BertlineError(
            f"{text_file} holds {documents} documents, {plan_file} announces {announced}; "
            "delete the shard and make it again"
        )
    shared: dict[str, Any] = {
        "fingerprint": recipe["fingerprint"],
        "shard": shard,
        "pair_objective": settings["pair_objective"],
        "seed": settings["seed"],
        "tokenizer_sha256": sha256_of_file(directory / paths.TOKENIZER),
        "vocab_size": tokenizer.get_vocab_size(),
        "cls_id": special["[CLS]"],
        "sep_id": special["[SEP]"],
        "documents": documents,
        "documents_of_corpora": documents_of_corpora,
        "sentences": len(text.sentence_offsets) - 1,
        "text_tokens": len(text.ids),
        **text.counts,
        **({"passes": settings["passes"]} if settings["passes"] > 1 else {}),
    }
    for sequence_length, output in outputs.items():
        samples = make_samples(text, folder, sequence_length=sequence_length, shard_name=shard, **settings)
        write_samples(
            output,
            _columns(samples, text, special, corpora, ends),
            samples=len(samples.table),
            tokens=samples.tokens,
            attributes={
                **shared,
                "sequence_length": sequence_length,
                "unplaced_tokens": samples.unplaced_tokens,
                "samples_with_random_next": samples.labelled,
                "samples_without_partner": samples.without_partner,
            },
        )
        logger.info("%s: %d samples, %d tokens", output, len(samples.table), samples.tokens)


def _columns(
    samples: Samples, text: TokenizedShard, special: dict[str, int], corpora: np.ndarray, ends: np.ndarray
) -> dict[str, Iterator[np.ndarray]]:
    """Return the columns of a file of samples, in blocks. `corpora` and `ends` are those of `corpora_of_documents`."""

    def column(numbers: Callable[[np.ndarray], np.ndarray]) -> Iterator[np.ndarray]:
        return (numbers(table) for table in samples.blocks())

    return {
        "input_ids": column(
            lambda table: np.concatenate(list(sample_ids(text, table, special["[CLS]"], special["[SEP]"])))
        ),
        "sample_offsets": offsets_of_blocks(column(sample_lengths)),
        "second_segment_start": column(second_segment_starts),
        "next_sentence_labels": column(lambda table: table[:, LABEL]),
        "document_index": column(lambda table: table[:, DOCUMENT]),
        "corpus_index": column(lambda table: corpora[np.searchsorted(ends, table[:, DOCUMENT], side="right")]),
    }


def corpora_of_documents(plan: Path, shard: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the corpora of the documents of a shard, as runs, and the number of documents of each corpus.

    Returns:
        corpora: uint8 [runs]. ends: int64 [runs], the number of documents up to the end of each run. counts: int64
        [corpora of the dataset].
    """
    pieces = read_pieces(plan, shard)
    corpora = np.array([piece["corpus_index"] for piece in pieces], dtype=np.uint8)
    documents = np.array(
        [sum(last - first for first, last, _, _ in piece["ranges"]) for piece in pieces], dtype=np.int64
    )
    counts = np.bincount(corpora, weights=documents, minlength=len(read_plan(plan)["corpora"])).astype(np.int64)
    return corpora, np.cumsum(documents), counts
