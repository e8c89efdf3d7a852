"""Deterministic training of a vocabulary on a sample of the shards.

The library's WordPiece trainer numbers the characters that continue a word in the order of a randomly seeded hash map,
and these numbers decide between merges of equal count; rare characters are dropped in the map's order, too. To avoid
both, the characters are counted here and passed to it as tokens with fixed ids. Byte-level BPE always begins with the
same 256 bytes. The library's Unigram trainer adds up words in the order of such a map, so that its sums differ in their
last bits from run to run; SentencePiece, in one thread, keeps the order.
"""

from __future__ import annotations

import io
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed
from bertline.encoding.normalizer import JOINERS, bert_normalizer
from bertline.encoding.shards import decode_block, size_of_shard
from bertline.encoding.spaces import join_lines
from bertline.encoding.tokenizer import (
    BERT_MAX_WORD_LENGTH,
    SPECIAL_TOKENS,
    make_tokenizer,
    make_unigram,
    save_tokenizer,
    with_special_tokens,
)
from bertline.encoding.tokenizer_checks import CONTINUATION_PREFIX
from bertline.files import Recipe
from bertline.results import paths

logger = logging.getLogger(__name__)

# 300 MB of English have some 50 million words: more text makes no relevant difference to the tokens.
SAMPLE_BYTES = 300_000_000
SAMPLE_BLOCK_BYTES = 1_000_000
# The trainers need about a kilobyte for every different word, so these take half a gigabyte. Some 150 MB of English
# have this many.
MAX_WORDS = 500_000
# And about 120 bytes for every byte of them. Text without spaces has these long before it has so many words.
MAX_WORD_BYTES = 12_000_000
# As in Google's vocabularies, at least 1,000 characters if the text has them; more if a script needs them to cover all
# but one character in 10,000. Together with their continuing forms they never fill the vocabulary.
ALPHABET_SIZE = 1000
ALPHABET_COVERAGE = 0.9999
MINIMUM_COUNT = 2
# A vocabulary has the zero-width joiners if the text is spelled with them: Persian has 1 in 50 characters, Bengali 1 in
# 2,000. In other text, a few names would make another normalizer than Google's necessary.
JOINER_SHARE = 1e-5
RESERVED = "\u2585"  # SentencePiece writes unknown text so, and leaves out words that have it
UNSEEN, SPACE, MARK, LETTER = range(4)
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+")
# Text without spaces between words, as Thai, has runs longer than Google's limit. A higher one costs time, which grows
# with the square of a run's length (of Unigram while it is trained on runs that repeat themselves): WordPiece has it if
# more than this share of the text would be hidden by [UNK].
MAX_RUN_LENGTH = 500
HIDDEN_SHARE = 0.001
_LONG_WORD = re.compile(_WORD.pattern[:-1] + f"{{{BERT_MAX_WORD_LENGTH + 1},}}")


def train_wordpiece(
    shards: Sequence[Path], *, vocab_size: int, lowercase: bool, strip_accents: bool | None, seed: int
) -> Tokenizer:
    """Train a WordPiece tokenizer on at most about SAMPLE_BYTES of the shards, see `choose_sample`.

    The ids are: special tokens, characters, continuing characters, then the merges, most frequent first. The vocabulary
    is smaller than `vocab_size` if the text does not have enough words. Raises BertlineError if there is no text.
    """
    normalizer = bert_normalizer(lowercase, strip_accents=strip_accents)
    sample = choose_sample(shards, normalizer, seed=seed, sample_bytes=SAMPLE_BYTES)
    joiners = _has_joiners(sample)
    normalizer = bert_normalizer(lowercase, strip_accents=strip_accents, joiners=joiners)
    hidden = 0  # characters in long words

    def texts() -> Iterator[str]:
        nonlocal hidden
        for text in read_sample(sample):
            normalized = normalizer.normalize_str(text)
            hidden += sum(map(len, _LONG_WORD.findall(normalized)))
            yield normalized

    initial, continuing = _count_characters(texts())
    if not initial.any():
        raise _no_text(shards)
    alphabet = _choose_alphabet(initial + continuing, (vocab_size - len(SPECIAL_TOKENS)) // 2)
    fixed = [chr(code) for code in alphabet]
    fixed += [f"{CONTINUATION_PREFIX}{chr(code)}" for code in alphabet if continuing[code]]
    tokenizer = Tokenizer(models.WordPiece({}, unk_token="[UNK]"))  # noqa: S106 - not a password
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MINIMUM_COUNT,
        special_tokens=[*SPECIAL_TOKENS, *fixed],
        initial_alphabet=[chr(code) for code in alphabet],
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=CONTINUATION_PREFIX,
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.split("\n") for text in read_sample(sample)), trainer=trainer)
    ids = tokenizer.get_vocab(with_added_tokens=False)
    if len(ids) < vocab_size:
        logger.info("the text gives a vocabulary of %d tokens instead of %d", len(ids), vocab_size)
    return make_tokenizer(
        sorted(ids, key=ids.__getitem__),
        lowercase=lowercase,
        strip_accents=strip_accents,
        joiners=joiners,
        max_word_length=MAX_RUN_LENGTH
        if hidden > HIDDEN_SHARE * int((initial + continuing).sum())
        else BERT_MAX_WORD_LENGTH,
        source="the trained vocabulary",
    )


def train_byte_level(
    shards: Sequence[Path], *, vocab_size: int, lowercase: bool, strip_accents: bool | None, seed: int
) -> Tokenizer:
    """Train a byte-level BPE tokenizer on at most about SAMPLE_BYTES of the shards, see `choose_sample`.

    The ids are: special tokens, the 256 bytes, then the merges. A space is added before a text's first word.
    Raises BertlineError if there is no text or no room for the bytes.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < (least := len(SPECIAL_TOKENS) + len(alphabet)):
        raise BertlineError(f"vocab_size: given {vocab_size}, allowed for byte-level BPE is at least {least}")
    normalizer = bert_normalizer(lowercase, handle_chinese_chars=False, strip_accents=strip_accents)
    sample = choose_sample(shards, normalizer, seed=seed, sample_bytes=SAMPLE_BYTES)
    if all(text.isspace() for text in read_sample(sample)):
        raise _no_text(shards)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = bert_normalizer(
        lowercase, handle_chinese_chars=False, strip_accents=strip_accents, joiners=_has_joiners(sample)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=MINIMUM_COUNT,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(map(join_lines, read_sample(sample)), trainer=trainer)
    return with_special_tokens(tokenizer)


def train_unigram(
    shards: Sequence[Path], *, vocab_size: int, lowercase: bool, strip_accents: bool | None, seed: int
) -> Tokenizer:
    """Train a Unigram tokenizer on at most about SAMPLE_BYTES of the shards, see `choose_sample`.

    The model of Kudo 2018, "Subword Regularization", by SentencePiece: the tokens of a text are its most probable
    division, whether it has spaces or not. The ids are: special tokens, then the most probable tokens first. The
    vocabulary is smaller than `vocab_size` if the text has fewer words. Raises BertlineError if there is no text, or
    only words that SentencePiece leaves out.
    """
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer  # only this function needs it

    empty = make_unigram([], lowercase=lowercase, strip_accents=strip_accents)
    sample = choose_sample(shards, empty.normalizer, seed=seed, sample_bytes=SAMPLE_BYTES)
    joiners = _has_joiners(sample)
    empty = make_unigram([], lowercase=lowercase, strip_accents=strip_accents, joiners=joiners)
    words: Counter[str] = Counter()
    for text in read_sample(sample):
        for document in join_lines(text):
            normalized = empty.normalizer.normalize_str(document)
            for word, _ in empty.pre_tokenizer.pre_tokenize_str(normalized):
                words.update(word[start : start + MAX_RUN_LENGTH] for start in range(0, len(word), MAX_RUN_LENGTH))
    if not words:
        raise _no_text(shards)
    known = _of_alphabet(words, (vocab_size - len(SPECIAL_TOKENS)) // 2)
    if all(RESERVED in word for word in known):
        raise BertlineError(
            f"every word in {', '.join(map(str, shards))} has '{RESERVED}' (U+2585), which SentencePiece reserves for "
            "itself; add other text or train wordpiece"
        )
    model = io.BytesIO()
    SentencePieceTrainer.train(
        # The same words in the same order, whatever the order of the text.
        sentence_iterator=(f"{word}\t{count}" for word, count in sorted(known.items())),
        input_format="tsv",
        model_writer=model,
        model_type="unigram",
        vocab_size=vocab_size - len(SPECIAL_TOKENS) + 1,  # SentencePiece's own <unk> makes room for ours
        hard_vocab_limit=False,
        character_coverage=1.0,
        max_sentence_length=4 * MAX_RUN_LENGTH,  # bytes of a word: none is left out
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        num_threads=1,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    trained = SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [
        (trained.id_to_piece(index), trained.get_score(index))
        for index in range(trained.get_piece_size())
        if not trained.is_unknown(index)
    ]
    if len(SPECIAL_TOKENS) + len(pieces) < vocab_size:
        logger.info(
            "the text gives a vocabulary of %d tokens instead of %d", len(SPECIAL_TOKENS) + len(pieces), vocab_size
        )
    return make_unigram(pieces, lowercase=lowercase, strip_accents=strip_accents, joiners=joiners)


def _of_alphabet(words: Counter[str], at_most: int) -> Counter[str]:
    """Return the words without the characters outside of the alphabet, which is chosen as WordPiece's: they divide."""
    counts = np.zeros(sys.maxunicode + 1, dtype=np.int64)
    for word, count in words.items():
        np.add.at(counts, np.frombuffer(word.encode("utf-32-le"), dtype="<u4"), count)
    alphabet = {chr(code) for code in _choose_alphabet(counts, at_most)}
    found: Counter[str] = Counter()
    for word, count in words.items():
        if alphabet.issuperset(word):
            found[word] += count
            continue
        for piece in "".join(letter if letter in alphabet else " " for letter in word).split(" "):
            if piece:
                found[piece] += count
    return found


TRAINERS = {"wordpiece": train_wordpiece, "bpe": train_byte_level, "unigram": train_unigram}


def train_tokenizer(recipe: Recipe, output: Path) -> None:
    """Train the tokenizer of a dataset on its shards.

    Args:
        recipe: of the dataset.
        output: the tokenizer.json to write.
    """
    settings, tokenizer = recipe["settings"], recipe["settings"]["tokenizer"]
    names = [f"{number:05d}" for number in range(settings["shards"])]
    shards = [Path(paths.DATASET_SHARD.format(dataset=recipe["fingerprint"], shard=name)) for name in names]
    chosen = {key: tokenizer[key] for key in ("vocab_size", "lowercase", "strip_accents")}
    save_tokenizer(TRAINERS[tokenizer["train"]](shards, seed=settings["seed"], **chosen), output)


def choose_sample(
    shards: Sequence[Path],
    normalizer: normalizers.Normalizer,
    *,
    seed: int,
    sample_bytes: int,
    max_words: int = MAX_WORDS,
    max_word_bytes: int = MAX_WORD_BYTES,
) -> list[tuple[Path, int]]:
    """Return random blocks of the shards, as shard and first byte, in their order.

    Their size is about `sample_bytes` in total, or less if so much text has more than `max_words` different words, or
    more than `max_word_bytes` bytes of them; a text with less is taken whole. Only the blocks are read, so the time
    does not grow with the corpus.
    """
    sizes = [size_of_shard(path) for path in shards]
    blocks = [(index, start) for index, size in enumerate(sizes) for start in range(0, size, SAMPLE_BLOCK_BYTES)]
    count = min(len(blocks), max(1, sample_bytes // SAMPLE_BLOCK_BYTES))
    chosen = np.random.default_rng(seed).choice(len(blocks), size=count, replace=False).tolist()
    words: set[str] = set()
    word_bytes = 0
    taken: list[tuple[int, int]] = []
    for index, start in (blocks[number] for number in chosen):
        if len(words) > max_words or word_bytes > max_word_bytes:
            logger.info("trained on %d of %d MB, which have %d different words", len(taken), count, len(words))
            break
        taken.append((index, start))
        for text in read_sample([(shards[index], start)]):
            new = set(_WORD.findall(normalizer.normalize_str(text))) - words
            word_bytes += sum(len(word.encode()) for word in new)
            words |= new
    return [(shards[index], start) for index, start in sorted(taken)]


def read_sample(blocks: Sequence[tuple[Path, int]]) -> Iterator[str]:
    """Yield the whole lines that begin in each block."""
    for path, start in blocks:
        with read_compressed(path) as file:
            yield decode_block(_lines_of_block(file, start), path)


def _has_joiners(sample: Sequence[tuple[Path, int]]) -> bool:
    characters = joiners = 0
    for text in read_sample(sample):
        characters += len(text)
        joiners += sum(map(text.count, JOINERS))
    return joiners > JOINER_SHARE * characters


def _lines_of_block(file: BinaryIO, start: int) -> bytes:
    """Return the lines that begin in the block at `start`."""
    before = min(start, 1)
    file.seek(start - before)
    block = file.read(SAMPLE_BLOCK_BYTES + before)
    # A line belongs to the block with its first byte: skip the end of the previous line, read on to the last one's end.
    begin = block.find(b"\n") + 1 if before else 0
    if before and begin in (0, len(block)):
        return b""
    pieces = [block[begin:]]
    while not pieces[-1].endswith(b"\n") and (more := file.read(SAMPLE_BLOCK_BYTES)):
        end = more.find(b"\n") + 1
        pieces.append(more[:end] if end else more)
    return b"".join(pieces)


def _count_characters(texts: Iterator[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each code point begins a word, and how often it continues one: int64 [all code points] each."""
    kinds = np.full(sys.maxunicode + 1, UNSEEN, dtype=np.uint8)
    initial = np.zeros(len(kinds), dtype=np.int64)
    continuing = np.zeros(len(kinds), dtype=np.int64)
    for text in texts:
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        for code in np.unique(codes[kinds[codes] == UNSEEN]).tolist():
            kinds[code] = _kind(chr(code))
        kind = kinds[codes]
        continues = kind == LETTER
        continues[1:] &= kind[:-1] == LETTER
        continues[:1] = False
        continuing += np.bincount(codes[continues], minlength=len(kinds))
        initial += np.bincount(codes[~continues & (kind != SPACE)], minlength=len(kinds))
    return initial, continuing


def _kind(character: str) -> int:
    """Return the character's kind for BERT's pre-tokenizer: part of a word, white space, or a mark that is a word.

    Python's `unicodedata` would not do: it has another version of Unicode, which calls 100 other characters marks.
    """
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{character}a")
    return (LETTER, SPACE, MARK)[len(pieces) - 1]


def _choose_alphabet(counts: np.ndarray, at_most: int) -> list[int]:
    """Return the most frequent code points, in order; of equally frequent ones the lower are preferred."""
    by_count = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    covered = np.cumsum(counts[by_count]) / counts.sum()
    needed = max(ALPHABET_SIZE, int(np.searchsorted(covered, ALPHABET_COVERAGE)) + 1)
    return np.sort(by_count[: min(needed, at_most)]).tolist()


def _no_text(shards: Sequence[Path]) -> BertlineError:
    return BertlineError(f"there is no text to train a tokenizer on in {', '.join(map(str, shards))}; add some")
