"""Tokenization of a shard, once for all sequence lengths, in memory that does not grow with the shard."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.lines import CharacterCounts, line_encoder
from bertline.encoding.shards import read_text_blocks
from bertline.encoding.tokenizer import id_type, segment_starts, special_token_ids
from bertline.spool import Spool


@dataclass(frozen=True)
class TokenizedShard:
    """Every token of a shard, memory-mapped.

    Attributes:
        ids: uint16 or uint32 [tokens], see `id_type`.
        word_starts: uint8 [tokens] as bytes, 1 where a word or a sentence begins, see `segment_starts`: fast to search.
        sentence_offsets: int64 [sentences + 1], where each sentence begins in `ids`; no sentence is empty.
        document_offsets: int64 [documents + 1], where each document begins in `ids`; a document may be empty.
        documents_with_text: int64, the documents that are not empty, in order.
        counts: `unknown_tokens`, the number of [UNK], and `characters`, `unknown_characters` and `stripped_characters`,
            see `CharacterCounts`.
        spools: the storage of the arrays.
    """

    ids: np.ndarray
    word_starts: bytes | mmap.mmap
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    documents_with_text: np.ndarray
    counts: Mapping[str, int] = field(default_factory=dict)
    spools: tuple[Spool, ...] = ()

    def release(self) -> None:
        """Free the memory of the pages read so far."""
        for spool in self.spools:
            spool.release()


def tokenize_shard(path: Path | str, tokenizer: Tokenizer, folder: Path) -> TokenizedShard:
    """Tokenize a whole shard.

    A sentence without any token (control characters only) is omitted; a document of such sentences is kept as empty.

    Args:
        path: `{shard}.txt.zst`.
        folder: for temporary files of 3 bytes per token (5 for a large vocabulary), 8 per sentence and 16 per document.

    Raises BertlineError if the file is damaged, not UTF-8, or ends inside a document.
    """
    encode_lines = line_encoder(tokenizer)
    characters = CharacterCounts(tokenizer, encode_lines)
    can_begin = segment_starts(tokenizer)
    unknown = special_token_ids(tokenizer)["[UNK]"]
    ids_of = Spool(folder, id_type(tokenizer.get_vocab_size()))
    starts = Spool(folder, np.uint8)
    sentences, documents, with_text = (Spool(folder, np.int64) for _ in range(3))
    documents.append(np.zeros(1))
    tokens = 0  # in the previous blocks
    unfinished = 0  # how many of these belong to the line that the block continues
    document, document_begin = 0, 0
    unknown_tokens = 0
    goes_on, in_document = False, False
    before = ""  # the block's first line
    for text, ends_line in read_text_blocks(path):
        lines = text.split("\n")[:-1]
        ids, lengths = encode_lines(lines, before)
        characters.add(lines, ids, lengths)
        empty = np.array([not line for line in lines])
        lengths[0] += unfinished
        ends = tokens - unfinished + np.cumsum(lengths)
        if not ends_line:
            lengths, ends, empty = lengths[:-1], ends[:-1], empty[:-1]
        line_starts = (ends - lengths)[lengths > 0]
        begins = can_begin[ids]
        # An unfinished line at the end of a block is not yet a sentence, but its first word begins one.
        last_start = int(ends[-1]) if len(ends) else tokens - unfinished
        here = np.append(line_starts, last_start) - tokens
        begins[here[(here >= 0) & (here < len(ids))]] = True
        ids_of.append(ids)
        starts.append(begins)
        sentences.append(line_starts)
        document_ends = ends[empty]
        has_text = np.diff(document_ends, prepend=document_begin) > 0
        documents.append(document_ends)
        with_text.append(document + np.flatnonzero(has_text))
        if len(document_ends):
            document, document_begin = document + len(document_ends), int(document_ends[-1])
        if len(empty):
            in_document = not empty[-1]
        unknown_tokens += int((ids == unknown).sum())
        tokens += len(ids)
        unfinished = tokens - last_start
        goes_on = not ends_line
        before = " " if goes_on else lines[-1]  # a line that goes on was split at a space
    if in_document or goes_on:
        raise BertlineError(f"{path} ends inside a document; delete it and make it again")
    sentences.append(np.array([tokens]))
    spools = (ids_of, starts, sentences, documents, with_text)
    ids, _, sentence_offsets, document_offsets, texts = (spool.read() for spool in spools)
    counts = {
        "unknown_tokens": unknown_tokens,
        "characters": characters.characters,
        "unknown_characters": characters.unknown_characters,
        "stripped_characters": characters.stripped_characters,
    }
    return TokenizedShard(ids, starts.memory, sentence_offsets, document_offsets, texts, counts, spools)
