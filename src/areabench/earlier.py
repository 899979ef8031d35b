"""A part of an earlier run, for a recorder that goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from areabench.layout import Layout
from areabench.model_rows import RowSource, append
from areabench.problems.base import Vector
from areabench.tally import Tally

_COPIED_AT_ONCE = 2**16  # events


@dataclass(frozen=True, eq=False)
class Earlier:
    """What of an earlier run goes on: its first events (0 without event log) and snapshots, and the counts up to there.

    Where its file has the last model only, also the models and averages of these snapshots, which only the run had.
    """

    run: RowSource
    events: int
    snapshots: int
    tally: Tally
    models: Sequence[Vector] = ()
    averages: Sequence[Vector] = ()

    def copy_to(self, layout: Layout) -> None:
        """Put the rows into an empty file."""
        for first in range(0, self.events, _COPIED_AT_ONCE):
            append(layout.events, self.run.rows("events", slice(first, min(first + _COPIED_AT_ONCE, self.events))))
        append(layout.index, self.run.snapshot_index[: self.snapshots])
        layout.models.take(self.run, "snapshots/model", self.snapshots, self.models)
        if layout.averages is not None:
            layout.averages.take(self.run, "snapshots/average", self.snapshots, self.averages)

    @property
    def last_snapshot(self) -> tuple[float, int, int] | None:
        """Time, version and events of the last snapshot that goes on."""
        if not self.snapshots:
            return None
        time_s, version, events, _ = self.run.snapshot_index[self.snapshots - 1].tolist()
        return time_s, version, events
