"""What an honest-but-curious server makes of messages: pseudo-gradients, or sums of them.

The server knows what it sent. A pseudo-gradient is the model that was sent minus the client's x_i; whoever has it and
the model can look for the images behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from studies.leakage_runs import Message, RecordedRun, earlier

from areabench.arrays import Vector

RECOVERED = 1e-3  # relative error below which a pseudo-gradient counts as recovered


@dataclass(frozen=True, eq=False)
class Observation:
    """What the server has: a sum of the pseudo-gradients of some rounds, each with a sign.

    The first `wanted` rounds are those whose images are looked for.
    """

    total: Vector  # float64
    rounds: tuple[Message, ...]
    signs: tuple[int, ...]  # 1 or -1, one per round
    wanted: int

    @property
    def victims(self) -> tuple[Message, ...]:
        """The rounds whose images are looked for."""
        return self.rounds[: self.wanted]


# ---------------------------------------------------------------------------------------------------- one client


def from_message(method: str, message: Message) -> Observation:
    """One message alone. Of AREA it is taken for the pseudo-gradient, which holds for a client's first message only."""
    payload = message.payload.astype(np.float64)
    match method:
        case "fedbuff":
            found = payload
        case "as-fedavg":
            found = message.sent - payload
        case _:
            found = -payload
    return Observation(found, (message,), (1,), 1)


class RunningSums:
    """What a server that keeps one vector per client knows: y_i = x_{s,0} + the sum of all residuals of client i."""

    def __init__(self, start: Vector) -> None:
        self._start = start.astype(np.float64)
        self._memories: dict[int, Vector] = {}

    def take(self, client: int, residual: Vector) -> Vector:
        """Add a residual; returns the x_i that the client has just computed."""
        found = self._memories.get(client, self._start) + residual
        self._memories[client] = found
        return found


def from_histories(run: RecordedRun) -> Iterator[Observation]:
    """Every message with all earlier ones of its client; only AREA's need them."""
    sums = RunningSums(run.start)
    for message in run.messages:
        if run.method == "area":
            local = sums.take(message.client, message.payload)
            yield Observation(message.sent - local, (message,), (1,), 1)
        else:
            yield from_message(run.method, message)


def relative_errors(run: RecordedRun, observations: Sequence[Observation]) -> NDArray[np.float64]:
    """|found - true|/|true| of the pseudo-gradient of each message."""
    found = []
    for message, observation in zip(run.messages, observations, strict=True):
        true = message.pseudo_gradient
        found.append(np.linalg.norm(observation.total - true) / max(float(np.linalg.norm(true)), 1e-300))
    return np.array(found)


# ---------------------------------------------------------------------------------------------------- sums


def from_sum(run: RecordedRun, step: int) -> Observation:
    """The sum of a server step's updates, as secure aggregation shows it, together with all models that were sent.

    Of FedBuff and AS-FedAvg it is the sum of the pseudo-gradients. Of AREA, x_i - y_i summed over the clients: with the
    models that were sent, the sum of the new pseudo-gradients minus that of the ones before. Of several updates of a
    client only the last remains.
    """
    messages = run.of_step(step)
    total = _added([message.payload for message in messages])
    if run.method == "fedbuff":
        return Observation(total, tuple(messages), (1,) * len(messages), len(messages))
    if run.method == "as-fedavg":
        sent = _added([message.sent for message in messages])
        return Observation(sent - total, tuple(messages), (1,) * len(messages), len(messages))
    last = list({message.client: message for message in messages}.values())
    before = _before(run, step, {message.client for message in last})
    found = -total
    for message in last:
        previous = before.get(message.client)
        found += message.sent.astype(np.float64) - (run.start if previous is None else previous.sent)
    olds = tuple(before.values())
    return Observation(found, (*last, *olds), (1,) * len(last) + (-1,) * len(olds), len(last))


def _added(vectors: Sequence[Vector]) -> Vector:
    return np.asarray(np.sum(vectors, axis=0, dtype=np.float64))


def _before(run: RecordedRun, step: int, clients: set[int]) -> dict[int, Message]:
    """The last message of each client before a server step, where there is one."""
    return {message.client: message for message in run.messages if message.client in clients and message.step < step}


def determined(run: RecordedRun) -> NDArray[np.bool_]:
    """Which x_i the sums of all server steps determine, if it is known who took part in each.

    The unknowns are the x_i of all messages, the equations the sums. An unknown is determined where its unit vector
    is in the row space, so that the projection onto it has a 1 on the diagonal.
    """
    count = sum(len(run.of_step(step)) for step in range(run.steps))
    sums = np.zeros((run.steps, count))
    for message, previous in earlier(run):
        if message.step < run.steps:
            sums[message.step, message.number] += 1
            if run.method == "area" and previous is not None:
                sums[message.step, previous.number] -= 1
    _, sizes, rows = np.linalg.svd(sums, full_matrices=False)
    kept = rows[sizes > 1e-9 * sizes[0]]
    return np.asarray(np.isclose((kept**2).sum(axis=0), 1.0, atol=1e-9))


def distances_of_mean(run: RecordedRun) -> NDArray[np.float64]:
    """How far the mean of a server step's updates is from each of them, relative to the update's pseudo-gradient."""
    found = []
    for step in range(run.steps):
        messages = run.of_step(step)
        mean = from_sum(run, step).total / len(messages)
        for message in messages:
            true = message.pseudo_gradient
            found.append(np.linalg.norm(mean - true) / max(float(np.linalg.norm(true)), 1e-300))
    return np.array(found)
