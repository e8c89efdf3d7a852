"""Token tagging, such as named-entity recognition: CoNLL files, labels on first pieces, spans scored by seqeval."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.masking import IGNORED
from bertline.encoding.tokenizer import special_token_ids, words_in_sentence
from bertline.files import write_text
from bertline.finetuning.conll import read_sentences
from bertline.finetuning.examples import count_in_train, labels_of
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.scoring import compute_scores
from bertline.finetuning.sequences import Sequences, make_sequences, tokenize
from bertline.tasks.task import LABELLED_SETS

logger = logging.getLogger(__name__)

OUTSIDE = "O"


@dataclass(frozen=True)
class TaggedFile:
    """Sentences of a file: their words and the tag of each word."""

    words: list[list[str]]
    tags: list[list[str]]


def read_conll(path: Path | str, *, word: int, tag: int, tagged: bool = True) -> TaggedFile:
    """Read words and tags from columns. For the arguments and what it raises, see `read_sentences`."""
    file = TaggedFile([], [])
    for words, tags in read_sentences(path, word=word, tag=tag, tagged=tagged):
        file.words.append(words)
        file.tags.append(tags)
    return file


@dataclass(frozen=True)
class TaggedInputs:
    """Sentences as inputs [CLS] pieces [SEP].

    Attributes:
        sequences: the N inputs.
        first_pieces: int64 [W], index in `sequences.tokens` of the first piece of each word in an input.
        words_of: int64 [N], number of words of each sentence in its input; the others were truncated.
    """

    sequences: Sequences
    first_pieces: np.ndarray
    words_of: np.ndarray

    def cut_off(self, file: TaggedFile) -> int:
        """Return how many words of the file that the inputs were made of are in none of them."""
        return sum(map(len, file.words)) - int(self.words_of.sum())


def tag_inputs(file: TaggedFile, tokenizer: Tokenizer, limit: int) -> TaggedInputs:
    """Tokenize words one by one; a word that the tokenizer removes becomes one [UNK].

    Sentences are truncated to `limit` tokens at the end of a word, or within the first word if it is longer.
    """
    flat = [word for words in file.words for word in words_in_sentence(tokenizer, words)]
    unknown = special_token_ids(tokenizer)["[UNK]"]
    pieces = (ids or [unknown] for ids in tokenize(tokenizer, flat))
    room = limit - 2
    inputs: list[list[int]] = []
    first_pieces: list[int] = []
    words_of: list[int] = []
    offset = 0
    for words in file.words:
        of_sentence = list(islice(pieces, len(words)))
        ends = list(accumulate(len(ids) for ids in of_sentence))
        kept = max(1, sum(end <= room for end in ends))
        ids = [piece for word in of_sentence[:kept] for piece in word][:room]
        first_pieces += [offset + 1 + start for start in [0, *ends[: kept - 1]]]
        inputs.append(ids)
        words_of.append(kept)
        offset += len(ids) + 2
    return TaggedInputs(
        make_sequences(((ids, None) for ids in inputs), tokenizer),
        np.array(first_pieces, dtype=np.int64),
        np.array(words_of, dtype=np.int64),
    )


def log_words_cut_off(name: str, file: TaggedFile, inputs: TaggedInputs, limit: int) -> None:
    """Log how many words of a set are beyond `limit` tokens, if any are."""
    number = inputs.cut_off(file)
    if number:
        logger.info(
            "%s: %d of %d words are beyond max_sequence_length %d; they are cut off",
            name,
            number,
            sum(map(len, file.words)),
            limit,
        )


def prepare_tagging(
    table: Mapping[str, Any], data: Mapping[str, str], settings: Mapping[str, Any], tokenizer: Tokenizer
) -> PreparedTask:
    """Prepare a custom tagging task. Without `labels`, the tags are those of the train file.

    A test file is scored, too, if its tags are labels, other than O as well; one without tags, or with O for each word,
    is only predicted. Raises BertlineError for a bad file, one for training or dev without a span, or a tag that is not
    one of the labels.
    """
    files = {
        name: read_conll(path, word=table["word"], tag=table["tag"], tagged=name in LABELLED_SETS)
        for name, path in data.items()
    }
    found = {name: {tag for tags in file.tags for tag in tags} for name, file in files.items()}
    for name, need in (("train", "a task needs two or more"), ("dev", "without a span there is no score")):
        if found[name] == {OUTSIDE}:
            raise BertlineError(f"{data[name]}: column {table['tag']} contains only the tag {OUTSIDE}; {need}")
    labels = labels_of(table) or tuple(sorted(found["train"] | {OUTSIDE}))
    for name in ("train", "dev"):
        for sentence, tags in enumerate(files[name].tags, start=1):
            unknown = [tag for tag in tags if tag not in labels]
            if unknown:
                raise BertlineError(
                    f"{data[name]}: sentence {sentence}: given the tag '{unknown[0]}', allowed are "
                    f"{', '.join(labels)}; correct the file or the configuration's labels"
                )
    scored = [name for name, tags in found.items() if tags <= set(labels) and tags != {OUTSIDE}]
    for name in sorted(files.keys() - set(scored)):
        reason = f"each word has the tag {OUTSIDE}" if found[name] == {OUTSIDE} else "its tags are not the labels"
        logger.info("%s: %s, so it is predicted and not scored", data[name], reason)
    limit = settings["max_sequence_length"]
    inputs = {name: tag_inputs(file, tokenizer, limit) for name, file in files.items()}
    for name, file in files.items():
        log_words_cut_off(name, file, inputs[name], limit)
    train = inputs["train"]
    targets = np.full(len(train.sequences.tokens), IGNORED, dtype=np.int64)
    kept = [tag for tags, words in zip(files["train"].tags, train.words_of, strict=True) for tag in tags[:words]]
    targets[train.first_pieces] = [labels.index(tag) for tag in kept]

    majority = Counter(kept).most_common(1)[0][0]
    dev = files["dev"].tags
    return PreparedTask(
        head="tokens",
        outputs=len(labels),
        primary="f1",
        train=train.sequences,
        train_targets=targets,
        predicted=tuple(
            _predicted(name, files[name], inputs[name], labels, is_scored=name in scored)
            for name in files
            if name != "train"
        ),
        baselines={"majority": _score([[majority] * len(tags) for tags in dev], dev, labels)["f1"]},
        examples={name: len(file.words) for name, file in files.items()}
        | {f"{name}_words_cut_off": inputs[name].cut_off(file) for name, file in files.items()}
        | count_in_train({name: map(tuple, file.words) for name, file in files.items()}),
        labels=labels,
    )


def _predicted(
    name: str, file: TaggedFile, inputs: TaggedInputs, labels: tuple[str, ...], *, is_scored: bool
) -> PredictedSet:
    def evaluate(outputs: np.ndarray) -> Evaluation:
        chosen = outputs[inputs.first_pieces].argmax(axis=1)
        of_sentences = np.split(chosen, np.cumsum(inputs.words_of)[:-1])
        tags = [
            [labels[index] for index in found] + [OUTSIDE] * (len(words) - len(found))  # truncated words count as O
            for words, found in zip(file.words, of_sentences, strict=True)
        ]
        suffix = "" if name == "dev" else f"_{name}"
        scores = _score(tags, file.tags, labels) if is_scored else {}
        return Evaluation(
            {f"{metric}{suffix}": score for metric, score in scores.items()},
            lambda folder: write_text(folder / f"predictions{suffix}.conll", _conll(TaggedFile(file.words, tags))),
        )

    return PredictedSet(name, inputs.sequences, evaluate)


def _score(predictions: list[list[str]], references: list[list[str]], labels: tuple[str, ...]) -> dict[str, float]:
    scores = compute_scores("tags", None, predictions, references, labels=labels)
    return {name: 100.0 * value for name, value in scores.items()}


def _conll(file: TaggedFile) -> str:
    sentences = zip(file.words, file.tags, strict=True)
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in zip(*pair, strict=True)) for pair in sentences)
