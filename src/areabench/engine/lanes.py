"""Lanes: runs that differ in method and step size only, simulated together in one pass.

Asynchronous methods call clients in the same order, and no random draw depends on method or step size; so all their
runs of one trial have the same events and the same mini-batches. Their models are the rows of one array, shape
(lanes, dimension), and one wide matrix product computes the gradients of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from areabench.arrays import Vector
from areabench.engine.client import Client
from areabench.engine.scenario import Scenario, build_method
from areabench.engine.server import Server
from areabench.experiment.fields import OwnMethod, OwnPart
from areabench.experiment.problem_records import DataSettings, Digits, Logistic, Synthetic
from areabench.experiment.records import Area, Experiment, FedBuff, SFedAvg
from areabench.methods.base import Method, Report, Step
from areabench.methods.fedbuff import fedbuff
from areabench.methods.schedules import build_schedule
from areabench.problems.logistic import FLOAT, LogisticLanes, LogisticProblem

# Models that clients still compute with: four start from each version (the default), and it is held until the slowest
# of them, with exponential delays, has answered: (1 + 1/2 + 1/3 + 1/4) / 4.
_VERSIONS_A_CLIENT = 0.52
MOST_SNAPSHOTS = 1000  # of a run that shares a pass
MOST_LANES = 32  # wider passes gain nothing, and their models leave the processor's cache
MOST_BYTES = 10**9  # of the models that a pass holds


def group_lanes(experiments: Sequence[Experiment]) -> list[tuple[int, ...]]:
    """Which experiments can share a pass, as positions; the lanes of a pass are sorted by method."""
    groups: dict[Experiment | int, list[int]] = {}
    for number, experiment in enumerate(experiments):
        groups.setdefault(_shared(experiment) if _can_share(experiment) else number, []).append(number)
    passes = []
    for members in groups.values():
        members.sort(key=lambda number: experiments[number].method.name)
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
    return _dimension(experiment.data) * np.dtype(FLOAT).itemsize * (clients * (1 + _VERSIONS_A_CLIENT) + snapshots + 1)


def _dimension(data: DataSettings | None) -> int:
    """Entries of a model of logistic regression, known before the data is loaded."""
    match data:
        case Synthetic():
            return data.features * data.classes
        case Digits():
            return 64 * 10
        case _:
            return 784 * 10


def _can_share(experiment: Experiment) -> bool:
    """Only logistic regression has wide gradients; an event log, an average, a target or a loss belongs to one run.

    Snapshots of all lanes wait in memory for their evaluation, so there may not be too many.
    """
    stop, record = experiment.stop, experiment.record
    if not isinstance(experiment.problem, Logistic) or record.events or record.average or stop.has_target:
        return False
    if experiment.faults.lost or isinstance(experiment.method, OwnMethod):
        return False  # an own method need not take stacks of models, nor call the clients in the same order
    if isinstance(experiment.data, OwnPart):  # the memory of a lane is not known
        return False
    if record.snapshots == "none":
        return True
    return record.snapshots == "grid" and (stop.horizon_s or math.inf) / record.interval_s <= MOST_SNAPSHOTS


def _shared(experiment: Experiment) -> Experiment:
    """What the lanes of a pass have in common: the experiment but for its name, step size and asynchronous method.

    Clients that do not train first have a pass of their own.
    """
    method = experiment.method
    common = replace(method, step_size=1.0) if isinstance(method, Area | SFedAvg) else Area(step_size=1.0)
    return replace(experiment, name="lanes", method=common)


# ------------------------------------------------------------------------------------------- many methods as one


@dataclass(frozen=True)
class Part:
    """A method and the lanes that it has."""

    lanes: slice
    method: Method


class LaneState(NamedTuple):
    """The server's models, shape (lanes, dimension), and the state of each part."""

    model: Vector
    parts: tuple[Any, ...]


def together(parts: Sequence[Part]) -> Method:
    """Several methods as one whose vectors are stacks of lanes; their updates travel as tuples, one entry per part."""

    def remember(start: Vector) -> Any:
        return tuple(part.method.remember(start[part.lanes]) for part in parts)

    def report(memory: Any, base: Vector, local: Vector) -> Report:
        reports = [
            part.method.report(held, base[part.lanes], local[part.lanes])
            for part, held in zip(parts, memory, strict=True)
        ]
        payload: Any = tuple(report.payload for report in reports)
        kept: Any = tuple(_own(report.memory, held) for report, held in zip(reports, memory, strict=True))
        return Report(payload, kept)

    def start(model: Vector) -> Step:
        return gather(model, [part.method.start(model[part.lanes]) for part in parts])

    def receive(state: LaneState, client: int, payload: Any) -> Step:
        trios = zip(parts, state.parts, payload, strict=True)
        return gather(state.model, [part.method.receive(inner, client, sent) for part, inner, sent in trios])

    def aggregate(state: LaneState) -> Step:
        steps = [part.method.aggregate(inner) for part, inner in zip(parts, state.parts, strict=True)]
        return gather(np.concatenate([step.state.model for step in steps]), steps)

    first = parts[0].method
    return Method(
        "lanes", remember, report, start, receive, aggregate, first.updates_per_step, trains_first=first.trains_first
    )


def gather(model: Vector, steps: Sequence[Step]) -> Step:
    """One step out of those of all parts, which call the same clients."""
    calls = steps[0].calls
    assert all(step.calls == calls for step in steps)
    return Step(LaneState(model, tuple(step.state for step in steps)), calls)


def _own(memory: Vector | None, before: Vector | None) -> Vector | None:
    """A copy of what a client remembers of the lent models, in the array that it alone held before."""
    if memory is None or before is None or not before.flags.writeable:  # the starting point is shared
        return None if memory is None else memory.copy()
    np.copyto(before, memory)
    return before


# ---------------------------------------------------------------------------------------------------- scenario


@dataclass(frozen=True)
class LocalStack:
    """A client's objective for the models of all lanes in one array."""

    lanes: LogisticLanes

    def descend(self, models: Vector, step_sizes: Any) -> Vector:
        """M local steps of each lane; valid until the next call."""
        return self.lanes.descend([models], step_sizes)

    def skip(self, steps: int) -> None:
        """Draw what this number of local steps draws."""
        self.lanes.skip(steps)


@dataclass(frozen=True)
class LaneScenario(Scenario):
    """The parts of one pass: a scenario whose models are stacks."""

    step_sizes: Any  # one per lane, shape (lanes,); elsewhere a step size is a single number

    def server(self) -> Server:
        """The server, before its first event."""
        schedule = build_schedule(self.experiment.schedule, self.step_sizes, self.theorem)
        return Server(self.method, schedule, self.start)

    def client(self, number: int) -> Client:
        """Client `number`, before its first round."""
        assert isinstance(self.problem, LogisticProblem)
        local: Any = LocalStack(self.problem.lanes(number, len(self.step_sizes)))
        return Client(self.method, local, self.start, self.experiment.clients.local_steps)


def lane_scenario(one: Scenario, experiments: Sequence[Experiment]) -> LaneScenario:
    """The scenario of a pass, from that of any of its experiments; they are sorted by method."""
    start = np.repeat(one.start[None], len(experiments), axis=0)
    start.flags.writeable = False
    step_sizes = np.array([experiment.method.step_size for experiment in experiments])
    method = together(_parts(experiments))
    return LaneScenario(one.experiment, one.problem, method, start, one.rates, one.samples, one.data, step_sizes)


def _parts(experiments: Sequence[Experiment]) -> list[Part]:
    """The methods of a pass, each with its lanes."""
    parts, first = [], 0
    for _, group in groupby(experiments, key=lambda experiment: experiment.method.name):
        members = list(group)
        parts.append(Part(slice(first, first + len(members)), _lane_method(members)))
        first += len(members)
    return parts


def _lane_method(experiments: Sequence[Experiment]) -> Method:
    """One method for lanes that differ in step size."""
    if not isinstance(experiments[0].method, FedBuff):
        return build_method(experiments[0])
    methods = [experiment.method for experiment in experiments if isinstance(experiment.method, FedBuff)]
    steps = [method.server_step_size or method.step_size for method in methods]
    column: Any = np.array(steps, dtype=FLOAT)[:, None]
    return fedbuff(experiments[0].clients.count, column)
