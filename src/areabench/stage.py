"""Where a run in real time takes place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from areabench.breaks import Breaks
from areabench.footprint import Footprint, Meter
from areabench.placement import Placement
from areabench.transports.world import World


@dataclass(frozen=True)
class Stage:
    """The ranks of a run, who is on which, the host of each, and when the launch began (Unix time)."""

    world: World
    placement: Placement
    hosts: Sequence[str]
    began_at: float
    breaks: Breaks


@dataclass(frozen=True)
class Resumption:
    """What the workers must know of a run that goes on: when, and where each client stands."""

    time_s: float
    rounds: Mapping[int, int]  # that each client has come back from
    since_s: Mapping[int, float]  # when the delay of each order under way began
    remembering: frozenset[int]  # clients that get back what they remembered


def gather_footprints(world: World, meter: Meter) -> tuple[Footprint, ...]:
    """What each rank that is left took of its machine, on rank 0; called on all ranks, before anything is evaluated."""
    return tuple(world.gather(meter.read(world.host)))
