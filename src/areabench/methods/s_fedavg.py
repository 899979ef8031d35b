"""S-FedAvg: synchronous federated averaging with client sampling.

B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017; with the
plain mean, as in the paper's section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from areabench.arrays import Vector
from areabench.methods.as_fedavg import send_model
from areabench.methods.base import (
    Arrival,
    Buffer,
    Method,
    MethodInputs,
    MethodSettings,
    Step,
    check_round,
    remember_nothing,
)
from areabench.settings.keys import Need, key
from areabench.streams import Purpose, stream

if TYPE_CHECKING:
    from areabench.experiment.experiment import Clients, Experiment


@dataclass(frozen=True, kw_only=True)
class SFedAvg(MethodSettings):
    """Synchronous FedAvg: each round waits for all clients that it drew."""

    label = "S-FedAvg"
    colour = "#CC79A7"
    page = "methods.md#s-fedavg"
    paper = "McMahan et al., AISTATS 2017"
    chooses = "server, uniformly"
    client_driven = False
    limit = "exact for M = 1"
    memory = "2 d"
    needs = (Need("aggregation.name", ("updates",), "whose round ends when its clients have answered"),)

    name: str = "s-fedavg"
    step_size: float = key("step size alpha", above=0)
    clients_per_round: int = key("clients drawn per round, uniformly without replacement", 4, minimum=1)

    def shares_pass(self, clients: Clients) -> bool:
        """Who works depends on no model."""
        return True

    @property
    def drawn_per_round(self) -> int:
        """Clients of a round."""
        return self.clients_per_round

    def check(self, experiment: Experiment) -> None:
        """A round has no more clients than there are."""
        check_round(self.clients_per_round, experiment.clients.count)

    def build(self, inputs: MethodInputs) -> Method:
        """The rule with these settings."""
        return s_fedavg(inputs.clients, self.clients_per_round, inputs.seed)


class RoundState(NamedTuple):
    """The state of plain averaging, the current round, the clients drawn for it and how many are still at work."""

    model: Vector
    buffer: Buffer
    round: int
    drawn: tuple[int, ...]
    awaited: int
    lost: tuple[int, ...] = ()


def s_fedavg(clients: int, clients_per_round: int, seed: int) -> Method:
    """S-FedAvg that draws `clients_per_round` of `clients` clients, uniformly without replacement."""

    def draw(round_number: int, lost: tuple[int, ...] = ()) -> tuple[int, ...]:
        left = [client for client in range(clients) if client not in lost] if lost else clients
        count = min(clients_per_round, clients - len(lost))
        return tuple(stream(seed, Purpose.SELECTION, round_number).choice(left, count, replace=False).tolist())

    def start(model: Vector) -> Step:
        drawn = draw(0)
        return Step(RoundState(model, Buffer(), round=0, drawn=drawn, awaited=len(drawn)), drawn)

    def receive(state: RoundState, arrival: Arrival) -> Step:
        # no client gets an order until the round is full
        return Step(state._replace(buffer=state.buffer.add(arrival.payload), awaited=state.awaited - 1))

    def aggregate(state: RoundState) -> Step:
        model = state.buffer.mean() if state.buffer.size else state.model
        number = state.round + 1
        drawn = draw(number, state.lost)
        return Step(RoundState(model, Buffer(), number, drawn, len(drawn), state.lost), drawn)

    def due(state: RoundState) -> bool:
        return state.awaited == 0

    def lose(state: RoundState, client: int, orders: int) -> Step:
        """Draw another client for the round, uniformly from those not drawn yet, if there is one."""
        state = state._replace(lost=(*state.lost, client))
        taken = {*state.drawn, *state.lost}
        # a stream of its own, so that the draws of later rounds stay what they are without a loss
        generator = stream(seed, Purpose.REPLACEMENT, state.round)
        others = [other for other in generator.permutation(clients).tolist() if other not in taken]
        if not orders or not others:
            return Step(state._replace(awaited=state.awaited - orders))
        return Step(state._replace(drawn=(*state.drawn, others[0])), (others[0],))

    return Method("s-fedavg", remember_nothing, send_model, start, receive, aggregate, due=due, lose=lose)
