"""One shard of text to its files of samples, one for each sequence length."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.layout import write_samples
from bertline.encoding.samples import (
    DOCUMENT,
    IS_RANDOM,
    make_samples,
    sample_ids,
    sample_lengths,
    second_segment_starts,
)
from bertline.encoding.tokenization import tokenize_shard
from bertline.encoding.tokenizer import continuations, load_tokenizer, special_token_ids
from bertline.files import read_json, sha256_of_file

log = logging.getLogger(__name__)


def encode_shard(
    shard: Path | str,
    tokenizer_json: Path | str,
    plan_json: Path | str,
    outputs: Mapping[int, Path],
    *,
    shard_name: str,
    fingerprint: str,
    seed: int,
    pair_objective: str,
    short_sequence_probability: float,
) -> None:
    """Tokenize `shard` once and write its samples for every sequence length.

    Parameters
    ----------
    shard: `{shard}.txt.zst`.
    tokenizer_json: the dataset's tokenizer.
    plan_json: the plan the shard was made by, which says what corpus each document is from.
    outputs: sequence length -> file to write.
    fingerprint: of the dataset; readers refuse files of another.
    """
    tokenizer = load_tokenizer(tokenizer_json)
    special = special_token_ids(tokenizer)
    text = tokenize_shard(shard, tokenizer)
    documents = len(text.document_offsets) - 1
    corpus_of_document, documents_of_corpora = corpora_of_documents(read_json(plan_json), shard_name, plan_json)
    if len(corpus_of_document) != documents:
        raise BertlineError(
            f"{shard} holds {documents} documents, {plan_json} announces {len(corpus_of_document)}; "
            "delete the shard and make it again"
        )
    shared: dict[str, Any] = {
        "fingerprint": fingerprint,
        "shard": shard_name,
        "pair_objective": pair_objective,
        "seed": seed,
        "tokenizer_sha256": sha256_of_file(tokenizer_json),
        "vocab_size": tokenizer.get_vocab_size(),
        "cls_id": special["[CLS]"],
        "sep_id": special["[SEP]"],
        "documents": documents,
        "documents_of_corpora": documents_of_corpora,
        "sentences": len(text.sentence_offsets) - 1,
        "text_tokens": len(text.ids),
        "unknown_tokens": int((text.ids == special["[UNK]"]).sum()),
    }
    for sequence_length, output in outputs.items():
        samples = make_samples(
            text,
            continuations(tokenizer),
            sequence_length=sequence_length,
            pair_objective=pair_objective,
            short_sequence_probability=short_sequence_probability,
            seed=seed,
            shard_name=shard_name,
        )
        lengths, is_random = sample_lengths(samples), samples.table[:, IS_RANDOM]
        write_samples(
            output,
            sample_ids(text, samples, special["[CLS]"], special["[SEP]"]),
            lengths,
            second_segment_start=second_segment_starts(samples),
            next_sentence_labels=is_random,
            document_index=samples.table[:, DOCUMENT],
            corpus_index=corpus_of_document[samples.table[:, DOCUMENT]],
            attributes={
                **shared,
                "sequence_length": sequence_length,
                "unplaced_tokens": samples.unplaced_tokens,
                "samples_with_random_next": int(is_random.sum()),
                "samples_without_partner": samples.without_partner,
            },
        )
        log.info("%s: %d samples, %d tokens", output, len(lengths), lengths.sum())


def corpora_of_documents(plan: Any, shard: str, where: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """The corpus of each document of a shard, and how many documents each corpus of the dataset has in it.

    Returns
    -------
    uint8 [documents], int64 [corpora]
    """
    if shard not in plan["shards"]:
        raise BertlineError(f"{where} has no shard '{shard}'; it has {', '.join(plan['shards'])}")
    corpora = 1 + max((entry["corpus_index"] for entries in plan["shards"].values() for entry in entries), default=-1)
    indices, counts = [], []
    for entry in plan["shards"][shard]:
        indices.append(entry["corpus_index"])
        counts.append(sum(last - first for first, last, _, _ in entry["ranges"]))
    of_document = np.repeat(np.array(indices, dtype=np.uint8), counts)
    return of_document, np.bincount(of_document, minlength=corpora)
