"""Replay: run the rule again from an event log and compare every update, server step and snapshot, bit for bit.

A run without log, or one that was simulated together with others, is simulated again and compared. Then the snapshots
are evaluated again, and the metrics compared. Other kernels than those of the run round in another way. Then the
snapshots are compared within a tolerance, which is measured by another replay, from a start that is moved by one unit
in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

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

FACTOR = 100.0  # equal is what is within so many times the distance that a moved start leads to
MOST_DIVERGENCE = 1e-3  # of the model; beyond it the tolerance would say nothing
ROUNDING = 1e-5  # relative: another number of threads, or of models evaluated together, rounds in another way
ACCURACY_ROUNDING = 0.05  # percentage points: a sample whose two best classes score alike may count or not

Progress = Callable[[float, int], None]


@dataclass(frozen=True)
class Difference:
    """The first place where the replay differs from the record."""

    event: int  # row of /events; the number of rows where a snapshot after the last event differs
    what: str


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


class Shown(NamedTuple):
    """What a snapshot of a replay shows, and after how many events."""

    events: int
    model: Vector
    average: Vector | None


def follows_log(run: Run) -> bool:
    """Whether a run is replayed from its event log: lanes were computed together, and are simulated together again."""
    return run.experiment.record.events and run.provenance.lanes == 1


@limited_threads()
def replay_run(run: Run, scenario: Scenario, progress: ProgressLine) -> ReplayResult:
    """Replay a run from its event log, or simulate it again if it has none; then compare the metrics too."""
    with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
        result, found, moved = _replay(run, scenario, progress)
        if result.difference is not None or not result.comparable or not len(run.metrics_array):
            return result
        progress.close("evaluating the snapshots")
        rows = _evaluate(run, scenario.problem, found.shown)
        slack = None
        if moved is not None:
            moved_rows = _evaluate(run, scenario.problem, moved.shown)
            slack = np.array([FACTOR * np.abs(moved_rows[name] - rows[name]) for name in METRIC.names or ()])
    return replace(result, metrics=compare_metrics(run.metrics_array, rows, run.snapshot_index["time_s"], slack))


@limited_threads()
def replay_models(run: Run, scenario: Scenario, progress: ProgressLine) -> ReplayResult:
    """The same without the metrics."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _replay(run, scenario, progress)[0]


@limited_threads()
def evaluated_again(run: Run, scenario: Scenario, progress: ProgressLine) -> NDArray[Any]:
    """Rows of METRIC for all snapshots of a run that has ended.

    Models that the file does not keep are made again by a replay; a RunFileError where it differs.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
        shown = None
        if run.experiment.record.models == "last" and len(run.snapshot_index) > 1:
            found = _replayer(run, scenario, progress)
            result = found.run()
            shown = found.shown
            if result.difference is not None:
                raise RunFileError(
                    f"{run.path}: keeps the last of its {len(run.snapshot_index):,} models only, and a replay, which "
                    f"makes the others again, differs ({result.difference.what}); run it again"
                )
        progress.close("evaluating the snapshots")
        return _evaluate(run, scenario.problem, shown)


def _evaluate(run: Run, problem: Problem, shown: Sequence[Shown] | None) -> NDArray[Any]:
    """Rows of METRIC, by the same code and in the same blocks as the run made them; None: of the models in the file."""
    versions = run.snapshot_index["version"].tolist()
    loss_every = run.experiment.record.loss_every
    step = evaluated_at_once(*run.model_size)
    starts = range(0, len(versions), step)

    def models(first: int) -> Sequence[Vector]:
        if shown is None:  # read when they are asked for: there may be more than fit into memory
            return list(run.rows("snapshots/model", first, first + step))
        return [each.model for each in shown[first : first + step]]

    def averages(first: int) -> Sequence[Vector]:
        if shown is None:
            return list(run.rows("snapshots/average", first, first + step))
        return [each.average for each in shown[first : first + step] if each.average is not None]

    with_average = starts if run.experiment.record.average else []
    return metric_rows(
        evaluate_blocks(problem, map(models, starts), versions, loss_every),
        evaluate_blocks(problem, map(averages, with_average), range(len(versions)), loss_every),
    )


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
    exact = np.ones(len(found), np.bool_)
    equal = np.ones(len(found), np.bool_)
    first: dict[int, str] = {}
    for column, name in enumerate(METRIC.names or ()):
        old = recorded[name]
        new = found[name]
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


# ---------------------------------------------------------------------------------------------------- from the log


class Replay:
    """The replay of an event log; `bits` False: it compares what does not depend on how models are rounded.

    `shown` has the snapshots so far where the file keeps the last model only; else None: the file's are equal to them.
    """

    def __init__(self, run: Run, scenario: Scenario, progress: Progress, *, bits: bool = True) -> None:
        self._run = run
        self._scenario = scenario
        self._progress = progress
        self._bits = bits
        self._server = scenario.server()
        self._clients = ClientPool(scenario)
        self._orders = OpenOrders()
        self._cancelled: list[tuple[int, int]] = []  # client and round of orders whose row is still to come
        self._criterion = scenario.criterion()
        self._lost: list[int] = []
        self._removal: Removal | None = None
        self._number = 0  # the current row
        self._next_snapshot = 0
        self._difference: Difference | None = None
        self._last_only = run.experiment.record.models == "last"
        self.shown: list[Shown] | None = [] if self._last_only else None

    def run(self) -> ReplayResult:
        """Replay to the end or to the first difference."""
        with np.errstate(over="ignore", invalid="ignore"):  # a run may have diverged
            for _ in self.play():
                pass
        return self.result()

    def result(self) -> ReplayResult:
        """What was compared so far."""
        return ReplayResult(self._number, self._next_snapshot, self._difference)

    def play(self) -> Iterator[Shown]:
        """Replay to the end or to the first difference; yields what each snapshot shows."""
        self._keep(self._server.begin(), 0.0)
        yield from self._snapshots_here()
        events = self._run.events_array
        while self._difference is None and self._number < len(events):
            row = events[self._number]
            self._difference = self._event(self._number, row)
            self._number += 1
            yield from self._snapshots_here()
            self._progress(float(row["time_s"]), self._number)
        self._difference = self._difference or self._check_end()

    def _event(self, number: int, row: np.void) -> Difference | None:
        client = int(row["client"])
        time_s = float(row["time_s"])
        match row["kind"]:
            case Kind.UPDATE | Kind.DISCARDED:
                what = self._update(client, time_s, row)
            case Kind.STEP | Kind.NO_STEP:
                what = self._step(time_s, row)
            case Kind.REFUSED:
                what = self._refusal(client, time_s, row)
            case Kind.CANCELLED:
                what = self._cancel(client, row)
            case Kind.LOST:
                what = self._loss(client, time_s, row)
            case _:
                what = self._remove(row)
        return Difference(number, what) if what else None

    def _step(self, time_s: float, row: np.void) -> str | None:
        self._keep(self._server.aggregate(time_s), time_s)
        if self._server.stepped != (row["kind"] == Kind.STEP):
            return "the rule steps" if self._server.stepped else "the rule does not step"
        return self._compare(row, self._server.model, "the model after the server step") or self._count(row)

    def _update(self, client: int, time_s: float, row: np.void) -> str | None:
        open_order = self._orders.out.get(client)
        if open_order is None:
            return f"an update of client {client}, which had no order"
        order = open_order.order
        number = self._clients[client].round
        step_size_is_same = order.step_size == row["step_size"]
        if not self._bits:  # a rule may compute it from models
            step_size_is_same = math.isclose(order.step_size, row["step_size"], rel_tol=MOST_DIVERGENCE)
        if (number, order.version) != (row["round"], row["base_version"]) or not step_size_is_same:
            return (
                f"client {client} is at round {number}, version {order.version}, step size {order.step_size:g}; "
                f"recorded are {row['round']}, {row['base_version']}, {row['step_size']:g}"
            )
        payload = self._work(order, row)
        self._orders.end(client, int(row["local_steps"]))
        self._orders.release(client, time_s, Flag.REPLY)
        if row["kind"] == Kind.UPDATE:
            header = UpdateHeader(client, number, order.version, local_steps=int(row["local_steps"]))
            self._keep(self._server.receive(Update(header, payload), order, time_s), time_s)
            if not self._steps_next:
                self._keep(self._server.replies(), time_s)
        if self._scenario.experiment.privacy is not None:  # the server has never seen this update
            return self._count(row)
        return self._compare(row, payload, f"the update of client {client}, round {number}") or self._count(row)

    def _work(self, order: Order, row: np.void) -> Vector:
        """Compute the round that a row is about; a client that chooses its local steps has made all that it chose."""
        made = int(row["local_steps"])
        client = self._clients[order.client]
        if not order.local_steps:
            order = order._replace(local_steps=made)
        return client.work(order, made if client.trains else order.local_steps)

    @property
    def _steps_next(self) -> bool:
        """Whether the current row's update has triggered the server step of the next row."""
        following = self._run.events_array[self._number + 1 : self._number + 2]["kind"]
        server = self._server
        due = server.due if server.decides else self._criterion.counted(server.updates_since_step)
        return due and bool(np.isin(following, (Kind.STEP, Kind.NO_STEP)).any())

    def _refusal(self, client: int, time_s: float, row: np.void) -> str | None:
        """The client has worked, but its update was refused; it works again."""
        open_order = self._orders.out.get(client)
        if open_order is not None:  # else the update belonged to no order, and was not answered
            self._work(open_order.order, row)
            self._clients[client].take_back()
            self._orders.end(client, int(row["local_steps"]))
            self._keep([self._server.again(open_order.order, time_s)], time_s)
        return self._count(row)

    def _cancel(self, client: int, row: np.void) -> str | None:
        """An event before has cancelled this order."""
        expected = self._cancelled.pop(0) if self._cancelled else None
        recorded = (client, int(row["round"]))
        return None if expected == recorded else f"the rule cancels {expected}, recorded is {recorded}"

    def _loss(self, client: int, time_s: float, row: np.void) -> str | None:
        """A client is lost; its part of the average follows from the memories of the others at this moment."""
        self._lost.append(client)
        self._keep(self._server.lose(client, self._orders.drop(client), time_s), time_s)
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
        if not self._bits or found == row["digest"]:
            return None
        return f"{what}: digest {found:#x}, recorded {int(row['digest']):#x}"

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
            self._next_snapshot += 1
            shown = Shown(self._number, self._server.model, self._server.average)
            if self.shown is not None:
                self.shown.append(shown)
            yield shown

    def _compare_snapshot(self, number: int) -> str | None:
        """Bit for bit where the model is kept, else by checksum."""
        run = self._run
        model = self._server.model
        if not run.has_model(number):
            found = digest(model)
            recorded = int(run.snapshot_index[number]["digest"])
            return None if found == recorded else f"digest {found:#x}, recorded {recorded:#x}"
        stored = run.model(number)
        if stored.tobytes() != model.tobytes():
            return f"{int(np.count_nonzero(stored != model))} of {model.size} entries differ"
        average = self._server.average
        kept = _recorded_average(run, number)
        if average is not None and kept is not None and kept.tobytes() != average.tobytes():
            return "the average differs"
        return None

    def _check_end(self) -> Difference | None:
        """A snapshot without its events: the log lacks some, unless the run was killed while it wrote."""
        index = self._run.snapshot_index
        if self._run.status.state == State.RUNNING:
            return None
        if self._cancelled:
            client, number = self._cancelled[0]
            return Difference(self._number, f"the rule cancels round {number} of client {client}, none is recorded")
        if self._next_snapshot == len(index):
            return None
        wanted = int(index[self._next_snapshot]["event"])
        what = f"snapshot {self._next_snapshot} was taken after {wanted} events, {self._number} are recorded"
        return Difference(self._number, what)

    def _keep(self, orders: list[Order], time_s: float) -> None:
        """Note orders as the conductor does."""
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


class Repetition:
    """A run simulated again, with the lanes that it had; of the other lanes only their number matters."""

    def __init__(self, run: Run, scenario: Scenario, progress: Progress, *, bits: bool = True) -> None:
        if run.provenance.transport != "simulator":
            raise RunFileError(
                f"{run.path}: has no event log to replay, and arrivals in real time do not repeat; run it with "
                "record.events=true"
            )
        if run.status.state in (State.RUNNING, State.FAILED):
            raise RunFileError(
                f"{run.path}: is {run.status.state.text} and has no event log, so there is nothing to compare; run it "
                "again"
            )
        self._run = run
        self._scenario = scenario
        self._progress = progress
        self._bits = bits
        self._difference: Difference | None = None
        self._events = 0
        self.shown: list[Shown] = []

    def run(self) -> ReplayResult:
        """Simulate to the end, and compare."""
        for _ in self.play():
            pass
        return self.result()

    def result(self) -> ReplayResult:
        """What was compared."""
        return ReplayResult(self._events, len(self.shown), self._difference)

    def play(self) -> Iterator[Shown]:
        """Simulate to the end, compare, and yield what each snapshot shows."""
        lanes = self._run.provenance.lanes
        scenarios = [self._scenario]
        if lanes > 1:
            scenarios = build_pass(self._scenario, [self._run.experiment] * lanes)
        end = simulate_lanes(scenarios, self._progress)[self._run.provenance.lane]
        if end is None:
            self._difference = Difference(0, "the model is not finite any more in the same pass")
            yield Shown(0, np.full_like(self._scenario.start, np.nan), None)
            return
        self._events = end.tally.events
        self._difference = self._compare(end)
        self.shown = [Shown(each.events, np.ravel(each.models), each.average) for each in end.snapshots]
        yield from self.shown

    def _compare(self, end: LaneEnd) -> Difference | None:
        """The first event or snapshot that differs, else the average or the counts."""
        run = self._run
        if other := _first_other("event", run.events_array, end.events, bits=self._bits):
            return other
        index = np.array([(*each[:3], digest(each.models)) for each in end.snapshots], SNAPSHOT)
        if other := _first_other("snapshot", run.snapshot_index, index, bits=self._bits):
            after = index["event"][other.event :].tolist()
            return replace(other, event=after[0] if after else end.tally.events)
        average = end.snapshots[-1].average
        served = end.tally.served(len(run.served))
        what = ""
        if self._bits and average is not None and run.averages[-1].tobytes() != average.tobytes():
            what = "the average at the end differs"
        elif run.status != end.status:
            what = f"status {end.status}, recorded {run.status}"
        elif not np.array_equal(run.staleness, end.tally.staleness):
            what = "the staleness of the updates differs"
        elif not np.array_equal(run.served, served):
            what = "the number of updates used per client differs"
        return Difference(end.tally.events, what) if what else None


_COMPUTED = ("digest", "step_size")  # columns that may depend on models


def _first_other(label: str, recorded: NDArray[Any], found: NDArray[Any], *, bits: bool) -> Difference | None:
    """The first row that differs; without `bits` only what does not depend on models is compared."""
    count = min(len(recorded), len(found))
    differs = np.zeros(count, np.bool_)
    for name in found.dtype.names or ():
        old = recorded[name][:count]
        new = found[name][:count]
        if bits or name not in _COMPUTED:
            differs |= (old != new) & ~((old != old) & (new != new))  # NaN is equal to NaN
    if differs.any():
        row = int(differs.argmax())
        return Difference(row, f"{label} {row} is {found[row]}, recorded {recorded[row]}")
    if len(recorded) != len(found):
        return Difference(count, f"{len(found)} {label}s, recorded {len(recorded)}")
    return None


def _replayer(run: Run, scenario: Scenario, progress: Progress, *, bits: bool = True) -> Replay | Repetition:
    """What replays a run: from its log, or by simulating it again."""
    return (Replay if follows_log(run) else Repetition)(run, scenario, progress, bits=bits)


# ---------------------------------------------------------------------------------------------------- other kernels


class Replayed(NamedTuple):
    """What was compared, the replay, and the one that has measured the tolerance where metrics need it."""

    result: ReplayResult
    found: Replay | Repetition
    moved: Replay | Repetition | None


def _replay(run: Run, scenario: Scenario, progress: Progress) -> Replayed:
    """Compare every bit; if one differs, and other kernels than those here have made the run, within a tolerance."""
    found = _replayer(run, scenario, progress)
    result = found.run()
    if result.difference is None or rounds_as_here(run.provenance):
        return Replayed(result, found, None)
    scale = _scale(run, scenario.start)
    moved_start = replace(scenario, start=_moved(scenario.start, scale))
    found = _replayer(run, scenario, progress, bits=False)
    moved = _replayer(run, moved_start, progress, bits=False)
    rounding, difference = _compare_models(run, scale, found.play(), moved.play())
    result = replace(found.result(), rounding=rounding)
    if not rounding.comparable or difference is not None:
        result = replace(result, difference=difference)
    return Replayed(result, found, None if moved.shown is None else moved)


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


def _compare_models(
    run: Run, scale: float, here: Iterator[Shown], moved: Iterator[Shown]
) -> tuple[Rounding, Difference | None]:
    """How far the snapshots of a run are from those here; the first that is too far, unless none can be compared."""
    distance = 0.0  # of the largest entry, as `divergence`
    divergence = 0.0
    grown = 0.0  # not a share of the model
    compared = 0
    for number, (ours, other) in enumerate(zip_longest(here, moved)):
        if ours is None:  # it has ended with a difference
            break
        if not np.isfinite(ours.model).all():
            if number == 0:  # a lane that is not finite any more in its pass
                return Rounding(math.nan, math.inf, 0), None
            break  # it has diverged
        size = max(scale, _largest(ours.model))
        unit = float(np.spacing(ours.model.dtype.type(size)))
        is_lost = other is None or not np.isfinite(other.model).all()
        grown = math.inf if other is None or is_lost else max(grown, unit, _distance(other, ours))
        divergence = grown / size
        if not divergence <= MOST_DIVERGENCE:
            return Rounding(distance, divergence, compared), None
        if number >= len(run.snapshot_index) or not run.has_model(number):
            continue
        away = _distance(Shown(ours.events, run.model(number), _recorded_average(run, number)), ours)
        distance = max(distance, away / size)
        compared += 1
        if not away <= FACTOR * grown:
            what = f"snapshot {number}: the model is {away / size:.2g} of its largest entry away, at most "
            what += f"{FACTOR * divergence:.2g} is rounding"
            return Rounding(distance, divergence, compared), Difference(ours.events, what)
    return Rounding(distance, divergence, compared), None


def _recorded_average(run: Run, number: int) -> Vector | None:
    """The average of a snapshot whose model is kept; a recovered file may lack the only one."""
    if not run.experiment.record.average or not len(run.averages):
        return None
    average: Vector = run.averages[-1 if run.experiment.record.models == "last" else number]
    return average


def _distance(one: Shown, other: Shown) -> float:
    """The largest difference of an entry of the models, or of the averages where both are there."""
    found = _largest(one.model.astype(np.float64) - other.model)
    if one.average is None or other.average is None:
        return found
    return max(found, _largest(one.average.astype(np.float64) - other.average))


def _largest(vector: Vector) -> float:
    return float(np.abs(vector).max())
