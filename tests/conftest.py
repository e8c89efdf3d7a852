"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real test data; tests that need it are skipped where it is absent."""
    folder = os.environ.get("BERTLINE_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("BERTLINE_TEST_DATA does not name a folder of real test data")
    return Path(folder)
