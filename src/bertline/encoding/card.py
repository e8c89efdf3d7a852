"""Writing of a dataset's card, `dataset.json`, from its files and the counts of its corpora."""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bertline.console import BertlineError
from bertline.corpus.overlap import sum_up_overlap
from bertline.corpus.removal import overlap_template
from bertline.corpus.shards import read_pieces, read_plan
from bertline.corpus.sources import files_of_dataset
from bertline.encoding.advice import warnings_of
from bertline.encoding.card_format import check_belongs
from bertline.encoding.description import FileDescription, describe_files, describe_length, samples_of_corpora
from bertline.encoding.layout import LAYOUT_VERSION
from bertline.encoding.tokenizer import continuations, load_tokenizer, special_token_ids
from bertline.files import Json, Recipe, one_line_damage, read_object, sha256_of_file, write_json
from bertline.results import paths
from bertline.results.paths import HELD_OUT

logger = logging.getLogger(__name__)

# Attributes that the card sums over all files of the first length.
COUNTS_OF_TEXT = (
    "sentences",
    "text_tokens",
    "unknown_tokens",
    "characters",
    "unknown_characters",
    "stripped_characters",
)


def write_dataset_card(recipe: Recipe, directory: Path) -> None:
    """Write the card of a dataset.

    Args:
        recipe: of the dataset.
        directory: the dataset's folder with plan.jsonl, tokenizer.json and seq{length}/{shard}.h5.
    """
    reports = recipe["settings"]["evaluation_overlap"] != "ignore"
    overlap = files_of_dataset(recipe, overlap_template(recipe)) if reports else None
    write_card(recipe, directory, files_of_dataset(recipe, paths.COUNTS), overlap)


def write_card(
    recipe: Json,
    directory: Path,
    counts: Mapping[str, Sequence[Path | str]],
    overlap: Mapping[str, Sequence[Path | str]] | None = None,
) -> Json:
    """Write a dataset's dataset.json, which describes the encoded files in its folder.

    Args:
        recipe, directory: as for `write_dataset_card`.
        counts: corpus -> the counts.json of all its parts.
        overlap: corpus -> the output of `corpus.overlap.find_overlap` for its parts; None if it was not run. Documents
            of the dataset are counted; with `evaluation_overlap: drop`, those that were dropped.

    Raises BertlineError if documents were lost between the corpora and the encoded files, or a file does not belong to
    this dataset.
    """
    plan = read_plan(directory / paths.PLAN)
    shards = sorted(plan["shards"], key=lambda shard: (shard == HELD_OUT, shard))
    files = {
        length: describe_files([directory / paths.SAMPLES.format(length=length, shard=shard) for shard in shards])
        for length in recipe["sequence_lengths"]
    }
    # Dropped documents are in no shard, and are shown as such.
    drops = recipe["settings"].get("evaluation_overlap") == "drop"
    pieces = (piece for shard in shards for piece in read_pieces(directory / paths.PLAN, shard))
    described = {
        "fingerprint": recipe["fingerprint"],
        "fingerprint_without_lengths": recipe["fingerprint_without_lengths"],
        "settings": recipe["settings"],
        "corpora": _describe_corpora(plan, counts, files, recipe.get("sources", {})),
        "evaluation_overlap": None if overlap is None else sum_up_overlap(overlap, None if drops else pieces),
    }
    return finish_card(directory, described, files)


def finish_card(directory: Path, card: Json, files: Mapping[int, Sequence[FileDescription]]) -> Json:
    """Add the tokenizer and the encoded files to a card and write it as dataset.json.

    Args:
        directory: as for `write_dataset_card`.
        card: the other keys.
        files: by sequence length, those for training first.

    Raises BertlineError if a file does not belong to this dataset, or a length has no sample to train on.
    """
    # The files of every length are made from the same text: take its counts from the first length.
    of_text = [file.attributes for file in next(iter(files.values()))]
    held_out = sum(attributes["documents"] for attributes in of_text if attributes["shard"].startswith(HELD_OUT))
    card = {
        **card,
        "layout_version": LAYOUT_VERSION,
        "tokenizer": describe_tokenizer(directory / paths.TOKENIZER),
    }
    for length, of_length in files.items():
        for file in of_length:
            check_belongs(file.path, file.attributes, file.entry, card, length)
    card |= {
        "sequence_lengths": {str(length): describe_length(of_length) for length, of_length in files.items()},
        "documents": sum(attributes["documents"] for attributes in of_text) - held_out,
        "held_out_documents": held_out,
        **{name: sum(attributes[name] for attributes in of_text) for name in COUNTS_OF_TEXT},
    }
    for length in files:
        if not card["sequence_lengths"][str(length)]["samples"]:
            if "imported" in card:
                raise BertlineError(
                    f"{directory}: the files of length {length} have no usable sample to train on; give others, or "
                    "leave out this length"
                )
            names = ", ".join(corpus["name"] for corpus in card["corpora"])
            raise BertlineError(
                f"{directory}: the dataset of {names} has no sample of length {length} to train on, from "
                f"{card['documents']} documents; add text to the corpora, or lower held_out"
            )
    card["warnings"] = warnings_of(card)
    for warning in card["warnings"]:
        logger.warning("warning: %s", warning)
    write_json(directory / paths.CARD, card)
    return card


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


def _describe_corpora(
    plan: Json,
    counts: Mapping[str, Sequence[Path | str]],
    files: Mapping[int, Sequence[FileDescription]],
    sources: Mapping[str, Json],
) -> list[Json]:
    """Return for each corpus its counts summed over its parts, what was removed, and what is in the files."""
    encoded: Counter[int] = Counter()
    for file in next(iter(files.values())):
        encoded.update(dict(enumerate(file.attributes["documents_of_corpora"].tolist())))
    planned = {corpus["name"]: corpus for corpus in plan["corpora"]}
    indices = {name: index for index, name in enumerate(planned)}
    if missing := sorted(set(planned) - set(counts)):
        raise BertlineError(f"no counts are given for {', '.join(missing)}; the plan has documents of it")
    samples = {length: samples_of_corpora(of_length, len(counts)) for length, of_length in files.items()}
    described = []
    for name, of_parts in counts.items():
        total: Json = {"kept": 0, "dropped": {}}
        for path in of_parts:
            with one_line_damage(path):
                _add(total, read_object(path, "kept", "dropped"))
        summary = planned.get(name, {})
        removed = summary.get("removed", {})
        index = indices.get(name)
        documents = 0 if index is None else encoded[index]
        if total["kept"] != documents + sum(removed.values()):
            raise BertlineError(
                f"corpus {name}: {total['kept']} documents were kept, {sum(removed.values())} removed, {documents} are "
                "in the encoded files; delete the dataset's plan.jsonl and run `snakemake encode`"
            )
        entry = {**total, "name": name, "removed": removed, "documents": documents, **sources.get(name, {})}
        entry |= {key: summary[key] for key in ("sentences", "length_histogram") if key in summary}
        entry["sequence_lengths"] = {}
        for length, of_length in samples.items():
            number, tokens = of_length[index].tolist() if index is not None else (0, 0)
            entry["sequence_lengths"][str(length)] = {"samples": number, "tokens": tokens}
        described.append(entry)
    return described


def _add(total: Json, counts: Json) -> None:
    """Add the numbers of a counts.json, and those in its dictionaries, to the total."""
    for key, value in counts.items():
        if isinstance(value, dict):
            _add(total.setdefault(key, {}), value)
        elif isinstance(value, int):
            total[key] = total.get(key, 0) + value
