"""A request to stop that one rank received, looked up by all ranks between the micro-batches of a step."""

from __future__ import annotations

import time

from bertline.training.distributed.process_group import Group

KEY = "bertline/stop"
SECONDS = 1.0  # between two looks into the store, each a round trip to rank 0
# Between two agreements of ranks in lockstep. Each waits for the device, which is then idle for a kernel's launch.
PASSES = 4


class StopRequest:
    """Whether any rank was asked to stop.

    Ranks that compute on their own have different numbers of micro-batches: one that was asked leaves a note in the
    store, and the others look there. One may see it in this step and another one in the next, so that the step's
    reduction decides. Ranks in lockstep (FSDP) must stop after the same micro-batch: they agree after each `PASSES` of
    them.
    """

    def __init__(self, group: Group, *, in_lockstep: bool) -> None:
        """Create a request. `in_lockstep`: all ranks compute the same number of micro-batches of a step."""
        self._group, self._in_lockstep = group, in_lockstep
        self._passes, self._is_noted, self._next_look = 0, False, 0.0

    def is_seen(self, *, here: bool) -> bool:
        """Return whether to leave out the other micro-batches of this step; call it between two of them.

        Args:
            here: whether this rank was asked to stop.

        Raises RuntimeError if rank 0 is gone; see `is_lost_connection`.
        """
        if self._in_lockstep:
            self._passes += 1
            return self._passes % PASSES == 0 and self._group.all_reduce_max(int(here)) > 0
        if here:
            self._leave_note()
        return here or self._look()

    def _leave_note(self) -> None:
        if self._group.store is not None and not self._is_noted:
            self._group.store.set(KEY, "1")
            self._is_noted = True

    def _look(self) -> bool:
        now = time.monotonic()
        if self._group.store is None or now < self._next_look:
            return False
        self._next_look = now + SECONDS
        return bool(self._group.store.check([KEY]))
