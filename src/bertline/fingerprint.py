"""Fingerprints: names of results, each a pure function of everything that affects the result.

Two results have the same fingerprint if and only if they are the same result. A fingerprint covers the settings that
differ from their defaults, the versions of the stages' code, and the fingerprints of the result's inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# Increment a stage's number whenever a change of its code changes its result; tests/unit/test_stage_versions.py
# contains digests of small outputs and fails if this is forgotten.
STAGE_VERSIONS = {
    "extraction": 6,  # by bertline's own extractor
    "documents": 6,
    "dump": 1,  # only of corpora that are dumps of Wikimedia, in addition to "documents"
    "plain_text": 2,  # only of the other corpora, in addition to "documents"
    "web_pages": 1,  # only of corpora of files with web pages, or archives that may have some, likewise
    # Steps of cleaning: each only of corpora with this step, in addition to "documents".
    "gopher_repetition": 1,
    "empty_brackets": 1,
    "placeholders": 1,
    "c4": 2,
    "fineweb": 2,
    "signatures": 3,
    "overlap": 3,
    "sentences": 5,
    "shards": 3,
    "sample": 1,  # only of datasets with samples of corpora, in addition to "shards"
    "tokenizer": 5,
    "samples": 2,
    "spaces": 1,  # only of datasets whose tokenizer may not be WordPiece, in addition to "tokenizer" and "samples"
    "sentence_order": 1,  # only of datasets with this objective, in addition to "samples"
    "import": 1,
    "pretraining": 5,
    "lamb": 1,  # only of phases with this optimizer, in addition to "pretraining"
    "finetuning": 12,
    "half_precision": 1,  # only of fine-tunings and predictions in bf16 or fp16, in addition to "finetuning"
    "conll_u": 1,  # only of predictions from CoNLL-U whose words were taken from another column before
    "negatives": 1,  # only of rankings with several drawn negatives, in addition to "finetuning"
    "collection": 1,  # from 2 on, in addition to "finetuning" of the rankings that read one
}

FINGERPRINT_LENGTH = 16


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces. Raises ValueError for NaN and inf."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of `value`'s canonical JSON, with 4 for 4.0."""
    return hashlib.sha256(canonical_json(_whole(value)).encode()).hexdigest()[:FINGERPRINT_LENGTH]


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def stage_versions(*stages: str) -> dict[str, int]:
    """Return the versions of the named stages, in the form used in fingerprints."""
    return {stage: STAGE_VERSIONS[stage] for stage in stages}
