"""Validation of native samples and whole datasets: every digest, every rule of the layout, every count of the card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from cyclopts.types import PositiveInt

from bertline.console import BertlineError, progress
from bertline.encoding.card import COUNTS_OF_TEXT, describe_tokenizer
from bertline.encoding.card_format import SPLITS, check_belongs, read_card
from bertline.encoding.description import FileDescription, describe_file, describe_length
from bertline.encoding.layout import ADVICE, SAMPLES_PER_BLOCK, SampleFile, StaticMasks, open_samples
from bertline.encoding.samples import PAIR_OBJECTIVES
from bertline.encoding.violations import Violation, Violations, faulty_segments
from bertline.files import Json, one_line_damage


def validate_dataset(card: Path, *, processes: PositiveInt = 1) -> str:
    """Check a whole dataset: its card, its tokenizer, every file's digests and layout. Returns a summary of one line.

    Args:
        card: the dataset's dataset.json.
        processes: files checked at once; each needs a core.

    Raises BertlineError at the first violation.
    """
    with one_line_damage(card):
        return _validate(read_card(card), card, processes)


def _validate(content: Json, card: Path, processes: int) -> str:
    directory, tokenizer = card.parent, content["tokenizer"]
    _check(
        tokenizer == describe_tokenizer(directory / tokenizer["file"]),
        f"{card} does not describe the {tokenizer['file']} next to it",
    )
    files: dict[str, list[FileDescription]] = {}
    # In the order in which the card's counts were taken from them: JSON sorts the lengths as text.
    sections = sorted(content["sequence_lengths"].items(), key=lambda item: int(item[0]))
    for length, section in sections:
        entries = [entry for split in SPLITS for entry in section[split]]
        samples = [directory / entry["file"] for entry in entries]
        with ProcessPoolExecutor(processes) as pool:
            checked = pool.map(validate_samples, samples)
            shown = progress(checked, description=f"sequence length {length}", unit="files", total=len(samples))
            files[length] = list(shown)
        for file, entry in zip(files[length], entries, strict=True):
            check_belongs(file.path, file.attributes, entry, content, int(length))
        found = describe_length(files[length])
        for split in SPLITS:
            for given, actual in zip(section[split], found[split], strict=True):
                _check(given == actual, f"{directory / given['file']} is {actual}, {card} states {given}")
        _check(section == found, f"{card}: the counts of sequence length {length} are not those of the files")
    shared = ("shard", "documents", *COUNTS_OF_TEXT)
    # Imported files of different lengths may contain different text.
    for siblings in zip(*files.values(), strict=True) if "imported" not in content else ():
        texts = {tuple(file.attributes[name] for name in shared) for file in siblings}
        _check(len(texts) == 1, f"{siblings[0].path} and those of other lengths are not made from the same text")
    _check_documents(content, card, next(iter(files.values())))
    counts = ", ".join(f"{section['samples']:,} of length {n}" for n, section in sections)
    return (
        f"valid: {content['documents']:,} documents and {content['held_out_documents']:,} held out; samples: {counts}"
    )


def _check_documents(card: Json, card_json: Path | str, files: Sequence[FileDescription]) -> None:
    """Raise BertlineError if documents are missing without being counted."""
    totals = {name: sum(file.attributes[name] for file in files) for name in ("documents", *COUNTS_OF_TEXT)}
    documents = card["documents"] + card["held_out_documents"]
    _check(
        documents == sum(corpus["documents"] for corpus in card["corpora"]) == totals["documents"],
        f"{card_json}: documents, those of the corpora and those of the files do not agree",
    )
    for corpus in card["corpora"]:
        where, dropped, removed = f"{card_json}: corpus {corpus['name']}", corpus["dropped"], corpus.get("removed", {})
        _check(corpus["read"] == corpus["kept"] + sum(dropped.values()), f"{where}: read is not kept plus dropped")
        _check(
            corpus["kept"] == corpus["documents"] + sum(removed.values()),
            f"{where}: kept is not documents plus removed",
        )
    for name in COUNTS_OF_TEXT:
        given = card.get(name, 0)
        _check(given == totals[name], f"{card_json}: {name} is {given}, the files hold {totals[name]}")


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise BertlineError(f"{problem}; encode or import it again")


def validate_samples(path: Path | str) -> FileDescription:
    """Check every digest and every rule of the layout; returns what is in the file.

    Raises BertlineError at the first violation.
    """
    file = open_samples(path)
    for violation in violations_of(file):
        raise BertlineError(f"{violation}; delete it and {ADVICE}")
    return describe_file(file)


def violations_of(file: SampleFile) -> Iterator[Violation]:
    """Yield all violations of the layout's rules or of the digests in a file."""
    for name in file.damaged_columns():
        yield Violation(file.path, f"{name} does not have the digest it was written with")
    if not _rises(file, file.sample_offsets, len(file.input_ids), strictly=True):
        yield Violation(file.path, "sample_offsets do not rise from 0 to the number of tokens")
        return
    masks = file.masks
    if masks is not None and not _rises(file, masks.mask_offsets, len(masks.masked_positions), strictly=False):
        yield Violation(file.path, "mask_offsets do not rise from 0 to the number of masks")
        masks = None
    if (objective := file.attributes["pair_objective"]) not in PAIR_OBJECTIVES:
        yield Violation(file.path, f"pair_objective is {objective!r}, allowed are {', '.join(PAIR_OBJECTIVES)}")
    found = Violations(file.path)
    falls = labels = last_document = last_corpus = 0
    for block in file.blocks():
        found.note(_faulty_samples(file, block.start, block.stop), block.start)
        if masks is not None:
            found.note(_faulty_masks(file, masks, block.start, block.stop), block.start)
        documents = file.document_index[max(0, block.start - 1) : block.stop]
        falls += int((documents[1:] < documents[:-1]).sum())
        labels += int(file.next_sentence_labels[block].sum())
        last_document = max(last_document, int(documents.max()))
        last_corpus = max(last_corpus, int(file.corpus_index[block].max()))
    yield from found
    of_corpora = file.attributes["documents_of_corpora"]
    if of_corpora.sum() != file.attributes["documents"]:
        yield Violation(file.path, "documents_of_corpora do not add up to documents")
    # It is ascending within a pass, and restarts with the next.
    if len(file) and (falls >= file.attributes["passes"] or last_document >= of_corpora.sum()):
        yield Violation(file.path, "document_index does not rise below the number of documents")
    if len(file) and last_corpus >= len(of_corpora):
        yield Violation(file.path, "corpus_index names a corpus that is not there")
    if labels != file.attributes["samples_with_random_next"]:
        yield Violation(file.path, "next_sentence_labels do not add up to samples_with_random_next")


def _rises(file: SampleFile, offsets: np.ndarray, end: int, *, strictly: bool) -> bool:
    if offsets[0] != 0 or offsets[-1] != end:
        return False
    for start in range(0, len(offsets), SAMPLES_PER_BLOCK):
        these = offsets[start : start + SAMPLES_PER_BLOCK + 1]
        if not (these[1:] > these[:-1] if strictly else these[1:] >= these[:-1]).all():
            return False
        file.release()
    return True


def _faulty_samples(file: SampleFile, start: int, end: int) -> dict[str, np.ndarray]:
    """Check samples [start, end): lengths, positions of [CLS] and [SEP], segments that are not empty, labels."""
    attributes = file.attributes
    offsets = file.sample_offsets[start : end + 1].astype(np.int64)
    lengths = np.diff(offsets)
    ids = file.input_ids[offsets[0] : offsets[-1]]
    second = file.second_segment_start[start:end].astype(np.int64)
    labels = file.next_sentence_labels[start:end]
    has_second = second > 0
    return {
        "is longer than the sequence length": lengths > attributes["sequence_length"],
        **faulty_segments(ids, lengths, second, cls_id=attributes["cls_id"], sep_id=attributes["sep_id"]),
        "has an id beyond the vocabulary": (
            np.maximum.reduceat(ids, offsets[:-1] - offsets[0]) >= attributes["vocab_size"]
        ),
        "has a label without a second segment": labels > has_second,
        f"does not fit pair objective {attributes['pair_objective']}": has_second
        != (attributes["pair_objective"] != "none"),
    }


def _faulty_masks(file: SampleFile, masks: StaticMasks, start: int, end: int) -> dict[str, np.ndarray]:
    """Check samples [start, end): masks are ascending, within the sample's text, and have ids of the vocabulary."""
    offsets = file.sample_offsets[start : end + 1].astype(np.int64)
    bounds = masks.mask_offsets[start : end + 1].astype(np.int64)
    positions = masks.masked_positions[bounds[0] : bounds[-1]].astype(np.int64)
    samples = np.repeat(np.arange(end - start), np.diff(bounds))
    at = np.minimum(offsets[samples] + positions, len(file.input_ids) - 1)
    special = np.isin(file.input_ids[at], [file.attributes["cls_id"], file.attributes["sep_id"]])
    ids = masks.masked_input_ids[bounds[0] : bounds[-1]]
    repeated = (np.diff(positions, prepend=-1) <= 0) & (np.diff(samples, prepend=-1) == 0)
    outside = positions >= np.diff(offsets)[samples]
    faulty = {
        "has masks that do not ascend": repeated,
        "has a mask outside its text": outside | special,
        "has a mask with an id beyond the vocabulary": ids >= file.attributes["vocab_size"],
    }
    return {what: np.bincount(samples[where], minlength=end - start) > 0 for what, where in faulty.items()}
