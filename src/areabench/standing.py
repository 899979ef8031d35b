"""Where a run stands between two events: what it needs to go on from there, but for what its clients remember."""

from __future__ import annotations

from dataclasses import dataclass

from areabench.flights import Flight
from areabench.server import ServerStanding
from areabench.tally import Tally


@dataclass(frozen=True)
class Standing:
    """The server's side of a run at `time_s`; the arrays in it are never changed."""

    time_s: float
    server: ServerStanding
    rounds: dict[int, int]  # that each client has come back from; random streams are where these leave them
    flights: tuple[Flight, ...]  # orders under way
    refusals: dict[int, int]  # in a row, by client
    lost: tuple[int, ...]
    removed: int  # lost clients that were taken out of the average
    short: int  # updates by which the round under way is shorter than it should be
    grid_number: int  # the next point of the grid of snapshots
    shown_s: float  # the time of the last snapshot
    timers_passed: int  # steps by the clock so far
    tally: Tally
    snapshots: int

    def flights_of(self) -> dict[int, Flight]:
        """The orders under way, by client."""
        return {flight.order.client: flight for flight in self.flights}
