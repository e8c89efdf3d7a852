"""Input files and patterns of a configuration."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from plan_helpers import CONFIG, changed, inputs, plan_of

from bertline.console import BertlineError
from bertline.planning.inputs import cards_of_report
from bertline.planning.patterns import find_files, fixed_part
from bertline.results import paths

assert inputs  # the fixture


def test_absent_inputs_are_problems_of_a_real_run_only() -> None:
    Path("books/one.txt").unlink()
    assert plan_of(CONFIG).problems == [
        "configuration: corpora.books.paths: no file matches 'books/*.txt'; put it there or change the key"
    ]


def test_a_deleted_dataset_is_made_again_unless_all_phases_on_it_have_a_copy_of_its_card() -> None:
    plan = plan_of(CONFIG)
    (dataset,) = plan.built_datasets

    def finish(*outputs: str) -> None:
        for key in plan.phases:
            for output in outputs:
                file = Path(paths.PHASE.format(phase=key), output)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("{}")

    finish(*paths.PHASE_OUTPUTS)
    assert cards_of_report(plan) == [plan.dataset_file(dataset, paths.CARD)]
    finish(paths.CARD)
    assert cards_of_report(plan) == []


def test_a_folder_in_place_of_files_is_reported_as_such() -> None:
    (problem,) = plan_of(changed(corpora__books__paths=["books"])).problems
    assert problem.endswith("no file matches 'books'; it is a folder: name its files, such as 'books/*'")


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("books/r [final].txt", "brackets are wildcards: write 'books/r [[]final].txt' for those in a name"),
        ("books [2]/*.txt", "brackets are wildcards: write 'books [[]2]/*.txt' for those in a name"),
        ("books [2]", "it is a folder: name its files, such as 'books [[]2]/*'"),
        ("~/*.txt", "~ is not expanded: write '/home/me/*.txt'"),
        ("books/[no].txt", "put it there or change the key"),
    ],
)
def test_a_pattern_that_means_something_else_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, pattern: str, advice: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    Path("books/r [final].txt").touch()
    Path("books [2]").mkdir()
    Path("books [2]/a.txt").touch()
    (problem,) = plan_of(changed(corpora__books__paths=[pattern])).problems
    assert problem == f"configuration: corpora.books.paths: no file matches '{pattern}'; {advice}"


def test_links_that_lead_nowhere_are_problems() -> None:
    for name in ("two.txt", "three.txt"):
        Path("books", name).symlink_to(f"gone/{name}")
    for pattern in ("books/*.txt", "books/**/*.txt"):
        plan = plan_of(changed(corpora__books__paths=[pattern]))
        assert plan.problems == [
            "configuration: corpora.books.paths: books/three.txt is a link to gone/three.txt, which does not exist, "
            "and 1 more lead nowhere; put it there, or remove the link"
        ]
    (problem,) = plan_of(changed(corpora__books__paths=["books/two.txt"])).problems
    assert problem.endswith(
        "books/two.txt is a link to gone/two.txt, which does not exist; put it there, or remove the link"
    )


def test_two_links_to_a_folder_above_are_not_followed(no_hang: Callable[[], None]) -> None:
    """Python's glob follows each 40 times, in any order."""
    for name in ("l1", "l2", "deep/l3"):
        Path("books", name).parent.mkdir(exist_ok=True)
        Path("books", name).symlink_to(Path("books").absolute())
    no_hang()
    Path("books/deep/other.txt").touch()
    assert find_files("books/**/o*") == (["books/deep/other.txt", "books/one.txt"], [])
    assert find_files("books/**/*/**/o*") == (["books/deep/other.txt"], [])


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize(
    ("call", "pattern", "place"),
    [
        ("scandir", "books/**/*.txt", "books/deep"),
        ("scandir", "books/*/*.txt", "books/deep"),
        ("stat", "books/**/*.txt", "books/deep/two.txt"),
        ("stat", "books/deep/two.txt", "books/deep/two.txt"),
        ("stat", "books/*/lower/*.txt", "books/deep/lower"),
    ],
)
def test_files_that_cannot_be_looked_for_are_not_left_out_silently(
    monkeypatch: pytest.MonkeyPatch, code: int, call: str, pattern: str, place: str
) -> None:
    """Root may read every folder, so the calls are replaced."""
    Path("books/deep").mkdir()
    Path("books/deep/two.txt").touch()
    real = getattr(os, call)

    def refusing(path: str | Path, *args: Any, **options: Any) -> Any:
        if str(path).startswith("books/deep") and (call == "scandir" or str(path) != "books/deep"):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *args, **options)

    monkeypatch.setattr(os, call, refusing)
    with pytest.raises(BertlineError) as raised:
        plan_of(changed(corpora__books__paths=[pattern]))
    assert str(raised.value) == (
        f"configuration: corpora.books.paths: {place} cannot be read: {os.strerror(code)}; make it readable, or name "
        "only folders without it"
    )


@pytest.mark.parametrize("pattern", ["self/*.txt", "self/**/*.txt", "*/*.txt", "self/a.txt", "one.txt/*", "none/*"])
def test_nothing_is_in_a_link_to_itself_nor_in_a_file(pattern: str) -> None:
    Path("books/self").symlink_to("self")
    assert find_files(f"books/{pattern}") == ([], [])


@pytest.mark.parametrize("pattern", [f"{'x' * 300}/*.txt", f"{'x' * 300}.txt", f"{'x/' * 3000}*.txt"])
def test_a_name_that_is_too_long_is_to_be_shortened(pattern: str) -> None:
    with pytest.raises(BertlineError, match=r"x\S* cannot be read: File name too long; shorten it, or name only"):
        find_files(pattern)


NAMES = st.sampled_from(["a", "b.txt", ".h", "x[1].txt", "é.TXT", "a?b"])
WILDCARDS = st.sampled_from(
    ["**", "*", "*.txt", ".*", "?", "[!a]*", "x[[]1].txt", "é*", "**a", "a", ".h", "b.txt", ".."]
)


@settings(deadline=None, max_examples=150)
@example(files=[], link=("b.txt", "s"), pattern=["b.txt", "*"])
@given(
    files=st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8),
    link=st.tuples(NAMES, st.sampled_from(["s", "o", "s/a"])),
    # Two `..` lead out of the test's folder, where `**` would read what all tests have written.
    pattern=st.lists(WILDCARDS, min_size=1, max_size=4).filter(
        lambda parts: parts.count("**") < 3 and parts.count("..") < 2
    ),
)
def test_patterns_mean_what_they_mean_for_glob(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], link: tuple[str, str], pattern: list[str]
) -> None:
    assume(link[1] != "s" or pattern.count("**") < 2)  # glob follows a loop 40 times for each
    folder = tmp_path_factory.mktemp("tree")
    for file in (["s", "o.txt"], ["o", "b.txt"], ["o", "a", "c.txt"], *(["s", *parts] for parts in files)):
        path = folder.joinpath(*file)
        with suppress(OSError):  # a file is in the place of a folder, or the other way round
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    with suppress(OSError):
        (folder / "s" / link[0]).symlink_to(folder / link[1])
    given = f"{folder}/s/{'/'.join(pattern)}"
    expected = {
        str(path)
        for path in map(Path, glob.glob(given, recursive=True))
        if path.is_file() and not leads_back(path.parent, fixed_part(given))  # a link that is named is followed
        # A file is no folder, although glob finds "file/**".
        if pattern[-1] != "**" or len(pattern) == 1 or not path.match("/".join(pattern[:-1]))
    }
    found = {path for path in find_files(given)[0] if path in expected or pattern[-1] != "**"}
    assert found == expected


def leads_back(folder: Path, start: Path) -> bool:
    above = [one for one in (folder, *folder.parents) if one.is_relative_to(start) and one.name != ".."]
    return len({os.path.realpath(parent) for parent in above}) < len(above)
