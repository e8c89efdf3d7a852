"""What other users of a machine can see or hold up, and what a process must not change for all of its threads."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import stat
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from test_cluster_scheduler_jobs import PBS, PHASE
from torch import distributed

from bertline.cluster import scheduler_jobs
from bertline.console import MAX_MESSAGE_LENGTH, BertlineError, without_credentials
from bertline.finetuning.examples import read_examples
from bertline.settings.configuration import load
from bertline.tasks.registry import TASKS
from bertline.training.contract import TOKEN
from bertline.training.distributed.claims import claim, private_folder
from bertline.training.distributed.process_group import join_group
from bertline.training.distributed.rendezvous import check_members

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/workflow"))
from snakemake_runs import SMALL_CONFIG  # noqa: E402


def test_a_folder_of_locks_that_others_can_read_becomes_private(tmp_path: Path) -> None:
    """Who can open a file for reading can lock it, and so keep everybody from the GPU."""
    folder = private_folder(tmp_path)
    folder.chmod(0o755)
    assert stat.S_IMODE(private_folder(tmp_path).stat().st_mode) == 0o700


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    target = tmp_path / "precious"
    target.write_text("kept")
    (folder / "gpu-0.lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        claim(["gpu"], folder, 1)
    assert target.read_text() == "kept"


def test_a_lock_ends_with_its_process_and_not_with_its_file(tmp_path: Path) -> None:
    """A leftover file, of any content, holds nothing up."""
    folder = private_folder(tmp_path)
    (folder / "gpu-0.lock").write_text("4711 of somebody")
    index, lock = claim(["gpu"], folder, 1)
    assert index == 0
    with (folder / "gpu-0.lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.release()


def test_other_users_cannot_read_the_script_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes on HF_ENDPOINT, an address that may contain a password."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "https://me:secret@hub.example.org")
    monkeypatch.setenv("SNAKEMAKE_CLUSTER_SIDECAR_VARS", str(tmp_path / "submitted"))
    (tmp_path / "submitted").touch()
    submitted: list[Path] = []

    def submit(job: scheduler_jobs.Request) -> list[str]:
        submitted.append(Path(job.script))
        return ["echo", "7.server"]

    monkeypatch.setattr(scheduler_jobs, "scheduler_here", lambda: replace(PBS, submit=submit))
    jobscript = tmp_path / "snakejob.sh"
    jobscript.write_text(f"#!/bin/sh\n# properties = {json.dumps(PHASE)}\ntrue\n")
    # Of a job that had this number before the scheduler was installed anew.
    ended = PBS.ended / "7.server"
    ended.parent.mkdir(parents=True)
    ended.write_text("0\n")
    os.utime(ended, (0, 0))
    previous = os.umask(0o022)
    try:
        scheduler_jobs.submit_job(jobscript)
    finally:
        os.umask(previous)
    assert not ended.exists()
    (script,) = submitted
    assert "secret" in script.read_text()
    assert stat.S_IMODE(script.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        # As pathlib writes an address that was given for a path.
        ("https:/u:hidden@host/m/config.json does not exist", "https:/host/m/config.json does not exist"),
        ("/home/me/http:/hidden@host/x?key=hidden", "/home/me/http:/host/x?..."),
        ("https:/u:hid/d@en@host/x", "https:/host/x"),
        ("sqlite:/home/me@here/mlflow.db", "sqlite:/home/me@here/mlflow.db"),
        ("server:/export/me@here/x", "server:/export/me@here/x"),
    ],
)
def test_a_password_is_not_shown_in_an_address_that_was_taken_for_a_path(given: str, shown: str) -> None:
    assert without_credentials(given) == shown
    assert str(BertlineError(given)) == shown


ADDRESS = "https://me:hidden@host/x"


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("contact",), ADDRESS),
        (("experiment",), f"of {ADDRESS}"),
        (("corpora", "book", "paths"), [ADDRESS]),
        (("corpora", "book", "licence"), ADDRESS),
        (("datasets", "small", "tokenizer"), {"file": "HTTPS://hidden@host/vocab.txt"}),
        (("runs", "first", "description"), f"see {ADDRESS}"),
        (("runs", "theirs"), {"pretrained": ADDRESS.replace("hidden", "hid/den"), "finetune": {}}),
        (("predict", "new"), {"model": ADDRESS, "inputs": ["a.jsonl"]}),
        (("predict", "new"), {"model": "results/runs/first/table/t", "inputs": ["a.jsonl", ADDRESS]}),
    ],
)
def test_an_address_with_a_password_is_refused_in_every_text_of_a_configuration(
    keys: tuple[str, ...], value: object
) -> None:
    """Paths, names and descriptions go into records, plans, command lines, reports and MLflow as well."""
    changed = deepcopy(SMALL_CONFIG)
    inner: dict[str, Any] = changed
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    with pytest.raises(BertlineError, match=r"names and passwords into ~/\.netrc") as caught:
        load(changed, ROOT / "config/config.schema.yaml")
    assert ".".join(keys) in str(caught.value)
    assert "hid" not in str(caught.value)


@pytest.mark.parametrize("text", ["https://host:8080/@me", "http://a.b/c and me@d", "https://h/x?to=me@d", "me@uni"])
def test_an_address_without_a_password_may_be_in_a_description(text: str) -> None:
    changed = deepcopy(SMALL_CONFIG)
    changed["runs"]["first"]["description"] = text
    load(changed, ROOT / "config/config.schema.yaml")


@pytest.mark.parametrize("script", ["track", "log_model", "sweep"])
def test_the_help_of_a_command_does_not_show_the_address_of_the_server(script: str) -> None:
    environment = os.environ | {"MLFLOW_TRACKING_URI": "https://me:hidden@host"}
    command = [sys.executable, ROOT / f"workflow/scripts/{script}.py", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "MLFLOW_TRACKING_URI" in done.stdout
    assert "hidden" not in done.stdout + done.stderr


def test_the_demo_says_that_its_data_is_generated_and_its_recipe_tuned_on_its_development_sets() -> None:
    """Its report and model card begin with this description."""
    description = yaml.safe_load((ROOT / "config/demo.yaml").read_text())["runs"]["demo"]["description"]
    assert "text and tasks are generated" in description
    assert "recipe was tuned on these development sets" in description
    assert "nothing about a real language" in description


def test_a_label_of_a_megabyte_is_not_printed_whole(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("a\t" + "x" * 10**6 + "\tb\tc\n")
    with pytest.raises(BertlineError) as caught:
        read_examples(tmp_path / "dev.tsv", TASKS["cola"])
    assert len(str(caught.value)) <= MAX_MESSAGE_LENGTH
    assert "dev.tsv" in str(caught.value)


def test_no_module_changes_the_umask_of_its_process() -> None:
    """The umask is of all threads: a file that another one makes at that moment gets other permissions."""
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("workflow/**/*.py")]:
        named = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert "umask" not in named, path


def test_what_other_ranks_send_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger among the ranks hears the others' proofs; sent back as its own, none of them is one."""

    def echo(of_ranks: list[torch.Tensor], here: torch.Tensor) -> None:
        for one in of_ranks:
            one.copy_(here)

    monkeypatch.setenv(TOKEN, "of the job")
    monkeypatch.setattr(distributed, "all_gather", echo)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    with pytest.raises(BertlineError, match="rank 1, 2 of the group belongs to another job"):
        check_members(3, torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MASTER_PORT", None),
        ("MASTER_PORT", "http"),
        ("MASTER_PORT", "70000"),
        ("RANK", "first"),
        ("RANK", "2"),
        ("RANK", "-1"),
        ("WORLD_SIZE", "0"),
        ("LOCAL_WORLD_SIZE", "many"),
        ("LOCAL_RANK", ""),
    ],
)
def test_an_environment_that_no_rank_can_have_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    usual = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    for key, text in {**usual, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(key, text)
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(BertlineError, match=rf"{name}.*workflow/scripts/launch\.py"):
        join_group(1)
