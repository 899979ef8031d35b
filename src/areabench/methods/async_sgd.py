"""Asynchronous SGD: every update is a server step of its own, and the reply carries the new model.

- K. Mishchenko, F. Bach, M. Even, B. Woodworth: Asynchronous SGD Beats Minibatch SGD Under Arbitrary Delays, NeurIPS
  2022: constant and delay-adaptive steps.
- A. Koloskova, S. U. Stich, M. Jaggi: Sharper Convergence Guarantees for Asynchronous SGD for Distributed and Federated
  Learning, NeurIPS 2022: steps with a threshold, clients drawn uniformly.
- M. Even, A. Koloskova, L. Massoulié: Asynchronous SGD on Graphs, AISTATS 2024: clients drawn by importance.
- R. Islamov, M. Safaryan, D. Alistarh: AsGrad, AISTATS 2024: clients in shuffled order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from areabench.arrays import Vector
from areabench.errors import UserError
from areabench.methods.base import Arrival, Method, MethodInputs, MethodSettings, Step, remember_nothing, without
from areabench.methods.fedbuff import send_pseudo_gradient
from areabench.settings.keys import key
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients, Experiment


@dataclass(frozen=True, kw_only=True)
class AsyncSgd(MethodSettings):
    """Asynchronous SGD: each update is a server step, whatever the criterion, and the reply carries the new model."""

    label = "AsyncSGD"
    colour = "#D55E00"
    page = "methods-async-sgd.md#asynchronous-sgd"
    paper = "Mishchenko et al., NeurIPS 2022"
    chooses = "clients, or the server by `assignment`"
    limit = "biased to fast clients; exact if drawn uniformly, by importance or shuffled"
    memory = "2 d"
    advice_from = "smoothness"
    steps_each_update = True

    name: str = "async-sgd"
    step_size: float = key("step size gamma", above=0)
    step: Literal["constant", "adaptive", "threshold"] = key(
        "factor of an update that is tau versions old: 1; C/max(C, tau), C the concurrency; or 1 up to `threshold` and "
        "less beyond",
        "constant",
    )
    threshold: int | None = key('tau_C of step = "threshold"; left out: the concurrency', None, minimum=0)
    smoothness: float | None = key(
        'L of step = "threshold": older updates get min(gamma, 1/(4·L·tau)); left out: they are dropped', None, above=0
    )
    assignment: Literal["continue", "uniform", "importance", "shuffled", "idle-uniform"] = key(
        "who works next: the same client; one drawn from all, uniformly or by `probabilities`; one after the other in "
        "an order that is drawn again for each epoch; or one drawn from those without an order",
        "continue",
    )
    concurrency: int | None = key("C: orders that are out at any time; left out: n", None, minimum=1)
    probabilities: tuple[float, ...] | None = key(
        'p of assignment = "importance", one per client; updates of client j are divided by n·p_j; left out: the '
        "shares of the samples",
        None,
        above=0,
    )

    @property
    def client_driven(self) -> bool:
        """Whether every client works all the time."""
        return self.assignment == "continue" and self.concurrency is None

    def shares_pass(self, clients: Clients) -> bool:
        """Who works depends on no model."""
        return True

    def check(self, experiment: Experiment) -> None:
        """Refuse keys of a step or an assignment that are not used, and orders that find no client."""
        clients = experiment.clients.count
        for name, value in (("threshold", self.threshold), ("smoothness", self.smoothness)):
            if value is not None and self.step != "threshold":
                raise UserError(f'method.{name}: {value} is not used with step = "{self.step}"; use step = "threshold"')
        if self.concurrency is not None and self.assignment == "continue":
            raise UserError(
                f'method.concurrency: {self.concurrency} makes no sense with assignment = "continue", where each '
                'client works all the time; use assignment = "uniform" or another that draws clients'
            )
        if self.concurrency is not None and self.concurrency > clients and self.assignment == "idle-uniform":
            raise UserError(
                f"method.concurrency: {self.concurrency} is more than clients.count = {clients} idle clients can take; "
                f'use at most {clients}, or assignment = "uniform", where orders queue'
            )
        if self.probabilities is None:
            return
        if self.assignment != "importance":
            raise UserError(
                f'method.probabilities: are not used with assignment = "{self.assignment}"; use assignment = '
                '"importance"'
            )
        if len(self.probabilities) != clients or abs(sum(self.probabilities) - 1) > 1e-6:
            raise UserError(
                f"method.probabilities: {len(self.probabilities)} with the sum {sum(self.probabilities):.6g} for "
                f"clients.count = {clients}; give one per client, with the sum 1"
            )

    def advised_steps(self, L: float, sigma: float, rates: NDArray[np.float64]) -> Iterator[str]:
        """Steps for these delays, and steps that hold whatever the delays."""
        if self.assignment == "continue":
            # the updates of all others during a mean round of the slowest client
            tau = float((rates.sum() - rates.min()) / rates.min())
            step = 1 / (4 * L * max(tau, 1.0))
            slowest = int(rates.argmin())
            round_of = f"updates in a mean round of client {slowest}"
            yield f"gamma = 1/(4·L·tau_max) = {step:.4g}; tau_max = {tau:.4g} {round_of}"
        C = self.concurrency or len(rates)
        step = 1 / (L * C)
        yield f'gamma about 1/(L·C) = {step:.4g}, whatever the delays; C = {C}, step = "adaptive" or "threshold"'

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        clients = inputs.clients
        seed = inputs.seed
        concurrency = self.concurrency or clients
        probabilities = self.probabilities or tuple(float(share) for share in inputs.weights)
        most = concurrency if self.threshold is None else self.threshold
        factors: dict[str, Factor] = {
            "constant": full_step,
            "adaptive": adaptive(concurrency),
            "threshold": threshold(most, self.smoothness),
        }
        draws: dict[str, Draw | None] = {
            "continue": None,
            "uniform": uniform(clients, seed),
            "importance": importance(probabilities, seed),
            "shuffled": shuffled(clients, seed),
            "idle-uniform": idle_uniform(clients, seed),
        }
        weigh = expected_share(probabilities) if self.assignment == "importance" else None
        return async_sgd(clients, concurrency, factors[self.step], draws[self.assignment], weigh)


_DRAWS_AT_ONCE = 1024  # a generator of its own for each draw would take longer than the rest of the rule


class Assigned(NamedTuple):
    """Who works: how many draws were made, who has an order (where that matters), and who is lost."""

    draws: int = 0
    busy: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


class AsyncSgdState(NamedTuple):
    """The server's model, the one that the next step leads to, and who works."""

    model: Vector
    following: Vector | None
    assigned: Assigned


Draw = Callable[[Assigned], tuple[int, Assigned] | None]  # the next client to work, if there is one
Factor = Callable[[Arrival], Any]  # of an update; of several lanes a column


def async_sgd(clients: int, concurrency: int, factor: Factor, draw: Draw | None, weigh: Weigh | None = None) -> Method:
    """Asynchronous SGD with `concurrency` orders out; without `draw`, a client that has answered works again.

    An update's pseudo-gradient x^b - x_i, which is gamma·g for M = 1, is multiplied by `factor` of its staleness. Where
    clients are drawn unevenly, `weigh` divides it by n p_j.
    """

    def assign(state: AsyncSgdState, count: int) -> tuple[AsyncSgdState, tuple[int, ...]]:
        """Draw who gets the next orders; fewer than `count` if there are no more."""
        assert draw is not None
        assigned = state.assigned
        drawn = list[int]()
        for _ in range(count):
            if (found := draw(assigned)) is None:
                break
            client, assigned = found
            drawn.append(client)
        return state._replace(assigned=assigned), tuple(drawn)

    def start(model: Vector) -> Step:
        state = AsyncSgdState(model, None, Assigned())
        return Step(state, tuple(range(clients))) if draw is None else Step(*assign(state, concurrency))

    def receive(state: AsyncSgdState, arrival: Arrival) -> Step:
        share = factor(arrival)
        if weigh is not None:
            share = share / weigh(arrival.client, state.assigned.lost)
        state = state._replace(following=state.model - share * arrival.payload)
        if draw is None:
            return Step(state, (arrival.client,))
        assigned = state.assigned
        if arrival.client in assigned.busy:
            busy = without(assigned.busy, arrival.client)
            state = state._replace(assigned=assigned._replace(busy=busy))
        return Step(*assign(state, 1))

    def aggregate(state: AsyncSgdState) -> Step:
        # x <- x - share · (x^b - x_i)
        assert state.following is not None
        return Step(state._replace(model=state.following, following=None))

    def due(state: AsyncSgdState) -> bool:
        return state.following is not None

    def lose(state: AsyncSgdState, client: int, orders: int) -> Step:
        """As many others are drawn as the lost client had orders; without drawing, nobody takes its place."""
        assigned = state.assigned
        busy = without(assigned.busy, client)
        state = state._replace(assigned=assigned._replace(busy=busy, lost=(*assigned.lost, client)))
        if draw is None or len(state.assigned.lost) == clients:
            return Step(state)
        return Step(*assign(state, orders))

    return Method(
        "async-sgd", remember_nothing, send_pseudo_gradient, start, receive, aggregate,
        reply="after", due=due, lose=lose,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- factors


def full_step(_arrival: Arrival) -> float:
    """Every update counts alike."""
    return 1.0


def adaptive(concurrency: int) -> Factor:
    """Mishchenko et al.: gamma · C/max(C, tau); C is the number of clients where all work all the time."""
    return lambda arrival: concurrency / max(concurrency, arrival.staleness)


def threshold(most: int, smoothness: float | None) -> Factor:
    """Koloskova et al.: gamma up to tau = `most`, then min(gamma, 1/(4 L tau)), or 0 where L is not given."""

    def factor(arrival: Arrival) -> Any:
        if arrival.staleness <= most:
            return 1.0
        if smoothness is None:
            return 0.0
        least = np.minimum(1.0, 1.0 / (4.0 * smoothness * arrival.staleness * arrival.step_size))
        return least if np.ndim(least) else float(least)

    return factor


# ---------------------------------------------------------------------------------------------------- assignments


def uniform(clients: int, seed: int) -> Draw:
    """One of all clients, whether it works or not."""

    def draw(assigned: Assigned) -> tuple[int, Assigned]:
        left = _others(clients, assigned.lost)
        place = int(_number(seed, assigned.draws) * len(left))
        return left[place], assigned._replace(draws=assigned.draws + 1)

    return draw


def importance(probabilities: Sequence[float], seed: int) -> Draw:
    """One of all clients, each with its probability; those of lost clients go to the others in proportion."""
    clients = len(probabilities)

    def draw(assigned: Assigned) -> tuple[int, Assigned]:
        left = _others(clients, assigned.lost)
        steps = _steps(tuple(probabilities[client] for client in left))
        place = int(np.searchsorted(steps, _number(seed, assigned.draws) * steps[-1], side="right"))
        return left[min(place, len(left) - 1)], assigned._replace(draws=assigned.draws + 1)

    return draw


Weigh = Callable[[int, tuple[int, ...]], float]


def expected_share(probabilities: Sequence[float]) -> Weigh:
    """n p_j of a client, among those that are not lost."""
    clients = len(probabilities)

    def weigh(client: int, lost: tuple[int, ...]) -> float:
        left = _others(clients, lost)
        return len(left) * probabilities[client] / float(_steps(tuple(probabilities[each] for each in left))[-1])

    return weigh


def shuffled(clients: int, seed: int) -> Draw:
    """All clients one after the other, in an order that is drawn for each epoch."""

    def draw(assigned: Assigned) -> tuple[int, Assigned]:
        number = assigned.draws
        while (client := _permutation(seed, number // clients, clients)[number % clients]) in assigned.lost:
            number += 1
        return client, assigned._replace(draws=number + 1)

    return draw


def idle_uniform(clients: int, seed: int) -> Draw:
    """One of the clients without an order; None where all have one."""

    def draw(assigned: Assigned) -> tuple[int, Assigned] | None:
        idle = _others(clients, assigned.busy + assigned.lost)
        if not idle:
            return None
        client = idle[int(_number(seed, assigned.draws) * len(idle))]
        return client, assigned._replace(draws=assigned.draws + 1, busy=(*assigned.busy, client))

    return draw


def _others(clients: int, without: tuple[int, ...]) -> Sequence[int]:
    if not without:
        return range(clients)
    left_out = set(without)
    return [client for client in range(clients) if client not in left_out]


def _number(seed: int, draw: int) -> float:
    """The number in [0, 1) that belongs to a draw."""
    return _numbers(seed, draw // _DRAWS_AT_ONCE)[draw % _DRAWS_AT_ONCE]


@lru_cache(maxsize=16)
def _numbers(seed: int, block: int) -> list[float]:
    numbers: list[float] = stream(seed, Purpose.SELECTION, block).random(_DRAWS_AT_ONCE).tolist()
    return numbers


@lru_cache(maxsize=16)
def _permutation(seed: int, epoch: int, clients: int) -> list[int]:
    permuted: list[int] = stream(seed, Purpose.SELECTION, epoch).permutation(clients).tolist()
    return permuted


@lru_cache(maxsize=16)
def _steps(probabilities: tuple[float, ...]) -> Vector:
    """The sums of the first 1, 2, ... probabilities."""
    return np.cumsum(np.array(probabilities, dtype=np.float64))
