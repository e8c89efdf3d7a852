"""Fingerprints and digests of inputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.files import digest_of_files
from bertline.fingerprint import canonical_json, fingerprint

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_the_order_of_keys_does_not_matter(value: dict) -> None:
    assert fingerprint(value) == fingerprint(dict(reversed(value.items())))


def test_a_fingerprint_is_the_published_hash_of_the_canonical_text() -> None:
    # printf '{"a":[1,"é"],"b":0.5}' | sha256sum
    assert canonical_json({"b": 0.5, "a": [1, "é"]}) == '{"a":[1,"é"],"b":0.5}'
    assert fingerprint({"b": 0.5, "a": [1, "é"]}) == "17f01d7babd1a5b1"


def test_nan_has_no_fingerprint() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        fingerprint({"a": float("nan")})


def test_a_remembered_digest_follows_the_content(tmp_path: Path) -> None:
    file, memory = tmp_path / "book.txt", tmp_path / "memory.json"
    file.write_text("one")
    first = digest_of_files([file], memory)
    assert digest_of_files([file], memory) == first
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert digest_of_files([file], memory) != first
