"""Fingerprints: a name for a result that is a pure function of everything that alters it.

Two results share a fingerprint exactly when they would be the same result. A fingerprint covers the settings that
differ from their defaults, the versions of the stages' code, and the fingerprints of what the result is made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertline.files import sha256_of_file, write_json

# Raise a stage's number whenever a change of its code changes its result; tests/unit/test_stage_versions.py holds
# digests of small outputs and fails when someone forgets.
STAGE_VERSIONS = {
    "extraction": 1,  # by our own extractor
    "documents": 2,
    "signatures": 1,
    "overlap": 1,
    "sentences": 1,
    "shards": 1,
    "tokenizer": 2,
    "samples": 1,
    "import": 1,
    "pretraining": 2,
    "finetuning": 3,
}

FINGERPRINT_LENGTH = 16


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `value`'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:FINGERPRINT_LENGTH]


def stage_versions(*stages: str) -> dict[str, int]:
    """The versions of the named stages, as they enter a fingerprint."""
    return {stage: STAGE_VERSIONS[stage] for stage in stages}


def digest_of_files(paths: Iterable[Path], remembered: Path) -> dict[str, str]:
    """SHA-256 of each file by its path as given.

    Digests are remembered in the JSON file `remembered` by path, size and modification time, because the graph asks
    for them at every start and a shelf of books takes seconds to read.
    """
    try:
        memory = json.loads(remembered.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        memory = {}
    digests, learned = {}, False
    for path in paths:
        status = path.stat()
        known = memory.get(str(path))
        if known is None or known[:2] != [status.st_size, status.st_mtime_ns]:
            known = [status.st_size, status.st_mtime_ns, sha256_of_file(path)]
            memory[str(path)] = known
            learned = True
        digests[str(path)] = known[2]
    if learned:
        write_json(remembered, memory)
    return digests
