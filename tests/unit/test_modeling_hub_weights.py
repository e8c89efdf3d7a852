"""Weights of the Hub at a pinned commit, from a stand-in of the Hub on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from hub_server import ServedModel, serve_model
from roberta_folder import write_roberta

from bertline.console import BertlineError
from bertline.corpus import http_download
from bertline.corpus.download import download
from bertline.corpus.expected_file import Expected
from bertline.modeling.hub_weights import fetch_hub_weights
from bertline.modeling.huggingface import load_huggingface

REPOSITORY, REVISION = "someone/roberta-of-theirs", "1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"
FETCHED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModel]:
    folder = tmp_path / "source"
    write_roberta(folder)
    for name in ("pytorch_model.bin", "tf_model.h5", "modeling.py", "README.md", "training_args.bin"):
        (folder / name).write_bytes(b"never fetched")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with serve_model(REPOSITORY, REVISION, folder) as served:
        for name, value in {"ENDPOINT": served.address, "HF_HUB_OFFLINE": False}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        yield served


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "resources/hub" / REVISION


def problem_of(output: Path, *, repository: str = REPOSITORY, revision: str = REVISION) -> str:
    with pytest.raises(BertlineError) as raised:
        fetch_hub_weights(repository, revision, output)
    assert not output.exists()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_weights_configuration_and_tokenizer_arrive_and_nothing_else(model: ServedModel, output: Path) -> None:
    fetch_hub_weights(REPOSITORY, REVISION, output)
    assert {path.name for path in output.iterdir()} == FETCHED == set(model.fetched)
    assert all((output / name).read_bytes() == model.files[name] for name in FETCHED)
    assert [path.name for path in output.parent.iterdir()] == [REVISION]
    assert load_huggingface(output)[0].architecture == "roberta"


def test_a_cut_download_is_continued_by_the_next_one(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_download, "PIECE_BYTES", 1000)
    model.cut.add("model.safetensors")
    message = problem_of(output)
    assert message.startswith("model.safetensors could not be downloaded (127.0.0.1")
    assert "run the same command again later" in message
    model.stopped.clear()
    model.requests.clear()
    fetch_hub_weights(REPOSITORY, REVISION, output)
    assert (output / "model.safetensors").read_bytes() == model.files["model.safetensors"]
    ((_, asked),) = [request for request in model.requests if request[0].endswith("model.safetensors")]
    assert asked is not None
    assert int(asked.removeprefix("bytes=").removesuffix("-")) > len(model.files["model.safetensors"]) // 4
    assert "config.json" not in model.fetched  # it was complete


def test_damaged_and_other_files_of_an_earlier_attempt_do_not_reach_the_result(
    model: ServedModel, output: Path
) -> None:
    unfinished = output.with_name(f".{REVISION}.part")
    unfinished.mkdir(parents=True)
    weights = model.files["model.safetensors"]
    (unfinished / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    (unfinished / "vocab.txt").write_text("of a model without tokenizer.json")
    fetch_hub_weights(REPOSITORY, REVISION, output)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == {name: model.files[name] for name in FETCHED}


def test_a_folder_of_the_user_s_is_left_alone(model: ServedModel, output: Path) -> None:
    fetch_hub_weights(REPOSITORY, REVISION, output)
    fetch_hub_weights(REPOSITORY, REVISION, output)
    (output / "thesis").mkdir()
    requests = len(model.requests)
    with pytest.raises(BertlineError, match="contains thesis, which would be deleted; name another output"):
        fetch_hub_weights(REPOSITORY, REVISION, output)
    with pytest.raises(BertlineError, match="the output has no name of its own"):
        fetch_hub_weights(REPOSITORY, REVISION, Path())
    assert len(model.requests) == requests
    assert {path.name for path in output.iterdir()} == {*FETCHED, "thesis"}


def test_a_token_opens_a_private_model(model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.token = "hf_of_the_test"  # noqa: S105
    assert problem_of(output) == (
        f"the model {REPOSITORY} does not exist on the Hub, or is private; check its id, and set HF_TOKEN for a "
        "private one"
    )
    monkeypatch.setenv("HF_TOKEN", model.token)
    fetch_hub_weights(REPOSITORY, REVISION, output)
    assert {path.name for path in output.iterdir()} == FETCHED


def test_a_commit_that_vanished_is_one_line(model: ServedModel, output: Path) -> None:
    gone = "f" * 40
    assert problem_of(output, revision=gone) == (
        f"the model {REPOSITORY} has no commit {gone}: it was removed or is another model's; pin one that its history "
        "shows"
    )
    assert "someone/else does not exist on the Hub" in problem_of(output, repository="someone/else")


@pytest.mark.parametrize("repository", ["../etc", "a/b/c", "a--b/c", ""])
def test_what_is_no_id_of_a_model_is_not_asked_for_again(model: ServedModel, output: Path, repository: str) -> None:
    message = problem_of(output, repository=repository)
    assert message.startswith(f"the model {repository} has an invalid id (")
    assert message.endswith("; give owner/name")
    assert model.requests == []


def test_a_server_that_names_another_commit_is_one_line(model: ServedModel, output: Path) -> None:
    model.told = "b" * 40
    assert f"the Hub answers with the commit {'b' * 40}; pin that one" in problem_of(output)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        (["model.safetensors"], "has its weights only in pytorch_model.bin, a pickle, which can run any code"),
        (
            ["model.safetensors", "pytorch_model.bin", "training_args.bin"],
            "has no model.safetensors; choose the commit",
        ),
        (["config.json"], "has no config.json; choose"),
        (["tokenizer.json"], "has neither tokenizer.json nor vocab.txt; choose a commit with its tokenizer"),
    ],
)
def test_a_model_that_lacks_something_is_one_line(
    model: ServedModel, output: Path, without: list[str], message: str
) -> None:
    for name in without:
        del model.files[name]
    assert message in problem_of(output)
    assert model.fetched == []


def test_weights_in_several_files_are_one_line(model: ServedModel, output: Path) -> None:
    model.files["model.safetensors.index.json"] = b"{}"
    del model.files["model.safetensors"]
    assert "has its weights in several files" in problem_of(output)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_file_that_is_not_the_one_the_hub_states_is_one_line(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    described, content = model.description(), model.files[name]
    monkeypatch.setattr(model, "description", lambda: described)
    model.files[name] = content[:-1] + bytes([content[-1] ^ 1])
    message = problem_of(output)
    assert (
        "wrong checksum" in message if name.endswith("s") else "config.json is not the file of that commit" in message
    )
    model.files[name] = content
    fetch_hub_weights(REPOSITORY, REVISION, output)
    assert (output / name).read_bytes() == content


def test_a_model_larger_than_any_that_is_read_is_refused(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertline.modeling.hub_weights.MAX_MODEL", 1000)
    assert "allowed are 1,000; choose a smaller model" in problem_of(output)
    assert model.fetched == []


@pytest.mark.parametrize(
    "netrc", ["", "machine 127.0.0.1 login me password mine\n", "default login me password mine\n"]
)
def test_a_token_does_not_follow_a_redirection_to_another_host_and_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, netrc: str
) -> None:
    from hub_server import Answers, serving

    (tmp_path / ".netrc").write_text(netrc)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    seen: list[str | None] = []

    class Storage(Answers):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.answer(200, b"content", {})

    with serving(Storage) as storage:

        class Hub(Answers):
            def do_GET(self) -> None:
                seen.append(self.headers.get("Authorization"))
                there = f"{storage.replace('127.0.0.1', 'localhost')}/file"
                self.answer(302, b"", {"Location": "/other" if self.path == "/file" else there})

        with serving(Hub) as hub:
            download([f"{hub}/file"], tmp_path / "file", Expected(size=7), token="secret")  # noqa: S106
    assert (tmp_path / "file").read_bytes() == b"content"
    assert seen == ["Bearer secret", "Bearer secret", None]


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("model.safetensors", {"size": "2"}),
        ("model.safetensors", {"size": -3}),
        ("model.safetensors", {"size": 2.5}),
        ("model.safetensors", {"size": True}),
        ("model.safetensors", {"lfs": {}}),
        ("model.safetensors", {"lfs": "a"}),
        ("model.safetensors", {"lfs": {"sha256": 5, "size": 2, "pointerSize": 1}}),
        ("model.safetensors", {"lfs": {"sha256": "0" * 63}}),
        ("config.json", {"blobId": 5}),
        ("config.json", {"blobId": "main"}),
        ("README.md", {"rfilename": None}),
        ("README.md", {"rfilename": []}),
        ("", {"siblings": None}),
        ("", {"siblings": "abc"}),
        ("", {"siblings": [5]}),
        ("", {"sha": None}),
        ("", {"sha": "main"}),
    ],
)
def test_an_answer_of_an_unknown_form_is_one_line(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch, name: str, stated: dict[str, Any]
) -> None:
    described = model.description()
    changed = next((file for file in described["siblings"] if file["rfilename"] == name), described)
    changed |= stated
    monkeypatch.setattr(model, "description", lambda: described)
    assert re.search(r"the Hub describes it in an unknown form \(.*\); try again later, or name", problem_of(output))
    assert model.fetched == []


@pytest.mark.parametrize("answer", [[], "model", None, 5])
def test_an_answer_that_is_no_object_is_one_line(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(model, "description", lambda: answer)
    assert "the Hub's answer is not a JSON object; try again later" in problem_of(output)


def test_the_answer_and_a_file_of_no_stated_size_are_read_up_to_a_limit(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = model.description()
    for file in described["siblings"]:
        file["size"] = None
    monkeypatch.setattr(model, "description", lambda: described)
    monkeypatch.setattr("bertline.modeling.hub_weights.MAX_MODEL", 1000)
    assert "model.safetensors could not be downloaded (" in (message := problem_of(output))
    assert "sends more than 1,000 bytes" in message
    monkeypatch.setattr("bertline.modeling.hub_weights.MAX_DESCRIPTION", 100)
    assert "could not be fetched: sends more than 100 bytes" in problem_of(output)


def test_a_model_without_permission_or_network_is_one_line(
    model: ServedModel, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hub_server import Answers

    refusal = (403, {"X-Error-Code": "GatedRepo"}, "accept them on its page and set HF_TOKEN")
    closed = (
        403,
        {"X-Error-Message": "Access is disabled."},
        r"HTTP 403 \(Access is disabled.\); run the same command",
    )
    bad_token = (
        401,
        {"X-Error-Message": "Invalid credentials in Authorization header"},
        "HTTP 401 .Invalid credentials",
    )
    answer = Answers.answer
    for status, headers, message in (refusal, closed, bad_token, (401, {}, "does not exist on the Hub, or is private")):
        monkeypatch.setattr(
            Answers, "answer", lambda self, *_, status=status, headers=headers: answer(self, status, b"", headers)
        )
        assert re.search(message, problem_of(output))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    requests = len(model.requests)
    assert "HF_HUB_OFFLINE is set; unset it, or name a folder" in problem_of(output)
    assert len(model.requests) == requests


def test_a_folder_that_has_the_commit_is_not_fetched_again(model: ServedModel, output: Path) -> None:
    """As who waited for another process finds it."""
    fetch_hub_weights(REPOSITORY, REVISION, output)
    (output / ".snakemake_timestamp").touch()
    requests = len(model.fetched)
    fetch_hub_weights(REPOSITORY, REVISION, output)
    assert len(model.fetched) == requests
    for name, content in {
        "config.json": model.files["config.json"].replace(b"{", b"[", 1),
        "model.safetensors": model.files["model.safetensors"][:-1],
        "vocab.txt": b"of another commit",
    }.items():
        (output / name).write_bytes(content)
        fetch_hub_weights(REPOSITORY, REVISION, output)
        assert {path.name: path.read_bytes() for path in output.iterdir()} == {
            name: model.files[name] for name in FETCHED
        }
