"""The rounds of a run's clients and the steps of its server within a window of time. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from areabench.engine.events import Kind

_ENDS = (Kind.UPDATE, Kind.DISCARDED, Kind.REFUSED, Kind.CANCELLED)  # of a client's round
_MOST_LANES = 12  # clients that a bar has room for


@dataclass(frozen=True)
class Round:
    """One round of a client: it took version `base_version` at `begin_s`; its update arrived at `end_s`, if any did."""

    client: int
    begin_s: float
    end_s: float
    base_version: int
    staleness: int
    used: bool  # not where the update was refused, or came after the end, or the order was cancelled


@dataclass(frozen=True)
class ServerStep:
    """A step of the server, to this version."""

    time_s: float
    version: int


def ends_of(events: NDArray[Any]) -> NDArray[Any]:
    """The events that ended a client's round: its update arrived, used or not, or its order was cancelled."""
    return events[np.isin(events["kind"], _ENDS)]


def beginnings_s(ends: NDArray[Any]) -> NDArray[np.float64]:
    """When the clients began what ended; an event's time is when the server turned to it, after it had queued."""
    begun_s: NDArray[np.float64] = ends["time_s"] - ends["realised_delay_s"] - ends["queue_s"]
    # Rounding of three columns may give a little less than zero.
    return np.maximum(begun_s, 0.0)


def rounds_between(events: NDArray[Any], start_s: float, end_s: float) -> list[Round]:
    """All rounds that overlap the window and have ended, in the order of their ends."""
    rows = ends_of(events)
    begin_s = beginnings_s(rows)
    shown = (rows["time_s"] > start_s) & (begin_s < end_s)
    return [
        Round(int(row["client"]), float(begin), float(row["time_s"]), int(row["base_version"]), int(row["staleness"]),
              bool(row["kind"] == Kind.UPDATE))
        for row, begin in zip(rows[shown], begin_s[shown], strict=True)
    ]  # fmt: skip


def steps_between(events: NDArray[Any], start_s: float, end_s: float) -> list[ServerStep]:
    """The server's steps in the window, both ends included."""
    rows = events[events["kind"] == Kind.STEP]
    shown = rows[(rows["time_s"] >= start_s) & (rows["time_s"] <= end_s)]
    return [ServerStep(float(row["time_s"]), int(row["version"])) for row in shown]


def lanes_of(rates: NDArray[np.float64], most: int = _MOST_LANES) -> list[int]:
    """The clients to show, the fastest first: all, or some spread evenly from the fastest to the slowest."""
    order = np.argsort(-rates, kind="stable")
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).round().astype(int)]
    return [int(client) for client in order]
