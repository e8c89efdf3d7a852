"""Checks that the files a command is given are those that its recipe was made for.

By hand, a training on other files would end under a fingerprint that promises these. In the graph, a file of yours may
change between the plan and the job.

Imports no PyTorch: the workflow uses `content_of` when planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import changed_files, read_object, sha256_of_file
from bertline.fingerprint import fingerprint
from bertline.results import paths


def files_of_weights(folder: Path) -> list[Path]:
    """List the files of a folder of weights that determine a result.

    Others, such as a README or the same weights in another layout, change none.
    """
    return [path for name in paths.FILES_OF_WEIGHTS if (path := folder / name).is_file()]


def content_of(digests: Iterable[str]) -> str:
    """Return what a recipe records of a folder of weights, from the SHA-256 of its files."""
    return fingerprint(sorted(digests))


def check_dataset(
    recipe: Mapping[str, Any], card_json: Path, card: Mapping[str, Any], *, needed: str = paths.CARD
) -> None:
    """Raise BertlineError if the dataset of a `card` is not that of the recipe; one made by hand may name none.

    `needed` is the file of the dataset that the command takes.
    """
    wanted = recipe.get("dataset")
    if wanted is not None and card["fingerprint"] != wanted:
        raise BertlineError(
            f"{card_json} is dataset {card['fingerprint']}, but recipe {recipe['fingerprint']} is for dataset "
            f"{wanted}; give {paths.DATASET.format(dataset=wanted)}/{needed}, or plan a run on this one"
        )


def digest_of_samples(card: Mapping[str, Any], sequence_length: int) -> str:
    """Return a digest of what identifies the samples of a length, with their tokenizer and their pairs' objective.

    Their files have other bytes in a dataset of more lengths, whose fingerprint they contain.
    """
    files = card["sequence_lengths"][str(sequence_length)]
    counts = [[[file["samples"], file["tokens"]] for file in files[split]] for split in ("train", paths.HELD_OUT)]
    key = card.get("fingerprint_without_lengths", card.get("fingerprint"))
    return fingerprint([key, card["tokenizer"]["sha256"], card["settings"].get("pair_objective"), *counts])


def check_samples(checkpoint: Path, state: Mapping[str, Any], card_json: Path, samples: str) -> None:
    """Raise BertlineError if a checkpoint was trained on other samples than those in a dataset, of digest `samples`."""
    if state.get("samples", samples) != samples:  # older checkpoints have none
        raise BertlineError(
            f"{card_json} has other samples than those that {checkpoint} was trained on; give that dataset, or name "
            "another output"
        )


def check_tokenizer(recipe: Mapping[str, Any], tokenizer_json: Path) -> None:
    """Raise BertlineError if the dataset.json next to a tokenizer is not that of the recipe's dataset.

    It may be that of the same dataset with other lengths, which has the same tokenizer, or, of a finished phase, of any
    dataset whose tokenizer has the same content.
    """
    card_json = tokenizer_json.parent / paths.CARD
    if recipe.get("tokenizer") is not None or not card_json.exists():
        return
    if "tokenizer_sha256" in recipe and recipe["tokenizer_sha256"] == sha256_of_file(tokenizer_json):
        return
    card, same = read_object(card_json), recipe.get("dataset_without_lengths")
    if same is None or card.get("fingerprint_without_lengths") != same:
        check_dataset(recipe, card_json, {"fingerprint": card.get("fingerprint")}, needed=tokenizer_json.name)


def check_data(recipe: Mapping[str, Any]) -> None:
    """Raise BertlineError if a file of the recipe's `sha256` has another content than when it was planned.

    A missing file is reported by what reads it.
    """
    for path in changed_files(recipe.get("sha256", {}), Path(paths.DIGESTS_OF_INPUTS)):
        raise BertlineError(
            f"{path} is another file than when recipe {recipe['fingerprint']} was planned; put the earlier one back, "
            "or plan again"
        )


def check_initial_weights(recipe: Mapping[str, Any], folder: Path) -> None:
    """Raise BertlineError if the weights in `folder` are others than the recipe's `initial_weights`.

    A phase is identified by the recipe in its folder, and an export by that of the folder around it, if this still
    exists. The content of a user's own folder is compared by its digests; that of fetched weights is not compared.
    """
    initial = recipe["initial_weights"]
    if "phase" in initial:
        phase, name = folder.resolve(), None  # results/phases/{phase}, or its huggingface or exports/step-{step}
        if phase.name == paths.EXPORT:
            phase = phase.parent
        elif phase.parent.name == Path(paths.CHECKPOINT_EXPORT).parent.name:
            phase, name = phase.parents[1], phase.name
        described = phase / paths.RECIPE
        theirs = read_object(described).get("fingerprint") if described.exists() else None
        if theirs is not None and theirs != initial["phase"]:
            raise BertlineError(
                f"initial weights: {folder} is of phase {theirs}, but recipe {recipe['fingerprint']} starts from phase "
                f"{initial['phase']}; give {paths.PHASE.format(phase=initial['phase'])}, or plan a run from this one"
            )
        wanted = Path(paths.CHECKPOINT_EXPORT.format(**initial)).name if "step" in initial else None
        if theirs is not None and name != wanted:
            raise BertlineError(
                f"initial weights: {folder} is of another step, but recipe {recipe['fingerprint']} starts from "
                f"{wanted or 'the last step'} of phase {theirs}; give that, or plan a run from this one"
            )
        return
    is_recorded = "content" in initial and "name" not in initial
    if is_recorded and content_of(map(sha256_of_file, files_of_weights(folder))) != initial["content"]:
        raise BertlineError(
            f"initial weights: {folder} has other files than when recipe {recipe['fingerprint']} was planned "
            f"({', '.join(paths.FILES_OF_WEIGHTS)}); give the same ones, or plan the run again"
        )
