"""What a run has counted so far: events by kind, how stale the updates were, and whose they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from areabench.schema import Kind, State, Status


class Tally:
    """Counts that go on with every event."""

    def __init__(self) -> None:
        self.kinds = [0] * len(Kind)
        self._staleness: Counter[int] = Counter()
        self._served: Counter[int] = Counter()
        self.last_time_s = 0.0

    @classmethod
    def of(cls, kinds: Sequence[int], staleness: Sequence[int], served: Sequence[int], last_time_s: float) -> Tally:
        """A tally that goes on from these counts: of each kind, of staleness 0, 1, ..., of client 0, 1, ..."""
        tally = cls()
        tally.kinds, tally.last_time_s = list(kinds), last_time_s
        tally._staleness = Counter({value: count for value, count in enumerate(staleness) if count})
        tally._served = Counter({client: count for client, count in enumerate(served) if count})
        return tally

    def count(self, kind: Kind, time_s: float, client: int = -1, staleness: int = 0) -> None:
        """One event more."""
        self.kinds[kind] += 1
        self.last_time_s = time_s
        if kind == Kind.UPDATE:
            self._staleness[staleness] += 1
            self._served[client] += 1

    @property
    def events(self) -> int:
        """Events so far."""
        return sum(self.kinds)

    @property
    def staleness(self) -> NDArray[np.int64]:
        """How many updates were 0, 1, 2, ... versions old."""
        return _dense(self._staleness, 0)

    def served(self, clients: int) -> NDArray[np.int64]:
        """How many updates of each client were used, shape (clients,)."""
        return _dense(self._served, clients)

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far; the end is that of the last event unless given."""
        end_s = self.last_time_s if end_s is None else end_s
        return counted_status(state, reason, end_s, self.kinds)

    def copy(self) -> Tally:
        """The counts as they are now."""
        twin = Tally()
        twin.kinds, twin.last_time_s = self.kinds.copy(), self.last_time_s
        twin._staleness, twin._served = self._staleness.copy(), self._served.copy()
        return twin


def counted_status(state: State, reason: str, end_s: float, kinds: Sequence[int]) -> Status:
    """A status with counts of events by kind."""
    used, steps, discarded, refused, lost, _ = (int(count) for count in kinds)
    return Status(state, reason, end_s, used, discarded, steps, refused=refused, lost=lost)


def _dense(counts: Counter[int], minlength: int) -> NDArray[np.int64]:
    """Counts of 0, 1, 2, ... as an array."""
    dense = np.zeros(max(minlength, max(counts, default=-1) + 1), dtype=np.int64)
    for value, count in counts.items():
        dense[value] = count
    return dense
