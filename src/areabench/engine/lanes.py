"""Lanes: runs that differ in method, step size and aggregation criterion only, simulated together in one pass.

Client-driven methods answer every update with an order to the same client, and no random draw depends on method or step
size. So all their runs of one trial have the same arrivals and the same mini-batches, and the local steps of all are
computed together. Runs that differ in step size only are a group, which has one server, whose models are stacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import is_
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Stack, Vector
from areabench.engine.events import EVENT_ROW
from areabench.engine.messages import Order
from areabench.engine.scenario import Scenario
from areabench.experiment.experiment import Experiment
from areabench.methods.base import Arrival, Method, MethodSettings, Report, Step, Work
from areabench.methods.criteria import EveryUpdates
from areabench.methods.local import Local
from areabench.problems.base import LocalLanes, Problem

# Models that clients still compute with: four start from each version (the default), and it is held until the slowest
# of them, with exponential delays, has answered: (1 + 1/2 + 1/3 + 1/4) / 4.
_VERSIONS_A_CLIENT = 0.52
MOST_LANE_SNAPSHOTS = 1000  # of a run that shares a pass
MOST_LANES = 32  # wider passes gain nothing, and their models leave the processor's cache
MOST_BYTES = 10**9  # of what a pass holds


def group_lanes(experiments: Sequence[Experiment]) -> list[tuple[int, ...]]:
    """Which experiments can share a pass, as positions; the lanes of a pass are sorted by group."""
    alike: dict[Experiment | int, list[int]] = {}
    for number, experiment in enumerate(experiments):
        alike.setdefault(_shared(experiment) if _can_share(experiment) else number, []).append(number)
    passes = []
    for members in alike.values():
        members.sort(key=lambda number: (experiments[number].method.name, repr(_group_of(experiments[number]))))
        width = min(MOST_LANES, max(1, int(MOST_BYTES / _lane_bytes(experiments[members[0]]))))
        passes += [tuple(members[first : first + width]) for first in range(0, len(members), width)]
    return passes


def _lane_bytes(experiment: Experiment) -> float:
    """About what a lane holds: the clients' memories, versions in use, snapshots, and events where they are kept."""
    clients, record = experiment.clients.count, experiment.record
    horizon_s = experiment.stop.horizon_s or 0.0
    snapshots = horizon_s / record.interval_s if record.snapshots == "grid" else 0.0
    models = clients * (1 + _VERSIONS_A_CLIENT) + snapshots * (1 + record.average) + 1
    events = horizon_s * clients * experiment.rates.mean_rate if record.events else 0.0
    return models * experiment.problem.model_bytes(experiment.data) + 2 * events * EVENT_ROW.size


def _can_share(experiment: Experiment) -> bool:
    """Whether the problem computes lanes, and every round is M plain local steps of a client that no model chooses.

    Snapshots of all lanes wait in memory for their evaluation, so there may not be too many.
    """
    stop, record, clients = experiment.stop, experiment.record, experiment.clients
    if not experiment.problem.computes_lanes or experiment.faults.lost or experiment.privacy:
        return False
    if experiment.data is not None and not experiment.data.may_share_pass:  # the memory of a lane is not known
        return False
    if experiment.local != Local() or clients.work != "fixed" or experiment.delays.per == "step":
        return False
    if not experiment.method.shares_pass(clients):
        return False
    if record.snapshots == "none":
        return True
    return record.snapshots == "grid" and (stop.horizon_s or math.inf) / record.interval_s <= MOST_LANE_SNAPSHOTS


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


def _group_of(experiment: Experiment) -> tuple[Any, ...]:
    """What the lanes of a group have in common."""
    return replace(experiment.method, step_size=1.0), experiment.aggregation


# ---------------------------------------------------------------------------------------------------- a pass


@dataclass(frozen=True, eq=False)
class LaneGroup:
    """Lanes that differ in step size only: one scenario stands for all, with stacks of shape (lanes, d) for vectors."""

    rows: slice  # among all lanes of the pass
    step_sizes: NDArray[np.float64]  # shape (lanes,)


class SharedSteps:
    """The local steps of all lanes of a pass, computed together: for one client after the other."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._clients: dict[int, LocalLanes] = {}
        self._given: list[Any] = []
        self._step_sizes = np.empty(0)
        self.models: Stack = np.empty((0, 0))  # of the client that was computed last

    def compute(self, orders: Sequence[Order], *, train: bool) -> None:
        """The local steps of a client, from the orders of all groups; without `train` it passes them over."""
        client = orders[0].client
        if client not in self._clients:
            self._clients[client] = cast("LocalLanes", self._problem.local(client))
        local = self._clients[client]
        if train:
            self.models = local.descend_lanes([order.model for order in orders], self._all_step_sizes(orders))
        else:
            local.skip(orders[0].local_steps)

    def _all_step_sizes(self, orders: Sequence[Order]) -> NDArray[np.float64]:
        """The step sizes of all lanes: the same array as before where they have not changed."""
        given: list[Any] = [order.step_size for order in orders]
        if len(given) != len(self._given) or not all(map(is_, given, self._given)):
            self._given = given
            self._step_sizes = np.concatenate(given)
        return self._step_sizes


@dataclass(frozen=True)
class GroupSteps:
    """The local problem of the clients of one group, whose local steps were computed with those of the others."""

    shared: SharedSteps
    rows: slice

    def descend(self, model: Vector, _step_size: float, _steps: int | None = None) -> Vector:
        """What was computed: lent until the next client's turn."""
        return self.shared.models[self.rows]

    def gradient(self, model: Vector) -> Vector:
        """No lane asks for single gradients."""
        raise NotImplementedError

    def skip(self, steps: int) -> None:
        """The pass has passed them over for all groups."""


def build_pass(one: Scenario, experiments: Sequence[Experiment]) -> list[Scenario]:
    """The groups of a pass of experiments that `group_lanes` has put together, from the scenario of any of them."""
    groups: list[Scenario] = []
    first = 0
    for _, alike in groupby(experiments, key=_group_of):
        members = list(alike)
        rows = slice(first, first + len(members))
        first = rows.stop
        step_sizes = np.array([experiment.method.step_size for experiment in members])
        start = np.repeat(one.start[None], len(members), axis=0)
        start.flags.writeable = False
        column = _as_column(step_sizes, start.dtype)
        method = members[0].method.build(members[0].method_inputs(one.rates, one.samples, column))
        groups.append(
            replace(
                one,
                experiment=members[0],
                method=_with_columns(method, start.dtype),
                start=start,
                group=LaneGroup(rows, step_sizes),
            )
        )
    return groups


def _as_column(step_sizes: NDArray[np.float64], dtype: np.dtype[Any]) -> Vector:
    """Step sizes as a rule multiplies stacks by them, shape (lanes, 1)."""
    return step_sizes.astype(dtype)[:, None]


def _with_columns(method: Method, dtype: np.dtype[Any]) -> Method:
    """The rule for orders that carry the step sizes of all lanes, shape (lanes,).

    A correction of gradients goes: it is zero at the first local step, and rules with more of them share no pass.
    """

    def report(memory: Any, work: Work) -> Report:
        column = _as_column(cast("Any", work.step_size), dtype)
        return method.report(memory, work._replace(step_size=cast("Any", column)))

    def receive(state: Any, arrival: Arrival) -> Step:
        column = _as_column(cast("Any", arrival.step_size), dtype)
        return method.receive(state, arrival._replace(step_size=cast("Any", column)))

    return replace(method, report=report, receive=receive, correct=None)
