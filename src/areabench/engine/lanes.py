"""Lanes: runs that differ in method, step size and aggregation criterion only, simulated together in one pass.

Client-driven methods answer every update with an order to the same client, and no random draw depends on method or step
size. So all their runs of one trial have the same arrivals and the same mini-batches, and one wide matrix product
computes the gradients of all. Runs that differ in step size only are a part, which has a server of its own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import FLOAT32, Vector
from areabench.engine.messages import Order
from areabench.engine.scenario import Scenario
from areabench.engine.server import Server
from areabench.experiment.experiment import Experiment
from areabench.methods.base import Arrival, Method, MethodSettings, Step, Work
from areabench.methods.criteria import Criterion, EveryUpdates, build_criterion
from areabench.methods.local import Local
from areabench.methods.schedules import build_schedule
from areabench.problems.base import LocalLanes

# Models that clients still compute with: four start from each version (the default), and it is held until the slowest
# of them, with exponential delays, has answered: (1 + 1/2 + 1/3 + 1/4) / 4.
_VERSIONS_A_CLIENT = 0.52
_LINEAR_MODEL = 784 * 10  # entries of a model where the data do not say
MOST_SNAPSHOTS = 1000  # of a run that shares a pass
MOST_LANES = 32  # wider passes gain nothing, and their models leave the processor's cache
MOST_BYTES = 10**9  # of the models that a pass holds


def group_lanes(experiments: Sequence[Experiment]) -> list[tuple[int, ...]]:
    """Which experiments can share a pass, as positions; the lanes of a pass are sorted by part."""
    groups: dict[Experiment | int, list[int]] = {}
    for number, experiment in enumerate(experiments):
        groups.setdefault(_shared(experiment) if _can_share(experiment) else number, []).append(number)
    passes = []
    for members in groups.values():
        members.sort(key=lambda number: _part_key(experiments[number]))
        width = _width(experiments[members[0]])
        passes += [tuple(members[first : first + width]) for first in range(0, len(members), width)]
    return passes


def _width(experiment: Experiment) -> int:
    """How many lanes like this one a pass may have."""
    return min(MOST_LANES, max(1, int(MOST_BYTES / _lane_bytes(experiment))))


def _lane_bytes(experiment: Experiment) -> float:
    """About what the models of a lane take: the clients' memories, versions in use, and snapshots."""
    clients, record = experiment.clients.count, experiment.record
    snapshots = (experiment.stop.horizon_s or 0.0) / record.interval_s if record.snapshots == "grid" else 0.0
    entries = _LINEAR_MODEL if experiment.data is None else experiment.data.model_entries or _LINEAR_MODEL
    return entries * FLOAT32.itemsize * (clients * (1 + _VERSIONS_A_CLIENT) + snapshots + 1)


def _can_share(experiment: Experiment) -> bool:
    """Only logistic regression has wide gradients; an event log, an average, a target or a loss belongs to one run.

    Snapshots of all lanes wait in memory for their evaluation, so there may not be too many.
    """
    stop, record = experiment.stop, experiment.record
    if not experiment.problem.computes_lanes or record.events or record.average or stop.has_target:
        return False
    if experiment.faults.lost or experiment.privacy or not _has_plain_rounds(experiment):
        return False
    if experiment.data is not None and not experiment.data.may_share_pass:  # the memory of a lane is not known
        return False
    if record.snapshots == "none":
        return True
    return record.snapshots == "grid" and (stop.horizon_s or math.inf) / record.interval_s <= MOST_SNAPSHOTS


def _has_plain_rounds(experiment: Experiment) -> bool:
    """Whether every round is M plain local steps, none is interrupted, and who works depends on no model.

    An own method need not take stacks of models.
    """
    method, clients = experiment.method, experiment.clients
    if experiment.local != Local() or clients.work != "fixed" or experiment.delays.per == "step":
        return False
    return method.shares_pass(clients)


def _shared(experiment: Experiment) -> Experiment:
    """What the lanes of a pass have in common: the experiment but for its name, method and aggregation criterion.

    Clients that do not train first have a pass of their own, and so have methods that choose clients themselves.
    """
    method = experiment.method
    if not method.client_driven:
        return replace(experiment, name="lanes", method=replace(method, step_size=1.0))
    # any method whose clients begin alike
    any_method = MethodSettings(name=str(method.trains_first), step_size=1.0)
    return replace(experiment, name="lanes", method=any_method, aggregation=EveryUpdates(updates=1))


# ---------------------------------------------------------------------------------------------------- a pass


class LaneStepSizes(NamedTuple):
    """The step sizes of a part's lanes: as they are, shape (lanes,), and as a rule multiplies by them, (lanes, 1)."""

    exact: NDArray[np.float64]
    column: Vector


@dataclass(frozen=True)
class Part:
    """Lanes that differ in step size only: one rule for all, whose vectors are stacks of shape (lanes, dimension)."""

    experiment: Experiment  # of the first lane
    lanes: slice
    method: Method
    start: Vector
    step_sizes: NDArray[np.float64]
    theorem: Callable[[int], float] | None

    def server(self) -> Server:
        """The server, before its first event; orders carry the step sizes of all lanes."""
        settings, clients = self.experiment.schedule, self.experiment.clients
        schedule: Any = build_schedule(settings, cast(Any, self.step_sizes), self.theorem)
        constant = self._lane_step_sizes(self.step_sizes) if settings.constant else None

        def step_sizes(iteration: int, time_s: float) -> Any:
            return constant or self._lane_step_sizes(schedule(iteration, time_s))

        receive = self.method.receive

        def receive_column(state: Any, arrival: Arrival) -> Step:
            client, payload, number, version, model, staleness, sizes, local_steps, time_s = arrival
            column = cast(Any, sizes).column
            return receive(
                state, Arrival(client, payload, number, version, model, staleness, column, local_steps, time_s)
            )

        method = replace(self.method, receive=receive_column)
        return Server(method, step_sizes, self.start, clients.count, clients.local_steps)

    def criterion(self) -> Criterion:
        """The aggregation criterion, before its first time."""
        return build_criterion(self.experiment.aggregation, self.method, self.experiment.seed)

    def _lane_step_sizes(self, exact: NDArray[np.float64]) -> LaneStepSizes:
        return LaneStepSizes(exact, exact.astype(self.start.dtype)[:, None])


@dataclass(frozen=True)
class LanePass:
    """Runs with the same arrivals and the same mini-batches: the parts of a scenario, each with a server of its own."""

    scenario: Scenario  # of any of the runs
    parts: tuple[Part, ...]

    @property
    def lanes(self) -> int:
        """How many runs there are."""
        return len(self.parts[-1].start) + int(self.parts[-1].lanes.start)

    def client(self, number: int) -> LaneClient:
        """Client `number`, before its first round."""
        return LaneClient(self.parts, cast(LocalLanes, self.scenario.problem.local(number)))


class LaneClient:
    """A client of all lanes: it computes them together, and reports to the server of each part."""

    def __init__(self, parts: Sequence[Part], local: LocalLanes) -> None:
        self._parts, self._local = parts, local
        self._memories = [part.method.remember(part.start) for part in parts]
        self._step_sizes: list[Any] = []
        self._together = np.empty(0)
        self.round = 0

    def work(self, orders: Sequence[Order]) -> list[Vector]:
        """M local steps from the orders of all parts; what goes to the server of each part."""
        models, trains = [order.model for order in orders], self.round or self._parts[0].method.trains_first
        self.round += 1
        if trains:
            made, local = orders[0].local_steps, self._local.descend_lanes(models, self._all_step_sizes(orders))
        else:
            self._local.skip(orders[0].local_steps)
            made, local = 0, np.concatenate(models)
        return [self._report(place, order, made, local) for place, order in enumerate(orders)]

    def _all_step_sizes(self, orders: Sequence[Order]) -> NDArray[np.float64]:
        """The step sizes of all lanes: the same array as before where they have not changed."""
        given: list[Any] = [order.step_size for order in orders]
        if not all(map(operator.is_, given, self._step_sizes)) or not self._step_sizes:
            self._step_sizes = given
            self._together = np.concatenate([each.exact for each in given])
        return self._together

    def _report(self, place: int, order: Order, made: int, local: Vector) -> Vector:
        part, model = self._parts[place], order.model
        sizes: Any = order.step_size
        work = Work(model, sizes.column, made, model, local[part.lanes])
        report = part.method.report(self._memories[place], work)
        self._memories[place] = _own(report.memory, self._memories[place])
        return report.payload


def _own(memory: Vector | None, before: Vector | None) -> Vector | None:
    """A copy of what a client remembers of the lent models, in the array that it alone held before."""
    if memory is None or before is None or not before.flags.writeable:  # the starting point is shared
        return None if memory is None else memory.copy()
    np.copyto(before, memory)
    return before


def build_pass(one: Scenario, experiments: Sequence[Experiment]) -> LanePass:
    """The pass of experiments that `group_lanes` has put together, from the scenario of any of them."""
    parts: list[Part] = []
    first = 0
    for _, group in groupby(experiments, key=_part_of):
        members = list(group)
        lanes = slice(first, first + len(members))
        first = lanes.stop
        start = np.repeat(one.start[None], len(members), axis=0)
        start.flags.writeable = False
        step_sizes = np.array([experiment.method.step_size for experiment in members])
        column = step_sizes.astype(one.start.dtype)[:, None]
        inputs = members[0].method_inputs(one.rates, one.samples, column)
        method, theorem = members[0].method.build(inputs), replace(one, experiment=members[0]).theorem
        parts.append(Part(members[0], lanes, method, start, step_sizes, theorem))
    return LanePass(one, tuple(parts))


def _part_key(experiment: Experiment) -> tuple[str, str]:
    """Sorts the lanes of a pass, so that those of a part are together."""
    return experiment.method.name, repr(_part_of(experiment))


def _part_of(experiment: Experiment) -> tuple[Any, ...]:
    """What the lanes of a part have in common."""
    return replace(experiment.method, step_size=1.0), experiment.aggregation
