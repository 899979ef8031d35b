"""One run from start to end, on any clock: feeds the server, records events and snapshots, decides when to stop.

A transport owns time and messages. It calls `start`, then `update` or `timer` for what happens, asks `ended` in
between, and calls `finish` at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from areabench.aggregation import Criterion
from areabench.experiment import Experiment
from areabench.messages import Order, Update, UpdateHeader, digest
from areabench.problems.base import Vector
from areabench.schema import Event, Kind, Reason, State, Status
from areabench.server import Server
from areabench.tally import Tally

_NO_UPDATE = UpdateHeader(client=-1, round=-1, base_version=-1)  # what the row of a server step has in its place


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


class Conductor:
    """Drives one server through one run."""

    def __init__(
        self,
        experiment: Experiment,
        server: Server,
        criterion: Criterion,
        recorder: Recording,
        watch: TargetWatch,
        deliver: Callable[[Order], None],
        clock: Callable[[], float],
    ) -> None:
        self._stop, self._record = experiment.stop, experiment.record
        self._server, self._criterion, self._recorder, self._watch = server, criterion, recorder, watch
        self._deliver, self._clock = deliver, clock
        self._grid_number, self._shown_s = 0, 0.0  # the grid's next point, the time of the last snapshot
        self._grid_s = 0.0 if self._record.snapshots == "grid" else math.inf  # the time of the grid's next point
        self._iterations = math.inf if self._stop.iterations is None else self._stop.iterations
        self._over_s: float | None = None  # when an event ended the run
        self._watched = self._stop.has_target
        self._diverged = ""
        self.horizon_s = math.inf if self._stop.horizon_s is None else self._stop.horizon_s  # the end at the latest
        self.updates = 0
        self.handling = Handling()  # of the last update
        self._step_sizes: dict[int, float] = {}  # what each client was told last

    @property
    def timer_s(self) -> float:
        """When the server steps next by the clock; infinite where updates decide."""
        return self._criterion.next_s

    def start(self) -> None:
        """Send the starting model out."""
        self._send(self._server.begin())

    def update(self, update: Update, time_s: float, queue_s: float = 0.0) -> None:
        """Handle an update at `time_s`, after `queue_s` in a queue: answer at once, step if the criterion says so."""
        self.pass_time(time_s)
        server, client = self._server, update.header.client
        used = self._step_sizes[client]
        self._send(server.receive(client, update.payload))
        self.updates += 1
        self.handling = Handling(queue_s, self._clock() - time_s)
        self._note(Kind.UPDATE, update, time_s, used, self.handling)
        self._see_end()
        if self._criterion.counted(server.updates_since_step) and server.iteration < self._iterations:
            self._step(time_s)

    def timer(self, time_s: float) -> None:
        """The clock says that the server steps."""
        self.pass_time(time_s)
        self._criterion.advance()
        self._step(time_s)

    def discard(self, update: Update, time_s: float) -> None:
        """An update came in after the end: count it, use it for nothing."""
        used = self._step_sizes[update.header.client]
        self._note(Kind.DISCARDED, update, time_s, used, Handling())

    def pass_time(self, time_s: float) -> None:
        """Take the grid's snapshots before `time_s`: a snapshot shows all events up to and including its time.

        A snapshot that meets the target is the last one.
        """
        while self._grid_s < time_s and not self._watch.reached():
            self._snapshot(self._grid_s)
            self._recorder.relieve()
            self._grid_number += 1
            self._grid_s = self._grid_number * self._record.interval_s

    def ended(self, time_s: float) -> Status | None:
        """How the run ended, if it has; `time_s` is the time of the next thing to happen."""
        if self._over_s is not None:
            state, iterations = State.DIVERGED if self._diverged else State.DONE, f"{self._server.iteration} iterations"
            return self._recorder.status(state, self._diverged or iterations, self._over_s)
        if time_s <= self._grid_s and time_s <= self.horizon_s and not self._watched:
            return None  # nearly always
        self.pass_time(min(time_s, self.horizon_s))
        if reached := self._watch.reached():
            return self._recorder.status(State.TARGET, reached, max(self._clock(), self._shown_s))
        if time_s > self.horizon_s:
            return self._recorder.status(State.DONE, f"horizon of {self.horizon_s:g} s", self.horizon_s)
        return None

    def finish(self, status: Status) -> Status:
        """Take the last snapshot; returns the status with the final counts."""
        self.pass_time(status.end_s)
        if not self._recorder.covers(status.end_s):
            self._snapshot(status.end_s)
        if status.state == State.DONE and (reached := self._watch.conclude()):
            return self._recorder.status(State.TARGET, reached, status.end_s)
        return self._recorder.status(status.state, status.reason, status.end_s)

    def _step(self, time_s: float) -> None:
        begun_s, server = self._clock(), self._server
        orders = server.aggregate()
        self._send(orders)
        step_size, handling = orders[0].step_size if orders else math.nan, Handling(0.0, self._clock() - begun_s)
        self._note(Kind.STEP, None, time_s, step_size, handling)
        self._diverged = self._recorder.diverged(server.model, self._stop.divergence_norm, server.iteration)
        self._see_end()
        self._recorder.relieve()
        if self._record.snapshots == "aggregations":
            self._snapshot(time_s)

    def _note(self, kind: Kind, update: Update | None, time_s: float, step_size: float, handling: Handling) -> None:
        """Count an event that is over, and log it where there is a log."""
        server, header = self._server, _NO_UPDATE if update is None else update.header
        staleness = 0 if update is None else server.version - header.base_version
        self._recorder.tally.count(kind, time_s, header.client, staleness)
        if self._recorder.keeps_events:
            self._recorder.event(
                Event(
                    time_s, kind, header.client, header.round, header.base_version, staleness, server.iteration,
                    server.version, step_size, header.drawn_delay_s, header.realised_delay_s, header.reply_s,
                    header.compute_s, handling.queue_s, handling.service_s, header.flags, Reason.NONE,
                    digest(server.model if update is None else update.payload),
                )
            )  # fmt: skip

    def _see_end(self) -> None:
        """Note the time once an event has ended the run: what comes in later is later than the end."""
        if self._over_s is None and (self._diverged or self._server.iteration >= self._iterations):
            self._over_s = self._clock()

    def _snapshot(self, time_s: float) -> None:
        model, self._shown_s = self._server.model, time_s
        self._recorder.snapshot(time_s, self._server.version, model, self._server.average)
        self._watch.offer(time_s, model)

    def _send(self, orders: list[Order]) -> None:
        for order in orders:
            self._step_sizes[order.client] = order.step_size
            self._deliver(order)
