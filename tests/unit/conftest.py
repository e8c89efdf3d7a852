"""Fixtures that several test files share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset in data/, its vocab.txt, and its files in both layouts."""
    # Not at the top: the tests for a GPU run where what these files need is not installed.
    from interchange_files import write_both_layouts

    folder = tmp_path_factory.mktemp("made")
    write_both_layouts(folder)
    return folder


@pytest.fixture(scope="module")
def imported(made: Path) -> Path:
    """The dataset.json of NVIDIA's files, imported."""
    from interchange_files import import_all

    return import_all(made, made / "imported", "nvidia/b_training_*", "nvidia/b_test_*")


@pytest.fixture(scope="session")
def fresh_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database of MLflow, made once: making it takes seconds."""
    from bertline.tracking.store import initialise

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    initialise(f"sqlite:///{path}")
    return path


@pytest.fixture
def no_hang() -> Iterator[Callable[[], None]]:
    """A function that gives the test twenty more seconds."""

    def stop(*_: object) -> None:
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, stop)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 20) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
