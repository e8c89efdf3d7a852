"""The ranks as a grid of rows and columns."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, distributed

from bertline.console import BertlineError
from bertline.training.distributed.process_group import TIMEOUT, Group, broadcast_each

Sent = Iterable[tuple[Tensor, int]]


class Grid:
    """Ranks in rows, numbered from left to right and from top to bottom."""

    def __init__(self, group: Group, share: float) -> None:
        """Lay out the ranks in as many rows as `share` of them are. All ranks must call it.

        Raises BertlineError if that is not a whole number, or does not divide the number of ranks.
        """
        self.rows = round(share * group.world_size)
        if (
            not 1 <= self.rows <= group.world_size
            or group.world_size % self.rows
            or abs(self.rows - share * group.world_size) > 0.01
        ):
            raise BertlineError(
                f"--kfac-share: {share:g} of {group.world_size} processes is not a number that divides them; "
                f"give 1, or 1 divided by a divisor of {group.world_size}"
            )
        self.columns = group.world_size // self.rows
        self.row, self.column = divmod(group.rank, self.columns)
        rows = [[self.rank_at(row, column) for column in range(self.columns)] for row in range(self.rows)]
        columns = [[self.rank_at(row, column) for row in range(self.rows)] for column in range(self.columns)]
        of_rows = [distributed.new_group(ranks, timeout=TIMEOUT) for ranks in rows if self.columns > 1]
        of_columns = [distributed.new_group(ranks, timeout=TIMEOUT) for ranks in columns if self.rows > 1]
        self._row = of_rows[self.row] if of_rows else None
        self._column = of_columns[self.column] if of_columns else None

    def rank_at(self, row: int, column: int) -> int:
        """Return the rank there."""
        return row * self.columns + column

    def broadcast_in_row(self, sent: Sent) -> None:
        """Broadcast tensors within this rank's row, each from a column."""
        if self.columns > 1:
            broadcast_each(((tensor, self.rank_at(self.row, column)) for tensor, column in sent), self._row)

    def broadcast_in_column(self, sent: Sent) -> None:
        """Broadcast tensors within this rank's column, each from a rank of it."""
        if self.rows > 1:
            broadcast_each(sent, self._column)
