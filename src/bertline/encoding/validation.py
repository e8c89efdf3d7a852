"""Validation of native samples and whole datasets: every digest, every rule of the layout, the counts of the card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from cyclopts.types import PositiveInt

from bertline.console import BertlineError, progress
from bertline.encoding.card import COUNTS_OF_TEXT, describe_tokenizer
from bertline.encoding.card_format import SPLITS, check_belongs, read_card
from bertline.encoding.description import FileDescription, describe_file, describe_length, samples_of_corpora
from bertline.encoding.layout import ADVICE, SAMPLES_PER_BLOCK, SampleFile, StaticMasks, open_samples
from bertline.encoding.samples import PAIR_OBJECTIVES
from bertline.encoding.violations import Violation, Violations, faulty_segments
from bertline.files import Json, one_line_damage
from bertline.results.paths import HELD_OUT


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
    _check(len(sections) > 0, f"{card} has no sequence length")
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
    _check_counts(content, card, files)
    _check_settings(content, card, [file for of_length in files.values() for file in of_length])
    counts = ", ".join(f"{section['samples']:,} of length {n}" for n, section in sections)
    return (
        f"valid: {content['documents']:,} documents and {content['held_out_documents']:,} held out; samples: {counts}"
    )


def _check_counts(card: Json, card_json: Path, files: Mapping[str, Sequence[FileDescription]]) -> None:
    """Raise BertlineError if documents are missing without being counted, or a count is not that of the files."""
    of_text, corpora = next(iter(files.values())), card["corpora"]
    for corpus in corpora:
        where, dropped, removed = _of_corpus(card_json, corpus), corpus["dropped"], corpus.get("removed", {})
        _check(corpus["read"] == corpus["kept"] + sum(dropped.values()), f"{where}: read is not kept plus dropped")
        _check(
            corpus["kept"] == corpus["documents"] + sum(removed.values()),
            f"{where}: kept is not documents plus removed",
        )
    held_out = sum(file.attributes["documents"] for file in of_text if file.path.name.startswith(HELD_OUT))
    totals = {name: sum(file.attributes[name] for file in of_text) for name in ("documents", *COUNTS_OF_TEXT)}
    totals |= {"documents": totals["documents"] - held_out, "held_out_documents": held_out}
    for name, total in totals.items():
        given = card.get(name, 0) if name in COUNTS_OF_TEXT else card[name]
        _check(given == total, f"{card_json}: {name} is {given}, the files hold {total}")
    most = max(len(file.corpora) for of_length in files.values() for file in of_length)
    _check(most <= len(corpora), f"{card_json} names {len(corpora)} corpora, the files hold text of {most}")
    samples = {length: samples_of_corpora(of_length, len(corpora)) for length, of_length in files.items()}
    documents = np.zeros(len(corpora), dtype=np.int64)
    for file in of_text:
        documents[: len(file.corpora)] += file.attributes["documents_of_corpora"].astype(np.int64)
    for number, corpus in enumerate(corpora):
        where, given, total = _of_corpus(card_json, corpus), corpus["documents"], int(documents[number])
        _check(given == total, f"{where}: documents is {given}, the files hold {total}")
        if not corpus.keys() & {"sequence_lengths", "removed"}:
            continue  # cards of imports and the oldest ones do not count them
        for length, of_length in samples.items():
            found = dict(zip(("samples", "tokens"), of_length[number].tolist(), strict=True))
            given = corpus.get("sequence_lengths", {}).get(length)
            _check(given == found, f"{where}: its samples of length {length} are not those of the files")


def _of_corpus(card_json: Path, corpus: Json) -> str:
    return f"{card_json}: corpus {corpus['name']}"


def _check_settings(card: Json, card_json: Path, files: Sequence[FileDescription]) -> None:
    """Raise BertlineError if the files were made with other settings than the card states."""
    for file in files:
        for name in ("pair_objective", "seed"):
            given, found = card["settings"].get(name), file.attributes[name]
            # Cards of imports have no seed; an imported file without samples has no pairs.
            _check(
                given is None or given == found or not file.attributes["samples"],
                f"{file.path}: its {name} is {found}, {card_json} states {given}",
            )
    given, found = card.get("static_masks", False), any(file.has_masks for file in files)
    _check(given == found, f"{card_json}: static_masks is {given}, but its files have {'' if found else 'no '}masks")


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
