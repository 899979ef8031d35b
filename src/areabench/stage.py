"""Where a run in real time takes place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def gather_footprints(world: World, meter: Meter) -> tuple[Footprint, ...]:
    """What each rank that is left took of its machine, on rank 0; called on all ranks, before anything is evaluated."""
    return tuple(world.gather(meter.read(world.host)))
