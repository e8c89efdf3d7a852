"""Synchronisation of a tree of MLflow runs with a tree of entries; only what is missing is sent.

MLflow cannot retract points: a run whose points are no longer a prefix of the entry's is superseded by a new run. An
entry that lags behind its run, as in an older copy of the results, changes nothing. A run is deleted only if another
tracker made the same one at the same time.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.tracking.experiment import find_or_create_experiment, search_runs
from bertline.tracking.logged_models import log_checkpoints, offers_logged_models
from bertline.tracking.notes import (
    can_continue,
    digest_of_points,
    is_ahead,
    note_before_sending,
    parameters_of,
    sent_before,
)
from bertline.tracking.origin import owner, place
from bertline.tracking.run_tree import Entry
from bertline.tracking.sending import (
    TAG_LENGTH,
    digest_of_lines,
    log_batches,
    log_dataset,
    send_artifacts,
    shortened,
)
from bertline.tracking.tags import (
    FINGERPRINT_TAG,
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


@dataclass(frozen=True)
class _Pass:
    """A pass over one tree: the store, and its runs for the tree's entries by fingerprint.

    `refused` has a line for each artifact that the store did not accept; everything else is sent nevertheless. `used`
    has the ids of the entries' runs, `created` of those that are new. `old` has own runs with points that the entries,
    which were read later, do not have. `behind` has the names of entries that lag behind their run.

    Over all passes of a call of `publish`, `before` has the ids of the runs that were there first, by fingerprint, and
    `made` of those that were created.
    """

    client: MlflowClient
    experiment_id: str
    origin: str
    known: dict[str, list[Run]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    old: list[Run] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    before: dict[str, frozenset[str]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    @cached_property
    def offers_logged_models(self) -> bool:
        """Whether the store has logged models."""
        return offers_logged_models(self.client, self.experiment_id)

    def look(self, entry: Entry) -> list[Run]:
        """Return the runs with an entry's fingerprint as they are now."""
        fingerprint = entry.identity_tags[FINGERPRINT_TAG]
        found = search_runs(self.client, self.experiment_id, f"tags.`{FINGERPRINT_TAG}` = '{fingerprint}'")
        self.known[fingerprint] = found
        self.before.setdefault(fingerprint, frozenset(run.info.run_id for run in found))
        return found

    def own(self, entry: Entry) -> list[Run]:
        """Return the runs of an entry that are of this origin."""
        found = self.known.get(entry.identity_tags[FINGERPRINT_TAG])
        identity_tags = entry.identity_tags | {ORIGIN_TAG: self.origin}
        return [
            run
            for run in (self.look(entry) if found is None else found)
            if identity_tags.items() <= run.data.tags.items()
        ]

    def continuable(self, entry: Entry) -> list[Run]:
        """Return the own runs that hold nothing but the entry's points, the one to continue first.

        That is one that this folder sent before. Every tracker sorts the new ones alike, by what does not change, so
        that no two withdraw each other's run.
        """

        def rank(run: Run) -> tuple[Any, ...]:
            is_settled = self._is_from_here(run) and not self._is_new(run, entry)
            return SUPERSEDED_TAG in run.data.tags, not is_settled, run.info.start_time, run.info.run_id

        return sorted((run for run in self.own(entry) if can_continue(run, entry)), key=rank)

    def ahead(self, entry: Entry) -> Run | None:
        """Return the own run that has all points of the entry and more, preferably one that was not superseded."""
        found = sorted(self.own(entry), key=lambda run: (SUPERSEDED_TAG in run.data.tags, run.info.run_id))
        return next((run for run in found if is_ahead(self.client, run, entry)), None)

    def _is_from_here(self, run: Run) -> bool:
        return run.data.tags.get(PLACE_TAG) == place()

    def _is_new(self, run: Run, entry: Entry) -> bool:
        """Return whether a run of an entry was created after `publish` began."""
        return run.info.run_id not in self.before[entry.identity_tags[FINGERPRINT_TAG]]

    def outdated(self, entry: Entry) -> dict[str, Run]:
        """Return the own runs, by id, that hold something else than a tree's entries."""
        every = ((run, one) for one in _and_below(entry) for run in self.own(one))
        return {run.info.run_id: run for run, one in every if not can_continue(run, one)}

    def find(self, entry: Entry, parent: str | None = None) -> Run | None:
        """Return the run that an entry continues, perhaps one of a version that wrote no origin.

        Such a run is adopted if its points are the entry's, or if it has none and is below `parent`.
        """
        if found := self.continuable(entry):
            return found[0]
        for run in self.known[entry.identity_tags[FINGERPRINT_TAG]]:
            without = ORIGIN_TAG not in run.data.tags and entry.identity_tags.items() <= run.data.tags.items()
            certain = sent_before(run).get("points") or (parent is not None and run.data.tags.get(PARENT_TAG) == parent)
            if without and certain and can_continue(run, entry):
                return run
        return None

    def withdraw_duplicates(self, entry: Entry) -> None:
        """Delete what other trackers made at the same time as the run to continue: all its points are the entry's.

        Of the runs that were there before, only this folder's can be such, left by a tracker that was killed. Those of
        a copy of the folder stay.
        """
        for run in self.continuable(entry)[1:]:
            if SUPERSEDED_TAG not in run.data.tags and (self._is_new(run, entry) or self._is_from_here(run)):
                self.withdraw(run, entry)

    def withdraw(self, run: Run, entry: Entry) -> None:
        """Delete one of two runs that were created for an entry at the same time."""
        logger.info("%s was made by two trackers at once; one of its MLflow runs is deleted", entry.name)
        self.client.delete_run(run.info.run_id)
        self.known[entry.identity_tags[FINGERPRINT_TAG]].remove(run)

    def is_complete(self) -> bool:
        """Return whether no run was withdrawn in the meantime, by another tracker or by a person."""
        for start in range(0, len(self.used), 100):
            ids = sorted(set(self.used[start : start + 100]))
            condition = "attributes.run_id IN ({})".format(", ".join(f"'{run_id}'" for run_id in ids))
            if len(search_runs(self.client, self.experiment_id, condition)) < len(ids):
                return False
        return True


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
    before: dict[str, frozenset[str]] = {}
    made: set[str] = set()
    while True:
        here = _Pass(client, experiment_id, origin, before=before, made=made)
        if here.outdated(entry) and read_again is not None:
            entry = read_again()
        here.old.extend(here.outdated(entry).values())
        try:
            published = _publish(here, entry)
        except MlflowException as error:
            # If two trackers write one parameter at once, the store refuses one, which finds it in the next pass.
            is_conflict = CONFLICT in str(error)
            conflicts += is_conflict
            if here.is_complete() and (not is_conflict or conflicts > MAX_CONFLICTS):
                raise
        else:
            # A run of another tracker may have come after the look for it, with more than `entry` has.
            old = {run.info.run_id for run in here.old}
            anew = _Pass(client, experiment_id, origin)
            is_behind = here.created and read_again is not None and anew.outdated(entry).keys() - old
            if here.is_complete() and not is_behind:
                if here.behind:
                    stages = ", ".join(here.behind)
                    logger.info(
                        "MLflow has more points of %s than results/ here, and keeps them: %s", entry.name, stages
                    )
                return {"experiment": entry.experiment, **published}
        # Another tracker withdrew a run of this one as a duplicate of its own, which is found now.


def find_run(client: MlflowClient, experiment_id: str, entry: Entry, origin: str) -> Run | None:
    """Return the MLflow run of an entry that `publish` would continue, or that has all its points and more."""
    here = _Pass(client, experiment_id, origin)
    found = here.continuable(entry)
    return found[0] if found else here.ahead(entry)


def _publish(here: _Pass, entry: Entry) -> dict[str, Any]:
    _supersede_others(here, entry)
    points: dict[str, int] = {}
    sent = 0

    def bring_up_to_date(entry: Entry, parent: str | None, description: str) -> str:
        nonlocal sent
        run_id, new = _synchronise(here, entry, parent, description)
        sent += new
        points[entry.name] = len(entry.points)
        for child in entry.children:
            bring_up_to_date(child, run_id, child.description)
        return run_id

    run_id = bring_up_to_date(entry, None, entry.description + _links(here, entry))
    return {"mlflow_run": run_id, "points": points, "sent": sent, "refused": here.refused}


def _and_below(entry: Entry) -> Iterator[Entry]:
    yield entry
    for child in entry.children:
        yield from _and_below(child)


def _supersede_others(here: _Pass, entry: Entry) -> None:
    """Mark the MLflow runs that this folder sent of this run before its recipe changed."""
    name, record = entry.identity_tags[RUN_TAG], entry.identity_tags[RECORD_TAG]
    others = [
        run
        for run in search_runs(here.client, here.experiment_id, f"tags.`{RUN_TAG}` = '{name}'")
        if run.data.tags.get(RECORD_TAG, record) != record
    ]
    _supersede(here, others, record)


def _supersede(here: _Pass, runs: Iterable[Run], by: str) -> None:
    """Mark those of the runs that this folder was the last to send: a copy of it may still have the points."""
    sent_from_here = {ORIGIN_TAG: here.origin, PLACE_TAG: place()}
    for run in runs:
        if sent_from_here.items() <= run.data.tags.items() and run.data.tags.get(SUPERSEDED_TAG) != by:
            here.client.set_tag(run.info.run_id, SUPERSEDED_TAG, by)


def _other_parent(here: _Pass, entry: Entry, run: Run | None) -> str | None:
    """Return the present parent of a shared run; None if the entry's applies.

    That is so if the parent was deleted or superseded, or is of another origin.
    """
    is_shared = RECORD_TAG not in entry.identity_tags
    parent = run.data.tags.get(PARENT_TAG) if run is not None and is_shared else None
    if parent is None:
        return None
    found = search_runs(here.client, here.experiment_id, f"attributes.run_id = '{parent}'")
    is_own = found and found[0].data.tags.get(ORIGIN_TAG) == here.origin and SUPERSEDED_TAG not in found[0].data.tags
    return parent if is_own else None


def _links(here: _Pass, entry: Entry) -> str:
    """Return links, for the description, to shared stages that are below another run."""
    own = {run.info.run_id for run in map(here.find, _and_below(entry)) if run is not None}
    lines = []
    for one in _and_below(entry):
        run = here.find(one) or here.ahead(one)
        parent = _other_parent(here, one, run)
        if run is not None and parent is not None and parent not in own:
            lines.append(f"- [{one.name}](#/experiments/{here.experiment_id}/runs/{run.info.run_id})")
    return "\n\nShared with another run, whose children they are:\n" + "\n".join(lines) if lines else ""


def _synchronise(here: _Pass, entry: Entry, parent: str | None, description: str) -> tuple[str, int]:
    """Make one MLflow run equal to `entry`; return its id and how many points were sent."""
    run = here.find(entry, parent)
    if run is None or run.info.run_id in here.made:
        ahead = here.ahead(entry)
        if ahead is not None:
            if run is not None:  # of this pass: the one that has more came at the same time
                here.withdraw(run, entry)
            here.used.append(ahead.info.run_id)
            here.behind.append(entry.name)
            return ahead.info.run_id, 0
    tags = entry.identity_tags | {ORIGIN_TAG: here.origin, PLACE_TAG: place()}
    tags |= entry.tags | {"mlflow.note.content": description}
    if parent is not None:
        tags[PARENT_TAG] = _other_parent(here, entry, run) or parent
    tags = {shortened(key): value[:TAG_LENGTH] for key, value in tags.items()}
    run = run or _create(here, entry, parent, tags)
    run_id = run.info.run_id
    here.used.append(run_id)
    here.withdraw_duplicates(entry)
    _supersede(here, (one for one in here.old if entry.identity_tags.items() <= one.data.tags.items()), run_id)
    if SUPERSEDED_TAG in run.data.tags:
        here.client.delete_tag(run_id, SUPERSEDED_TAG)  # it is again the present state
    sent = _send(here, entry, run, tags)
    if entry.finished and run.info.status != "FINISHED":
        here.client.set_terminated(run_id, "FINISHED", end_time=entry.ended)
    elif not entry.finished and run.info.status != "RUNNING":
        here.client.update_run(run_id, status="RUNNING")
    return run_id, sent


def _create(here: _Pass, entry: Entry, parent: str | None, tags: Mapping[str, str]) -> Run:
    """Create the MLflow run of `entry`; return it, or an equal one that another tracker has created meanwhile."""
    created = here.client.create_run(
        here.experiment_id,
        start_time=entry.started or int(time.time() * 1000),
        tags={"mlflow.user": owner(), SENT_TAG: note_before_sending(entry, {})}
        | dict(itertools.islice(tags.items(), 50)),
        run_name=entry.name,
    )
    here.created.append(created.info.run_id)
    here.made.add(created.info.run_id)
    here.look(entry)
    return here.find(entry, parent) or created


def _send(here: _Pass, entry: Entry, run: Run, tags: Mapping[str, str]) -> int:
    """Send what MLflow's run does not have yet; return the number of points."""
    client, run_id, before = here.client, run.info.run_id, sent_before(run)
    dataset = before.get("dataset")
    if entry.dataset is not None and dataset is None:  # files that were changed since are not what it was trained on
        dataset = entry.dataset.digest
        log_dataset(client, run_id, entry.dataset)
    artifacts = send_artifacts(client, run_id, entry, before.get("artifacts", {}), here.refused)
    on_disk = [str(checkpoint.path) for checkpoint in entry.checkpoints]
    checkpoints = digest_of_lines(on_disk) if on_disk else None
    if before.get("checkpoints") != checkpoints:
        if here.offers_logged_models:
            log_checkpoints(client, run, entry, here.origin)
        else:
            checkpoints = before.get("checkpoints")

    sent = before.get("points", 0)
    after = {
        "points": len(entry.points),
        "digest": digest_of_points(entry.points),
        "artifacts": before.get("artifacts", {}) | artifacts,
        "dataset": dataset,
        "checkpoints": checkpoints,
    }
    if sent < len(entry.points) and run.data.tags.get(SENT_TAG) != (note := note_before_sending(entry, before)):
        client.set_tag(run_id, SENT_TAG, note)
    log_batches(
        client,
        run,
        entry.points[sent:],
        {key: value for key, value in parameters_of(entry).items() if key not in run.data.params},
        {key: value for key, value in tags.items() if run.data.tags.get(key) != value},
    )
    if after != before:
        # Last: a pass that is killed is repeated in full, and MLflow stores equal points once.
        client.set_tag(run_id, SENT_TAG, json.dumps(after, sort_keys=True))
    return len(entry.points) - sent
