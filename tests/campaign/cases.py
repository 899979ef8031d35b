"""Cases: experiment and fault of each are drawn from the campaign's seed and its number alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

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

METHODS = ("area", "fedbuff", "as-fedavg", "s-fedavg")
FEWEST_CLIENTS, MOST_CLIENTS = 4, 8
HORIZON_S = (2.0, 4.0)  # on MPI, real seconds
SIMULATED_UPDATES = (12_000, 30_000)  # one to three seconds
SNAPSHOTS = 200


@dataclass(frozen=True)
class Drawn:
    """An experiment as TOML, and what the campaign must know of it."""

    text: str
    method: str
    problem: str
    clients: int
    horizon_s: float


def draw_experiment(chance: random.Random, kind: Kind) -> Drawn:
    """One experiment for a kind of fault."""
    clients = chance.randint(FEWEST_CLIENTS, MOST_CLIENTS)
    method, problem = chance.choice(METHODS), chance.choice(("quadratic", "logistic"))
    if kind.act is Act.FILL_DISC:
        problem = "logistic"  # its models are large enough to need room soon
    rate = chance.uniform(10.0, 40.0)
    horizon_s = chance.uniform(*HORIZON_S)
    if kind.transport != MPI:
        horizon_s = _simulated_horizon_s(chance, method, clients, rate)
    sections = [
        f'name = "campaign"\nseed = {chance.randrange(2**31)}',
        f"[clients]\ncount = {clients}\nlocal_steps = {chance.choice((1, 1, 2, 3))}",
        _problem(chance, problem, clients),
        _rates(chance, rate),
        f'[delays]\nname = "{chance.choice(("exponential", "exponential", "fixed"))}"',
        _method(chance, method, problem, clients),
        _criterion(chance, method, clients, rate),
        f"[stop]\nhorizon_s = {horizon_s:.3f}",
        _record(chance, kind, horizon_s),
    ]
    return Drawn("\n\n".join(sections) + "\n", method, problem, clients, round(horizon_s, 3))


def _simulated_horizon_s(chance: random.Random, method: str, clients: int, rate: float) -> float:
    """Virtual seconds for this many updates; a round of S-FedAvg waits for its slowest client."""
    slower = 1.5 if method == "s-fedavg" else 1.0
    return slower * chance.randint(*SIMULATED_UPDATES) / (clients * rate)


def _problem(chance: random.Random, name: str, clients: int) -> str:
    if name == "quadratic":
        noise = chance.choice((0.0, 0.1))
        return f'[problem]\nname = "quadratic"\ndimension = {chance.randint(3, 40)}\nnoise = {noise}'
    split = chance.choice(("iid", "dirichlet", "dirichlet-equal"))
    samples = 100 * clients
    return (
        f'[problem]\nname = "logistic"\nbatch_size = {chance.choice((4, 16))}\n\n[data]\nname = "synthetic"\n'
        f'train_samples = {samples}\ntest_samples = 100\nfeatures = 40\n\n[split]\nname = "{split}"'
    )


def _rates(chance: random.Random, rate: float) -> str:
    name = chance.choice(("uniform", "normal", "lognormal"))
    values = {
        "uniform": f"rate = {rate:.2f}",
        "normal": f"mean = {rate:.2f}\ndeviation = {rate / 4:.2f}",
        "lognormal": f"median = {rate:.2f}\nsigma = 0.3",
    }
    return f'[rates]\nname = "{name}"\n{values[name]}'


def _method(chance: random.Random, name: str, problem: str, clients: int) -> str:
    """A step size with which no method diverges."""
    step_size = chance.uniform(0.005, 0.03) if problem == "quadratic" else chance.uniform(0.05, 0.5)
    text = f'[method]\nname = "{name}"\nstep_size = {step_size:.4f}'
    if name == "fedbuff":
        text += f"\nserver_step_size = {chance.uniform(0.5, 1.0):.2f}"
    if name == "s-fedavg":
        text += f"\nclients_per_round = {chance.randint(2, clients)}"
    schedule = chance.choice(("constant", "constant", "1/sqrt(k)"))
    return text + f'\n\n[schedule]\nname = "{schedule}"' + ("\noffset = 500.0" if schedule != "constant" else "")


def _criterion(chance: random.Random, method: str, clients: int, rate: float) -> str:
    name = "updates" if method == "s-fedavg" else chance.choice(("updates", "updates", "period", "poisson"))
    step_rate = clients * rate / 4
    values = {
        "updates": f"updates = {chance.randint(1, clients)}",
        "period": f"period_s = {1 / step_rate:.4f}",
        "poisson": f"rate = {step_rate:.3f}",
    }
    return f'[aggregation]\nname = "{name}"\n{values[name]}'


def _record(chance: random.Random, kind: Kind, horizon_s: float) -> str:
    snapshots = SNAPSHOTS if kind.act is Act.FILL_DISC else chance.choice((SNAPSHOTS // 10, SNAPSHOTS))
    interval_s = max(0.001, math.ceil(1000 * horizon_s / snapshots) / 1000)
    average = chance.choice(("false", "false", "true"))
    return f"[record]\ninterval_s = {interval_s}\naverage = {average}"


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
        """MPI ranks: one per client, and the server's."""
        return self.drawn.clients + 1


def draw_case(seed: int, number: int) -> Case:
    """Case `number` of the campaign with this seed: the kinds take turns, everything else is random."""
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
