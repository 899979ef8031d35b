"""Who looks on while a run goes on: a watch for its target, and what keeps its record."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from areabench.problems.base import Vector
from areabench.schema import Event, State, Status
from areabench.tally import Tally


class Handling(NamedTuple):
    """How long an update waited after it was seen, and how long the server took to answer it or to step."""

    queue_s: float = 0.0
    service_s: float = 0.0


class TargetWatch(Protocol):
    """Looks at snapshots for the target that ends a run."""

    def offer(self, time_s: float, model: Vector) -> None:
        """Here is a snapshot."""
        ...

    def reached(self) -> str | None:
        """What was reached and when, once a snapshot that was offered meets the target."""
        ...

    def conclude(self) -> str | None:
        """The same when the run is over and there is time to look at the last snapshot."""
        ...


class Recording(Protocol):
    """Takes what a run leaves behind."""

    tally: Tally  # counts all events
    snapshots: int  # so far

    @property
    def keeps_events(self) -> bool:
        """Whether there is an event log."""
        ...

    def event(self, event: Event) -> None:
        """Keep this in the event log."""
        ...

    def snapshot(self, time_s: float, version: int, model: Vector, average: Vector | None) -> None:
        """The model after the events so far, and the average of all models so far where it is kept."""
        ...

    def covers(self, time_s: float) -> bool:
        """Whether the last snapshot shows the model at `time_s`, after all events so far."""
        ...

    def relieve(self) -> None:
        """Write what has waited for long."""
        ...

    def status(self, state: State, reason: str, end_s: float | None = None) -> Status:
        """A status with the counts so far."""
        ...

    def diverged(self, model: Vector, bound: float, iteration: int) -> str:
        """Why the run ends because of its model after a server step; empty where it does not."""
        ...
