"""Digests of labelled sets, which identify the official ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from bertline.fingerprint import canonical_json


def digest_of_examples(examples: Iterable[Sequence[Any]]) -> str:
    """Return the SHA-256 of a set's examples as the task reads them: texts and labels, and ids where scoring uses them.

    Neither the order of the examples nor the format of their file matters.
    """
    return hashlib.sha256("\n".join(sorted(map(canonical_json, examples))).encode()).hexdigest()
