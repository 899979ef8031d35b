"""Rounds of contacts: at fixed times the server contacts drawn clients, which send at once what they have.

QuAFL and FAVAS share this. Between two contacts a client makes its local steps, at most M, and then waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from areabench.arrays import Vector
from areabench.methods.base import Arrival, Buffer, Call, Method, Report, Step, Work, without
from areabench.settings.keys import Need
from areabench.streams import Purpose, stream

CONTACT_NEEDS = (
    Need("aggregation.name", ("updates",), "which itself decides when to step"),
    Need("clients.work", ("fixed",), "which says how many local steps clients make"),
)


class ContactState(NamedTuple):
    """The server's model, the current round's answers, and whose are still awaited."""

    model: Vector
    answers: Buffer
    round: int
    contacting: bool  # whether the round has begun
    awaited: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contacts:
    """Which clients are contacted when: `per_round` of `clients`, uniformly without replacement, every `period_s`."""

    clients: int
    per_round: int
    period_s: float
    seed: int

    def draw(self, state: ContactState) -> tuple[int, ...]:
        """The clients of a round."""
        left = [client for client in range(self.clients) if client not in state.lost]
        generator = stream(self.seed, Purpose.SELECTION, state.round)
        return tuple(generator.choice(left, min(self.per_round, len(left)), replace=False).tolist())

    def wake(self, state: ContactState) -> float:
        """When the next round begins, unless the current one is not over: then it begins at once after that."""
        return math.inf if state.contacting else (state.round + 1) * self.period_s


def contact_rounds(
    name: str,
    contacts: Contacts,
    remember: Callable[[Vector], Vector | None],
    report: Callable[[Any, Work], Report],
    taken: Callable[[Arrival], Vector],
    begin: Callable[[Any, Vector, Any], Vector] | None = None,
) -> Method:
    """x <- (x + sum of what is `taken` from the answers)/(answers + 1), once all have answered.

    With `begin` a client continues at once, from what that makes of its memory and of the model before the step.
    Otherwise it waits for the model after the step.
    """

    def start(model: Vector) -> Step:
        first = tuple(Call(client, waits=True) for client in range(contacts.clients))
        return Step(ContactState(model, Buffer(), round=0, contacting=False), first)

    def receive(state: ContactState, arrival: Arrival) -> Step:
        client = arrival.client
        state = state._replace(
            answers=state.answers.add(taken(arrival)),
            awaited=without(state.awaited, client),
            answered=(*state.answered, client),
        )
        return Step(state, () if begin is None else (Call(client, waits=True),))

    def aggregate(state: ContactState) -> Step:
        if not state.contacting:
            # the round begins: the step itself comes when the last of these has answered
            drawn = contacts.draw(state)
            return Step(state._replace(contacting=True, awaited=drawn), stepped=False, contacts=drawn)
        size = state.answers.size
        model = state.answers.added_to(state.model) / (size + 1)
        following = ContactState(model, Buffer(), state.round + 1, contacting=False, lost=state.lost)
        if begin is not None:  # they work already
            return Step(following, stepped=size > 0)
        waiting = tuple(Call(client, waits=True) for client in state.answered if client not in state.lost)
        return Step(following, waiting, stepped=size > 0)

    def due(state: ContactState) -> bool:
        return state.contacting and not state.awaited

    def lose(state: ContactState, client: int, _orders: int) -> Step:
        awaited = without(state.awaited, client)
        return Step(state._replace(awaited=awaited, lost=(*state.lost, client)))

    return Method(
        name, remember, report, start, receive, aggregate, due=due, wake=contacts.wake, begin=begin, interrupts=True,
        lose=lose,
    )  # fmt: skip
