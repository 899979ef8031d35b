"""S-FedAvg: synchronous federated averaging with client sampling.

B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017; with the
plain mean, as in the paper's section 5.
"""

from __future__ import annotations

from typing import NamedTuple

from areabench.algorithms.as_fedavg import AveragingState, aggregate_models, send_model
from areabench.algorithms.base import Method, Step
from areabench.algorithms.buffered import Buffer
from areabench.problems.base import Vector
from areabench.streams import Purpose, stream


class RoundState(NamedTuple):
    """The state of plain averaging, and the number of the round under way."""

    model: Vector
    buffer: Buffer
    round: int


def s_fedavg(clients: int, clients_per_round: int, seed: int) -> Method:
    """S-FedAvg that draws `clients_per_round` of `clients` clients, uniformly without replacement."""

    def draw(round_number: int) -> tuple[int, ...]:
        generator = stream(seed, Purpose.SELECTION, round_number)
        return tuple(int(client) for client in generator.choice(clients, clients_per_round, replace=False))

    def remember(_start: Vector) -> None:
        return None

    def start(model: Vector) -> Step:
        return Step(RoundState(model, Buffer(), round=0), draw(0))

    def receive(state: RoundState, _client: int, payload: Vector) -> Step:
        return Step(state._replace(buffer=state.buffer.add(payload)))  # nobody is told to work until the round is full

    def aggregate(state: RoundState) -> Step:
        averaged: AveragingState = aggregate_models(AveragingState(state.model, state.buffer)).state
        return Step(RoundState(*averaged, round=state.round + 1), draw(state.round + 1))

    return Method("s-fedavg", remember, send_model, start, receive, aggregate, updates_per_step=clients_per_round)
