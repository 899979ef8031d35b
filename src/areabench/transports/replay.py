"""Replay: run the rule again from an event log and compare every update, server step and snapshot, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from areabench.arrays import Vector
from areabench.engine.events import Kind, State
from areabench.engine.lanes import lane_scenario
from areabench.engine.messages import Order, digest
from areabench.engine.scenario import ClientPool, Scenario
from areabench.engine.server import Removal
from areabench.errors import RunFileError
from areabench.runfile.read import Run
from areabench.runfile.schema import SNAPSHOT
from areabench.transports.simulator import LaneEnd, play_lanes


@dataclass(frozen=True)
class Difference:
    """The first place where the replay differs from the record."""

    event: int  # row of /events; the number of rows where a snapshot after the last event differs
    what: str


@dataclass(frozen=True)
class ReplayResult:
    """What a replay compared, and the first difference if there is one."""

    events: int
    snapshots: int
    difference: Difference | None


class Replay:
    """The replay of one run file."""

    def __init__(self, run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> None:
        self._run, self._scenario, self._progress = run, scenario, progress
        self._server = scenario.server()
        self._clients = ClientPool(scenario)
        self._orders: dict[int, Order] = {}
        self._lost: list[int] = []
        self._removal: Removal | None = None
        self._next_snapshot = 0

    def run(self) -> ReplayResult:
        """Replay to the end or to the first difference."""
        with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
            return self._replay()

    def _replay(self) -> ReplayResult:
        self._keep(self._server.begin())
        difference = self._check_snapshots(0)
        events = self._run.events_array
        number = 0
        while difference is None and number < len(events):
            difference = self._event(number, events[number]) or self._check_snapshots(number + 1)
            number += 1
            self._progress(float(events[number - 1]["time_s"]), number)
        return ReplayResult(number, self._next_snapshot, difference or self._check_end(number))

    def _event(self, number: int, row: np.void) -> Difference | None:
        what = self._handlers[row["kind"]](row)
        return Difference(number, what) if what else None

    @cached_property
    def _handlers(self) -> dict[int, Callable[[np.void], str | None]]:
        return {
            Kind.UPDATE: self._update,
            Kind.STEP: self._step,
            Kind.DISCARDED: self._update,
            Kind.REFUSED: self._refusal,
            Kind.LOST: self._loss,
            Kind.REMOVED: self._remove,
        }

    def _step(self, row: np.void) -> str | None:
        self._keep(self._server.aggregate())
        return self._compare(row, self._server.model, "the model after the server step") or self._count(row)

    def _update(self, row: np.void) -> str | None:
        number = int(row["client"])
        order = self._orders.pop(number, None)
        if order is None:
            return f"an update of client {number}, which had no order"
        client = self._clients[number]
        if (client.round, order.version, order.step_size) != (row["round"], row["base_version"], row["step_size"]):
            return (
                f"client {number} is at round {client.round}, version {order.version}, step size {order.step_size:g}; "
                f"recorded are {row['round']}, {row['base_version']}, {row['step_size']:g}"
            )
        payload = client.work(order.model, order.step_size)
        if row["kind"] == Kind.UPDATE:
            self._keep(self._server.receive(number, payload))
        return self._compare(row, payload, f"the update of client {number}, round {row['round']}") or self._count(row)

    def _refusal(self, row: np.void) -> str | None:
        """The client has worked, but its update was refused; it works again."""
        number = int(row["client"])
        order = self._orders.pop(number, None)
        if order is not None:  # else the update belonged to no order, and was not answered
            self._clients[number].work(order.model, order.step_size)
            self._clients[number].take_back()
            self._keep([self._server.again(number)])
        return self._count(row)

    def _loss(self, row: np.void) -> str | None:
        """A client is lost; its part of the average follows from the memories of the others at this moment."""
        number = int(row["client"])
        at_work = self._orders.pop(number, None) is not None
        self._lost.append(number)
        self._keep(self._server.lose(number, at_work=at_work))
        if self._server.removes and self._scenario.experiment.faults.lost_client == "remove":
            self._removal = Removal(self._server.recalled())
            for other in range(self._scenario.experiment.clients.count):
                memory = self._clients[other].memory
                if other not in self._lost and memory is not None:
                    self._removal.take(memory)
        return self._compare(row, self._server.model, "the model when a client was lost") or self._count(row)

    def _remove(self, row: np.void) -> str | None:
        if self._removal is None:
            return "clients were removed that had not been lost"
        memories = self._removal.left(self._scenario.problem.dtype)
        self._server.remove(int(row["round"]), memories)
        return self._compare(row, memories, "the memories of lost clients") or self._count(row)

    def _compare(self, row: np.void, vector: Vector, what: str) -> str | None:
        found = digest(vector)
        return None if found == row["digest"] else f"{what}: digest {found:#x}, recorded {int(row['digest']):#x}"

    def _count(self, row: np.void) -> str | None:
        counted = (self._server.iteration, self._server.version)
        recorded = (int(row["iteration"]), int(row["version"]))
        return None if counted == recorded else f"iteration and version {counted}, recorded {recorded}"

    def _check_snapshots(self, events_done: int) -> Difference | None:
        """Compare the snapshots that were taken after the first `events_done` events."""
        index = self._run.snapshot_index
        while self._next_snapshot < len(index) and index[self._next_snapshot]["event"] == events_done:
            if what := self._compare_snapshot(self._next_snapshot):
                return Difference(events_done, f"snapshot {self._next_snapshot}: {what}")
            self._next_snapshot += 1
        return None

    def _compare_snapshot(self, number: int) -> str | None:
        """Bit for bit where the model is kept, else by checksum."""
        run, model = self._run, self._server.model
        if not run.has_model(number):
            found, recorded = digest(model), int(run.snapshot_index[number]["digest"])
            return None if found == recorded else f"digest {found:#x}, recorded {recorded:#x}"
        stored = run.model(number)
        if stored.tobytes() != model.tobytes():
            return f"{int(np.count_nonzero(stored != model))} of {model.size} entries differ"
        average = self._server.average
        last_only = run.experiment.record.models == "last"
        if average is not None and run.averages[-1 if last_only else number].tobytes() != average.tobytes():
            return "the average differs"
        return None

    def _check_end(self, events_done: int) -> Difference | None:
        """A snapshot without its events: the log lacks some, unless the run was killed while it wrote."""
        index, number = self._run.snapshot_index, self._next_snapshot
        if number == len(index) or self._run.status.state == State.RUNNING:
            return None
        wanted = int(index[number]["event"])
        return Difference(events_done, f"snapshot {number} was taken after {wanted} events, {events_done} are recorded")

    def _keep(self, orders: list[Order]) -> None:
        self._orders.update({order.client: order for order in orders})


def repeat(run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> ReplayResult:
    """Simulate a run without event log again; of the other lanes of its pass only their number matters."""
    lanes, lane = run.provenance.lanes, run.provenance.lane
    if run.provenance.transport != "simulator":
        raise RunFileError(
            f"{run.path}: has no event log to replay, and arrivals in real time do not repeat; run it with "
            "record.events=true"
        )
    if run.status.state in (State.RUNNING, State.FAILED):
        raise RunFileError(
            f"{run.path}: is {run.status.state.text} and has no event log, so there is nothing to compare; run it again"
        )
    if lanes > 1:
        scenario = lane_scenario(scenario, [run.experiment] * lanes)
    with np.errstate(over="ignore", invalid="ignore"):
        end = play_lanes(scenario, progress)[lane]
    if end is None:
        return ReplayResult(0, 0, Difference(0, "the model is not finite any more in the same pass"))
    difference = _snapshots(run, end) or _average(run, end) or _counts(run, end)
    return ReplayResult(end.tally.events, len(end.snapshots), difference)


def _snapshots(run: Run, end: LaneEnd) -> Difference | None:
    """The first snapshot that differs, by time, version, events and checksum."""
    rows = [(*snapshot[:3], digest(snapshot.models)) for snapshot in end.snapshots]
    recorded, repeated = run.snapshot_index, np.array(rows, dtype=SNAPSHOT)
    for number, (old, new) in enumerate(zip(recorded, repeated, strict=False)):
        if old != new:
            return Difference(int(new["event"]), f"snapshot {number} is {new}, recorded {old}")
    if len(recorded) != len(repeated):
        return Difference(end.tally.events, f"{len(repeated)} snapshots, recorded {len(recorded)}")
    return None


def _average(run: Run, end: LaneEnd) -> Difference | None:
    """Whether the last average differs, where averages are kept."""
    average = end.snapshots[-1].average
    if average is None or run.averages[-1].tobytes() == average.tobytes():
        return None
    return Difference(end.tally.events, "the average at the end differs")


def _counts(run: Run, end: LaneEnd) -> Difference | None:
    """Whether the status or the counts differ."""
    if run.status != end.status:
        return Difference(end.tally.events, f"status {end.status}, recorded {run.status}")
    if not np.array_equal(run.staleness, end.tally.staleness):
        return Difference(end.tally.events, "the staleness of the updates differs")
    if not np.array_equal(run.served, end.tally.served(len(run.served))):
        return Difference(end.tally.events, "the number of updates used per client differs")
    return None
