"""What an experiment says about faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from areabench.keys import key


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What a run does when a client is lost or sends something that cannot be used."""

    lost_client: Literal["keep", "remove"] = key(
        "AREA's average when a client is lost: keep its last memory in it, or remove it and average over the others",
        "keep",
    )
    bad_update: Literal["refuse", "stop"] = key(
        "an update that is not finite or not what was asked for: refuse it and have its client work again, or stop "
        "the run as failed",
        "refuse",
    )
    lost: tuple[int, ...] = key(
        "in the simulator: clients that are lost, each at its time in `lost_at_s`", (), minimum=0
    )
    lost_at_s: tuple[float, ...] = key("when they are lost", (), unit="s", minimum=0)
