"""Orders that clients are working on, as the server knows them, and what is wrong with an update that comes back."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from areabench.messages import Order, Update
from areabench.problems.base import Vector
from areabench.schema import Reason


class Flight(NamedTuple):
    """An order that a client works on, which of its rounds that is, and since when (seconds since the start)."""

    order: Order
    round: int
    since_s: float


class Flights:
    """All orders under way; a client has one at most."""

    def __init__(self) -> None:
        self.out: dict[int, Flight] = {}
        self.rounds: dict[int, int] = {}  # that each client has come back from

    def begin(self, order: Order, time_s: float) -> None:
        """An order goes out."""
        self.out[order.client] = Flight(order, self.rounds.get(order.client, 0), time_s)

    def end(self, client: int) -> Flight | None:
        """A client came back; from which order, if it had one."""
        flight = self.out.pop(client, None)
        if flight is not None:
            self.rounds[client] = flight.round + 1
        return flight


def flaw(update: Update, flight: Flight | None) -> Reason:
    """Why an update cannot be used as the answer to an order; NONE where it can."""
    header, payload = update
    if flight is None or header.round != flight.round:
        return Reason.ROUND
    if header.base_version != flight.order.version:
        return Reason.BASE_VERSION
    if isinstance(payload, tuple):  # of many lanes: a lane whose model is not finite in the end is run again alone
        return Reason.NONE
    if payload.shape != flight.order.model.shape:
        return Reason.LENGTH
    return Reason.NONE if _finite(payload) else Reason.NOT_FINITE


def _finite(payload: Vector) -> bool:
    """Whether all entries are finite; the sum of their squares nearly always tells, in a tenth of the time."""
    return math.isfinite(np.dot(payload, payload)) or bool(np.isfinite(payload).all())
