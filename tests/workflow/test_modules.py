"""The workflow in another folder than its checkout: by --directory, as a module, and as snakedeploy deploys it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from snakemake_runs import ROOT, SMALL_CONFIG, run_snakemake

MODULE = """
configfile: "config/config.yaml"


module bertline:
    snakefile:
        {snakefile}
    config:
        config


use rule * from bertline
"""
OPTIONS = ("--cores", "1", "--rerun-triggers", "mtime", "params", "input")


def git(*arguments: object, folder: Path) -> str:
    command = ["git", "-c", "user.name=us", "-c", "user.email=us@localhost", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with what is in this checkout, and the tag v1."""
    folder = tmp_path_factory.mktemp("hosted") / "github.com/us/bertline"
    for name in ("Snakefile", "workflow", "config", "profiles", "envs", "src", "LICENSE", ".gitignore"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        folder.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, folder / name)
    git("init", "--quiet", folder=folder)
    git("add", ".", folder=folder)
    git("commit", "--quiet", "--message", "all", folder=folder)
    git("tag", "v1", folder=folder)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path, repository: Path, sample: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a configuration and data. The address of the repository on github.com leads to the local one."""
    config = tmp_path / "git-config"
    config.write_text(f'[url "file://{repository}"]\n\tinsteadOf = https://github.com/us/bertline\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "a folder"
    (folder / "config").mkdir(parents=True)
    (folder / "resources").mkdir()
    (folder / "resources/sample").symlink_to(sample)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(SMALL_CONFIG, sort_keys=False))
    return folder


def assert_the_book_is_read(folder: Path, *arguments: str) -> None:
    """Its jobs run the repository's scripts with recipes that the start of the run wrote; their links are made, too."""
    run_snakemake(folder, *OPTIONS, *arguments, "--", "results/runs/first/corpora/book")
    (sentences,) = (folder / "results/runs/first/corpora/book/sentences").glob("*.txt.zst")
    assert sentences.stat().st_size > 0


@pytest.mark.slow
def test_a_module_from_github_runs_with_its_own_scripts_and_library(elsewhere: Path, repository: Path) -> None:
    (elsewhere / "workflow").mkdir()
    snakefile = 'github("us/bertline", path="workflow/Snakefile", tag="v1")'
    (elsewhere / "workflow/Snakefile").write_text(MODULE.format(snakefile=snakefile))
    assert_the_book_is_read(elsewhere)
    commit = git("rev-parse", "v1", folder=repository).strip()
    printed = run_snakemake(elsewhere, *OPTIONS, "--dry-run", "--printshellcmds", "--forceall", "--", "encode").stdout
    scripts = re.findall(r"python (\S+|'[^']+')workflow/scripts/\w+\.py", printed)
    assert {script.strip("'") for script in scripts} == {f"{elsewhere}/.snakemake/bertline/{commit}/"}
    # A run without targets makes everything.
    assert "track_run" in run_snakemake(elsewhere, *OPTIONS, "--dry-run").stdout


@pytest.mark.slow
def test_a_module_from_a_checkout_runs_with_settings_of_the_command_line(elsewhere: Path, repository: Path) -> None:
    (elsewhere / "Snakefile").write_text(MODULE.format(snakefile=f'"{repository}/workflow/Snakefile"'))
    assert_the_book_is_read(elsewhere, "--config", "set=corpora.book.minimum_characters=10")
    (corpus,) = (elsewhere / "results/corpora").glob("book-*")
    name = "results/runs/first/phase2"
    assert corpus.name not in run_snakemake(elsewhere, *OPTIONS, "--dry-run", "--printshellcmds", "--", name).stdout


@pytest.mark.slow
def test_the_workflow_runs_in_another_folder_than_its_checkout(elsewhere: Path, repository: Path) -> None:
    options = ("--snakefile", str(repository / "workflow/Snakefile"), "--directory", str(elsewhere))
    run_snakemake(repository, *OPTIONS, *options, "--", "results/runs/first/corpora/book")
    assert (elsewhere / "results/runs/first/corpora/book/sentences").exists()
    assert not (repository / "results").exists()


def test_snakedeploy_deploys_it(elsewhere: Path, repository: Path, tmp_path: Path) -> None:
    snakedeploy = shutil.which("snakedeploy")
    if snakedeploy is None:
        pytest.skip("snakedeploy is not installed")
    deployed = tmp_path / "deployed"
    command = [snakedeploy, "deploy-workflow", "https://github.com/us/bertline", deployed, "--tag", "v1"]
    subprocess.run(command, check=True)
    shutil.copy(elsewhere / "config/config.yaml", deployed / "config/config.yaml")
    (deployed / "resources").symlink_to(elsewhere / "resources")
    assert_the_book_is_read(deployed)


def test_without_the_packages_one_line_explains_how_to_get_them(elsewhere: Path, repository: Path) -> None:
    broken = shutil.copytree(repository, elsewhere / "broken")
    (broken / "src/bertline/planning/resolve.py").write_text("import a_package_that_is_absent\n")
    # A new process: this one may have imported bertline already.
    command = [
        sys.executable,
        "-m",
        "snakemake",
        *OPTIONS,
        "--dry-run",
        "--snakefile",
        str(broken / "workflow/Snakefile"),
    ]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: the Python package a_package_that_is_absent is not installed" in done.stderr
    assert "Traceback" not in done.stderr
