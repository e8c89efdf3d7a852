"""The engine's code for GPUs runs on a fake one; fake_gpu.py explains the limits of these tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fake_gpu_library import build_fake_gpu
from synthetic_dataset import write_dataset

HERE = Path(__file__).parent
CASES = [
    "rows",
    "rows in fp16",
    "packed",
    "packed with dropout",
    "rows with lion",
    "rows with soap",
    "rows with shampoo",
    "packed in fp32",
    "packed on an older GPU",
    "rows, traced",
    "full rows and others, traced",
    "packed, traced",
    "packed with dropout, traced",
    "GELU and dropout, traced",
    "a sequence's class",
    "tokens' classes",
    "answers",
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    if torch.version.cuda is not None:
        pytest.skip("this PyTorch has a CUDA library of its own")
    folder = tmp_path_factory.mktemp("fake")
    library = build_fake_gpu(folder)
    card = write_dataset(folder / "dataset")
    command = [sys.executable, HERE / "fake_gpu.py", library, card]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    print(done.stderr, file=sys.stderr)
    assert done.returncode == 0
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_tensors_are_where_they_should_be_and_nothing_waits_for_the_gpu(results: dict[str, str | None], case: str):
    assert results[case] is None


@pytest.mark.slow
def test_every_case_is_looked_at(results: dict[str, str | None]):
    assert sorted(results) == sorted(CASES)
