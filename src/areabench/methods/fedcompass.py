"""FedCompass: the server gives each client as many local steps as let groups of clients answer together.

Z. Li et al.: FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a Computing
Power-Aware Scheduler, ICLR 2024.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Arrival, Call, Method, MethodInputs, MethodSettings, Step, remember_nothing
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import Need, key

if TYPE_CHECKING:
    from areabench.experiment.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class FedCompass(MethodSettings):
    """FedCompass: the server gives each client a number of steps so that groups of clients answer together."""

    label = "FedCompass"
    colour = "#D45087"
    page = "methods-local-work.md#fedcompass"
    paper = "Li et al., ICLR 2024"
    chooses = "clients"
    limit = "biased to fast clients"
    memory = "(1 + groups) d"
    needs = (
        Need("aggregation.name", ("updates",), "which itself decides when to step"),
        Need("clients.work", ("fixed",), "which says how many local steps clients make"),
        Need("delays.per", ("step",), "which counts on rounds that take longer with more local steps"),
    )

    name: str = "fedcompass"
    min_steps: int = key("Q_min: least number of local steps", 20, minimum=1)
    max_steps: int = key("Q_max: greatest number of local steps", 100, minimum=1)
    latency: float = key("lambda: a group waits at most so many times its expected duration", 1.2, minimum=1)
    mixing: float = key("a: factor of every update, besides 1/n and that of its staleness", 0.9, above=0, maximum=1)
    staleness: Literal["constant", "polynomial"] = key(
        "factor of an update that is tau versions old: 1, or (1 + tau)^-exponent", "polynomial"
    )
    exponent: float = key("exponent of the factor", 0.5, minimum=0)
    speed_weight: float = key(
        "weight of the newest round in the estimate of a client's seconds per step", 0.9, above=0, maximum=1
    )

    @property
    def client_driven(self) -> bool:
        """A client that has answered may wait."""
        return False

    def check(self, experiment: Experiment) -> None:
        """The limits are in order."""
        if self.min_steps > self.max_steps:
            raise UserError(
                f"method.min_steps: {self.min_steps} is more than method.max_steps = {self.max_steps}; swap them"
            )

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return fedcompass(inputs.clients, self)


Numbers = NDArray[np.float64]

# In place of the number of a client's group:
_NEW = -1  # it was not heard of yet
_LATE = -2  # its group did not wait for it
# In place of the group of held updates:
_ALONE = -1  # a first one
_GENERAL = -2  # those that came late


class Groups(NamedTuple):
    """The arrival groups that are open: number, expected time T_a and latest time T_l of each."""

    numbers: tuple[int, ...] = ()
    expected_s: tuple[float, ...] = ()
    latest_s: tuple[float, ...] = ()
    following: int = 0  # the number of the next group

    def opened(self, expected_s: float, latest_s: float) -> Groups:
        """With one more group."""
        return Groups(
            (*self.numbers, self.following),
            (*self.expected_s, expected_s),
            (*self.latest_s, latest_s),
            self.following + 1,
        )

    def without(self, numbers: set[int]) -> Groups:
        """Without these."""
        left = [place for place, number in enumerate(self.numbers) if number not in numbers]
        return Groups(_at(self.numbers, left), _at(self.expected_s, left), _at(self.latest_s, left), self.following)


class HeldUpdates(NamedTuple):
    """Updates that wait for a step: one sum for each group and version of the model that they began from."""

    groups: tuple[int, ...]
    versions: tuple[int, ...]
    sums: Vector  # shape (sums, d)

    def add(self, group: int, version: int, payload: Vector) -> HeldUpdates:
        """With one more update; a sum, which nobody else holds, is changed in place."""
        for place, pair in enumerate(zip(self.groups, self.versions, strict=True)):
            if pair == (group, version):
                self.sums[place] += payload
                return self
        sums = np.concatenate([self.sums, payload[None]])
        return HeldUpdates((*self.groups, group), (*self.versions, version), sums)

    def only(self, groups: set[int], *, inside: bool) -> HeldUpdates:
        """Those of these groups, or the others."""
        places = [place for place, group in enumerate(self.groups) if (group in groups) == inside]
        return HeldUpdates(_at(self.groups, places), _at(self.versions, places), self.sums[places])


def _at(entries: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    return tuple(entries[place] for place in places)


class CompassState(NamedTuple):
    """The server's model and version, what is known of each client, shape (n,), the groups and the held updates."""

    model: Vector
    version: int
    now_s: float  # time of the last event that the rule knows
    seconds: Numbers  # per local step, estimated
    begun_s: Numbers  # when the client's last order went out
    group: NDArray[np.int64]  # that the client belongs to
    arrived: NDArray[np.bool_]  # whether it waits for its group
    groups: Groups
    held: HeldUpdates
    lost: tuple[int, ...] = ()


class _Compass:
    """Assigns clients to groups; `state` is changed by its methods."""

    def __init__(self, state: CompassState, settings: FedCompass) -> None:
        self.state = state
        self._settings = settings

    def call(self, client: int) -> Call:
        """An order for a client whose speed is known: for a group that it can join, or for one of its own."""
        settings = self._settings
        state = self.state
        now_s = state.now_s
        seconds = float(state.seconds[client])
        joined = self._to_join(now_s, seconds)
        if joined is None:
            number = state.groups.following
            steps = self._steps_alone(now_s, seconds)
            duration_s = steps * seconds
            groups = state.groups.opened(now_s + duration_s, now_s + settings.latency * duration_s)
            self.state = state._replace(groups=groups)
        else:
            number, steps = joined
        state.group[client] = number
        state.arrived[client] = False
        state.begun_s[client] = now_s
        return Call(client, local_steps=steps)

    def _to_join(self, now_s: float, seconds: float) -> tuple[int, int] | None:
        """The open group, and Q, where Q is largest within its limits."""
        best: tuple[int, int] | None = None
        groups = self.state.groups
        for number, expected_s in zip(groups.numbers, groups.expected_s, strict=True):
            steps = math.floor((expected_s - now_s) / seconds)
            if self._settings.min_steps <= steps <= self._settings.max_steps and (best is None or steps >= best[1]):
                best = number, steps
        return best

    def _steps_alone(self, now_s: float, seconds: float) -> int:
        """Q of a client with a new group: it should answer when the fastest of a group does so for the second time."""
        settings = self._settings
        state = self.state
        most = -1
        for number, latest_s in zip(state.groups.numbers, state.groups.latest_s, strict=True):
            fastest = float(state.seconds[state.group == number].min())
            steps = math.floor((latest_s + fastest * settings.max_steps - now_s) / seconds)
            if steps <= settings.max_steps:
                most = max(most, steps)
        return settings.max_steps if most < 0 else max(most, settings.min_steps)


def fedcompass(clients: int, settings: FedCompass) -> Method:
    """FedCompass with `clients` clients."""

    def start(model: Vector) -> Step:
        state = CompassState(
            model=model,
            version=0,
            now_s=0.0,
            seconds=np.zeros(clients),
            begun_s=np.zeros(clients),
            group=np.full(clients, _NEW),
            arrived=np.zeros(clients, np.bool_),
            groups=Groups(),
            held=HeldUpdates((), (), np.empty((0, *model.shape), model.dtype)),
        )
        return Step(state, tuple(Call(client, local_steps=settings.max_steps) for client in range(clients)))

    def receive(state: CompassState, arrival: Arrival) -> Step:
        client = arrival.client
        group = int(state.group[arrival.client])
        latest = (arrival.time_s - float(state.begun_s[client])) / max(arrival.local_steps, 1)
        weight = 1.0 if group == _NEW else settings.speed_weight
        state.seconds[client] = (1 - weight) * state.seconds[client] + weight * max(latest, _LEAST_S)
        waits_for = {_NEW: _ALONE, _LATE: _GENERAL}.get(group, group)
        held = state.held.add(waits_for, arrival.version, arrival.payload)
        state = state._replace(now_s=arrival.time_s, held=held)
        if group == _LATE:  # what it has sent waits for the next step of a group; the client does not
            compass = _Compass(state, settings)
            call = compass.call(client)
            return Step(compass.state, (call,))
        state.arrived[client] = True
        return Step(state)

    def aggregate(state: CompassState) -> Step:
        """Step for a client's first update, for groups that are complete, or for those whose time is over."""
        alone = _ALONE in state.held.groups
        closing = set() if alone else _complete(state)
        if not alone and not closing:
            # woken by the clock: a group waits no longer for its slowest clients
            state = state._replace(now_s=max(state.now_s, wake(state)))
            over = zip(state.groups.numbers, state.groups.latest_s, strict=True)
            closing = {number for number, latest_s in over if latest_s <= state.now_s}
        chosen = {_ALONE} if alone else {*closing, _GENERAL}
        used = state.held.only(chosen, inside=True)
        left = state.held.only(chosen, inside=False)
        in_closing = np.isin(state.group, list(closing))
        waiting = state.arrived & ((state.group == _NEW) if alone else in_closing)
        waiting[list(state.lost)] = False
        state.group[in_closing & ~state.arrived] = _LATE
        stepped = len(used.groups) > 0
        compass = _Compass(
            state._replace(
                model=_stepped(state, used), version=state.version + stepped, held=left,
                groups=state.groups.without(closing),
            ),
            settings,
        )  # fmt: skip
        fastest_first = sorted(np.flatnonzero(waiting).tolist(), key=lambda client: float(state.seconds[client]))
        calls = tuple(compass.call(client) for client in fastest_first)
        return Step(compass.state, calls, stepped=stepped)

    def _stepped(state: CompassState, used: HeldUpdates) -> Vector:
        """x <- x - sum of a·s(tau)/n times the pseudo-gradients."""
        model = state.model
        for version, total in zip(used.versions, used.sums, strict=True):
            staleness = state.version - version
            factor = 1.0 if settings.staleness == "constant" else float((1 + staleness) ** -settings.exponent)
            model = model - (settings.mixing * factor / clients) * total
        return model

    def due(state: CompassState) -> bool:
        return _ALONE in state.held.groups or bool(_complete(state))

    def lose(state: CompassState, client: int, _orders: int) -> Step:
        """The group continues without the client; what it has sent is used."""
        state = state._replace(lost=(*state.lost, client))
        if not state.arrived[client]:
            state.group[client] = _LATE
        empty = {number for number in state.groups.numbers if not (state.group == number).any()}
        return Step(state._replace(groups=state.groups.without(empty)))

    return Method(
        "fedcompass", remember_nothing, send_pseudo_gradient, start, receive, aggregate, reply="after", due=due,
        wake=wake, lose=lose,
    )  # fmt: skip


_LEAST_S = 1e-12  # seconds per step of a client that answers at once


def wake(state: CompassState) -> float:
    """The latest time of the group that waits least."""
    return min(state.groups.latest_s, default=math.inf)


def _complete(state: CompassState) -> set[int]:
    """The groups of which all have arrived."""
    return {number for number in state.groups.numbers if state.arrived[state.group == number].all()}
