"""Which packages import which: text flows one way through the stages, and none of them depends on a cluster."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
# Commands and the Snakefile's own imports start often, or while a person waits.
WITHOUT_TORCH = (
    "bertline.planning.resolve",
    "bertline.planning.progress",
    "bertline.planning.expected",
    "bertline.reporting.page",
    "bertline.training.lock",
    "snakemake_logger_plugin_bertline",
)
STAGES = ("corpus", "encoding", "training", "finetuning", "reporting")  # in the order that text flows through them
ROOMS = sorted(
    {path.relative_to(SOURCE).with_suffix("").parts[1] for path in SOURCE.glob("bertline/**/*.py")} - {"cluster"}
)


def forbidden(room: str) -> set[str]:
    """What a room (a package of bertline, or one of its modules) may not import."""
    names = {"bertline.cluster"}
    if room != "proposal":
        names.add("bertline.proposal")
    if room in ("settings", "tasks", "results"):
        names |= {f"bertline.{other}" for other in (*STAGES, "planning", "tracking")}
    if room in ("settings", "tasks"):
        names.add("bertline.results")
    if room in ("planning", "proposal"):
        names |= {"bertline.reporting", "bertline.tracking", "snakemake", "mlflow"}
    if room in STAGES:
        names |= {f"bertline.{later}" for later in STAGES[STAGES.index(room) + 1 :]}
    if room == "modeling":
        names |= {"bertline.training", "bertline.finetuning", "bertline.reporting"}
    if room == "tracking":
        names |= {f"bertline.{stage}" for stage in (*STAGES, "modeling")}
    if room in (*STAGES, "modeling"):
        names |= {"snakemake", "mlflow", "bertline.planning", "bertline.tracking"}
    return names


def imported_modules(path: Path) -> Iterator[str]:
    """The full names of what a file imports, anywhere in it; of `from x import y` both x and x.y."""
    package = path.relative_to(SOURCE).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*parents, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{name.name}" for name in node.names)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_nothing_that_comes_after_it(room: str) -> None:
    paths = [*SOURCE.glob(f"bertline/{room}.py"), *sorted(SOURCE.glob(f"bertline/{room}/**/*.py"))]
    violations = [
        f"{path.relative_to(SOURCE)} imports {module}"
        for path in paths
        for module in imported_modules(path)
        if any(is_within(module, name) for name in forbidden(room))
    ]
    assert violations == []


def test_what_starts_often_starts_without_torch() -> None:
    code = f"import sys; sys.modules['torch'] = None; import {', '.join(WITHOUT_TORCH)}"
    subprocess.run([sys.executable, "-c", code], check=True)
