"""What an MLflow run holds of an entry: by a note of what was sent, and by the points that are stored."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bertline.console import BertlineError
from bertline.files import parse_json
from bertline.tracking.run_tree import Entry, Point
from bertline.tracking.sending import PARAMETER_LENGTH, digest_of_lines, shortened
from bertline.tracking.tags import DESCRIBED_TAG, DESCRIPTION_TAG, SENT_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


def sent_before(run: Run) -> dict[str, Any]:
    """Return the note of what was sent to a run, empty for one without. Raises BertlineError for a damaged one."""
    tags = run.data.tags
    try:
        note = parse_json(tags.get(SENT_TAG) or "{}")
        for number, digest in ((note.get("points", 0), note.get("digest")), note.get("sending", (0, None))):
            if type(number) is not int or not isinstance(digest, str | None):
                raise TypeError(f"{number!r} points with the digest {digest!r}")
        if not isinstance(note.get("files", {}), dict) or not isinstance(note.get("artifacts", {}), dict):
            raise TypeError("its files are no object")
    except (AttributeError, TypeError, ValueError) as error:
        raise BertlineError(
            f"the tag {SENT_TAG} of the MLflow run {run.info.run_id} is damaged ({error}); delete that run, and it is "
            "sent again"
        ) from None
    return dict(note)


def note_before_sending(entry: Entry, before: dict[str, Any]) -> str:
    """Return the note of what was sent, with the points that are now going to be sent."""
    return text_of(before | {"sending": [len(entry.points), digest_of_points(entry.points)]})


def text_of(note: dict[str, Any]) -> str:
    """Return a note as it is stored."""
    return json.dumps(note, sort_keys=True, separators=(",", ":"))


def was_never_completed(run: Run) -> bool:
    """Return whether the tracker that created a run ended before it had sent everything, as if it was killed."""
    note = sent_before(run)
    return "sending" in note and "points" not in note


def is_edited(run: Run) -> bool:
    """Return whether a person has changed a run's description."""
    stored, digest = run.data.tags.get(DESCRIPTION_TAG, ""), run.data.tags.get(DESCRIBED_TAG)
    return stored != "" and digest != digest_of_lines([stored])


def parameters_of(entry: Entry) -> dict[str, str]:
    """Return the parameters of an entry as MLflow has them."""
    return {shortened(key): value[:PARAMETER_LENGTH] for key, value in entry.parameters.items()}


def digest_of_points(points: Sequence[Point]) -> str:
    """Return 16 hexadecimal digits that differ if the points do."""
    return digest_of_lines(f"{point.key} {point.step} {point.timestamp} {point.value!r}" for point in points)


def can_continue(run: Run, entry: Entry) -> bool:
    """Return whether the points sent are a prefix of the entry's, as MLflow cannot retract any.

    So must be the points that a tracker was going to send: some of them may have arrived. Parameters do not matter:
    those that alter a result are in the fingerprint, and the others, or another spelling, make no other run.
    """
    points = entry.points
    for number, digest in _sent_and_sending(run):
        if number > len(points) or (number > 0 and digest != digest_of_points(points[:number])):
            return False
    return True


def is_ahead(client: MlflowClient, run: Run, entry: Entry) -> bool:
    """Return whether a run has all points of an entry and more."""
    if max(number for number, _ in _sent_and_sending(run)) <= len(entry.points):
        return False
    of_key: dict[str, set[tuple[int, int, float | None]]] = {}
    for point in entry.points:
        moment = run.info.start_time if point.timestamp is None else point.timestamp
        of_key.setdefault(shortened(point.key), set()).add((point.step, moment, _as_stored(point.value)))
    for key, points in of_key.items():
        stored = client.get_metric_history(run.info.run_id, key)
        if not points <= {(metric.step, metric.timestamp, _as_stored(metric.value)) for metric in stored}:
            return False
    return True


def _sent_and_sending(run: Run) -> list[tuple[int, str | None]]:
    note = sent_before(run)
    return [(note.get("points", 0), note.get("digest")), tuple(note.get("sending", (0, None)))]


def _as_stored(value: float) -> float | None:
    """Return a value as MLflow's databases have it, which have no infinity; None for a NaN."""
    return None if math.isnan(value) else max(-sys.float_info.max, min(sys.float_info.max, value))
