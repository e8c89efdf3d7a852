"""A check that a corpus is made of the files that it was planned from, whose digests its key contains.

A file of yours may change between the plan and the job, or while it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Recipe, changed_files
from bertline.results import paths


@contextmanager
def planned_files(recipe: Recipe, files: Iterable[Path | str]) -> Iterator[None]:
    """Compare files with the `sha256` of a corpus's recipe, before they are read and again afterwards.

    Those that the graph downloads have no digest there. A missing file is reported by what reads it.

    Raises BertlineError for a file with another content.
    """
    of_recipe = recipe.get("sha256", {})
    digests = {name: of_recipe[name] for name in (str(Path(file)) for file in files) if name in of_recipe}
    _check(recipe, digests)
    yield
    _check(recipe, digests)


def _check(recipe: Recipe, digests: dict[str, str]) -> None:
    for path in changed_files(digests, Path(paths.DIGESTS_OF_INPUTS)):
        raise BertlineError(
            f"{path} is another file than when corpus {recipe['key']} was planned; run the same command again"
        )
