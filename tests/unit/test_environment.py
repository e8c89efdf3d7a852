"""One list of dependencies: pyproject.toml."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def requirement_names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[ ]", requirement)[0].lower() for requirement in requirements}


def test_the_conda_environment_has_the_executor_of_every_profile() -> None:
    environment = yaml.safe_load((ROOT / "envs/bertline.yaml").read_text())
    installed = {line.partition("==")[0] for line in environment["dependencies"][-1]["pip"]}
    for path in ROOT.glob("profiles/*/config.yaml"):
        executor = yaml.safe_load(path.read_text()).get("executor", "local")
        assert executor == "local" or f"snakemake-executor-plugin-{executor}" in installed, path


def test_the_conda_environment_is_the_one_generated() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "envs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (ROOT / "envs/bertline.yaml").read_text() == generate.conda_environment()


def test_the_conda_environment_lists_every_dependency_with_an_exact_version() -> None:
    """And no option of pip's, which could name another file: Snakemake copies this one elsewhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "envs/bertline.yaml").read_text())
    (listed,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert [line for line in listed if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []
    assert requirement_names(project["dependencies"]) <= requirement_names(listed)


def test_every_dependency_is_pinned_and_has_its_reason() -> None:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    wanted = requirement_names(project["dependencies"] + project["optional-dependencies"]["test"])
    release = requirement_names(content["dependency-groups"]["release"])
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "envs/constraints.txt").read_text().splitlines() if "==" in line
    }
    reasons = (ROOT / "docs/dependencies.md").read_text().lower()
    assert wanted <= pinned
    assert [name for name in sorted(wanted | release) if f"`{name}`" not in reasons] == []
