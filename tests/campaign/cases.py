"""Cases: each is drawn from the campaign's seed and its number alone, so that it can be run again by itself."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.campaign.experiments import Drawn, draw_experiment
from tests.campaign.kinds import (
    HOPELESS_HEADERS,
    HOPELESS_VALUES,
    MPI,
    STOPPED_BY_UPDATE,
    Act,
    Expected,
    Kind,
    kinds,
)

from areabench.engine.events import Reason

EARLIEST, LATEST = 0.0, 0.85  # the fault's moment, as a share of the run
LENGTHS = (-8, -64, 8)  # bytes by which an update of a wrong length is longer
PAUSE_S = (0.2, 1.5)
STOP_AT_BAD_UPDATE = 0.25  # share of bad updates that meet the policy `stop`


@dataclass(frozen=True)
class Case:
    """One run of the campaign."""

    number: int
    kind: Kind
    drawn: Drawn
    share: float  # of the run, at which the fault comes
    victim: int  # the client concerned
    round: int  # of the victim, at which a defect shows
    always: bool  # the defect shows in each round from then on
    pause_s: float
    extra_bytes: int
    damage_seed: int
    stops: bool  # faults.bad_update = "stop"

    @property
    def name(self) -> str:
        """The name of its folder."""
        letters = "".join(letter if letter.isalnum() else "-" for letter in self.kind.key)
        return f"{self.number:03d}-{letters}"

    @property
    def expected(self) -> Expected:
        """What must be seen after it."""
        expected = self.kind.expected
        if self.stops:
            return replace(STOPPED_BY_UPDATE, reason=expected.reason)
        if expected.reason is not None and self.always and self.drawn.method == "s-fedavg":
            hopeless = HOPELESS_VALUES if expected.reason == Reason.NOT_FINITE else HOPELESS_HEADERS
            return replace(hopeless, reason=expected.reason)
        return expected

    @property
    def ranks(self) -> int:
        """MPI ranks, one a client and the server's."""
        return self.drawn.clients + 1


def draw_case(seed: int, number: int) -> Case:
    """Case `number` of the campaign with this seed: the kinds take turns, everything else is chance."""
    every = kinds()
    kind, chance = every[number % len(every)], random.Random(f"{seed}/{number}")
    drawn = draw_experiment(chance, kind)
    stops = kind.expected.reason is not None and chance.random() < STOP_AT_BAD_UPDATE
    settings = [*kind.settings, *(['[faults]\nbad_update = "stop"'] if stops else [])]
    return Case(
        number=number,
        kind=kind,
        drawn=replace(drawn, text="\n".join([drawn.text, *settings, ""])),
        share=chance.uniform(EARLIEST, LATEST),
        victim=chance.randrange(drawn.clients),
        round=chance.randint(0, 12 if kind.transport == MPI else 200),
        always=chance.random() < 0.5,
        pause_s=chance.uniform(*PAUSE_S),
        extra_bytes=chance.choice(LENGTHS),
        damage_seed=chance.randrange(2**31),
        stops=stops,
    )


def needs_reference(case: Case) -> bool:
    """Whether the run is compared with one of the same experiment that nothing happened to."""
    return case.kind.transport != MPI and case.kind.act in (Act.SIGNAL_RANK_0, Act.FILL_DISC)
