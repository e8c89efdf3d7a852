"""The jobs that make the documents, sentences and shards plan of a recipe; each is a script of its own.

They read and write at the paths of `results.paths`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from bertline.corpus.removal import removal_inputs, write_removals
from bertline.corpus.sentences import splitter_of, train_punkt
from bertline.corpus.shards import split_part, write_plan
from bertline.corpus.sources import SOURCES, files_of, files_of_dataset
from bertline.files import Recipe
from bertline.results import paths


def read_part(recipe: Recipe, part: str, documents: Path, counts: Path) -> None:
    """Turn a part of a corpus into documents, by the reader of its source.

    Args:
        recipe: of the corpus: its settings, and the files of its parts.
        part: its name in the recipe.
        documents: the .jsonl.zst to write.
        counts: the .counts.json to write.
    """
    import_module(SOURCES[recipe["settings"]["source"]].reader).read_part(recipe, part, documents, counts)


def train_punkt_on_corpus(recipe: Recipe, output: Path) -> None:
    """Train a Punkt model on the documents of a corpus.

    Args:
        recipe: of the corpus.
        output: the folder to write.
    """
    train_punkt(files_of(recipe, paths.DOCUMENTS), files_of(recipe, paths.COUNTS), output)


def split_sentences(recipe: Recipe, documents: Path, sentences: Path, index: Path) -> None:
    """Split the documents of one part into sentences.

    Args:
        recipe: of the corpus.
        documents: a .jsonl.zst.
        sentences: the .txt.zst to write.
        index: the .index.npy to write.
    """
    split_part(documents, recipe["name"], splitter_of(recipe), sentences, index)


def list_removed(recipe: Recipe, output: Path) -> None:
    """Write the removal list of a dataset.

    Args:
        recipe: of the dataset.
        output: the .jsonl.zst to write.
    """
    inputs = {kind: list(files_of_dataset(recipe, file).items()) for kind, file in removal_inputs(recipe).items()}
    is_near = recipe["settings"]["duplicates"] == "near"
    write_removals(inputs.get("signatures", []), inputs.get("overlaps", []), output, near=is_near)


def plan_shards(recipe: Recipe, output: Path) -> None:
    """Write the plan of a dataset's shards.

    Args:
        recipe: of the dataset.
        output: the plan.json to write.
    """
    removed = paths.REMOVED.format(dataset=recipe["fingerprint"]) if removal_inputs(recipe) else None
    corpora = list(files_of_dataset(recipe, paths.SENTENCES).items())
    write_plan(corpora, recipe["settings"]["shards"], recipe["settings"]["held_out"], output, removed)
