"""Replay: run the rule again from an event log and compare every update, server step and snapshot, bit for bit.

Then the snapshots are evaluated again, and the metrics compared. Other kernels than those of the run round in another
way. Then the snapshots are compared within a tolerance, which is measured by another replay, from a start that is moved
by one unit in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.engine.evaluation import evaluate_blocks
from areabench.engine.events import Kind, State
from areabench.engine.lanes import build_pass
from areabench.engine.messages import Flag, Order, Update, UpdateHeader, digest
from areabench.engine.scenario import ClientPool, Scenario
from areabench.engine.server import Removal
from areabench.engine.state import OpenOrders
from areabench.errors import RunFileError
from areabench.problems.base import Problem
from areabench.progress import ProgressLine
from areabench.runfile.layout import evaluated_at_once, metric_rows
from areabench.runfile.provenance import rounds_as_here
from areabench.runfile.read import Run
from areabench.runfile.schema import METRIC, SNAPSHOT
from areabench.threads import limited_threads
from areabench.transports.simulator import LaneEnd, simulate_lanes


@dataclass(frozen=True)
class Difference:
    """The first place where the replay differs from the record."""

    event: int  # row of /events; the number of rows where a snapshot after the last event differs
    what: str


FACTOR = 100.0  # equal is what is within so many times the distance that a moved start leads to
MOST_DIVERGENCE = 1e-3  # of the model; beyond it the tolerance would say nothing
ROUNDING = 1e-5  # relative: another number of threads, or of models evaluated together, rounds in another way
ACCURACY_ROUNDING = 0.05  # percentage points: a sample whose two best classes score alike may count or not


@dataclass(frozen=True)
class MetricsResult:
    """How many rows of the metrics are equal, of which to the bit and not up to rounding only, and the first other."""

    rows: int
    equal: int
    to_the_bit: int
    difference: str | None


@dataclass(frozen=True)
class Rounding:
    """How far the models of a run are from those of a replay under other kernels, in shares of the largest entry."""

    distance: float  # of the snapshot that is farthest from its record
    divergence: float  # to which one unit in the last place at the start has grown
    snapshots: int  # that were compared

    @property
    def comparable(self) -> bool:
        """Whether rounding stays so small that a difference would show."""
        return self.divergence <= MOST_DIVERGENCE


@dataclass(frozen=True)
class ReplayResult:
    """What a replay compared, and the first difference if there is one.

    `metrics` is None if they were not compared: the run has none, or its models differ. `rounding` is None where every
    bit was compared.
    """

    events: int
    snapshots: int
    difference: Difference | None
    metrics: MetricsResult | None = None
    rounding: Rounding | None = None

    @property
    def comparable(self) -> bool:
        """Whether a replay under other kernels can say that the run is equal."""
        return self.rounding is None or self.rounding.comparable

    @property
    def equal(self) -> bool:
        """Whether all that was compared is equal."""
        same = self.difference is None and (self.metrics is None or self.metrics.difference is None)
        return same and self.comparable


class Models(Protocol):
    """Models of the snapshots of a run that was replayed."""

    def __getitem__(self, chosen: slice) -> Sequence[Vector]:
        """Some of them."""
        ...


class ModelsInFile(Models):
    """Models as the file has them, read when they are asked for: there may be more than fit into memory."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name

    def __getitem__(self, chosen: slice) -> Sequence[Vector]:
        """Some of them."""
        first, last, _ = chosen.indices(self._run.count(self._name))
        return list(self._run.rows(self._name, first, last))


class Shown(NamedTuple):
    """What a snapshot of a replay shows, and after how many events."""

    events: int
    model: Vector
    average: Vector | None


@dataclass(frozen=True)
class Replayed:
    """What was compared, and models and averages of all snapshots; None where no averages are kept."""

    result: ReplayResult
    models: Models
    averages: Models | None


@limited_threads()
def replay_run(run: Run, scenario: Scenario, progress: ProgressLine) -> ReplayResult:
    """Replay a run from its event log, or simulate it again if it has none; then compare the metrics too."""
    with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
        found, moved = _replay(run, scenario, progress)
        result = found.result
        if result.difference is not None or not result.comparable or not len(run.metrics_array):
            return result
        progress.close("evaluating the snapshots")
        rows, slack = _evaluated(run, scenario.problem, found), None
        if moved is not None:
            slack = FACTOR * np.abs(_columns(_evaluated(run, scenario.problem, moved)) - _columns(rows))
    return replace(result, metrics=compare_metrics(run.metrics_array, rows, run.snapshot_index["time_s"], slack))


@limited_threads()
def evaluated_again(run: Run, scenario: Scenario, progress: ProgressLine) -> NDArray[Any]:
    """Rows of METRIC for all snapshots of a run that has ended.

    Models that the file does not keep are made again by a replay; a RunFileError where it differs.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
        if run.experiment.record.models == "all" or len(run.snapshot_index) == 1:
            averages = ModelsInFile(run, "snapshots/average") if run.experiment.record.average else None
            found = Replayed(ReplayResult(0, 0, None), ModelsInFile(run, "snapshots/model"), averages)
        else:
            found = _replayed(run, scenario, progress)
            if found.result.difference is not None:
                raise RunFileError(
                    f"{run.path}: keeps the last of its {len(run.snapshot_index):,} models only, and a replay, which "
                    f"makes the others again, differs ({found.result.difference.what}); run it again"
                )
        progress.close("evaluating the snapshots")
        return _evaluated(run, scenario.problem, found)


@limited_threads()
def replay_models(run: Run, scenario: Scenario, progress: ProgressLine) -> ReplayResult:
    """The same without the metrics."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _replay(run, scenario, progress)[0].result


def _replay(run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> tuple[Replayed, Replayed | None]:
    """Compare every bit; if one differs, and other kernels than those here have made the run, within a tolerance.

    The second is the replay that has measured the tolerance, where its models are those that are evaluated.
    """
    found = _replayed(run, scenario, progress)
    if found.result.difference is None or rounds_as_here(run.provenance):
        return found, None
    return compare_rounded(run, scenario, progress)


def _replayed(run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> Replayed:
    """Compare every bit."""
    if _has_log(run):
        return Replay(run, scenario, progress).replayed()
    return repeated(run, scenario, progress)


def _has_log(run: Run) -> bool:
    """Whether the rule can follow an event log; lanes were computed together, and are simulated together again."""
    return run.experiment.record.events and run.provenance.lanes == 1


def _evaluated(run: Run, problem: Problem, found: Replayed) -> NDArray[Any]:
    """Rows of METRIC, by the same code and in the same blocks as the run made them."""
    versions, loss_every = run.snapshot_index["version"].tolist(), run.experiment.record.loss_every
    step = evaluated_at_once(*run.model_size)

    def blocks(models: Models) -> Iterator[Sequence[Vector]]:
        yield from (models[slice(first, first + step)] for first in range(0, len(versions), step))

    averages = [] if found.averages is None else blocks(found.averages)
    return metric_rows(
        evaluate_blocks(problem, blocks(found.models), versions, loss_every),
        evaluate_blocks(problem, averages, range(len(versions)), loss_every),
    )


def _columns(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of METRIC as an array of shape (columns, rows)."""
    return np.array([rows[name] for name in METRIC.names or ()])


def compare_metrics(
    recorded: NDArray[Any],
    found: NDArray[Any],
    time_s: NDArray[np.float64],
    slack: NDArray[np.float64] | None = None,
) -> MetricsResult:
    """Hold rows of METRIC against those that were recorded for the snapshots at `time_s`.

    `slack`, shape (columns, rows), is how far they may differ beyond the usual rounding.
    """
    if len(recorded) != len(found):
        return MetricsResult(len(found), 0, 0, f"{len(recorded):,} rows for {len(found):,} snapshots")
    exact, equal = np.ones(len(found), np.bool_), np.ones(len(found), np.bool_)
    first: dict[int, str] = {}
    for column, name in enumerate(METRIC.names or ()):
        old, new = recorded[name], found[name]
        tolerance = {"atol": ACCURACY_ROUNDING, "rtol": 0} if "accuracy" in name else {"atol": 0, "rtol": ROUNDING}
        exact &= (old == new) | (np.isnan(old) & np.isnan(new))
        close = np.isclose(new, old, equal_nan=True, **tolerance)
        if slack is not None:
            close |= np.abs(new - old) <= slack[column]
        equal &= close
        for row in np.flatnonzero(~close)[:1].tolist():
            first.setdefault(row, f"row {row} ({time_s[row]:g} s): {name} is {new[row]:.17g}, recorded {old[row]:.17g}")
    difference = first[min(first)] if first else None
    return MetricsResult(len(found), int(equal.sum()), int(exact.sum()), difference)


class Replay:
    """The replay of one run file; `bits` False: it compares what does not depend on how models are rounded."""

    def __init__(
        self, run: Run, scenario: Scenario, progress: Callable[[float, int], None], *, bits: bool = True
    ) -> None:
        self._run, self._scenario, self._progress, self._bits = run, scenario, progress, bits
        self._server = scenario.server()
        self._clients = ClientPool(scenario)
        self._orders = OpenOrders()
        self._cancelled: list[tuple[int, int]] = []  # client and round of orders whose row is still to come
        self._criterion = scenario.criterion()
        self._lost: list[int] = []
        self._removal: Removal | None = None
        self._number = 0  # the current row
        self._difference: Difference | None = None
        self._next_snapshot = 0
        self._last_only = run.experiment.record.models == "last"
        self._models: list[Vector] = []  # of the snapshots so far, if the file keeps the last model only
        self._averages: list[Vector] = []

    def run(self) -> ReplayResult:
        """Replay to the end or to the first difference."""
        with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
            return self.replayed().result

    def replayed(self) -> Replayed:
        """The same, and the models too."""
        for _ in self.play():
            pass
        return self.outcome()

    def outcome(self, rounding: Rounding | None = None) -> Replayed:
        """What was compared so far, and the models too: those that the file has are equal to them."""
        result = ReplayResult(self._number, self._next_snapshot, self._difference, rounding=rounding)
        keeps_average = self._run.experiment.record.average
        if self._last_only:
            return Replayed(result, self._models, self._averages if keeps_average else None)
        averages = ModelsInFile(self._run, "snapshots/average") if keeps_average else None
        return Replayed(result, ModelsInFile(self._run, "snapshots/model"), averages)

    def play(self) -> Iterator[Shown]:
        """Replay to the end or to the first difference; yields what each snapshot shows."""
        self._keep(self._server.begin())
        yield from self._snapshots_here()
        events = self._run.events_array
        while self._difference is None and self._number < len(events):
            row = events[self._number]
            self._difference = self._event(self._number, row)
            self._number += 1
            yield from self._snapshots_here()
            self._progress(float(row["time_s"]), self._number)
        self._difference = self._difference or self._check_end(self._number)

    def _event(self, number: int, row: np.void) -> Difference | None:
        what = self._handlers[row["kind"]](row)
        return Difference(number, what) if what else None

    @cached_property
    def _handlers(self) -> dict[int, Callable[[np.void], str | None]]:
        return {
            Kind.UPDATE: self._update,
            Kind.STEP: self._step,
            Kind.NO_STEP: self._step,
            Kind.CANCELLED: self._cancel,
            Kind.DISCARDED: self._update,
            Kind.REFUSED: self._refusal,
            Kind.LOST: self._loss,
            Kind.REMOVED: self._remove,
        }

    def _step(self, row: np.void) -> str | None:
        self._keep(self._server.aggregate(float(row["time_s"])), row)
        if self._server.stepped != (row["kind"] == Kind.STEP):
            return "the rule steps" if self._server.stepped else "the rule does not step"
        return self._compare(row, self._server.model, "the model after the server step") or self._count(row)

    def _update(self, row: np.void) -> str | None:
        number, made = int(row["client"]), int(row["local_steps"])
        open_order = self._orders.out.get(number)
        if open_order is None:
            return f"an update of client {number}, which had no order"
        order, client = open_order.order, self._clients[number]
        recorded = (row["round"], row["base_version"])
        if (client.round, order.version) != recorded or not self._same(order.step_size, row["step_size"]):
            return (
                f"client {number} is at round {client.round}, version {order.version}, step size {order.step_size:g}; "
                f"recorded are {row['round']}, {row['base_version']}, {row['step_size']:g}"
            )
        payload = self._work(order, row)
        self._end_round(number, made, row)
        if row["kind"] == Kind.UPDATE:
            header = UpdateHeader(number, int(row["round"]), order.version, local_steps=made)
            self._keep(self._server.receive(Update(header, payload), order, float(row["time_s"])), row)
            if not self._steps_next:
                self._keep(self._server.replies(), row)
        if self._scenario.experiment.privacy is not None:  # the server has never seen this update
            return self._count(row)
        return self._compare(row, payload, f"the update of client {number}, round {row['round']}") or self._count(row)

    def _work(self, order: Order, row: np.void) -> Vector:
        """Compute the round that a row is about; a client that chooses its local steps has made all that it chose."""
        made, client = int(row["local_steps"]), self._clients[order.client]
        if not order.local_steps:
            order = order._replace(local_steps=made)
        return client.work(order, made if client.trains else order.local_steps)

    def _end_round(self, client: int, made: int, row: np.void) -> None:
        self._orders.end(client, made)
        self._orders.release(client, float(row["time_s"]), Flag.REPLY)

    @property
    def _steps_next(self) -> bool:
        """Whether the current row's update has triggered the server step of the next row."""
        events, following, server = self._run.events_array, self._number + 1, self._server
        due = server.due if server.decides else self._criterion.counted(server.updates_since_step)
        return due and following < len(events) and events[following]["kind"] in (Kind.STEP, Kind.NO_STEP)

    def _refusal(self, row: np.void) -> str | None:
        """The client has worked, but its update was refused; it works again."""
        number = int(row["client"])
        open_order = self._orders.out.get(number)
        if open_order is not None:  # else the update belonged to no order, and was not answered
            self._work(open_order.order, row)
            self._clients[number].take_back()
            self._orders.end(number, int(row["local_steps"]))
            self._keep([self._server.again(open_order.order, float(row["time_s"]))], row)
        return self._count(row)

    def _cancel(self, row: np.void) -> str | None:
        """An event before has cancelled this order."""
        expected = self._cancelled.pop(0) if self._cancelled else None
        recorded = (int(row["client"]), int(row["round"]))
        return None if expected == recorded else f"the rule cancels {expected}, recorded is {recorded}"

    def _loss(self, row: np.void) -> str | None:
        """A client is lost; its part of the average follows from the memories of the others at this moment."""
        number = int(row["client"])
        self._lost.append(number)
        self._keep(self._server.lose(number, self._orders.drop(number), float(row["time_s"])), row)
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

    def _same(self, step_size: float, recorded: float) -> bool:
        """Whether step sizes are equal, which a rule may compute from models."""
        return step_size == recorded if self._bits else math.isclose(step_size, recorded, rel_tol=MOST_DIVERGENCE)

    def _compare(self, row: np.void, vector: Vector, what: str) -> str | None:
        if not self._bits:
            return None
        found = digest(vector)
        return None if found == row["digest"] else f"{what}: digest {found:#x}, recorded {int(row['digest']):#x}"

    def _count(self, row: np.void) -> str | None:
        counted = (self._server.iteration, self._server.version)
        recorded = (int(row["iteration"]), int(row["version"]))
        return None if counted == recorded else f"iteration and version {counted}, recorded {recorded}"

    def _snapshots_here(self) -> Iterator[Shown]:
        """The snapshots that were taken after the events so far; compared, unless bits are not."""
        index = self._run.snapshot_index
        while self._difference is None and self._next_snapshot < len(index):
            if index[self._next_snapshot]["event"] != self._number:
                return
            if self._bits and (what := self._compare_snapshot(self._next_snapshot)):
                self._difference = Difference(self._number, f"snapshot {self._next_snapshot}: {what}")
                return
            model, average = self._server.model, self._server.average
            self._next_snapshot += 1
            if self._last_only:
                self._models.append(model)
                self._averages += [] if average is None else [average]
            yield Shown(self._number, model, average)

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
        if average is None or not len(run.averages):  # none, where a recovered file lacks the only one
            return None
        if run.averages[-1 if self._last_only else number].tobytes() != average.tobytes():
            return "the average differs"
        return None

    def _check_end(self, events_done: int) -> Difference | None:
        """A snapshot without its events: the log lacks some, unless the run was killed while it wrote."""
        index, number = self._run.snapshot_index, self._next_snapshot
        if self._run.status.state == State.RUNNING:
            return None
        if self._cancelled:
            client, round_number = self._cancelled[0]
            return Difference(
                events_done, f"the rule cancels round {round_number} of client {client}, none is recorded"
            )
        if number == len(index):
            return None
        wanted = int(index[number]["event"])
        return Difference(events_done, f"snapshot {number} was taken after {wanted} events, {events_done} are recorded")

    def _keep(self, orders: list[Order], row: np.void | None = None) -> None:
        """Note orders as the conductor does."""
        time_s = 0.0 if row is None else float(row["time_s"])
        for order in orders:
            if order.flags is Flag.CANCEL:
                open_order = self._orders.end(order.client)
                assert open_order is not None
                self._clients[order.client].cancel(open_order.order)
                self._cancelled.append((order.client, open_order.round))
                self._orders.release(order.client, time_s, Flag.NONE)
            elif order.flags is not Flag.CONTACT:
                self._orders.begin(order, time_s)


# ---------------------------------------------------------------------------------------------------- without a log


def repeated(run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> Replayed:
    """Simulate a run without event log again, and compare every bit."""
    end = _simulated(run, scenario, progress)
    if end is None:
        return Replayed(
            ReplayResult(0, 0, Difference(0, "the model is not finite any more in the same pass")), [], None
        )
    return _outcome(end, _events(run, end) or _snapshots(run, end) or _average(run, end) or _counts(run, end))


def _simulated(run: Run, scenario: Scenario, progress: Callable[[float, int], None]) -> LaneEnd | None:
    """The run without event log again; of the other lanes of its pass only their number matters."""
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
    scenarios = [scenario] if lanes == 1 else build_pass(scenario, [run.experiment] * lanes)
    return simulate_lanes(scenarios, progress)[lane]


def _outcome(end: LaneEnd, difference: Difference | None, rounding: Rounding | None = None) -> Replayed:
    averages = [snapshot.average for snapshot in end.snapshots if snapshot.average is not None]
    result = ReplayResult(end.tally.events, len(end.snapshots), difference, rounding=rounding)
    return Replayed(result, [snapshot.models for snapshot in end.snapshots], averages or None)


def _events(run: Run, end: LaneEnd) -> Difference | None:
    """The first event of a lane that differs, where events are kept."""
    recorded = run.events_array
    for number, (old, new) in enumerate(zip(recorded, end.events, strict=False)):
        if old.tobytes() != new.tobytes():
            return Difference(number, f"the event is {new}, recorded {old}")
    if len(recorded) != len(end.events):
        return Difference(len(end.events), f"{len(end.events)} events, recorded {len(recorded)}")
    return None


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


# ---------------------------------------------------------------------------------------------------- other kernels


def compare_rounded(
    run: Run, scenario: Scenario, progress: Callable[[float, int], None]
) -> tuple[Replayed, Replayed | None]:
    """Compare a run of other kernels within a tolerance, which a replay from a moved start measures.

    That replay comes second, where its models say how far metrics may differ: where the file has not all models.
    """
    scale = _scale(run, scenario.start)
    moved = replace(scenario, start=_moved(scenario.start, scale))
    if not _has_log(run):
        ends = [_simulated(run, each, progress) for each in (scenario, moved)]
        end, other = ends
        if end is None or other is None:
            rounding = Rounding(math.nan, math.inf, 0)
            return Replayed(ReplayResult(0, 0, None, rounding=rounding), [], None), None
        rounding, difference = _compare_models(run, scale, _shown(end), _shown(other))
        if rounding.comparable:
            difference = difference or _schedule(run, end) or _counts(run, end)
        return _outcome(end, difference, rounding), _outcome(other, None)
    replay, second = (Replay(run, each, progress, bits=False) for each in (scenario, moved))
    rounding, difference = _compare_models(run, scale, replay.play(), second.play())
    found = replay.outcome(rounding)
    if not rounding.comparable or difference is not None:
        found = replace(found, result=replace(found.result, difference=difference))
    return found, second.outcome() if run.experiment.record.models == "last" else None


def _scale(run: Run, start: Vector) -> float:
    """The largest entry of the start and of the run's last model: what a unit in the last place is taken of."""
    count = len(run.snapshot_index)
    last = run.model(count - 1) if count and run.has_model(count - 1) else start
    return max(_largest(start), _largest(last) if np.isfinite(last).all() else 0.0)


def _moved(start: Vector, scale: float) -> Vector:
    """The start with every entry one unit in the last place of `scale` away, up or down at random.

    Not of the entry itself: where that is zero, its neighbour is no number that rounding leads to.
    """
    signs = np.random.default_rng(0).choice([-1, 1], len(start))
    moved: Vector = (start + signs * np.spacing(start.dtype.type(scale))).astype(start.dtype)
    moved.flags.writeable = False
    return moved


def _shown(end: LaneEnd) -> Iterator[Shown]:
    return (Shown(each.events, np.ravel(each.models), each.average) for each in end.snapshots)


def _compare_models(
    run: Run, scale: float, here: Iterator[Shown], moved: Iterator[Shown]
) -> tuple[Rounding, Difference | None]:
    """How far the snapshots of a run are from those here; the first that is too far, unless none can be compared."""
    distance = divergence = grown = 0.0  # the last is not a share of the model
    compared = 0
    for number, (ours, other) in enumerate(zip_longest(here, moved)):
        if ours is None or not np.isfinite(ours.model).all():  # it has ended with a difference, or diverged
            break
        size = max(scale, _largest(ours.model))
        unit = float(np.spacing(ours.model.dtype.type(size)))
        grown = max(grown, unit, math.inf if other is None else _distance(other, ours.model, ours.average))
        divergence = grown / size
        if not divergence <= MOST_DIVERGENCE:
            return Rounding(distance, divergence, compared), None
        if number >= len(run.snapshot_index) or not run.has_model(number):
            continue
        recorded = Shown(ours.events, run.model(number), _recorded_average(run, number))
        away = _distance(recorded, ours.model, ours.average)
        distance = max(distance, away / size)
        compared += 1
        if not away <= FACTOR * grown:
            what = f"snapshot {number}: the model is {away / size:.2g} of its largest entry away, at most "
            what += f"{FACTOR * divergence:.2g} is rounding"
            return Rounding(distance, divergence, compared), Difference(ours.events, what)
    return Rounding(distance, divergence, compared), None


def _recorded_average(run: Run, number: int) -> Vector | None:
    if not run.experiment.record.average or not len(run.averages):
        return None
    average: Vector = run.averages[-1 if run.experiment.record.models == "last" else number]
    return average


def _distance(other: Shown, model: Vector, average: Vector | None) -> float:
    """The largest difference of an entry of the models, or of the averages where both are there."""
    found = _largest(other.model.astype(np.float64) - model)
    if other.average is None or average is None:
        return found
    return max(found, _largest(other.average.astype(np.float64) - average))


def _largest(vector: Vector) -> float:
    return float(np.abs(vector).max())


def _schedule(run: Run, end: LaneEnd) -> Difference | None:
    """The first snapshot that was taken at another time, version or number of events."""
    rows = np.array([(*snapshot[:3], 0) for snapshot in end.snapshots], SNAPSHOT)
    recorded = run.snapshot_index
    columns = ["time_s", "version", "event"]
    if len(rows) == len(recorded) and np.array_equal(rows[columns], recorded[columns]):
        return None
    return Difference(end.tally.events, f"{len(rows)} snapshots at other moments than the {len(recorded)} recorded")
