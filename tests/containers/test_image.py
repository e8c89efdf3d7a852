"""The image: what is in it, and a training in it that ends with the weights of this machine."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import engine
import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = "\n* * *\n".join(f"It rained on day {day}. The river rose by {day} feet." for day in range(200))
STEPS = 100
TOKENIZER = {"train": "wordpiece", "vocab_size": 400}
SNAKEMAKE = ["snakemake", "--profile", "profiles/local", "--cores", "1", "pretrain"]


def configuration(book: str, steps: int) -> dict[str, Any]:
    """A book, and a very small model."""
    phase = {"sequence_length": 128, "global_batch_size": 8, "steps": steps, "learning_rate": 1.0e-3}
    return {
        "sequence_lengths": [128],
        "corpora": {"book": {"source": "files", "paths": [book], "separator": "* * *", "sentences": "unicode"}},
        "datasets": {
            "small": {"corpora": ["book"], "shards": 1, "tokenizer": {"train": "wordpiece", "vocab_size": 400}}
        },
        "runs": {
            "first": {
                "dataset": "small",
                "model": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
                "phases": {"phase1": {**phase, "optimizer": "adamw", "precision": "fp32"}},
            }
        },
    }


def write_input(data: Path, steps: int) -> Path:
    """Write a configuration and its text into a new folder `data`."""
    (data / "texts").mkdir(parents=True)
    (data / "texts/book.txt").write_text(TEXT)
    (data / "small.yaml").write_text(yaml.safe_dump(configuration("texts/book.txt", steps)))
    return data


def digest_of_weights(folder: Path) -> str:
    [weights] = folder.glob("results/phases/*/model.safetensors")
    return hashlib.sha256(weights.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def weights_here(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the weights that this machine's own environment makes."""
    engine.engine()
    folder = tmp_path_factory.mktemp("here") / "checkout"
    write_input(folder, steps=STEPS)
    for part in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "Snakefile", folder)
    subprocess.run([sys.executable, "-m", *SNAKEMAKE, "--configfile", "small.yaml"], cwd=folder, check=True)
    return digest_of_weights(folder)


def test_a_training_in_a_read_only_container_of_any_user_gives_the_same_weights(
    tmp_path: Path, weights_here: str
) -> None:
    data = write_input(tmp_path / "data", steps=STEPS)
    engine.run(data, *SNAKEMAKE, "--configfile", "/data/small.yaml")
    assert digest_of_weights(data) == weights_here


def test_stop_saves_the_training_and_the_next_container_ends_it_with_the_same_weights(
    tmp_path: Path, weights_here: str
) -> None:
    data = write_input(tmp_path / "data", steps=STEPS)
    name = f"bertline-test-{tmp_path.parent.name}"
    command = [*SNAKEMAKE, "--configfile", "/data/small.yaml"]
    container = engine.start(data, *command, options=("--name", name))
    while container.poll() is None and not any(data.glob("results/phases/*/checkpoints/journal.jsonl")):
        time.sleep(0.05)
    subprocess.run([*engine.engine(), "stop", "-t", "120", name], check=True, capture_output=True)
    printed, _ = container.communicate()
    assert container.returncode not in (0, 137), printed[-6000:]
    [log] = data.glob("results/phases/*/checkpoints/training.log")
    assert "asked to stop: step" in log.read_text()
    assert "No such file" not in printed
    engine.run(data, *command)
    assert "resum" in log.read_text()
    assert digest_of_weights(data) == weights_here


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data/results").mkdir(parents=True)
    (tmp_path / "data/results").chmod(0o555)
    printed = engine.run(tmp_path / "data", "snakemake", status=1)
    user = engine.user().split(":")[0]
    [line] = printed.splitlines()
    assert line.startswith(f"error: user {user} cannot write to /data/results; mount a folder")


def test_make_works_and_sets_nothing_up(tmp_path: Path) -> None:
    printed = engine.run(tmp_path / "data", "make", "status", "CONFIG=config/demo.yaml")
    assert "Setting up" not in printed


def test_the_image_has_nothing_that_is_not_for_its_users(tmp_path: Path) -> None:
    """Neither secrets nor history, tests or tools of builds; its user can change no file in it."""
    program = r"""
    find / -xdev -name .git -o -path /bertline/tests -o -name ".*history" -o -name .env -o -name site.yaml
    find / -xdev -name .netrc -o -path "*/.ssh/*"
    find /usr /bertline /etc /opt /var -xdev -writable -not -type l -not -path /var/tmp -print
    find / -xdev -type f -perm /6000 -print
    find /usr /bertline -xdev -not -user root -print
    ls /root /home /var/lib/apt/lists /var/cache/apt/archives/*.deb /bertline/.venv/bin/pip /usr/bin/gcc 2> /dev/null
    grep -rlE "^machine [^ ]+( login .*| password .*)?\$|BEGIN .*PRIVATE KEY" /etc /bertline --exclude-dir site-packages
    ls /bertline/.venv/lib/python3*/site-packages | grep -xE "pytest|mypy|ruff|pip|hypothesis"
    """
    printed = engine.run(tmp_path / "data", "sh", "-c", f"({program}) 2> /dev/null; true")
    lines = [line for line in printed.splitlines() if line and not line.endswith(":")]
    assert lines == []
