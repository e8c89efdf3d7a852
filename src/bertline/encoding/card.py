"""Writing and validation of a dataset's card, `dataset.json`, from its files and the counts of its corpora."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError, progress
from bertline.corpus.overlap import sum_up_overlap
from bertline.corpus.removal import overlap_template
from bertline.corpus.sources import files_of_dataset
from bertline.encoding.dataset import HELD_OUT, SPLITS, check_belongs, read_card
from bertline.encoding.layout import LAYOUT_VERSION, SampleFile, open_samples, validate_samples
from bertline.encoding.tokenizer import continuations, load_tokenizer, special_token_ids
from bertline.files import Recipe, read_json, sha256_of_file, write_json
from bertline.results import paths

HISTOGRAM_BINS = 16
# Attributes that the card sums over the training files of a sequence length, and over all files of the first length.
COUNTS_OF_LENGTH = ("samples", "tokens", "unplaced_tokens", "samples_with_random_next", "samples_without_partner")
COUNTS_OF_TEXT = ("sentences", "text_tokens", "unknown_tokens")

Json = dict[str, Any]


def write_dataset_card(recipe: Recipe, directory: Path) -> None:
    """Write the card of a dataset.

    Args:
        recipe: of the dataset.
        directory: the dataset's folder with plan.json, tokenizer.json and seq{length}/{shard}.h5.
    """
    overlap = None
    if recipe["settings"]["evaluation_overlap"] != "ignore":
        overlap = files_of_dataset(recipe, overlap_template(recipe))
    write_card(
        directory,
        directory / paths.PLAN,
        fingerprint=recipe["fingerprint"],
        settings=recipe["settings"],
        sequence_lengths=recipe["sequence_lengths"],
        counts=files_of_dataset(recipe, paths.COUNTS),
        overlap=overlap,
        sources=recipe["sources"],
    )


def write_card(
    directory: Path | str,
    plan_json: Path | str,
    *,
    fingerprint: str,
    settings: Json,
    sequence_lengths: Sequence[int],
    counts: Mapping[str, Sequence[Path | str]],
    overlap: Mapping[str, Sequence[Path | str]] | None = None,
    sources: Mapping[str, Json] | None = None,
) -> Json:
    """Write a dataset's dataset.json, which describes the encoded files in its folder.

    Args:
        directory: contains tokenizer.json and seq{length}/{shard}.h5 for every shard of the plan.
        plan_json: the plan that the shards were made from.
        settings: of the dataset, as configured.
        counts: corpus -> the counts.json of all its parts.
        overlap: corpus -> the output of `corpus.overlap.find_overlap` for its parts; None if it was not run.
        sources: corpus -> the origin of its text: `fingerprint`, `settings`, `licence`.

    Raises BertlineError if documents were lost between the corpora and the encoded files, or a file does not belong to
    this dataset.
    """
    directory = Path(directory)
    plan = read_json(plan_json)
    shards = sorted(plan["shards"], key=lambda shard: (shard == HELD_OUT, shard))
    sections = {str(length): describe_length(directory, shards, length) for length in sequence_lengths}
    files = {
        length: [open_samples(directory / f"seq{length}/{shard}.h5") for shard in shards] for length in sequence_lengths
    }
    # The files of every length are made from the same text: take its counts from the first length.
    of_text = [file.attributes for file in files[sequence_lengths[0]]]
    documents = {attributes["shard"]: attributes["documents"] for attributes in of_text}
    card: Json = {
        "layout_version": LAYOUT_VERSION,
        "fingerprint": fingerprint,
        "settings": settings,
        "tokenizer": describe_tokenizer(directory / "tokenizer.json"),
        "corpora": _describe_corpora(plan, counts, files, sources or {}),
        "evaluation_overlap": None if overlap is None else sum_up_overlap(overlap),
        "sequence_lengths": sections,
        "documents": sum(documents.values()) - documents[HELD_OUT],
        "held_out_documents": documents[HELD_OUT],
        **{name: sum(attributes[name] for attributes in of_text) for name in COUNTS_OF_TEXT},
    }
    for length in sequence_lengths:
        check_files(card, length, files[length])
    write_json(directory / "dataset.json", card)
    return card


def check_files(card: Json, length: int, files: Sequence[SampleFile]) -> None:
    """Check files of one length, in the card's order, against their entries there. Raises BertlineError."""
    section = card["sequence_lengths"][str(length)]
    for file, entry in zip(files, (entry for split in SPLITS for entry in section[split]), strict=True):
        check_belongs(file, entry, card, length)


def describe_tokenizer(path: Path) -> Json:
    """Return the card's description of a tokenizer.json."""
    tokenizer = load_tokenizer(path)
    bitmap = np.packbits(continuations(tokenizer), bitorder="little").tobytes()
    return {
        "file": path.name,
        "sha256": sha256_of_file(path),
        "vocab_size": tokenizer.get_vocab_size(),
        "special_tokens": special_token_ids(tokenizer),
        "continuation_bitmap": base64.b64encode(bitmap).decode(),
    }


def describe_length(directory: Path, shards: Sequence[str], length: int) -> Json:
    """Return the files of a sequence length, with their digests, and the totals of the training files."""
    entries: dict[str, list[Json]] = {split: [] for split in SPLITS}
    totals: Counter[str] = Counter()
    edges = np.unique(np.linspace(0, length, HISTOGRAM_BINS + 1).round().astype(int))
    histogram = np.zeros(len(edges) - 1, dtype=np.int64)
    for shard in shards:
        name = f"seq{length}/{shard}.h5"
        file = open_samples(directory / name)
        entry = {key: file.attributes[key] for key in ("samples", "tokens")}
        split = HELD_OUT if shard.startswith(HELD_OUT) else "train"
        entries[split].append({"file": name, "sha256": sha256_of_file(directory / name), **entry})
        if split == "train":
            totals.update({key: file.attributes[key] for key in COUNTS_OF_LENGTH})
            for block in file.blocks():
                histogram += np.histogram(file.lengths(block), edges)[0]
    return {
        **entries,
        **{key: totals[key] for key in COUNTS_OF_LENGTH},
        "length_histogram": {"edges": edges.tolist(), "counts": histogram.tolist()},
    }


def _describe_corpora(
    plan: Json,
    counts: Mapping[str, Sequence[Path | str]],
    files: Mapping[int, Sequence[SampleFile]],
    sources: Mapping[str, Json],
) -> list[Json]:
    """Return for each corpus its counts summed over its parts, what was removed, and what is in the files."""
    encoded: Counter[int] = Counter()
    for file in next(iter(files.values())):
        encoded.update(dict(enumerate(file.attributes["documents_of_corpora"].tolist())))
    indices = {entry["corpus"]: entry["corpus_index"] for entries in plan["shards"].values() for entry in entries}
    if missing := sorted(set(indices) - set(counts)):
        raise BertlineError(f"no counts are given for {', '.join(missing)}; the plan has documents of it")
    planned = {corpus["name"]: corpus for corpus in plan.get("corpora", [])}
    samples = {length: _samples_of_corpora(of_length, len(counts)) for length, of_length in files.items()}
    described = []
    for name, of_parts in counts.items():
        total = _sum_of_counts(of_parts)
        summary = planned.get(name, {})
        removed = summary.get("removed", {})
        index = indices.get(name)
        documents = 0 if index is None else encoded[index]
        if total["kept"] != documents + sum(removed.values()):
            raise BertlineError(
                f"corpus {name}: {total['kept']} documents were kept, {sum(removed.values())} removed, {documents} are "
                "in the encoded files; delete the dataset's plan.json and run `snakemake encode`"
            )
        entry = {**total, "name": name, "removed": removed, "documents": documents, **sources.get(name, {})}
        entry |= {key: summary[key] for key in ("sentences", "length_histogram") if key in summary}
        entry["sequence_lengths"] = {}
        for length, of_length in samples.items():
            number, tokens = of_length[index].tolist() if index is not None else (0, 0)
            entry["sequence_lengths"][str(length)] = {"samples": number, "tokens": tokens}
        described.append(entry)
    return described


def _samples_of_corpora(files: Sequence[SampleFile], corpora: int) -> np.ndarray:
    """Return int64 [corpora, 2]: samples of each corpus, by the document of the first segment, and their tokens."""
    totals = np.zeros((corpora, 2), dtype=np.int64)
    for file in files:
        for block in file.blocks():
            indices = file.corpus_index[block]
            totals[:, 0] += np.bincount(indices, minlength=corpora)
            totals[:, 1] += np.bincount(indices, weights=file.lengths(block), minlength=corpora).astype(np.int64)
    return totals


def _sum_of_counts(paths: Sequence[Path | str]) -> Json:
    """Add up the numbers of several counts.json, and those in their dictionaries."""
    total: Json = {"kept": 0, "dropped": {}}
    for path in paths:
        _add(total, read_json(path))
    return total


def _add(total: Json, counts: Json) -> None:
    for key, value in counts.items():
        if isinstance(value, dict):
            _add(total.setdefault(key, {}), value)
        elif isinstance(value, int):
            total[key] = total.get(key, 0) + value


def validate_dataset(card_json: Path | str) -> str:
    """Check a whole dataset: its card, its tokenizer, every file's digests and layout. Returns a summary of one line.

    Raises BertlineError at the first violation.
    """
    card, directory = read_card(card_json), Path(card_json).parent
    if card["tokenizer"] != describe_tokenizer(directory / card["tokenizer"]["file"]):
        raise BertlineError(f"{card_json} does not describe the {card['tokenizer']['file']} beside it; encode again")
    files: dict[str, list[SampleFile]] = {}
    for length, section in card["sequence_lengths"].items():
        entries = [entry for split in SPLITS for entry in section[split]]
        files[length] = [
            validate_samples(directory / entry["file"])
            for entry in progress(entries, description=f"sequence length {length}", unit="files")
        ]
        check_files(card, int(length), files[length])
        found = describe_length(directory, [Path(entry["file"]).stem for entry in entries], int(length))
        for split in SPLITS:
            for given, actual in zip(section[split], found[split], strict=True):
                if given != actual:
                    raise BertlineError(
                        f"{directory / given['file']} is {actual}, {card_json} states {given}; encode again"
                    )
        if section != found:
            raise BertlineError(
                f"{card_json}: the counts of sequence length {length} are not those of the files; encode again"
            )
    shared = ("shard", "documents", *COUNTS_OF_TEXT)
    # Imported files of different lengths may contain different text.
    for siblings in zip(*files.values(), strict=True) if "imported" not in card else ():
        if len({tuple(file.attributes[name] for name in shared) for file in siblings}) > 1:
            raise BertlineError(
                f"{siblings[0].path} and those of other lengths are not made from the same text; encode again"
            )
    _check_documents(card, card_json, next(iter(files.values())))
    samples = ", ".join(f"{section['samples']:,} of length {n}" for n, section in card["sequence_lengths"].items())
    return f"valid: {card['documents']:,} documents and {card['held_out_documents']:,} held out; samples: {samples}"


def _check_documents(card: Json, card_json: Path | str, files: Sequence[SampleFile]) -> None:
    """Raise BertlineError if documents are missing without being counted."""
    documents = card["documents"] + card["held_out_documents"]
    if not documents == sum(corpus["documents"] for corpus in card["corpora"]) == _sum(files, "documents"):
        raise BertlineError(
            f"{card_json}: documents, those of the corpora and those of the files do not agree; encode again"
        )
    for corpus in card["corpora"]:
        if corpus["read"] != corpus["kept"] + sum(corpus["dropped"].values()):
            raise BertlineError(f"{card_json}: corpus {corpus['name']}: read is not kept plus dropped; encode again")
        if corpus["kept"] != corpus["documents"] + sum(corpus.get("removed", {}).values()):
            raise BertlineError(
                f"{card_json}: corpus {corpus['name']}: kept is not documents plus removed; encode again"
            )
    for name in COUNTS_OF_TEXT:
        if card[name] != _sum(files, name):
            raise BertlineError(
                f"{card_json}: {name} is {card[name]}, the files hold {_sum(files, name)}; encode again"
            )


def _sum(files: Sequence[SampleFile], attribute: str) -> int:
    return sum(file.attributes[attribute] for file in files)
