"""Google's releases, from a server on this machine to a folder that transformers loads."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from dump_server import CUT, Misbehaving, serve
from test_modeling_conversion import CONFIG, VOCABULARY, WRITTEN, expected

from bertline.console import BertlineError
from bertline.modeling import google_release
from bertline.modeling.google_release import fetch_google_release, unpack_release

NAME = "uncased_L-2_H-8_A-2"


def release() -> dict[str, bytes]:
    """The files of a release, with those that are not read."""
    checkpoint = {path.name: path.read_bytes() for path in WRITTEN.glob("bert_model.ckpt.*")}
    own = {
        "bert_config.json": json.dumps(CONFIG).encode(),
        "vocab.txt": "".join(f"{word}\n" for word in VOCABULARY).encode(),
        "bert_model.ckpt.meta": b"a graph, which is not read",
    }
    return {f"{NAME}/{name}": content for name, content in (checkpoint | own).items()}


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Misbehaving]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serve() as state:
        yield state


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "resources/google"


def fetch(server: Misbehaving, content: bytes, output: Path, *, lowercase: bool = True, sha256: str = "") -> None:
    server.files[f"/{NAME}.zip"] = content
    digest = sha256 or hashlib.sha256(content).hexdigest()
    fetch_google_release(output, url=server.url(f"/{NAME}.zip"), sha256=digest, lowercase=lowercase)


def problem_of(server: Misbehaving, content: bytes, output: Path, *, lowercase: bool = True, sha256: str = "") -> str:
    with pytest.raises(BertlineError) as raised:
        fetch(server, content, output, lowercase=lowercase, sha256=sha256)
    assert "\n" not in str(raised.value)
    assert not output.exists()
    assert {path.suffix for path in output.parent.iterdir()} <= {".zip", ".part"}
    return str(raised.value)


def check_loads(folder: Path) -> None:
    model = transformers.BertForPreTraining.from_pretrained(folder)
    found = model.state_dict()["bert.embeddings.word_embeddings.weight"].numpy()
    assert np.array_equal(found, expected()["bert/embeddings/word_embeddings"])
    assert transformers.AutoTokenizer.from_pretrained(folder)("A Rivers .").input_ids == [2, 5, 6, 7, 8, 3]


def test_a_zip_is_downloaded_unpacked_and_converted(server: Misbehaving, output: Path) -> None:
    fetch(server, zipped(release()), output)
    check_loads(output)
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_a_zip_is_unpacked_where_the_next_attempt_removes_what_a_killed_one_left(
    server: Misbehaving, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: Path, *_: object, **__: object) -> None:
        unpacked.append(source)

    unpacked: list[Path] = []
    monkeypatch.setattr(google_release, "convert_weights", convert)
    fetch(server, zipped(release()), output)
    unpacked[0].mkdir()
    fetch(server, zipped(release()), output)
    assert not unpacked[0].exists()
    assert unpacked[1] != unpacked[0]


def test_files_without_a_folder_are_a_release_as_well(server: Misbehaving, output: Path) -> None:
    fetch(server, zipped({name.partition("/")[2]: content for name, content in release().items()}), output)
    check_loads(output)


def test_a_folder_is_converted_and_stays(tmp_path: Path, output: Path) -> None:
    for name, content in release().items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    fetch_google_release(output, folder=tmp_path / NAME)
    check_loads(output)
    assert len(list((tmp_path / NAME).iterdir())) == len(release())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"folder": Path("release"), "sha256": "0" * 64},
            "--sha256 is of a zip, and --folder names a folder; leave out",
        ),
        ({"folder": Path("release"), "url": "http://x/a.zip"}, "--url and --folder each name a release; leave one out"),
        ({"sha256": "0" * 64}, "no release is given; name its --url and --sha256, or its --folder"),
        ({}, "no release is given; name its --url and --sha256, or its --folder"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(output: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(BertlineError, match=f"^{message}"):
        fetch_google_release(output, **given)
    assert not output.parent.exists()


def test_a_cut_download_is_continued(server: Misbehaving, output: Path) -> None:
    content = zipped({**release(), f"{NAME}/padding": np.random.default_rng(1).bytes(400_000)}, zipfile.ZIP_STORED)
    server.faults[f"/{NAME}.zip"] = [CUT]
    fetch(server, content, output)
    check_loads(output)
    first, second = (headers.get("Range") for _, headers in server.requests)
    assert first is None
    assert str(second).startswith("bytes=")


def test_a_zip_that_an_earlier_attempt_left_is_used_only_if_its_digest_is_known(
    server: Misbehaving, output: Path
) -> None:
    other = {**release(), f"{NAME}/vocab.txt": release()[f"{NAME}/vocab.txt"].replace(b"river", b"ocean")}
    output.parent.mkdir(parents=True)
    output.with_name(".google.zip").write_bytes(zipped(other))
    server.files[f"/{NAME}.zip"] = zipped(release())
    fetch_google_release(output, url=server.url(f"/{NAME}.zip"))
    check_loads(output)
    assert len(server.requests) == 1


def test_what_another_process_converted_meanwhile_is_taken(
    server: Misbehaving, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def after_another(_: Path) -> Iterator[bool]:
        yield True

    monkeypatch.setattr("bertline.modeling.google_release.lock_of", after_another)
    fetch_google_release(output, url=server.url("/absent.zip"))
    assert server.requests == []


def test_a_zip_and_a_folder_of_the_user_s_are_left_alone(server: Misbehaving, output: Path) -> None:
    output.parent.mkdir(parents=True)
    mine = output.with_name("google.zip")
    mine.write_bytes(zipped(release()))
    fetch(server, mine.read_bytes(), output)
    assert set(output.parent.iterdir()) == {mine, output}
    (output / "notes.txt").touch()
    requests = len(server.requests)
    with pytest.raises(BertlineError, match=r"google contains notes\.txt, which would be deleted"):
        fetch(server, mine.read_bytes(), output)
    with pytest.raises(BertlineError, match="the output has no name of its own"):
        fetch(server, mine.read_bytes(), Path())
    assert len(server.requests) == requests


def test_a_truncated_zip_is_one_line(server: Misbehaving, output: Path) -> None:
    content = zipped(release())
    whole = hashlib.sha256(content).hexdigest()
    assert "wrong checksum, sha256" in problem_of(server, content[:-100], output, sha256=whole)
    # And one that was truncated before its digest was taken.
    assert "google.zip is damaged or truncated" in problem_of(server, content[:-100], output)


def test_a_truncated_checkpoint_is_one_line(server: Misbehaving, output: Path) -> None:
    members = release()
    (data,) = (name for name in members if "data-" in name)
    members[data] = members[data][:-50]
    problem = problem_of(server, zipped(members), output)
    assert f"{output.with_name('.google.zip')}/bert_model.ckpt.data-" in problem  # not in a folder that is deleted
    assert "is cut off: " in problem
    members[data] = members[data][:500] + b"?" + members[data][501:] + bytes(50)
    assert "is damaged: " in problem_of(server, zipped(members), output)


@pytest.mark.parametrize("name", ["../vocab.txt", "/etc/vocab.txt", "a/../../vocab.txt", "..\\vocab.txt", "../other"])
def test_a_member_that_leads_out_is_refused(server: Misbehaving, output: Path, name: str) -> None:
    assert "leads out of the archive" in problem_of(server, zipped({**release(), name: b"[PAD]"}), output)


def test_a_link_is_not_followed(tmp_path: Path, server: Misbehaving, output: Path) -> None:
    buffer = io.BytesIO(zipped({name: content for name, content in release().items() if "vocab" not in name}))
    with zipfile.ZipFile(buffer, "a") as archive:
        link = zipfile.ZipInfo(f"{NAME}/vocab.txt")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    assert f"{NAME}.zip has no vocab.txt" in problem_of(server, buffer.getvalue(), output)


def test_a_zip_bomb_is_refused(server: Misbehaving, output: Path) -> None:
    bomb = {**release(), f"{NAME}/vocab.txt": bytes(1 << 25)}
    assert "unpacks to more than 20 times its size; this is not a release of BERT" in problem_of(
        server, zipped(bomb), output
    )


@pytest.mark.parametrize("missing", ["bert_config.json", "vocab.txt", "bert_model.ckpt.index"])
def test_a_zip_that_lacks_a_file_is_one_line(server: Misbehaving, output: Path, missing: str) -> None:
    members = {name: content for name, content in release().items() if not name.endswith(missing)}
    message = problem_of(server, zipped(members), output)
    assert f"{NAME}.zip has no {missing.replace('bert_model', '*')}; name the archive" in message


def test_two_releases_in_one_zip_are_one_line(server: Misbehaving, output: Path) -> None:
    assert "has two files " in problem_of(server, zipped({**release(), "other/vocab.txt": b"[PAD]"}), output)


def test_a_cased_vocabulary_needs_lowercase_false(server: Misbehaving, output: Path) -> None:
    members = release()
    members[f"{NAME}/vocab.txt"] = members[f"{NAME}/vocab.txt"].replace(b"river", b"River")
    content = zipped(members)  # made once: a zip has the time of its members
    assert "words in upper case, such as 'River'; give --no-lowercase, or lowercase: false" in problem_of(
        server, content, output
    )
    requests = len(server.requests)
    fetch(server, content, output, lowercase=False)
    assert len(server.requests) == requests  # the zip was kept
    assert transformers.AutoTokenizer.from_pretrained(output)("a Rivers .").input_ids == [2, 5, 6, 7, 8, 3]


def test_unpacking_writes_nothing_but_the_release(tmp_path: Path) -> None:
    (tmp_path / "release.zip").write_bytes(zipped({**release(), "x/evil.py": b"", "__MACOSX/._vocab.txt": b"x"}))
    (tmp_path / "out").mkdir()
    unpack_release(tmp_path / "release.zip", tmp_path / "out")
    names = {name.partition("/")[2] for name in release()} - {"bert_model.ckpt.meta"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    shutil.rmtree(tmp_path / "out")
