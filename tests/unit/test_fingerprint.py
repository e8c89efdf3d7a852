"""Fingerprints and digests of inputs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline import files
from bertline.files import digest_of_files, read_json
from bertline.fingerprint import canonical_json, fingerprint

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict) -> None:
    assert fingerprint(value) == fingerprint(dict(reversed(value.items())))


def test_a_fingerprint_is_the_published_hash_of_the_canonical_text() -> None:
    # printf '{"a":[1,"é"],"b":0.5}' | sha256sum
    assert canonical_json({"b": 0.5, "a": [1, "é"]}) == '{"a":[1,"é"],"b":0.5}'
    assert fingerprint({"b": 0.5, "a": [1, "é"]}) == "17f01d7babd1a5b1"


def test_nan_has_no_fingerprint() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        fingerprint({"a": float("nan")})


def test_a_remembered_digest_follows_the_content(tmp_path: Path) -> None:
    file, memory = tmp_path / "book.txt", tmp_path / "memory.json"
    file.write_text("one")
    first = digest_of_files([file], memory)
    assert digest_of_files([file], memory) == first
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert digest_of_files([file], memory) != first


@pytest.mark.parametrize("content", ["null", "[]", "3", '{"FILE": null}', '{"FILE": 3}', '{"FILE": [3, 1]}', "\xff"])
def test_a_cache_of_another_form_is_made_anew(tmp_path: Path, content: str) -> None:
    file, memory = tmp_path / "book.txt", tmp_path / "memory.json"
    file.write_text("one")
    memory.write_text(content.replace("FILE", str(file)), encoding="latin-1")
    assert digest_of_files([file], memory) == {str(file): files.sha256_of_file(file)}
    assert list(read_json(memory)) == [str(file)]


@pytest.mark.parametrize(("number", "found"), [(errno.EACCES, True), (errno.EROFS, True), (errno.ENOSPC, False)])
def test_digests_are_found_where_nothing_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, found: bool
) -> None:
    def refuse(path: Path, content: Any) -> None:
        raise OSError(number, os.strerror(number), str(path))

    file = tmp_path / "book.txt"
    file.write_text("one")
    monkeypatch.setattr(files, "write_json", refuse)
    if found:
        assert digest_of_files([file], tmp_path / "memory.json") == {str(file): files.sha256_of_file(file)}
        return
    with pytest.raises(OSError, match="No space left"):
        digest_of_files([file], tmp_path / "memory.json")


def test_a_cache_that_may_not_be_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, memory = tmp_path / "book.txt", tmp_path / "memory.json"
    file.write_text("one" * 1000)
    digests, read_text = digest_of_files([file], memory), Path.read_text

    def refuse(path: Path) -> str:
        if path == memory:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not [*files.changed_files(digests, memory)]
    assert [*files.changed_files({str(file): "another"}, memory)] == [str(file)]


def test_a_cache_larger_than_the_files_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("one")
    large.write_text("one" * 1000)
    digests = digest_of_files([small, large], tmp_path / "memory.json")
    monkeypatch.setattr(files, "_remembered_digests", lambda path: pytest.fail(f"{path} was read"))
    assert not [*files.changed_files({str(small): digests[str(small)]}, tmp_path / "memory.json")]
    with pytest.raises(pytest.fail.Exception):
        [*files.changed_files(digests, tmp_path / "memory.json")]


def test_digests_of_many_files_are_theirs(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(40)]
    for path in paths:
        path.write_text(path.name * 1000)
    memory = tmp_path / "memory.json"
    found = digest_of_files(paths, memory)
    assert list(found.items()) == [(str(path), files.sha256_of_file(path)) for path in paths]
    memory.write_text(memory.read_text().replace(found[str(paths[3])], "remembered"))
    assert digest_of_files(paths, memory)[str(paths[3])] == "remembered"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_start_keeps_the_digests_that_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(4)]
    for path in paths:
        path.write_text(path.name)

    def interrupted(waiting: dict) -> Iterator[Future[str]]:
        yield from list(as_completed(waiting))[:2]
        raise error

    monkeypatch.setattr(files, "as_completed", interrupted)
    with pytest.raises(error):
        digest_of_files(paths, tmp_path / "memory.json")
    assert len(read_json(tmp_path / "memory.json")) == 2


def test_much_to_read_is_told_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.setattr(files, "BYTES_WORTH_A_HINT", 3)
    monkeypatch.setattr(files, "BYTES_WORTH_A_BAR", 3)
    digest_of_files([tmp_path / "a.txt"], tmp_path / "memory.json")
    assert "`make digests` does it in a job" in caplog.text
    assert "checksums of inputs: 100%" in capsys.readouterr().err
    digest_of_files([tmp_path / "a.txt"], tmp_path / "memory.json")
    assert not capsys.readouterr().err
