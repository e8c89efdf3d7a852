"""Folders that commands write: complete or absent, and nothing else is deleted for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bertline.console import BertlineError
from bertline.files import check_replaceable, write_folder_atomically, write_link

NAMES = ("config.json", "*.bin")


def write(folder: Path, content: str = "new", **options: Any) -> None:
    with write_folder_atomically(folder, **options) as aside:
        (aside / "config.json").write_text(content)


def problem_of(folder: Path, **options: Any) -> str:
    with pytest.raises(BertlineError) as raised:
        write(folder, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_only_a_folder_of_the_same_command_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write(folder, replaces=NAMES)
    for name in ("a.bin", ".snakemake_timestamp"):
        (folder / name).touch()
    write(folder, "again", replaces=NAMES)
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    (folder / "thesis").mkdir()
    assert problem_of(folder, replaces=NAMES) == (
        f"{folder} contains thesis, which would be deleted; name another output, or move it away"
    )
    (folder / "thesis").rmdir()
    (folder / "b.bin").mkdir()
    assert "contains b.bin, which would be deleted" in problem_of(folder, replaces=NAMES)
    assert (folder / "config.json").read_text() == "again"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_is_replaced(tmp_path: Path) -> None:
    """Such as one that Snakemake makes before a job."""
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", replaces=NAMES)
    assert (tmp_path / "out/config.json").exists()


def test_what_appears_in_the_folder_meanwhile_is_not_deleted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(write_folder_atomically(tmp_path / "out", replaces=NAMES))
        (tmp_path / "out").mkdir()
        (tmp_path / "out/notes.txt").touch()
        with pytest.raises(BertlineError, match=r"contains notes\.txt"):
            stack.close()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


def test_a_source_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "models/theirs"
    source.mkdir(parents=True)
    assert "the output is the source; name another folder" in problem_of(source, sources=[source])
    assert f"the output contains the source {source}; name" in problem_of(source.parent, sources=[source])
    monkeypatch.chdir(source)
    assert "the output is the source" in problem_of(source, sources=[Path()])
    assert "the output contains the source" in problem_of(source, sources=[Path("vocab.txt")])
    (tmp_path / "link").symlink_to(source)
    assert "the output is the source" in problem_of(source, sources=[tmp_path / "link"])
    write(source / "converted", sources=[source])  # which deletes nothing


@pytest.mark.parametrize("name", [".", "..", "/", "a/..", ""])
def test_an_output_without_a_name_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "the output has no name of its own; name a folder to be made" in problem_of(Path(name))


def test_an_output_that_is_a_file_or_a_link_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file is a file, and would be replaced by a folder; name another output" in problem_of(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path)
    assert "link is a link, and would be replaced" in problem_of(tmp_path / "link")
    check_replaceable(tmp_path / "nothing", NAMES)


def test_two_that_write_the_same_folder_do_not_mix(tmp_path: Path) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with write_folder_atomically(tmp_path / "out") as aside:
            (aside / "a").write_text("first")
            has_begun.set()
            may_end.wait(240)
            (aside / "b").write_text("first")

    thread = threading.Thread(target=first)
    thread.start()
    has_begun.wait(240)
    with write_folder_atomically(tmp_path / "out") as aside:
        (aside / "a").write_text("second")
        may_end.set()
        thread.join(240)
        assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"a": "first", "b": "first"}
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"a": "second"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


BEGIN = """
import sys, time
from pathlib import Path
from bertline.files import write_folder_atomically
with write_folder_atomically(Path(sys.argv[1])) as aside:
    (aside / "half").touch()
    print(aside.name, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BEGIN, str(tmp_path / "out")]
    killed, living = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2))
    try:
        assert killed.stdout is not None
        assert living.stdout is not None
        killed.stdout.readline()
        asides = [tmp_path / living.stdout.readline().strip()]
        killed.send_signal(signal.SIGKILL)
        killed.wait(240)
        assert len(list(tmp_path.iterdir())) == 2
        for other in (".out.txt.part", ".out.mine.part", ".another.01234567.part"):
            (tmp_path / other).mkdir()
            asides.append(tmp_path / other)
        write(tmp_path / "out")
        assert set(tmp_path.iterdir()) == {*asides, tmp_path / "out"}
        assert (asides[0] / "half").exists()
    finally:
        for process in (killed, living):
            os.kill(process.pid, signal.SIGKILL) if process.poll() is None else None
            process.wait(240)
            if process.stdout is not None:
                process.stdout.close()


def test_processes_that_write_the_same_link_do_not_disturb_each_other(tmp_path: Path) -> None:
    def alternate(first: int) -> None:
        for number in range(first, first + 300):
            write_link(tmp_path / "link", tmp_path / f"target{number % 2}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(alternate, range(4)))
    assert (tmp_path / "link").readlink().name in ("target0", "target1")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_link_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "link").write_text("mine")
    write_link(tmp_path / "link", tmp_path / "target")
    assert (tmp_path / "link").read_text() == "mine"
