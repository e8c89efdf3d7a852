"""bench/gpu.py runs from end to end on a CPU, with no more packages than a machine with a GPU may have."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "triton", "numpy", "h5py", "safetensors", "tokenizers", "transformers", "regex", "pyyaml", "filelock", "psutil",
    "requests", "tqdm", "jinja2", "tabulate", "scikit-learn", "scipy", "pyarrow", "huggingface_hub", "nvidia-ml-py",
    "pytest", "cyclopts",
)  # fmt: skip
# What the graph, the corpus and the tracking of MLflow need, and training does not.
ABSENT = (
    "snakemake",
    "mlflow",
    "datasets",
    "evaluate",
    "nltk",
    "pyzstd",
    "rensa",
    "jsonschema",
    "seqeval",
    "wikiextractor",
)
PARTS = {"machine", "correctness", "kernels", "speed", "profile", "training"}
MINUTES = 60  # a limit that no machine reaches: under 4 on two quiet cores, 15 beside other tests on a slow one


def bare_environment(folder: Path, torch: str) -> Path:
    """A virtual environment with that PyTorch and `PACKAGES` alone; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    lines = (ROOT / "envs/constraints.txt").read_text().splitlines()
    # An older torch needs an older setuptools.
    pins = [line for line in lines if not line.startswith(("torch=", "setuptools="))]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join([*pins, f"torch=={torch}"]))
    # torch alone and first: together with others, pip may choose another build of it.
    for packages in ([*shlex.split(os.environ.get("TORCH_OPTIONS", "")), "torch"], PACKAGES):
        command = [python, "-m", "pip", "install", "--quiet", "--constraint", constraints, *packages]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip said nothing"]
            pytest.skip(f"no packages can be installed here: {lines[-1]}")
    return python


@pytest.mark.parametrize("torch", ["2.13.0", "2.11.0"])
def test_every_part_runs_to_its_end_with_the_fewest_packages(tmp_path: Path, torch: str) -> None:
    python = bare_environment(tmp_path / "environment", torch)
    listed = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format", "json"], text=True))
    assert not {package["name"].lower() for package in listed} & set(ABSENT)
    out = tmp_path / "out"
    command = [python, ROOT / "bench/gpu.py", "--tiny", "--minutes", str(MINUTES), "--out", out]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    logs = "".join(path.read_text() for path in sorted(out.glob("*.log")))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    print(done.stdout)  # with -rP: the table
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [result for result in results if "error" in result] == []
    assert {result["part"] for result in results} == PARTS
    [names] = [result for result in results if result.get("case") == "names"]
    assert names["torch"].split("+")[0] == torch
    outcomes = {result["outcome"] for result in results if result["part"] == "correctness"}
    assert outcomes == {"passed"}
    assert (out / "table.txt").read_text() in done.stdout


def test_a_part_that_fails_is_one_line_and_the_others_continue(tmp_path: Path) -> None:
    """Its module is replaced by one that cannot be imported; the part behind it still runs."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("bench", "src", "tests", "config", "workflow", "pyproject.toml"):
        (copy / name).symlink_to(ROOT / name)
    (copy / "bench").unlink()
    (copy / "bench/gpu_parts").mkdir(parents=True)
    for path in [*(ROOT / "bench").glob("*.py"), *(ROOT / "bench/gpu_parts").glob("*.py")]:
        (copy / path.relative_to(ROOT)).write_text(path.read_text())
    (copy / "bench/gpu_parts/machine.py").write_text("raise ImportError('no such driver')\n")
    command = [
        sys.executable,
        copy / "bench/gpu.py",
        "--tiny",
        "--only",
        "machine",
        "kernels",
        "--out",
        tmp_path / "out",
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(copy / "src")}, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "ImportError: no such driver" in done.stdout
    assert "Traceback" not in done.stdout
    assert "Traceback" in (tmp_path / "out/machine.log").read_text()
    results = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    assert any("milliseconds" in result for result in results if result["part"] == "kernels")


def test_a_part_that_hangs_is_stopped_and_its_results_are_shown(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    (bench / "gpu_parts").mkdir(parents=True)
    for path in [ROOT / "bench/gpu.py", *(ROOT / "bench/gpu_parts").glob("*.py")]:
        (bench / path.relative_to(ROOT / "bench")).write_text(path.read_text())
    (bench / "gpu_parts/machine.py").write_text(
        "import time\ndef run(context):\n    yield {'case': 'copy', 'gigabytes_per_second': 7}\n    time.sleep(600)\n"
    )
    command = [sys.executable, bench / "gpu.py", "--only", "machine", "--minutes", "0.2", "--out", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "its time was up" in done.stdout
    assert "copy" in (tmp_path / "out/table.txt").read_text()
