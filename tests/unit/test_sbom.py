"""The list of packages of a release: what is in it, and that it is valid or not written."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LISTED: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "metadata": {"component": {"bom-ref": "root", "name": "bertline"}},
    "components": [
        {"bom-ref": "torch==1", "name": "torch", "version": "1"},
        {"bom-ref": "bertline==0", "name": "bertline", "version": "0"},  # of a build's metadata in src/
    ],
    "dependencies": [{"ref": "root", "dependsOn": ["torch==1"]}, {"ref": "torch==1"}, {"ref": "bertline==0"}],
}


@pytest.fixture
def sbom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, for a project in `tmp_path`; the libraries of CycloneDX are not in this environment."""
    complaints = {"": None}
    validator = lambda _: SimpleNamespace(validate_str=lambda _: complaints[""])  # noqa: E731
    for name, content in (
        ("cyclonedx", {}),
        ("cyclonedx.schema", {"SchemaVersion": SimpleNamespace(V1_6="1.6")}),
        ("cyclonedx.validation", {}),
        ("cyclonedx.validation.json", {"JsonStrictValidator": validator}),
    ):
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "envs/sbom.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    (tmp_path / "src/bertline").mkdir(parents=True)
    (tmp_path / "src/bertline/__init__.py").write_text('__version__ = "9.8"\n')
    monkeypatch.setattr(made, "ROOT", tmp_path)
    monkeypatch.setattr(made, "complaints", complaints, raising=False)
    return made


def test_the_list_has_every_package_but_the_project_itself(
    sbom: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def run(command: list[Any], **_: Any) -> SimpleNamespace:
        commands.append([*map(str, command)])
        return SimpleNamespace(stdout=json.dumps(LISTED))

    monkeypatch.setattr(subprocess, "run", run)
    sbom.main(Path(".venv"))
    written = tmp_path / "dist/bertline-9.8.cdx.json"
    content, first = json.loads(written.read_text()), written.read_bytes()
    assert [part["name"] for part in content["components"]] == ["torch"]
    assert [entry["ref"] for entry in content["dependencies"]] == ["root", "torch==1"]
    assert content["metadata"]["component"]["version"] == "9.8"
    assert {"--output-reproducible", "1.6"} <= set(commands[0])
    assert str(tmp_path) not in written.read_text()
    sbom.main(Path(".venv"))
    assert written.read_bytes() == first


def test_a_list_that_is_not_valid_is_not_written(
    sbom: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=json.dumps(LISTED)))
    sbom.complaints[""] = "no version"
    with pytest.raises(SystemExit, match=r"not valid CycloneDX 1\.6, so it was not written: no version"):
        sbom.main(Path(".venv"))
    assert not (tmp_path / "dist").exists()
