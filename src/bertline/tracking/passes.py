"""A pass over a tree of entries: which of a store's MLflow runs are those of its entries."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bertline.tracking.experiment import search_runs
from bertline.tracking.logged_models import offers_logged_models
from bertline.tracking.notes import can_continue, is_ahead, sent_before, was_never_completed
from bertline.tracking.origin import place
from bertline.tracking.run_tree import Entry
from bertline.tracking.sending import Refusals
from bertline.tracking.tags import FINGERPRINT_TAG, ORIGIN_TAG, PARENT_TAG, PLACE_TAG, SUPERSEDED_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SyncPass:
    """A pass over one tree: the store, and its runs for the tree's entries.

    Attributes:
        client: of the store.
        experiment_id: of the tree's experiment.
        origin: id of the results; runs of another are neither changed nor deleted.
        runs_by_fingerprint: the store's runs of each entry, as they were when they were last searched.
        refusals: the artifacts that the store did not accept; everything else is sent nevertheless.
        used_ids: ids of the entries' runs.
        created_ids: ids of the runs that this pass created.
        outdated_runs: own runs with points that the entries, which were read later, do not have.
        stale_entries: names of the entries that lag behind their run.
        ids_before_call: ids of the runs that were there when a call of `publish` first searched, by fingerprint.
        created_ids_of_call: ids of the runs that all passes of the call created.
    """

    client: MlflowClient
    experiment_id: str
    origin: str
    runs_by_fingerprint: dict[str, list[Run]] = field(default_factory=dict)
    refusals: Refusals = field(default_factory=Refusals)
    used_ids: list[str] = field(default_factory=list)
    created_ids: list[str] = field(default_factory=list)
    outdated_runs: list[Run] = field(default_factory=list)
    stale_entries: list[str] = field(default_factory=list)
    ids_before_call: dict[str, frozenset[str]] = field(default_factory=dict)
    created_ids_of_call: set[str] = field(default_factory=set)

    @cached_property
    def offers_logged_models(self) -> bool:
        """Whether the store has logged models."""
        return offers_logged_models(self.client, self.experiment_id)

    def look(self, entry: Entry) -> list[Run]:
        """Return the runs with an entry's fingerprint as they are now."""
        fingerprint = entry.identity_tags[FINGERPRINT_TAG]
        found = search_runs(self.client, self.experiment_id, f"tags.`{FINGERPRINT_TAG}` = '{fingerprint}'")
        self.runs_by_fingerprint[fingerprint] = found
        self.ids_before_call.setdefault(fingerprint, frozenset(run.info.run_id for run in found))
        return found

    def own(self, entry: Entry) -> list[Run]:
        """Return the runs of an entry that are of this origin."""
        found = self.runs_by_fingerprint.get(entry.identity_tags[FINGERPRINT_TAG])
        identity_tags = entry.identity_tags | {ORIGIN_TAG: self.origin}
        return [
            run
            for run in (self.look(entry) if found is None else found)
            if identity_tags.items() <= run.data.tags.items()
        ]

    def continuable(self, entry: Entry) -> list[Run]:
        """Return the own runs that hold nothing but the entry's points, the one to continue first.

        That is one that this folder sent before, the one with the most points. Every tracker sorts the new ones alike,
        by what does not change, so that no two withdraw each other's run.
        """

        def rank(run: Run) -> tuple[Any, ...]:
            is_settled = self._is_from_here(run) and not self._is_new(run, entry)
            points = sent_before(run).get("points", -1) if is_settled else 0
            return SUPERSEDED_TAG in run.data.tags, not is_settled, -points, run.info.start_time, run.info.run_id

        return sorted((run for run in self.own(entry) if can_continue(run, entry)), key=rank)

    def ahead(self, entry: Entry) -> Run | None:
        """Return the own run that has all points of the entry and more, preferably one that was not superseded."""
        found = sorted(self.own(entry), key=lambda run: (SUPERSEDED_TAG in run.data.tags, run.info.run_id))
        return next((run for run in found if is_ahead(self.client, run, entry)), None)

    def _is_from_here(self, run: Run) -> bool:
        return run.data.tags.get(PLACE_TAG) == place()

    def _is_new(self, run: Run, entry: Entry) -> bool:
        """Return whether a run of an entry was created after `publish` began."""
        return run.info.run_id not in self.ids_before_call[entry.identity_tags[FINGERPRINT_TAG]]

    def outdated(self, entry: Entry) -> dict[str, Run]:
        """Return the own runs, by id, that hold something else than a tree's entries."""
        every = ((run, one) for one in and_below(entry) for run in self.own(one))
        return {run.info.run_id: run for run, one in every if not can_continue(run, one)}

    def find(self, entry: Entry, parent: str | None = None) -> Run | None:
        """Return the run that an entry continues, perhaps one of a version that wrote no origin.

        Such a run is adopted if its points are the entry's, or if it has none and is below `parent`.
        """
        if found := self.continuable(entry):
            return found[0]
        for run in self.runs_by_fingerprint[entry.identity_tags[FINGERPRINT_TAG]]:
            without = ORIGIN_TAG not in run.data.tags and entry.identity_tags.items() <= run.data.tags.items()
            if not without:  # somebody else's: neither its note nor anything else matters here
                continue
            certain = sent_before(run).get("points") or (parent is not None and run.data.tags.get(PARENT_TAG) == parent)
            if certain and can_continue(run, entry):
                return run
        return None

    def withdraw_duplicates(self, entry: Entry) -> None:
        """Delete what other trackers made at the same time as the run to continue: all its points are the entry's.

        Of the runs that were there before, only this folder's can be such, left by a tracker that was killed before it
        had sent one. Those of a copy of the folder stay, and those that a person restored after they were made again.
        """
        for run in self.continuable(entry)[1:]:
            is_left = self._is_from_here(run) and was_never_completed(run)
            if SUPERSEDED_TAG not in run.data.tags and (self._is_new(run, entry) or is_left):
                self.withdraw(run, entry)

    def withdraw(self, run: Run, entry: Entry) -> None:
        """Delete one of two runs that were created for an entry at the same time."""
        logger.info("%s was made by two trackers at once; one of its MLflow runs is deleted", entry.name)
        self.client.delete_run(run.info.run_id)
        self.runs_by_fingerprint[entry.identity_tags[FINGERPRINT_TAG]].remove(run)

    def is_complete(self) -> bool:
        """Return whether no run was withdrawn in the meantime, by another tracker or by a person."""
        for start in range(0, len(self.used_ids), 100):
            ids = sorted(set(self.used_ids[start : start + 100]))
            condition = "attributes.run_id IN ({})".format(", ".join(f"'{run_id}'" for run_id in ids))
            if len(search_runs(self.client, self.experiment_id, condition)) < len(ids):
                return False
        return True


def and_below(entry: Entry) -> Iterator[Entry]:
    """Yield an entry and all its descendants."""
    yield entry
    for child in entry.children:
        yield from and_below(child)
