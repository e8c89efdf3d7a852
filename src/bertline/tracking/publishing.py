"""Synchronisation of a tree of MLflow runs with a tree of entries; only what is missing is sent.

MLflow cannot retract points: a run whose points are no longer a prefix of the entry's is superseded by a new run. An
entry that lags behind its run, as in an older copy of the results, changes nothing. A run is deleted only if another
tracker made the same one at the same time.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.tracking.experiment import find_or_create_experiment, search_runs
from bertline.tracking.logged_models import log_checkpoints
from bertline.tracking.notes import (
    digest_of_points,
    is_edited,
    note_before_sending,
    parameters_of,
    sent_before,
    text_of,
)
from bertline.tracking.origin import owner, place
from bertline.tracking.passes import SyncPass, and_below
from bertline.tracking.run_tree import Entry
from bertline.tracking.sending import (
    NOTED_ARTIFACTS,
    TAG_LENGTH,
    digest_of_lines,
    log_batches,
    log_dataset,
    send_artifacts,
    shortened,
)
from bertline.tracking.tags import (
    DESCRIBED_TAG,
    DESCRIPTION_TAG,
    ORIGIN_TAG,
    PARENT_TAG,
    PLACE_TAG,
    RECORD_TAG,
    RUN_TAG,
    SENT_TAG,
    SUPERSEDED_TAG,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

CONFLICT = "IntegrityError"  # SQLAlchemy's, in the message of a store
MAX_CONFLICTS = 10  # in one call


def publish(
    client: MlflowClient,
    entry: Entry,
    artifact_root: Path | None,
    *,
    origin: str,
    read_again: Callable[[], Entry] | None = None,
) -> dict[str, Any]:
    """Bring the runs of `entry` and of all its descendants up to date.

    Any number of trackers may do so at once, also without a common lock: every run is there once at the end. What lags
    behind its run is left as it is, with one line.

    Args:
        client: of the store.
        entry: the root of the tree. Its experiment is created if it does not exist.
        artifact_root: folder for the experiment's artifacts; None for the server's own.
        origin: id of the results; runs of another are neither changed nor deleted.
        read_again: returns the present entry. It is called if a run has more points than `entry`, as another tracker
            may have sent what was written after `entry` was read.

    Returns the experiment, the id of the tree's MLflow run, the points of each stage, how many were sent now, and a
    line for each artifact that was `refused`, which the next pass sends again.
    """
    from mlflow.exceptions import MlflowException

    experiment_id, conflicts = find_or_create_experiment(client, entry.experiment, artifact_root), 0
    ids_before_call: dict[str, frozenset[str]] = {}
    created_ids_of_call: set[str] = set()
    while True:
        sync = SyncPass(
            client, experiment_id, origin, ids_before_call=ids_before_call, created_ids_of_call=created_ids_of_call
        )
        if sync.outdated(entry) and read_again is not None:
            entry = read_again()
        sync.outdated_runs.extend(sync.outdated(entry).values())
        try:
            published = _publish(sync, entry)
        except MlflowException as error:
            # If two trackers write one parameter at once, the store refuses one, which finds it in the next pass.
            is_conflict = CONFLICT in str(error)
            conflicts += is_conflict
            if sync.is_complete() and (not is_conflict or conflicts > MAX_CONFLICTS):
                raise
        else:
            # A run of another tracker may have come after the look for it, with more than `entry` has.
            known_as_outdated = {run.info.run_id for run in sync.outdated_runs}
            fresh = SyncPass(client, experiment_id, origin)
            was_overtaken = (
                sync.created_ids and read_again is not None and fresh.outdated(entry).keys() - known_as_outdated
            )
            if sync.is_complete() and not was_overtaken:
                if sync.stale_entries:
                    stages = ", ".join(sync.stale_entries)
                    logger.info(
                        "MLflow has more points of %s than results/ here, and keeps them: %s", entry.name, stages
                    )
                return {"experiment": entry.experiment, **published}
        # Another tracker withdrew a run of this one as a duplicate of its own, which is found now.


def find_run(client: MlflowClient, experiment_id: str, entry: Entry, origin: str) -> Run | None:
    """Return the MLflow run of an entry that `publish` would continue, or that has all its points and more."""
    sync = SyncPass(client, experiment_id, origin)
    found = sync.continuable(entry)
    return found[0] if found else sync.ahead(entry)


def _publish(sync: SyncPass, entry: Entry) -> dict[str, Any]:
    others = _supersede_others(sync, entry)
    points: dict[str, int] = {}
    sent = 0

    def bring_up_to_date(entry: Entry, parent: str | None, description: str) -> str:
        nonlocal sent
        run_id, new = _synchronise(sync, entry, parent, description)
        sent += new
        points[entry.name] = len(entry.points)
        for child in entry.children:
            bring_up_to_date(child, run_id, child.description)
        return run_id

    run_id = bring_up_to_date(entry, None, entry.description + _links(sync, entry))
    if others:
        _end_stages(sync, others, entry.identity_tags[RECORD_TAG])
    return {"mlflow_run": run_id, "points": points, "sent": sent, "refused": sync.refusals.lines}


def _supersede_others(sync: SyncPass, entry: Entry) -> list[str]:
    """Mark the MLflow runs that this folder sent of this run before its recipe or the name of its experiment changed.

    Returns the ids of all earlier runs of its name and origin.
    """
    name, record = entry.identity_tags[RUN_TAG], entry.identity_tags[RECORD_TAG]
    condition = f"tags.`{RUN_TAG}` = '{name}' AND tags.`{ORIGIN_TAG}` = '{sync.origin}'"
    found = search_runs(sync.client, None, condition)
    present = record, sync.experiment_id
    others = [run for run in found if (run.data.tags.get(RECORD_TAG, record), run.info.experiment_id) != present]
    _supersede(sync, others, record)
    return [run.info.run_id for run in others]


def _end_stages(sync: SyncPass, others: list[str], record: str) -> None:
    """End the unfinished stages below earlier runs that the present one, which is sent, does not continue.

    A stage that yet another run shares is set to running again in the next pass of that run.
    """
    condition = f"attributes.status = 'RUNNING' AND tags.`{ORIGIN_TAG}` = '{sync.origin}'"
    found = search_runs(sync.client, None, condition)
    left = [run for run in found if run.data.tags.get(PARENT_TAG) in others and run.info.run_id not in sync.used_ids]
    _supersede(sync, left, record)


def _supersede(sync: SyncPass, runs: Iterable[Run], by: str) -> None:
    """Mark those of the runs that this folder was the last to send: a copy of it may still have the points.

    One that is not finished ends now: if its recipe is continued, the next pass sets it to running again.
    """
    sent_from_here = {ORIGIN_TAG: sync.origin, PLACE_TAG: place()}
    for run in runs:
        if not sent_from_here.items() <= run.data.tags.items():
            continue
        if run.data.tags.get(SUPERSEDED_TAG) != by:
            sync.client.set_tag(run.info.run_id, SUPERSEDED_TAG, by)
        if run.info.status == "RUNNING":
            sync.client.set_terminated(run.info.run_id, "KILLED")


def _other_parent(sync: SyncPass, entry: Entry, run: Run | None) -> str | None:
    """Return the present parent of a shared run; None if the entry's applies.

    That is so if the parent was deleted or superseded, or is of another origin.
    """
    is_shared = RECORD_TAG not in entry.identity_tags
    parent = run.data.tags.get(PARENT_TAG) if run is not None and is_shared else None
    if parent is None:
        return None
    found = search_runs(sync.client, sync.experiment_id, f"attributes.run_id = '{parent}'")
    is_own = found and found[0].data.tags.get(ORIGIN_TAG) == sync.origin and SUPERSEDED_TAG not in found[0].data.tags
    return parent if is_own else None


def _links(sync: SyncPass, entry: Entry) -> str:
    """Return links, for the description, to shared stages that are below another run."""
    own = {run.info.run_id for run in map(sync.find, and_below(entry)) if run is not None}
    lines = []
    for one in and_below(entry):
        run = sync.find(one) or sync.ahead(one)
        parent = _other_parent(sync, one, run)
        if run is not None and parent is not None and parent not in own:
            lines.append(f"- [{one.name}](#/experiments/{sync.experiment_id}/runs/{run.info.run_id})")
    return "\n\nShared with another run, whose children they are:\n" + "\n".join(lines) if lines else ""


def _synchronise(sync: SyncPass, entry: Entry, parent: str | None, description: str) -> tuple[str, int]:
    """Make one MLflow run equal to `entry`; return its id and how many points were sent."""
    run = sync.find(entry, parent)
    if run is None or run.info.run_id in sync.created_ids_of_call:
        ahead = sync.ahead(entry)
        if ahead is not None:
            if run is not None:  # of this pass: the one that has more came at the same time
                sync.withdraw(run, entry)
            sync.used_ids.append(ahead.info.run_id)
            sync.stale_entries.append(entry.name)
            return ahead.info.run_id, 0
    description = description[:TAG_LENGTH]
    # First, so that one request has both.
    tags = {DESCRIPTION_TAG: description, DESCRIBED_TAG: digest_of_lines([description])}
    tags |= entry.identity_tags | {ORIGIN_TAG: sync.origin, PLACE_TAG: place()} | entry.tags
    if parent is not None:
        tags[PARENT_TAG] = _other_parent(sync, entry, run) or parent
    tags = {shortened(key): value[:TAG_LENGTH] for key, value in tags.items()}
    run = run or _create(sync, entry, parent, tags)
    run_id = run.info.run_id
    sync.used_ids.append(run_id)
    sync.withdraw_duplicates(entry)
    outdated = [one for one in sync.outdated_runs if entry.identity_tags.items() <= one.data.tags.items()]
    _supersede(sync, outdated, run_id)
    if SUPERSEDED_TAG in run.data.tags:
        sync.client.delete_tag(run_id, SUPERSEDED_TAG)  # it is again the present state
    sent = _send(sync, entry, run, tags)
    if entry.finished and run.info.status != "FINISHED":
        sync.client.set_terminated(run_id, "FINISHED", end_time=entry.ended)
    elif not entry.finished and run.info.status != "RUNNING":
        sync.client.update_run(run_id, status="RUNNING")
    return run_id, sent


def _create(sync: SyncPass, entry: Entry, parent: str | None, tags: Mapping[str, str]) -> Run:
    """Create the MLflow run of `entry`; return it, or an equal one that another tracker has created meanwhile."""
    created = sync.client.create_run(
        sync.experiment_id,
        start_time=entry.started or int(time.time() * 1000),
        tags={"mlflow.user": owner(), SENT_TAG: note_before_sending(entry, {})}
        | dict(itertools.islice(tags.items(), 50)),
        run_name=entry.name,
    )
    sync.created_ids.append(created.info.run_id)
    sync.created_ids_of_call.add(created.info.run_id)
    sync.look(entry)
    return sync.find(entry, parent) or created


def _send(sync: SyncPass, entry: Entry, run: Run, tags: Mapping[str, str]) -> int:
    """Send what MLflow's run does not have yet; return the number of points."""
    client, run_id, before = sync.client, run.info.run_id, sent_before(run)
    dataset = before.get("dataset")
    if entry.dataset is not None and dataset is None:  # files that were changed since are not what it was trained on
        dataset = entry.dataset.digest
        log_dataset(client, run_id, entry.dataset)
    files_before = before.get("files", {})
    present = send_artifacts(client, run_id, entry, files_before, sync.refusals)
    files = present | {name: digest for name, digest in files_before.items() if name not in present}
    on_disk = [str(checkpoint.path) for checkpoint in entry.checkpoints]
    checkpoints = digest_of_lines(on_disk) if on_disk else None
    if before.get("checkpoints") != checkpoints:
        if sync.offers_logged_models:
            log_checkpoints(client, run, entry, sync.origin)
        else:
            checkpoints = before.get("checkpoints")

    sent = before.get("points", 0)
    after = {
        "points": len(entry.points),
        "digest": digest_of_points(entry.points),
        "files": dict(itertools.islice(files.items(), NOTED_ARTIFACTS)),
        "dataset": dataset,
        "checkpoints": checkpoints,
    }
    if sent < len(entry.points) and run.data.tags.get(SENT_TAG) != (note := note_before_sending(entry, before)):
        client.set_tag(run_id, SENT_TAG, note)
    theirs = (DESCRIPTION_TAG, DESCRIBED_TAG) if is_edited(run) else ()
    log_batches(
        client,
        run,
        entry.points[sent:],
        {key: value for key, value in parameters_of(entry).items() if key not in run.data.params},
        {key: value for key, value in tags.items() if run.data.tags.get(key) != value and key not in theirs},
    )
    if after != before:
        # Last: a pass that is killed is repeated in full, and MLflow stores equal points once.
        client.set_tag(run_id, SENT_TAG, text_of(after))
    return len(entry.points) - sent
